//! Tokenizers of models in any format, and texts from files.

use std::path::Path;
use trueup_formats::{Checkpoint, Description, Error, OpenOptions, Result, SourceFile, TokenizerFiles};
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary};

/// The largest text that is read from a file.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The tokenizer of a model file or directory, or the one in the file `replacement`.
pub fn open_tokenizer(model: &Path, replacement: Option<&Path>) -> Result<Tokenizer> {
    let checkpoint = trueup_formats::open(model, &OpenOptions::default())?;
    let vocabulary = match (checkpoint.description(), replacement) {
        (Description::Gguf(metadata), None) => Vocabulary::from_metadata(metadata, model)?,
        (Description::Json(_), None) => trueup_convert::vocabulary(checkpoint.as_ref())?,
        (_, Some(file)) => replaced(checkpoint.as_ref(), file)?,
    };
    Tokenizer::new(vocabulary)
}

/// The vocabulary in a file of its own, for a model that has as many rows in its embedding.
fn replaced(checkpoint: &dyn Checkpoint, file: &Path) -> Result<Vocabulary> {
    let rows = |name: &str| checkpoint.tensors().iter().find(|tensor| tensor.name == name)?.shape.get(1).copied();
    let embeddings = ["token_embd.weight", "model.embed_tokens.weight", "tok_embeddings.weight"];
    let size = embeddings.iter().find_map(|name| rows(name)).and_then(|size| usize::try_from(size).ok());
    let Some(size) = size else {
        return Err(Error::new(checkpoint.path(), "has no token embedding, so the size of its vocabulary is unknown"));
    };
    let mut files = TokenizerFiles::default();
    files.replace(file, Some(size as u64))?;
    Vocabulary::from_files(&files, &ModelTokens { vocab_size: Some(size), ..ModelTokens::default() }, file)
}

/// Fails on ids outside the vocabulary.
pub fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) -> Result<()> {
    let vocabulary = tokenizer.vocabulary();
    match ids.iter().find(|id| vocabulary.token(**id).is_none()) {
        None => Ok(()),
        Some(id) => {
            let problem = format!("token id {id} is outside the vocabulary of {} tokens", vocabulary.tokens().len());
            Err(Error::new(vocabulary.path(), problem))
        }
    }
}

/// A text from a file, as it is.
pub fn read_text(file: &Path) -> Result<String> {
    let bytes = SourceFile::open(file)?.read_all(TEXT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Error::new(file, "is not UTF-8 text").at(format!("byte {place}")).help("convert it to UTF-8 first")
    })
}
