//! `tokenizer.json` of the tokenizers library, for models of the types `BPE`, `Unigram` and `WordPiece`.
//!
//! ```text
//! { "added_tokens":   [{"id": 1, "content": "<s>", "special": true, ...}],
//!   "normalizer":     {...}, "pre_tokenizer": {...}, "decoder": {...},        applied as written
//!   "post_processor": {...},                                                  IDs before and after every text
//!   "model": {"type": "BPE", "vocab": {"text": id}, "merges": ["a b", ["a", "b"]], ...} }
//!            {"type": "WordPiece", "vocab": {"text": id}, "unk_token": "[UNK]", "max_input_chars_per_word": 100}
//!            {"type": "Unigram", "vocab": [["text", score]], "unk_id": 0, "byte_fallback": false}
//! ```

use crate::decoder::{Continuation, Decoder, DecoderJson};
use crate::json_components::{ModelKind, Outline, Section, UnknownKeys, check};
use crate::normalizer::Normalizer;
use crate::placement::{Entries, Placed, mark_kinds, place_tokens};
use crate::pre_tokenizer::{self, PreTokenizer};
use crate::unigram::UnigramRule;
use crate::vocabulary::{AddedToken, Algorithm, Merge, Parts, Special, Token, TokenKind, resolve_merges};
use crate::word_piece::{CHARS_DEFAULT, CHARS_MAX, CONTINUATION};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use trueup_formats::{Error, Result, json, quote};

/// Name of the file in errors.
const FILE: &str = "tokenizer.json";
/// Help for a file that cannot be read.
const DAMAGED: &str = "get the file of the original model";

#[derive(serde::Deserialize)]
#[serde(expecting = "an object")]
struct FileJson {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    truncation: Option<Value>,
    padding: Option<Value>,
    model: ModelJson,
}

/// The components of a file, with checked keys.
struct Components {
    normalizer: Option<Normalizer>,
    pre_tokenizer: Option<PreTokenizer>,
    post_processor: Option<PostProcessor>,
    decoder: Option<DecoderJson>,
}

/// The result of [`read`].
pub(crate) struct Read {
    /// The vocabulary.
    pub parts: Parts,
    /// Added tokens whose IDs have no row in the embedding, with these IDs. They are not in the vocabulary.
    pub beyond: Vec<(u32, String)>,
    /// A note about added tokens to which the file gives a second ID.
    pub conflict: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object")]
struct ModelJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Option<VocabJson>,
    merges: Option<Vec<MergeJson>>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    ignore_merges: bool,
    dropout: Option<f64>,
    max_input_chars_per_word: Option<usize>,
}

/// `post_processor`: the tokens around every text. Other types are errors that name the type.
#[derive(serde::Deserialize)]
#[serde(tag = "type")]
enum PostProcessor {
    Sequence { processors: Vec<PostProcessor> },
    ByteLevel,
    TemplateProcessing { single: Vec<TemplatePiece>, special_tokens: HashMap<String, TemplateToken> },
    RobertaProcessing { sep: (String, u32), cls: (String, u32) },
    BertProcessing { sep: (String, u32), cls: (String, u32) },
}

#[derive(serde::Deserialize)]
enum TemplatePiece {
    SpecialToken { id: String },
    Sequence { id: String },
}

#[derive(serde::Deserialize)]
struct TemplateToken {
    ids: Vec<u32>,
}

/// `vocab`: a map for BPE and WordPiece models, a list for Unigram models.
enum VocabJson {
    Map(Vec<(String, u32)>),
    List(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for VocabJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<VocabJson, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = VocabJson;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to ID, or a list of tokens and scores")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<VocabJson, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(VocabJson::Map(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<VocabJson, A::Error> {
                let mut entries = Vec::new();
                while let Some(ScoredToken(text, score)) = list.next_element()? {
                    entries.push((text, score));
                }
                Ok(VocabJson::List(entries))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// An entry in the list of a Unigram model: `["a", -1.0]`.
struct ScoredToken(String, f64);

impl<'de> Deserialize<'de> for ScoredToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<ScoredToken, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = ScoredToken;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token and a score, as [\"a\", -1.0]")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<ScoredToken, A::Error> {
                let Some(text) = list.next_element()? else { return Err(de::Error::invalid_length(0, &self)) };
                let Some(score) = list.next_element()? else { return Err(de::Error::invalid_length(1, &self)) };
                match list.next_element::<IgnoredAny>()? {
                    None => Ok(ScoredToken(text, score)),
                    Some(_) => Err(de::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_seq(Read)
    }
}

/// A merge: `"a b"` or `["a", "b"]`.
struct MergeJson(String, String);

impl<'de> Deserialize<'de> for MergeJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<MergeJson, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = MergeJson;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens, as \"a b\" or [\"a\", \"b\"]")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<MergeJson, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => Ok(MergeJson(left.to_owned(), right.to_owned())),
                    Some(_) | None => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<MergeJson, A::Error> {
                let Some(left) = list.next_element()? else { return Err(de::Error::invalid_length(0, &self)) };
                let Some(right) = list.next_element()? else { return Err(de::Error::invalid_length(1, &self)) };
                match list.next_element::<IgnoredAny>()? {
                    None => Ok(MergeJson(left, right)),
                    Some(_) => Err(de::Error::invalid_length(3, &self)),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// Reads the file; `vocab_size` is the number of rows of the model's embedding, and `path` the model that errors
/// name. Adds notes about unknown keys and settings that are not applied.
pub(crate) fn read(bytes: &[u8], vocab_size: Option<usize>, path: &Path, notes: &mut Vec<String>) -> Result<Read> {
    let error = |place: &str, problem: String| Error::new(path, problem).at(format!("{FILE}, {place}"));
    let json_error = |error: serde_json::Error| json_error(path, &error);
    let mut file: FileJson = serde_json::from_slice(bytes).map_err(json_error)?;
    let outline: Outline = serde_json::from_slice(bytes).map_err(json_error)?;
    let kind = model_kind(&file.model).map_err(|problem| error("model", problem))?;
    let is_unigram = kind == ModelKind::Unigram;
    let mut unknown = UnknownKeys::default();
    outline.look(kind, &mut unknown);
    let components = components(&mut file, &mut unknown).map_err(|(place, problem)| error(place, problem))?;
    notes.extend(unknown.note());
    notes.extend(not_applied(&file));
    let model = file.model;
    let (vocab, scores) =
        entries(model.vocab, is_unigram).map_err(|problem| error("model.vocab", problem.to_owned()).help(DAMAGED))?;
    let byte_level = pre_tokenizer::is_byte_level(components.pre_tokenizer.as_ref());
    let placed = place_tokens(vocab, file.added_tokens, vocab_size)
        .map_err(|problem| error("model.vocab", problem).help("pass the tokenizer of this model with --tokenizer"))?;
    let conflict = placed.conflict();
    let Placed { mut tokens, added, beyond, .. } = placed;
    mark_kinds(&mut tokens, &added, model.byte_fallback);
    let pairs = model.merges.as_deref().unwrap_or_default();
    let merges = resolve_merges(&tokens, pairs.iter().map(|pair| (pair.0.as_str(), pair.1.as_str())))
        .map_err(|(place, problem)| error(&format!("model.merges[{place}]"), problem))?;
    let unknown = match kind {
        ModelKind::Unigram => {
            unknown_id(model.unk_id, scores.len()).map_err(|problem| error("model.unk_id", problem))?
        }
        // If the vocabulary lacks this token, only texts with unknown words are rejected, as in the tokenizers library.
        ModelKind::WordPiece => unknown_token(model.unk_token.as_deref().or(Some("[UNK]")), &tokens).unwrap_or(None),
        ModelKind::Merges => {
            unknown_token(model.unk_token.as_deref(), &tokens).map_err(|problem| error("model.unk_token", problem))?
        }
    };
    for (token, score) in tokens.iter_mut().zip(scores) {
        token.score = rounded(score);
    }
    if kind != ModelKind::WordPiece && (is_unigram || !byte_level) {
        if !is_unigram {
            score_by_rank(&mut tokens, &merges);
        }
        if let Some(token) = unknown.and_then(|id| tokens.get_mut(usize::try_from(id).ok()?)) {
            token.kind = TokenKind::Unknown;
        }
    }
    let (byte_fallback, fuse_unknown, ignore_merges) = (model.byte_fallback, model.fuse_unk, model.ignore_merges);
    let algorithm = match kind {
        ModelKind::Unigram => Algorithm::Unigram { rule: UnigramRule::Tokenizers },
        ModelKind::WordPiece => {
            let chars_max = model.max_input_chars_per_word.unwrap_or(CHARS_DEFAULT);
            if !(1..=CHARS_MAX).contains(&chars_max) {
                let problem = format!("expected 1 to {CHARS_MAX} characters, found {chars_max}");
                return Err(error("model.max_input_chars_per_word", problem));
            }
            Algorithm::WordPiece { chars_max }
        }
        ModelKind::Merges => Algorithm::Merges { merges, byte_fallback, fuse_unknown, ignore_merges },
    };
    let special = Special { unknown, ..Special::default() };
    let parts =
        components.parts(tokens, added, algorithm, special).map_err(|(place, problem)| error(place, problem))?;
    Ok(Read { parts, beyond, conflict })
}

/// The error for a file that is damaged, or that is not a tokenizer.json.
fn json_error(path: &Path, error: &serde_json::Error) -> Error {
    if error.to_string().starts_with("missing field `model`") {
        let problem = "expected a tokenizer.json, found JSON without \"model\"";
        // If the file was passed with --tokenizer, its path is enough.
        let place = if path.extension().is_some_and(|extension| extension == "json") { "" } else { FILE };
        let help = "pass the tokenizer.json, tokenizer.model or tokenizer.bin of the model";
        return Error::new(path, problem).at(place).help(help);
    }
    let help = match error.classify() {
        Category::Eof => "the file is damaged or truncated; download it again",
        Category::Syntax => "the file is damaged; download it again",
        Category::Data | Category::Io => {
            "get the file of the original model; trueup reads tokenizers of type BPE, Unigram and WordPiece"
        }
    };
    Error::new(path, json::problem(error)).at(format!("{FILE}, {}", json::place(error))).help(help)
}

/// A place in the file and the problem there.
type Fault = (&'static str, String);

/// Takes the components of a file and checks their keys.
fn components(file: &mut FileJson, unknown: &mut UnknownKeys) -> std::result::Result<Components, Fault> {
    Ok(Components {
        normalizer: component(Section::Normalizer, file.normalizer.take(), unknown)?,
        pre_tokenizer: component(Section::PreTokenizer, file.pre_tokenizer.take(), unknown)?,
        post_processor: component(Section::PostProcessor, file.post_processor.take(), unknown)?,
        decoder: component(Section::Decoder, file.decoder.take(), unknown)?,
    })
}

fn component<T: de::DeserializeOwned>(
    section: Section,
    value: Option<Value>,
    unknown: &mut UnknownKeys,
) -> std::result::Result<Option<T>, Fault> {
    let Some(mut value) = value else { return Ok(None) };
    check(section, &mut value, unknown).map_err(|problem| (section.name(), problem))?;
    let unknown_type = section.unknown_type(&value);
    serde_json::from_value(value)
        .map(Some)
        .map_err(|error| (section.name(), problem_of(&error, unknown_type.as_deref())))
}

/// Describes a problem with a component. `unknown_type` is the unsupported type of the component or of one of its
/// steps.
fn problem_of(error: &serde_json::Error, unknown_type: Option<&str>) -> String {
    let text = error.to_string();
    let unknown = text.strip_prefix("unknown variant `").and_then(|rest| rest.split_once('`'));
    match (unknown, unknown_type) {
        (Some((found, _)), Some(name)) if found == name => {
            format!("expected a supported type, found \"{}\"; this tokenizer is not supported", quote(found))
        }
        (Some((found, _)), _) => {
            format!("expected a supported value, found \"{}\"; this tokenizer is not supported", quote(found))
        }
        (None, _) => quote(&text),
    }
}

/// Notes about settings that are not applied: truncation and padding, as by default in transformers, and dropout.
fn not_applied(file: &FileJson) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, value) in [("truncation", &file.truncation), ("padding", &file.padding)] {
        if value.is_some() {
            notes.push(format!("{FILE}: \"{name}\" is not applied, which is the default of transformers"));
        }
    }
    if file.model.dropout.is_some_and(|dropout| dropout != 0.0) {
        notes.push(format!("{FILE}: \"dropout\" is not applied, because it makes token IDs random"));
    }
    notes
}

impl Components {
    fn parts(
        self,
        tokens: Vec<Token>,
        added: Vec<AddedToken>,
        algorithm: Algorithm,
        special: Special,
    ) -> std::result::Result<Parts, Fault> {
        let decoder = match &self.decoder {
            Some(decoder) => decoder.facts().map_err(|problem| ("decoder", problem))?,
            None if matches!(algorithm, Algorithm::WordPiece { .. }) => {
                let continuation = Continuation { prefix: String::new(), cleanup: false };
                Decoder { continuation: Some(continuation), ..Decoder::default() }
            }
            None if pre_tokenizer::is_byte_level(self.pre_tokenizer.as_ref()) => Decoder::byte_level(),
            None => Decoder::sentencepiece(false),
        };
        let (prefix, suffix) = around(self.post_processor.as_ref()).map_err(|problem| ("post_processor", problem))?;
        let (normalizer, pre_tokenizer, chat_template) = (self.normalizer, self.pre_tokenizer, None);
        Ok(Parts {
            tokens,
            algorithm,
            normalizer,
            pre_tokenizer,
            decoder,
            added,
            special,
            prefix,
            suffix,
            chat_template,
        })
    }
}

/// The type of the model. Files of older versions do not name it. Errors name a type that is not supported.
fn model_kind(model: &ModelJson) -> std::result::Result<ModelKind, String> {
    let assumed = match (&model.vocab, model.max_input_chars_per_word) {
        (Some(VocabJson::List(_)), _) => "Unigram",
        (_, Some(_)) => "WordPiece",
        (_, None) => "BPE",
    };
    let kind = model.kind.as_deref().unwrap_or(assumed);
    match kind {
        "Unigram" => return Ok(ModelKind::Unigram),
        "WordPiece" => {
            let prefix = model.continuing_subword_prefix.as_deref().unwrap_or(CONTINUATION);
            return match prefix == CONTINUATION {
                true => Ok(ModelKind::WordPiece),
                false => {
                    Err(format!("continuing_subword_prefix: expected \"{CONTINUATION}\", found \"{}\"", quote(prefix)))
                }
            };
        }
        "BPE" => {}
        _ => return Err(format!("expected type BPE, Unigram or WordPiece, found {}", quote(kind))),
    }
    for (name, value) in [
        ("continuing_subword_prefix", &model.continuing_subword_prefix),
        ("end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        if value.as_ref().is_some_and(|value| !value.is_empty()) {
            return Err(format!("expected no {name}, found one"));
        }
    }
    Ok(ModelKind::Merges)
}

/// Tokens with their IDs, and scores by ID if the model has scores.
fn entries(vocab: Option<VocabJson>, is_unigram: bool) -> std::result::Result<(Entries, Vec<f64>), &'static str> {
    match (vocab, is_unigram) {
        (Some(VocabJson::Map(vocab)), false) if vocab.is_empty() => Err("expected a map from token to ID, found {}"),
        (Some(VocabJson::Map(vocab)), false) => Ok((vocab, Vec::new())),
        (Some(VocabJson::List(vocab)), true) if vocab.is_empty() => {
            Err("expected a list of tokens and scores, found []")
        }
        (Some(VocabJson::List(vocab)), true) => {
            let (texts, scores): (Vec<String>, Vec<f64>) = vocab.into_iter().unzip();
            Ok((texts.into_iter().zip(0u32..).collect(), scores))
        }
        (Some(VocabJson::List(_)), false) => Err("expected a map from token to ID, found a list"),
        (Some(VocabJson::Map(_)), true) => Err("expected a list of tokens and scores, found a map"),
        (None, false) => Err("expected a map from token to ID, found none"),
        (None, true) => Err("expected a list of tokens and scores, found none"),
    }
}

fn unknown_id(id: Option<u32>, count: usize) -> std::result::Result<Option<u32>, String> {
    match id.filter(|id| usize::try_from(*id).is_ok_and(|id| id >= count)) {
        Some(id) => Err(format!("expected a token ID from 0 to {}, found {id}", count.saturating_sub(1))),
        None => Ok(id),
    }
}

/// Rounds a score to f32, as SentencePiece stores it. Scores of published files are f32 numbers.
#[allow(clippy::as_conversions)]
fn rounded(score: f64) -> f32 {
    score as f32
}

fn unknown_token(text: Option<&str>, tokens: &[Token]) -> std::result::Result<Option<u32>, String> {
    let Some(text) = text else { return Ok(None) };
    let found = (0u32..).zip(tokens).find(|(_, token)| token.text == text);
    let missing = || format!("expected a token of the vocabulary, found \"{}\", which is not in it", quote(text));
    found.map(|(id, _)| Some(id)).ok_or_else(missing)
}

/// Sets scores that sort the tokens by the merges that produce them. Tokens that no merge produces come last.
fn score_by_rank(tokens: &mut [Token], merges: &[Merge]) {
    let mut rank_of: HashMap<u32, u32> = HashMap::with_capacity(merges.len());
    for (rank, merge) in (0u32..).zip(merges) {
        rank_of.entry(merge.result).or_insert(rank);
    }
    let last = u32::try_from(merges.len()).unwrap_or(u32::MAX);
    for (id, token) in (0u32..).zip(tokens).filter(|(_, token)| token.kind == TokenKind::Normal) {
        let rank = rank_of.get(&id).copied().unwrap_or_else(|| last.saturating_add(id));
        token.score = -negatable(rank);
    }
}

/// A rank as f32, which is exact below 2^24, as in every known vocabulary. Larger ranks lose their order, and merges
/// are written instead.
#[allow(clippy::as_conversions)]
fn negatable(rank: u32) -> f32 {
    rank as f32
}

/// Maximum number of IDs around a text. Known models have one or two.
const AROUND_MAX: usize = 64;

/// The IDs that the post-processor puts before and after a text. Each step of a sequence encloses the previous steps.
fn around(post_processor: Option<&PostProcessor>) -> std::result::Result<(Vec<u32>, Vec<u32>), String> {
    let (mut prefix, mut suffix): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    let mut waiting: Vec<&PostProcessor> = post_processor.into_iter().collect();
    while let Some(next) = waiting.pop() {
        let (before, after) = match next {
            PostProcessor::Sequence { processors } => {
                waiting.extend(processors.iter().rev());
                continue;
            }
            PostProcessor::ByteLevel => continue,
            PostProcessor::RobertaProcessing { sep, cls } | PostProcessor::BertProcessing { sep, cls } => {
                (vec![cls.1], vec![sep.1])
            }
            PostProcessor::TemplateProcessing { single, special_tokens } => template(single, special_tokens)?,
        };
        prefix.splice(..0, before);
        suffix.extend(after);
        let count = prefix.len().saturating_add(suffix.len());
        if count > AROUND_MAX {
            return Err(format!("expected at most {AROUND_MAX} tokens before and after each text, found {count}"));
        }
    }
    Ok((prefix, suffix))
}

/// The IDs before and after the text of a template. The template must contain the text once.
fn template(
    single: &[TemplatePiece],
    special_tokens: &HashMap<String, TemplateToken>,
) -> std::result::Result<(Vec<u32>, Vec<u32>), String> {
    let (mut before, mut after): (Vec<u32>, Option<Vec<u32>>) = (Vec::new(), None);
    for piece in single {
        match piece {
            TemplatePiece::Sequence { id } if id == "A" && after.is_none() => after = Some(Vec::new()),
            TemplatePiece::Sequence { id } => {
                return Err(format!("single: expected the sequence A once, found {} in addition", quote(id)));
            }
            TemplatePiece::SpecialToken { id } => {
                let token = special_tokens.get(id);
                let missing = || format!("single: expected a token of special_tokens, found {}", quote(id));
                let token = token.ok_or_else(missing)?;
                after.as_mut().unwrap_or(&mut before).extend_from_slice(&token.ids);
            }
        }
    }
    let after = after.ok_or_else(|| "single: expected the sequence A once, found none".to_owned())?;
    Ok((before, after))
}
