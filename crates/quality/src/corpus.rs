//! A text as chunks of token ids.

use sha2::{Digest, Sha256};
use trueup_formats::hexadecimal;
use trueup_runtime::{Error, Result};
use trueup_tokenizer::Tokenizer;

/// Tokens of the smallest chunks.
const CONTEXT_MIN: usize = 4;

/// Chunks of equal length. The rest of a text that does not fill a chunk is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corpus {
    ids: Vec<u32>,
    context: usize,
    bos: Option<u32>,
}

impl Corpus {
    /// The chunks of a text: at most `chunks_max`, with `context` tokens each (at least 4).
    ///
    /// The text is encoded as a prompt. If the model adds BOS to prompts, it replaces the first token of each chunk.
    ///
    /// # Errors
    /// A text that does not fill two chunks, or that the tokenizer cannot encode.
    pub fn new(tokenizer: &Tokenizer, text: &str, context: usize, chunks_max: Option<usize>) -> Result<Corpus> {
        if context < CONTEXT_MIN {
            return Err(too_small(context));
        }
        if text.is_empty() {
            return Err(Error::Request("expected a text, found an empty file".to_owned()));
        }
        let ids = tokenizer.encode(text, true)?;
        let needed = context.saturating_mul(2);
        if ids.len() < needed {
            let found = ids.len();
            return Err(Error::Request(format!(
                "expected at least {needed} tokens (2 chunks of {context}), found {found}; use a longer text or a \
                 smaller chunk size"
            )));
        }
        let vocabulary = tokenizer.vocabulary();
        let bos = vocabulary.special().bos.filter(|_| vocabulary.adds_bos());
        Corpus::of_ids(ids, context, bos, chunks_max)
    }

    /// The chunks of ids that a file holds.
    ///
    /// # Errors
    /// Chunks of fewer than 4 tokens, and ids that do not fill a chunk.
    pub fn of_ids(mut ids: Vec<u32>, context: usize, bos: Option<u32>, chunks_max: Option<usize>) -> Result<Corpus> {
        if context < CONTEXT_MIN {
            return Err(too_small(context));
        }
        let chunks = (ids.len() / context).min(chunks_max.unwrap_or(usize::MAX));
        if chunks == 0 {
            let found = ids.len();
            return Err(Error::Request(format!("expected at least {context} tokens, found {found}")));
        }
        ids.truncate(chunks * context);
        Ok(Corpus { ids, context, bos })
    }

    /// The ids of all chunks, as the text has them.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens of a chunk.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.ids.len() / self.context
    }

    /// The ids of a chunk, as the text has them. Panics if there is no such chunk.
    pub fn chunk(&self, index: usize) -> &[u32] {
        &self.ids[index * self.context..][..self.context]
    }

    /// The ids of a chunk as a model reads them: with BOS in front.
    pub fn input(&self, index: usize) -> Vec<u32> {
        let mut ids = self.chunk(index).to_vec();
        if let Some(bos) = self.bos {
            ids[0] = bos;
        }
        ids
    }

    /// Chained SHA-256 of the input token ids through chunk `index`; `before` is the hash of the previous chunk, or
    /// empty for the first.
    pub fn hash_through(&self, index: usize, before: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(before.as_bytes());
        self.input(index).iter().for_each(|id| hasher.update(id.to_le_bytes()));
        hexadecimal(&hasher.finalize())
    }

    /// The first position that is scored.
    pub fn first(&self) -> usize {
        self.context / 2
    }

    /// The position after the last one that is scored.
    pub fn first_unscored(&self) -> usize {
        self.first() + self.scored()
    }

    /// How many positions of a chunk are scored.
    pub fn scored(&self) -> usize {
        self.context - 1 - self.first()
    }
}

fn too_small(context: usize) -> Error {
    Error::Request(format!("-c: expected at least {CONTEXT_MIN} tokens per chunk, found {context}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_whole_and_begin_with_bos() {
        let corpus = Corpus::of_ids((10..30).collect(), 8, Some(1), None).unwrap();
        assert_eq!((corpus.chunks(), corpus.ids().len(), corpus.first(), corpus.scored()), (2, 16, 4, 3));
        assert_eq!(corpus.chunk(1), [18, 19, 20, 21, 22, 23, 24, 25]);
        assert_eq!(corpus.input(1)[..2], [1, 19]);
        assert_eq!(Corpus::of_ids((10..30).collect(), 8, None, Some(1)).unwrap().input(0)[0], 10);
        assert_eq!(Corpus::of_ids((0..30).collect(), 8, None, Some(1)).unwrap().chunks(), 1);
    }

    #[test]
    fn too_few_tokens_are_refused() {
        let error = Corpus::of_ids(vec![1; 7], 8, None, None).unwrap_err().to_string();
        assert_eq!(error, "expected at least 8 tokens, found 7");
        assert!(
            Corpus::of_ids(vec![1; 7], 3, None, None).unwrap_err().to_string().contains("at least 4 tokens per chunk")
        );
    }
}
