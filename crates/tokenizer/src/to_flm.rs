//! A vocabulary as a `.flm` file has it.
//!
//! ```text
//! entries with scores, texts that are found whole, keys that FastLLM knows        plain: what every program reads
//! trueup.tokenizer.*                                                              what comes back different from the plain file, as in GGUF
//! ```
//!
//! What is written is read back at once, as with GGUF keys (`gguf_keys.rs`), so that ids are the same by construction
//! where `trueup` reads the file.

use crate::byte_alphabet;
use crate::chatglm;
use crate::decoder::LeadingSpace;
use crate::flm_vocabulary::{MASK_ID, QWEN, RANKED_CLASS, UNKNOWN_ID};
use crate::gguf_keys::{OWN, write_differences};
use crate::normalizer::Normalizer;
use crate::pattern::Pattern;
use crate::pre_tokenizer_names;
use crate::rounds::Rounds;
use crate::source::ModelTokens;
use crate::vocabulary::{Algorithm, Merge, Parts, Token, TokenKind, Vocabulary};
use std::collections::{HashMap, HashSet};
use trueup_formats::flm::{FlmToken, FlmVocabulary};
use trueup_formats::gguf::{Metadata, Value};
use trueup_formats::{Error, Result};

/// A table of texts.
type Table = Vec<(String, String)>;

impl Vocabulary {
    /// As a `.flm` file has it, whose table says of the model what `model` does; and notes for a person.
    ///
    /// # Errors
    /// A unigram or WordPiece model, whose ids merging does not give, and a vocabulary that cannot be read back from
    /// such a file.
    pub fn to_flm(&self, model: &[(String, String)]) -> Result<(FlmVocabulary, Vec<String>)> {
        let parts = self.parts();
        let other = match parts.algorithm {
            Algorithm::Unigram { .. } => Some("a unigram model"),
            Algorithm::WordPiece { .. } => Some("a WordPiece model"),
            Algorithm::Scores | Algorithm::Merges { .. } | Algorithm::DecodeOnly { .. } => None,
        };
        if let Some(other) = other {
            let problem = format!("expected a BPE vocabulary, the only kind that FastLLM reads, found {other}");
            return Err(Error::new(self.path(), problem).at("vocabulary").help("convert it to GGUF instead"));
        }
        let mut file = FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table: Vec::new() };
        let mut table = Keys(&mut file.table);
        let ranked = is_ranked(parts, model);
        self.write_keys(&mut table, ranked);
        table.complete(model);
        file.tokens = self.entries(ranked);
        file.special = parts.added.iter().map(|added| added.content.clone()).collect();
        let plain = self.read_back(&file)?;
        self.write_prompts(&mut Keys(&mut file.table), plain.chat_template());
        let plain = self.read_back(&file)?;
        let mut differences = Metadata::default();
        let written = write_differences(parts, plain.parts(), &mut differences)?;
        for (key, value) in differences.iter() {
            if let Value::String(text) = value {
                Keys(&mut file.table).set(key, text);
            }
        }
        Ok((file, self.flm_notes(&written, plain.algorithm())))
    }

    /// What `trueup` reads from a file.
    fn read_back(&self, file: &FlmVocabulary) -> Result<Vocabulary> {
        let parts = self.parts();
        let first = parts.special.eos.into_iter();
        let model = ModelTokens {
            vocab_size: Some(parts.tokens.len()),
            bos_token_id: parts.special.bos,
            eos_token_ids: first.chain(parts.special.end_of_generation.iter().copied()).collect(),
            padding_token_id: parts.special.padding,
            ..ModelTokens::default()
        };
        Vocabulary::from_flm(file.clone(), &model, self.path())
    }

    fn write_keys(&self, table: &mut Keys<'_>, ranked: Option<Ranked>) {
        let parts = self.parts();
        let flag = |holds: bool| if holds { "True" } else { "False" };
        table.set("tokenizer_use_score", "1");
        table.set("tokenizer_add_dummy_prefix", flag(self.puts_space_before()));
        // FastLLM takes runs of spaces together where it is not told.
        table.set("tokenizer_remove_extra_whitespaces", flag(removes_extra_spaces(parts.normalizer.as_ref())));
        match ranked {
            Some(Ranked::Glm4) => table.set("tokenizer_class", RANKED_CLASS),
            Some(Ranked::Qwen) => {
                let id =
                    |content: &str| parts.added.iter().find(|added| added.content == content).map(|added| added.id);
                for (key, content) in [("im_start_id", "<|im_start|>"), ("im_end_id", "<|im_end|>")] {
                    table.set_id(key, id(content));
                }
            }
            None if self.is_byte_level() => table.set("tokenizer_byte_as_char", "True"),
            None => {}
        }
        if !parts.added.is_empty() {
            table.set("tokenizer_has_special_tokens", "1");
        }
        table.set_id("bos_token_id", parts.special.bos);
        table.set_id("pad_token_id", parts.special.padding);
        table.set_id(UNKNOWN_ID, parts.special.unknown);
        table.set_id(MASK_ID, parts.special.mask);
        let others = parts.special.end_of_generation.iter().filter(|id| Some(**id) != parts.special.eos);
        let ends: Vec<String> = parts.special.eos.iter().chain(others).map(u32::to_string).collect();
        match &ends[..] {
            [] => {}
            [end] => table.set("eos_token_id", end),
            several => table.set("eos_token_id", &format!("[{}]", several.join(", "))),
        }
    }

    /// All tokens, but for those that stand for nothing.
    fn entries(&self, ranked: Option<Ranked>) -> Vec<FlmToken> {
        let ranks: HashMap<u32, f32> = match self.algorithm() {
            Algorithm::Merges { merges, .. } => first_ranks(merges),
            Algorithm::Scores
            | Algorithm::Unigram { .. }
            | Algorithm::WordPiece { .. }
            | Algorithm::DecodeOnly { .. } => HashMap::new(),
        };
        let score = |id: u32, token: &Token| match self.algorithm() {
            Algorithm::Scores | Algorithm::Unigram { .. } => token.score,
            // What no merge makes is above all ranks, as FastLLM's exporter writes it.
            Algorithm::Merges { .. } | Algorithm::WordPiece { .. } | Algorithm::DecodeOnly { .. } => {
                ranks.get(&id).map_or(NO_MERGE, |rank| -rank)
            }
        };
        let bytes = |token: &Token| match (ranked, token.kind) {
            (Some(_), TokenKind::Normal) => byte_alphabet::decode(&token.text),
            (Some(_) | None, _) => token.text.clone().into_bytes(),
        };
        let entries = (0u32..).zip(self.tokens()).filter(|(_, token)| token.kind != TokenKind::Unused);
        entries.map(|(id, token)| FlmToken { bytes: bytes(token), id, score: Some(score(id, token)) }).collect()
    }

    /// Prompts, where a file without them would have others.
    fn write_prompts(&self, table: &mut Keys<'_>, without: Option<&str>) {
        let Some(template) = self.chat_template().filter(|own| without != Some(*own)) else { return };
        match Rounds::of_template(template) {
            Some(rounds) => {
                let spaced = self.pre_tokenizer().is_none() && self.puts_space_before();
                for (key, piece) in rounds.to_flm(self.added(), spaced) {
                    table.set(key, &piece);
                }
            }
            None => table.set("chat_template", template),
        }
    }

    fn flm_notes(&self, written: &[&str], plain: &Algorithm) -> Vec<String> {
        let mut notes = Vec::new();
        if let Algorithm::DecodeOnly { reason } = self.algorithm() {
            notes.push(format!(
                "tokens are written without a merge order, so FastLLM may encode text differently: {reason}"
            ));
        }
        if !written.is_empty() {
            notes.push(format!(
                "the tokenizer has rules that FastLLM does not support ({}); it may encode some texts differently",
                written.join(", ")
            ));
        }
        let merges = |algorithm: &Algorithm| match algorithm {
            Algorithm::Merges { merges, .. } => Some(merges.clone()),
            Algorithm::Scores
            | Algorithm::Unigram { .. }
            | Algorithm::WordPiece { .. }
            | Algorithm::DecodeOnly { .. } => None,
        };
        if merges(self.algorithm()).is_some_and(|own| merges(plain) != Some(own)) {
            notes.push(
                "the file stores the results of merges but not their parts, and here they imply other \
                merges than in the source: some texts may be encoded differently"
                    .to_owned(),
            );
        }
        notes
    }

    /// Whether a space is put before every text.
    fn puts_space_before(&self) -> bool {
        let marked = |text: &str| text.starts_with(['▁', ' ']);
        let in_normalizer = |normalizer: &Normalizer| match normalizer {
            Normalizer::Prepend { prepend } => marked(prepend),
            Normalizer::Sentencepiece { add_dummy_prefix, .. } => *add_dummy_prefix,
            _ => false,
        };
        steps(self.normalizer()).any(in_normalizer) || self.decoder().leading_space != LeadingSpace::Keep
    }
}

/// A normalizer's steps.
fn steps(normalizer: Option<&Normalizer>) -> impl Iterator<Item = &Normalizer> {
    let (several, one) = match normalizer {
        Some(Normalizer::Sequence { normalizers }) => (normalizers.as_slice(), None),
        other => (&[][..], other),
    };
    several.iter().chain(one)
}

/// Whether runs of spaces become one.
fn removes_extra_spaces(normalizer: Option<&Normalizer>) -> bool {
    steps(normalizer).any(|step| match step {
        Normalizer::Replace { pattern: Pattern::Regex(pattern), content } => pattern == " {2,}" && content == " ",
        Normalizer::Sentencepiece { remove_extra_whitespaces, .. } => *remove_extra_whitespaces,
        _ => false,
    })
}

/// Vocabularies whose tokens FastLLM wants as bytes with ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ranked {
    Glm4,
    Qwen,
}

fn is_ranked(parts: &Parts, model: &[(String, String)]) -> Option<Ranked> {
    let kind = model.iter().find(|(key, _)| key == "model_type").map(|(_, kind)| kind.as_str());
    let is_byte_level = parts.decoder.byte_level;
    if is_byte_level && kind == Some(QWEN) {
        return Some(Ranked::Qwen);
    }
    let ignore_merges = matches!(parts.algorithm, Algorithm::Merges { ignore_merges: true, .. });
    let cut = parts.pre_tokenizer.as_ref();
    let known = cut.and_then(|own| pre_tokenizer_names::by_pre_tokenizer(own, ignore_merges));
    let is_glm4 = known.is_some_and(chatglm::splits_like) && chatglm::is_of(parts);
    (is_byte_level && is_glm4).then_some(Ranked::Glm4)
}

/// A table that is being written.
struct Keys<'t>(&'t mut Table);

impl Keys<'_> {
    /// Sets a key, which may be there.
    fn set(&mut self, key: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
    }

    fn set_id(&mut self, key: &str, id: Option<u32>) {
        if let Some(id) = id {
            self.set(key, &id.to_string());
        }
    }

    /// Adds what is not there yet, but for what was said of another vocabulary, in whose place this one is.
    fn complete(&mut self, others: &[(String, String)]) {
        let is_of_tokens = |key: &str| key.starts_with(OWN) || key.starts_with("tokenizer_");
        let known: HashSet<String> = self.0.iter().map(|(key, _)| key.clone()).collect();
        self.0.extend(others.iter().filter(|(key, _)| !known.contains(key) && !is_of_tokens(key)).cloned());
    }
}

/// The score of what no merge makes.
const NO_MERGE: f32 = 1.0;

/// The rank of the first merge that makes each token. Ranks stay exact: there are fewer than 2^24 merges.
fn first_ranks(merges: &[Merge]) -> HashMap<u32, f32> {
    let mut ranks = HashMap::with_capacity(merges.len());
    let mut rank = 0.0;
    for merge in merges {
        ranks.entry(merge.result).or_insert(rank);
        rank += 1.0;
    }
    ranks
}
