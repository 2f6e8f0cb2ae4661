//! The vocabulary of a `.flm` file.
//!
//! ```text
//! tokens with scores            SentencePiece: the best score is merged first; tokens like <0x0A> are bytes
//! tokenizer_byte_as_char        byte-level: score -r is rank r of the merges; a score above 0 is not a merge
//! model_type moss               the same, in raw bytes
//! model_type qwen, tokenizer_class ChatGLM4Tokenizer, ..      raw bytes; the rank of a token is its ID
//! trueup.tokenizer.*            settings that other keys cannot express, in files that trueup wrote (`gguf_keys.rs`)
//! ```
//!
//! The file contains the result of each merge, not its two parts. Applying the earlier merges to the text of a token
//! leaves exactly these two parts. The file does not specify a pre-tokenizer either; it follows from the model type.

use crate::byte_alphabet;
use crate::chatglm;
use crate::chatglm1;
use crate::decoder::Decoder;
use crate::gguf_keys;
use crate::pre_tokenizer_names::{self, Bos, Known};
use crate::ranked::{self, merges};
use crate::rounds::{self, Rounds};
use crate::sentencepiece_model::{added_by_kind, sentencepiece_parts};
use crate::source::ModelTokens;
use crate::vocabulary::{Algorithm, Parts, Special, Token, TokenKind, byte_of, ids_max, padding_token};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::flm::{FlmToken, FlmVocabulary};
use trueup_formats::gguf::Metadata;
use trueup_formats::{Error, Result, counted, quote};

/// Name of the place in errors.
const PLACE: &str = "vocabulary";
/// Tokenizer classes whose tokens are raw bytes, merged in order of ID.
const RANKED_CLASSES: [&str; 2] = ["GLM4Tokenizer", RANKED_CLASS];
/// The class of `RANKED_CLASSES` that FastLLM checks for.
pub(crate) const RANKED_CLASS: &str = "ChatGLM4Tokenizer";
/// The model type whose tokens are raw bytes with ranks, unless the file has `tokenizer_byte_as_char`.
pub(crate) const QWEN: &str = "qwen";
/// The model type whose tokens are raw bytes without ranks, unless the file has `tokenizer_byte_as_char`.
const MOSS: &str = "moss";
/// The key of the ID of Qwen's `<|im_start|>`. The first special token after the ranks precedes it.
const QWEN_START: &str = "im_start_id";
/// Model types with byte-level vocabularies, and the names of their pre-tokenizers.
const CUTS: [(&str, &str); 4] = [("qwen2", "qwen2"), (QWEN, "qwen2"), ("llama", "llama-bpe"), (CHATGLM, "glm4")];
/// The model type whose texts start with two tokens.
const CHATGLM: &str = "chatglm";
/// Model types with SentencePiece vocabularies and without a bos token before texts.
const WITHOUT_BOS: [&str; 1] = ["baichuan"];
/// The pre-tokenizer of all other model types.
const CUT_OF_OTHERS: &str = "gpt-2";
/// The key of the unknown token's ID.
pub(crate) const UNKNOWN_ID: &str = "unk_token_id";
/// The key of the mask token's ID.
pub(crate) const MASK_ID: &str = "mask_token_id";
/// The text of the unknown token in SentencePiece vocabularies.
const UNKNOWN: &str = "<unk>";

/// How a file stores its tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Text with markers for spaces.
    Sentencepiece,
    /// Bytes as printable characters.
    ByteLevel,
    /// Raw bytes.
    Bytes,
    /// Raw bytes; the ID of a token is its rank.
    Ranked,
}

impl Family {
    fn of(file: &FlmVocabulary) -> Family {
        let kind = file.value("model_type");
        let class = file.value("tokenizer_class").is_some_and(|class| RANKED_CLASSES.contains(&class));
        match file.flag("tokenizer_byte_as_char", false) {
            _ if class => Family::Ranked,
            true => Family::ByteLevel,
            false if kind == Some(QWEN) => Family::Ranked,
            false if kind == Some(MOSS) => Family::Bytes,
            false => Family::Sentencepiece,
        }
    }

    /// Whether tokens are raw bytes.
    fn is_raw(self) -> bool {
        match self {
            Family::Bytes | Family::Ranked => true,
            Family::Sentencepiece | Family::ByteLevel => false,
        }
    }
}

/// Builds the vocabulary; `path` is the model that errors name.
pub(crate) fn parts(file: &FlmVocabulary, model: &ModelTokens, path: &Path, notes: &mut Vec<String>) -> Result<Parts> {
    let family = Family::of(file);
    let entries = by_id(file, model.vocab_size, path, notes)?;
    let mut tokens = Vec::with_capacity(entries.len());
    for (id, entry) in entries.iter().enumerate() {
        tokens.push(match entry {
            None => padding_token(id),
            Some((entry, score)) => token(entry, *score, family, path)?,
        });
    }
    mark_special(&mut tokens, file, model, family, notes);
    let mut parts = match family {
        Family::Sentencepiece => {
            let prefix = file.flag("tokenizer_add_dummy_prefix", true);
            // If the key is missing, FastLLM collapses runs of spaces. The original tokenizers do not.
            let extra = file.flag("tokenizer_remove_extra_whitespaces", false);
            sentencepiece_parts(tokens, prefix, extra, Decoder::sentencepiece(prefix))
        }
        Family::ByteLevel | Family::Bytes | Family::Ranked => byte_level(tokens, &entries, file, family, notes),
    };
    let kind = file.value("model_type").unwrap_or_default();
    let adds_bos = match family {
        Family::Sentencepiece => !WITHOUT_BOS.contains(&kind),
        Family::ByteLevel | Family::Bytes | Family::Ranked => {
            known_cut(file).is_some_and(|known| known.bos != Bos::IfSet)
        }
    };
    parts.special.bos = model.bos_token_id;
    let count = parts.tokens.len();
    let id = |key: &str| {
        let id = file.value(key).and_then(|text| text.parse::<u32>().ok());
        id.filter(|id| usize::try_from(*id).is_ok_and(|id| id < count))
    };
    parts.special.unknown = parts.special.unknown.or(id(UNKNOWN_ID));
    parts.special.mask = id(MASK_ID);
    parts.prefix = parts.special.bos.filter(|_| adds_bos).into_iter().collect();
    let named = rounds::named_ids(file);
    if family == Family::Sentencepiece && chatglm1::is_in(file) {
        chatglm1::arrange(&mut parts);
        let id = |key: &str| file.value(key).and_then(|text| text.parse().ok());
        let ids: Option<Vec<u32>> = ["gmask_token_id", "bos_token_id"].into_iter().map(id).collect();
        let inside = |id: &u32| usize::try_from(*id).is_ok_and(|id| model.vocab_size.is_none_or(|size| id < size));
        chatglm1::put_ids_behind(&mut parts, &ids.filter(|ids| ids.iter().all(inside)).unwrap_or_default());
    } else if kind == CHATGLM {
        if family == Family::Sentencepiece {
            chatglm::put_program_tokens(&mut parts, model.vocab_size, &named);
        }
        chatglm::put_before(&mut parts);
    } else if kind == QWEN && family == Family::Ranked {
        let start = file.value(QWEN_START).and_then(|text| text.parse::<usize>().ok());
        let first = start.and_then(|start| start.checked_sub(1)).unwrap_or(parts.tokens.len());
        ranked::put_after_ranks(&mut parts, first, model.vocab_size);
    }
    rounds::find_whole(&mut parts, named);
    Ok(parts)
}

/// Applies the `trueup.tokenizer.*` keys of files that trueup wrote.
pub(crate) fn read_own(parts: &mut Parts, file: &FlmVocabulary, path: &Path) -> Result<()> {
    let mut metadata = Metadata::default();
    for (key, text) in file.table.iter().filter(|(key, _)| key.starts_with(gguf_keys::OWN)) {
        metadata.insert(key, text.as_str());
    }
    gguf_keys::read_own(parts, &metadata, path, |parts| match &parts.algorithm {
        Algorithm::Merges { merges, .. } => Ok(merges.clone()),
        Algorithm::Scores | Algorithm::Unigram { .. } | Algorithm::WordPiece { .. } | Algorithm::DecodeOnly { .. } => {
            let problem = "expected a vocabulary with merges, which a key specifies, found one without merges";
            Err(Error::new(path, problem).at(PLACE).help("the file is damaged; convert the model again"))
        }
    })?;
    // Tokens that are found whole were marked as control tokens. The keys can list them as not special.
    for id in parts.added.iter().filter(|added| !added.special).map(|added| added.id) {
        let token = usize::try_from(id).ok().and_then(|id| parts.tokens.get_mut(id));
        if let Some(token) = token.filter(|token| token.kind == TokenKind::Control) {
            token.kind = TokenKind::UserDefined;
        }
    }
    Ok(())
}

/// The chat template if the file has none: built from the file's prompt pieces, or the default of the model type.
pub(crate) fn chat_template(file: &FlmVocabulary, parts: &Parts) -> Option<String> {
    let is_chatglm = file.value("model_type") == Some(CHATGLM) && chatglm::is_of(parts);
    if let Some(mut rounds) = Rounds::of_flm(file, parts) {
        if is_chatglm && !chatglm1::is_in(file) {
            // FastLLM puts the prefix before every text, so the template starts with it.
            let content =
                |id: &u32| parts.added.iter().find(|added| added.id == *id).map(|added| added.content.as_str());
            let before: String = parts.prefix.iter().filter_map(content).collect();
            rounds.before.insert_str(0, &before);
        }
        return Some(rounds.template());
    }
    if chatglm1::is_in(file) {
        return Some(chatglm1::template());
    }
    match file.value("model_type") {
        Some(CHATGLM) => is_chatglm.then(|| chatglm::template(parts)),
        Some(QWEN) => Some(ranked::TEMPLATE.to_owned()),
        Some(_) | None => None,
    }
}

/// An entry and its score.
type Scored<'f> = (&'f FlmToken, f32);

/// Entries by ID. If several entries have the same ID, the last one is used, as in FastLLM.
fn by_id<'f>(
    file: &'f FlmVocabulary,
    vocab_size: Option<usize>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Scored<'f>>>> {
    let ids_max = ids_max(vocab_size, file.tokens.len());
    let (mut entries, mut again) = (Vec::new(), 0_usize);
    // Entries without a score are merged in file order. Places are exact in f32, because they are below 2^24.
    let mut place = 0.0_f32;
    for (number, entry) in file.tokens.iter().enumerate() {
        let index = usize::try_from(entry.id).unwrap_or(usize::MAX);
        if index >= ids_max {
            let problem = format!("expected an ID below {ids_max}, found {}", entry.id);
            return Err(Error::new(path, problem)
                .at(format!("token {number} of the {PLACE}"))
                .help("the file is damaged; convert the model again"));
        }
        if entries.len() <= index {
            entries.resize(index.saturating_add(1), None);
        }
        if let Some(slot) = entries.get_mut(index) {
            again = again.saturating_add(usize::from(slot.is_some()));
            *slot = Some((entry, entry.score.unwrap_or(-place)));
        }
        place += 1.0;
    }
    if again > 0 {
        notes.push(format!("{} share an ID with an earlier token; the last token is used", counted(again, "token")));
    }
    Ok(entries)
}

fn token(entry: &FlmToken, score: f32, family: Family, path: &Path) -> Result<Token> {
    let text = match std::str::from_utf8(&entry.bytes) {
        _ if family.is_raw() => byte_alphabet::encode_bytes(&entry.bytes),
        Ok(text) => text.to_owned(),
        Err(_) => {
            let problem = format!("expected UTF-8 text, found \"{}\"", quote(&String::from_utf8_lossy(&entry.bytes)));
            return Err(Error::new(path, problem)
                .at(format!("token {} of the {PLACE}", entry.id))
                .help("pass a tokenizer.json or a tokenizer.model with --tokenizer"));
        }
    };
    let kind = match family {
        Family::Sentencepiece if byte_of(&text).is_some() => TokenKind::Byte,
        Family::Sentencepiece if text == UNKNOWN => TokenKind::Unknown,
        Family::Sentencepiece | Family::ByteLevel | Family::Bytes | Family::Ranked => TokenKind::Normal,
    };
    // Scores are used only for SentencePiece. Other vocabularies are merged by rank.
    let score = if family == Family::Sentencepiece { score } else { 0.0 };
    Ok(Token { text, score, kind })
}

/// Marks control tokens: the bos, eos and padding tokens, and the special tokens that the file lists.
fn mark_special(
    tokens: &mut [Token],
    file: &FlmVocabulary,
    model: &ModelTokens,
    family: Family,
    notes: &mut Vec<String>,
) {
    let roles = model.bos_token_id.into_iter().chain(model.eos_token_ids.iter().copied()).chain(model.padding_token_id);
    for id in roles {
        if let Some(token) = usize::try_from(id).ok().and_then(|id| tokens.get_mut(id))
            && token.kind == TokenKind::Normal
        {
            token.kind = TokenKind::Control;
        }
    }
    let places: HashMap<String, usize> =
        tokens.iter().enumerate().rev().map(|(place, token)| (token.text.clone(), place)).collect();
    let (mut missing, mut seen): (Vec<String>, HashSet<&str>) = (Vec::new(), HashSet::new());
    for text in &file.special {
        let entry = if family.is_raw() { byte_alphabet::encode_bytes(text.as_bytes()) } else { text.clone() };
        match places.get(&entry).and_then(|place| tokens.get_mut(*place)) {
            Some(token) if token.kind == TokenKind::Normal => {
                token.kind = TokenKind::Control;
                token.text.clone_from(text);
            }
            Some(_) => {}
            None if seen.insert(text) => missing.push(format!("\"{}\"", quote(text))),
            None => {}
        }
    }
    if !missing.is_empty() {
        let listed = trueup_formats::listed(&missing, ", ");
        notes.push(format!("special tokens that are not in the vocabulary are omitted: {listed}"));
    }
}

fn known_cut(file: &FlmVocabulary) -> Option<&'static Known> {
    let kind = file.value("model_type")?;
    let (_, name) = CUTS.iter().find(|(known, _)| *known == kind)?;
    pre_tokenizer_names::by_name(name)
}

fn byte_level(
    tokens: Vec<Token>,
    entries: &[Option<Scored<'_>>],
    file: &FlmVocabulary,
    family: Family,
    notes: &mut Vec<String>,
) -> Parts {
    let known = known_cut(file).or_else(|| pre_tokenizer_names::by_name(CUT_OF_OTHERS));
    if let Some(name) = known.map(|known| known.name) {
        notes.push(format!(
            "the file does not specify a pre-tokenizer; \"{name}\" is used for this kind of model; if that is \
             wrong, pass the model's tokenizer.json with --tokenizer"
        ));
    }
    let ranks = ranks(&tokens, entries, family);
    let algorithm = match merges(&tokens, &ranks) {
        _ if ranks.is_empty() => Algorithm::DecodeOnly { reason: NO_ORDER.to_owned() },
        (_, Some(text)) => Algorithm::DecodeOnly {
            reason: format!(
                "the token \"{}\" of the .flm file cannot be built from earlier merges, so IDs can be decoded \
                 but text cannot be encoded; pass the model's tokenizer.json with --tokenizer",
                quote(&text)
            ),
        },
        (merges, None) => {
            let ignore_merges = known.is_some_and(|known| known.ignore_merges) || family == Family::Ranked;
            Algorithm::Merges { merges, byte_fallback: false, fuse_unknown: false, ignore_merges }
        }
    };
    Parts {
        algorithm,
        normalizer: None,
        pre_tokenizer: known.map(Known::pre_tokenizer),
        decoder: Decoder::byte_level(),
        added: added_by_kind(&tokens),
        special: Special::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        chat_template: None,
        tokens,
    }
}

/// The reason if no token has a rank.
const NO_ORDER: &str = "the vocabulary of the .flm file has no merge order, as exported from slow tokenizers, \
    so IDs can be decoded but text cannot be encoded; pass the model's tokenizer.json with --tokenizer";

/// IDs of the tokens that merges produce, in merge order.
fn ranks(tokens: &[Token], entries: &[Option<Scored<'_>>], family: Family) -> Vec<u32> {
    let merged = (0u32..).zip(tokens.iter().zip(entries)).filter_map(|(id, (token, entry))| {
        let (_, score) = (*entry)?;
        let is_merge = family == Family::Ranked || score <= 0.0;
        (is_merge && token.kind == TokenKind::Normal && token.text.chars().nth(1).is_some()).then_some((id, score))
    });
    let mut merged: Vec<(u32, f32)> = merged.collect();
    if family != Family::Ranked {
        merged.sort_by(|first, second| second.1.total_cmp(&first.1));
    }
    merged.into_iter().map(|(id, _)| id).collect()
}
