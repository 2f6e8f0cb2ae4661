//! A vocabulary as GGUF keys, and back.
//!
//! ```text
//! tokenizer.ggml.model           llama (sentencepiece), t5 (sentencepiece, unigram), gpt2 (byte-level merges),
//!                                gemma4 or whitespace (merges of characters), bert (WordPiece)
//! tokenizer.ggml.pre             name of the pre-tokenizer
//! tokenizer.ggml.tokens          texts          .scores  f32          .token_type  i32         .merges  "a b"
//! tokenizer.ggml.bos_token_id    and eos, eot, eom, unknown, padding, seperator, mask
//! tokenizer.ggml.add_bos_token   and eos, sep   .add_space_prefix      .remove_extra_whitespaces
//! tokenizer.ggml.precompiled_charsmap  u8    tokenizer.chat_template
//!
//! trueup.tokenizer.*             JSON text, only if the keys above would be read differently
//! ```
//!
//! The written keys are read back at once. Each part that differs gets a `trueup.tokenizer` key, which our reader
//! prefers. So ids are the same by construction, and other programs find every key that they know.
//!
//! Key names: the GGUF specification and the `gguf` Python package (which writes `seperator`).

use crate::character_map::CharacterMap;
use crate::chatglm;
use crate::decoder::Decoder;
use crate::merge_order;
use crate::normalizer::Normalizer;
use crate::pattern::CompileBudget;
use crate::pre_tokenizer_names::{self, Bos, Known};
use crate::sentencepiece_model::{added_by_kind, own_rule_parts, removes_extra_whitespaces, sentencepiece_parts};
use crate::special_tokens::{ends_by_name, mark_ends};
use crate::unigram::UnigramRule;
use crate::vocabulary::{Algorithm, Merge, Parts, Special, TOKENS_MAX, Token, TokenKind, Vocabulary, resolve_merges};
use crate::word_piece;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use trueup_formats::gguf::{Array, Metadata};
use trueup_formats::{Error, Result, quote};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_SEP: &str = "tokenizer.ggml.add_sep_token";
const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const REMOVE_EXTRA_WHITESPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
pub(crate) const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
const PADDING: &str = "tokenizer.ggml.padding_token_id";
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// What the keys of ours begin with.
pub(crate) const OWN: &str = "trueup.tokenizer.";
const OWN_NORMALIZER: &str = "trueup.tokenizer.normalizer";
const OWN_PRE_TOKENIZER: &str = "trueup.tokenizer.pre_tokenizer";
const OWN_DECODER: &str = "trueup.tokenizer.decoder";
const OWN_ADDED: &str = "trueup.tokenizer.added_tokens";
const OWN_MERGING: &str = "trueup.tokenizer.merging";
const OWN_PREFIX: &str = "trueup.tokenizer.prefix_ids";
const OWN_SUFFIX: &str = "trueup.tokenizer.suffix_ids";
const OWN_ENDS: &str = "trueup.tokenizer.end_of_generation_ids";

/// The families that GGUF programs know and we read.
const SENTENCEPIECE: &str = "llama";
const UNIGRAM: &str = "t5";
const BYTE_LEVEL: &str = "gpt2";
const GEMMA4: &str = "gemma4";
const WHITESPACE: &str = "whitespace";
const WORD_PIECE: &str = "bert";

/// How words are merged, where the family does not say.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Merging {
    Scores,
    Merges { byte_fallback: bool, fuse_unknown: bool, ignore_merges: bool },
    Unigram { rule: UnigramRule },
    WordPiece { chars_max: usize },
    Missing { reason: String },
}

impl Merging {
    fn of(algorithm: &Algorithm) -> Merging {
        match algorithm {
            Algorithm::Scores => Merging::Scores,
            Algorithm::Merges { byte_fallback, fuse_unknown, ignore_merges, .. } => Merging::Merges {
                byte_fallback: *byte_fallback,
                fuse_unknown: *fuse_unknown,
                ignore_merges: *ignore_merges,
            },
            Algorithm::Unigram { rule } => Merging::Unigram { rule: *rule },
            Algorithm::WordPiece { chars_max } => Merging::WordPiece { chars_max: *chars_max },
            Algorithm::DecodeOnly { reason } => Merging::Missing { reason: reason.clone() },
        }
    }
}

/// The keys of tokens with a role, and where each is kept.
type Role = (&'static str, fn(&mut Special) -> &mut Option<u32>);
const ROLES: [Role; 8] = [
    ("tokenizer.ggml.bos_token_id", |special| &mut special.bos),
    ("tokenizer.ggml.eos_token_id", |special| &mut special.eos),
    ("tokenizer.ggml.eot_token_id", |special| &mut special.end_of_turn),
    ("tokenizer.ggml.eom_token_id", |special| &mut special.end_of_message),
    ("tokenizer.ggml.unknown_token_id", |special| &mut special.unknown),
    (PADDING, |special| &mut special.padding),
    ("tokenizer.ggml.seperator_token_id", |special| &mut special.separator),
    ("tokenizer.ggml.mask_token_id", |special| &mut special.mask),
];

impl Vocabulary {
    /// Writes the vocabulary as GGUF keys. Returns notes on what other programs read differently. Fails on merges that
    /// the format cannot say.
    pub fn write_metadata(&self, metadata: &mut Metadata) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        merge_order::check(self.parts(), self.path())?;
        word_piece::check(self.parts(), self.path())?;
        write_common(self.parts(), self.is_byte_level(), metadata, &mut notes);
        let plain = read_plain(metadata, self.path(), &mut Vec::new())?;
        let written = write_differences(self.parts(), &plain, metadata)?;
        if !written.is_empty() {
            notes.push(format!(
                "some rules of the tokenizer are stored in keys that only trueup reads ({}); other programs may encode some \
                 texts differently",
                written.join(", ")
            ));
        }
        Ok(notes)
    }

    /// Whether a GGUF file has a vocabulary.
    pub fn is_in(metadata: &Metadata) -> bool {
        metadata.contains(MODEL)
    }

    /// Reads the vocabulary of a GGUF file at `path`. Fails when keys are missing, of another type or contradict each
    /// other, and when the family is not supported.
    pub fn from_metadata(metadata: &Metadata, path: &Path) -> Result<Vocabulary> {
        let mut notes = Vec::new();
        let mut parts = read_plain(metadata, path, &mut notes)?;
        read_own(&mut parts, metadata, path, |parts| read_merges(&parts.tokens, metadata, path))?;
        notes.extend(Vocabulary::assumed_pre_tokenizer(metadata).map(|problem| {
            format!(
                "{PRE}: {problem}; text is split by the rule \"default\", so tokens can differ from those of the \
                 original model; convert the model again from its checkpoint"
            )
        }));
        Ok(Vocabulary::new(parts, path)?.with_notes(notes))
    }

    /// Why the rule that splits text into words is a guess in a byte-level file. `None` if the file names or
    /// describes one.
    pub fn assumed_pre_tokenizer(metadata: &Metadata) -> Option<&'static str> {
        if metadata.string(MODEL).ok() != Some(BYTE_LEVEL) || metadata.contains(OWN_PRE_TOKENIZER) {
            return None;
        }
        match metadata.string(PRE) {
            _ if !metadata.contains(PRE) => Some("the key is missing"),
            Ok("default") => Some("the name \"default\" is a fallback and no rule of a model"),
            Ok(_) | Err(_) => None,
        }
    }
}

fn write_common(parts: &Parts, byte_level: bool, metadata: &mut Metadata, notes: &mut Vec<String>) {
    let is_unigram = matches!(parts.algorithm, Algorithm::Unigram { .. });
    let is_word_piece = matches!(parts.algorithm, Algorithm::WordPiece { .. });
    metadata.insert(MODEL, family(parts, byte_level));
    metadata.insert(PRE, pre_name(parts, byte_level, notes));
    let text = |token: &Token| if is_word_piece { word_piece::to_gguf(token) } else { token.text.clone() };
    metadata.insert(TOKENS, parts.tokens.iter().map(text).collect::<Vec<_>>());
    let encodes = !matches!(parts.algorithm, Algorithm::DecodeOnly { .. });
    if is_unigram || (!byte_level && encodes && !is_word_piece) {
        metadata.insert(SCORES, parts.tokens.iter().map(|token| token.score).collect::<Vec<_>>());
    }
    metadata.insert(TOKEN_TYPE, parts.tokens.iter().map(|token| token.kind.number()).collect::<Vec<_>>());
    if let Algorithm::Merges { merges, .. } = &parts.algorithm {
        let text =
            |id: u32| usize::try_from(id).ok().and_then(|id| parts.tokens.get(id)).map_or("", |token| &token.text);
        let line = |merge: &Merge| format!("{} {}", text(merge.left), text(merge.right));
        metadata.insert(MERGES, merges.iter().map(line).collect::<Vec<_>>());
    }
    if byte_level && !encodes {
        // The key must be there; another of ours says why it is empty.
        metadata.insert(MERGES, Vec::<String>::new());
    }
    let mut special = parts.special.clone();
    for (key, slot) in ROLES {
        if let Some(id) = *slot(&mut special) {
            metadata.insert(key, id);
        }
    }
    metadata.insert(ADD_BOS, special.bos.is_some_and(|bos| parts.prefix.contains(&bos)));
    let adds = |id: Option<u32>| id.is_some_and(|id| parts.suffix.contains(&id));
    let adds_separator = is_word_piece && adds(special.separator);
    metadata.insert(ADD_EOS, adds(special.eos.filter(|_| !adds_separator)));
    if is_word_piece {
        metadata.insert(ADD_SEP, adds_separator);
        word_piece::write_normalizer(parts, metadata);
    } else if is_unigram || !byte_level {
        metadata.insert(ADD_SPACE_PREFIX, puts_space_in_front(parts));
        write_map(parts, metadata, notes);
    }
    if let Some(template) = &parts.chat_template {
        metadata.insert(CHAT_TEMPLATE, template.as_str());
    }
}

/// The family that other GGUF programs know a vocabulary by.
fn family(parts: &Parts, byte_level: bool) -> &'static str {
    match parts.algorithm {
        Algorithm::Unigram { .. } => UNIGRAM,
        Algorithm::WordPiece { .. } => WORD_PIECE,
        _ if byte_level => BYTE_LEVEL,
        _ => SENTENCEPIECE,
    }
}

/// The character map, and whether runs of spaces become one.
fn write_map(parts: &Parts, metadata: &mut Metadata, notes: &mut Vec<String>) {
    if let Some(removes) = removes_extra_whitespaces(parts) {
        metadata.insert(REMOVE_EXTRA_WHITESPACES, removes);
    }
    let Some(map) = parts.normalizer.as_ref().and_then(Normalizer::character_map) else { return };
    metadata.insert(CHARSMAP, map.to_bytes());
    if !matches!(parts.algorithm, Algorithm::Unigram { .. }) {
        notes.push(format!(
            "the tokenizer normalizes characters with {CHARSMAP}; other programs apply it only to unigram \
             models and may encode full-width, composed or compatibility characters differently"
        ));
    }
}

/// The name of the pre-tokenizer; `default` with a note when it has none.
fn pre_name(parts: &Parts, byte_level: bool, notes: &mut Vec<String>) -> &'static str {
    let ignore_merges = matches!(parts.algorithm, Algorithm::Merges { ignore_merges: true, .. });
    let known = parts.pre_tokenizer.as_ref().and_then(|own| pre_tokenizer_names::by_pre_tokenizer(own, ignore_merges));
    // Names with one rule differ in the tokens that other programs put around texts.
    let is_glm4 = known.is_some_and(chatglm::splits_like) && chatglm::is_of(parts);
    match known {
        Some(known) if byte_level && is_glm4 => {
            if known.ignore_merges {
                chatglm::CUT_WITHOUT_MERGES
            } else {
                chatglm::CUT
            }
        }
        Some(known) if byte_level => known.name,
        _ => {
            if byte_level {
                notes.push(format!(
                    "GGUF has no name for this pre-tokenizer: {PRE} is \"default\" and {OWN_PRE_TOKENIZER} \
                     contains the real one, so other programs may split text differently"
                ));
            }
            "default"
        }
    }
}

/// Whether a text at the very start gets a space, by any of the ways that files have for it.
fn puts_space_in_front(parts: &Parts) -> bool {
    use crate::normalizer::{compile, normalize};
    use crate::sentencepiece_normalizer::Ends;
    let mut budget = CompileBudget::default();
    let steps = compile(parts.normalizer.as_ref(), &mut budget);
    let normalized = steps.and_then(|steps| normalize(&steps, "x", Ends::BOTH)).unwrap_or_default();
    let words = crate::pre_tokenizer::compile(parts.pre_tokenizer.as_ref(), &mut budget)
        .and_then(|steps| crate::pre_tokenizer::words(&steps, &normalized, true));
    words.is_ok_and(|words| words.first().is_some_and(|word| word.starts_with('▁')))
}

/// Writes a key of ours for every part that the common keys would bring back different. Returns those by which other
/// programs may give other ids.
pub(crate) fn write_differences(parts: &Parts, plain: &Parts, metadata: &mut Metadata) -> Result<Vec<&'static str>> {
    let mut plain_special = plain.special.clone();
    plain_special.end_of_generation.sort_unstable();
    let (merging, plain_merging) = (Merging::of(&parts.algorithm), Merging::of(&plain.algorithm));
    let is_same_cut = pre_tokenizer_names::is_same_rule(parts.pre_tokenizer.as_ref(), plain.pre_tokenizer.as_ref());
    let written = [
        write_if(parts.normalizer != plain.normalizer, OWN_NORMALIZER, &parts.normalizer, metadata)?,
        write_if(!is_same_cut, OWN_PRE_TOKENIZER, &parts.pre_tokenizer, metadata)?,
        write_if(merging != plain_merging, OWN_MERGING, &merging, metadata)?,
        write_if(parts.added != plain.added, OWN_ADDED, &parts.added, metadata)?,
        write_if(parts.prefix != plain.prefix, OWN_PREFIX, &parts.prefix, metadata)?,
        write_if(parts.suffix != plain.suffix, OWN_SUFFIX, &parts.suffix, metadata)?,
    ];
    write_if(parts.decoder != plain.decoder, OWN_DECODER, &parts.decoder, metadata)?;
    let ends = &parts.special.end_of_generation;
    write_if(*ends != plain_special.end_of_generation, OWN_ENDS, ends, metadata)?;
    Ok(written.into_iter().flatten().collect())
}

/// Writes `value` as JSON text when `differs`; returns the key then.
fn write_if(
    differs: bool,
    key: &'static str,
    value: &impl Serialize,
    metadata: &mut Metadata,
) -> Result<Option<&'static str>> {
    if !differs {
        return Ok(None);
    }
    let text = serde_json::to_string(value).map_err(|problem| Error::new("", problem.to_string()).at(key))?;
    metadata.insert(key, text);
    Ok(Some(key))
}

/// What the keys say that every GGUF program knows.
fn read_plain(metadata: &Metadata, path: &Path, notes: &mut Vec<String>) -> Result<Parts> {
    let model = metadata.string(MODEL).map_err(|error| error.in_file(path))?;
    let tokens = read_tokens(metadata, path)?;
    let mut parts = match model {
        SENTENCEPIECE => read_sentencepiece(tokens, metadata, path)?,
        UNIGRAM => read_unigram(tokens, metadata, path)?,
        WORD_PIECE => word_piece::read(tokens, metadata, path)?,
        BYTE_LEVEL | GEMMA4 | WHITESPACE => read_merged(tokens, metadata, path)?,
        other => {
            let problem = format!(
                "expected a tokenizer of type {SENTENCEPIECE}, {UNIGRAM}, {BYTE_LEVEL}, {GEMMA4}, {WHITESPACE} or \
                 {WORD_PIECE}, found {}",
                quote(other)
            );
            let help = "pass the tokenizer of the model with --tokenizer";
            return Err(Error::new(path, problem).at(MODEL).help(help));
        }
    };
    read_roles(&mut parts, metadata, path, notes)?;
    read_around(&mut parts, model, metadata, path)?;
    find_ends(&mut parts, metadata, notes);
    parts.chat_template = optional(metadata, CHAT_TEMPLATE, path, Metadata::string)?.map(str::to_owned);
    Ok(parts)
}

/// Tokens with a role. Nothing depends on padding, so an id of it that is no token is left out with a note.
fn read_roles(parts: &mut Parts, metadata: &Metadata, path: &Path, notes: &mut Vec<String>) -> Result<()> {
    let count = parts.tokens.len();
    let unknown = parts.special.unknown;
    for (key, slot) in ROLES {
        let Some(id) = optional(metadata, key, path, Metadata::u64)? else {
            *slot(&mut parts.special) = None;
            continue;
        };
        let inside = u32::try_from(id).ok().filter(|id| usize::try_from(*id).is_ok_and(|id| id < count));
        let problem = format!("expected a token ID from 0 to {}, found {id}", count.saturating_sub(1));
        if inside.is_none() && key != PADDING {
            return Err(Error::new(path, problem).at(key).help("download the file again, or convert the model again"));
        }
        if inside.is_none() {
            notes.push(format!("{key}: {problem}; the key is ignored"));
        }
        *slot(&mut parts.special) = inside;
    }
    parts.special.unknown = parts.special.unknown.or(unknown);
    Ok(())
}

/// A key that may be absent but not of another type.
pub(crate) fn optional<'m, T>(
    metadata: &'m Metadata,
    key: &str,
    path: &Path,
    read: impl FnOnce(&'m Metadata, &str) -> std::result::Result<T, trueup_formats::gguf::MetadataError>,
) -> Result<Option<T>> {
    if !metadata.contains(key) {
        return Ok(None);
    }
    read(metadata, key).map(Some).map_err(|error| error.in_file(path))
}

/// What helps if the lists of a file do not belong together.
const CONVERT_AGAIN: &str = "the file is damaged; convert the model again";

fn read_tokens(metadata: &Metadata, path: &Path) -> Result<Vec<Token>> {
    let texts = metadata.strings(TOKENS).map_err(|error| error.in_file(path))?;
    let scores = optional(metadata, SCORES, path, Metadata::f32s)?;
    let kinds = optional(metadata, TOKEN_TYPE, path, Metadata::i32s)?;
    let lengths = [(SCORES, scores.map(<[f32]>::len)), (TOKEN_TYPE, kinds.map(<[i32]>::len))];
    for (key, length) in lengths {
        if length.is_some_and(|length| length != texts.len()) {
            let problem = format!("expected {} entries, one per token, found {}", texts.len(), length.unwrap_or(0));
            return Err(Error::new(path, problem).at(key).help(CONVERT_AGAIN));
        }
    }
    if texts.len() > TOKENS_MAX {
        let problem = format!("expected at most {TOKENS_MAX} tokens, found {}", texts.len());
        return Err(Error::new(path, problem).at(TOKENS));
    }
    let mut tokens = Vec::with_capacity(texts.len());
    for (id, text) in texts.iter().enumerate() {
        let number = kinds.and_then(|kinds| kinds.get(id)).copied().unwrap_or(TokenKind::Normal.number());
        let Some(kind) = TokenKind::from_number(number) else {
            let problem = format!("expected a type from 1 to 6 for token {id}, found {number}");
            return Err(Error::new(path, problem).at(TOKEN_TYPE).help(CONVERT_AGAIN));
        };
        let score = scores.and_then(|scores| scores.get(id)).copied().unwrap_or_default();
        tokens.push(Token { text: text.clone(), score, kind });
    }
    Ok(tokens)
}

fn read_sentencepiece(tokens: Vec<Token>, metadata: &Metadata, path: &Path) -> Result<Parts> {
    let prefix = optional(metadata, ADD_SPACE_PREFIX, path, Metadata::bool)?.unwrap_or(true);
    let mut parts = match read_map(metadata, path)? {
        None => sentencepiece_parts(tokens, prefix, false, Decoder::sentencepiece(prefix)),
        map => {
            let extra = optional(metadata, REMOVE_EXTRA_WHITESPACES, path, Metadata::bool)?.unwrap_or(false);
            own_rule_parts(tokens, Algorithm::Scores, map, prefix, extra)
        }
    };
    if !metadata.contains(SCORES) {
        parts.algorithm = Algorithm::DecodeOnly { reason: crate::llama2c_vocabulary::SCORES_MISSING.to_owned() };
    }
    Ok(parts)
}

/// Sentencepiece by sums of scores, without which nothing can be cut.
fn read_unigram(tokens: Vec<Token>, metadata: &Metadata, path: &Path) -> Result<Parts> {
    metadata.f32s(SCORES).map_err(|error| error.in_file(path))?;
    let prefix = optional(metadata, ADD_SPACE_PREFIX, path, Metadata::bool)?.unwrap_or(true);
    let extra = optional(metadata, REMOVE_EXTRA_WHITESPACES, path, Metadata::bool)?.unwrap_or(false);
    let algorithm = Algorithm::Unigram { rule: UnigramRule::Sentencepiece };
    Ok(own_rule_parts(tokens, algorithm, read_map(metadata, path)?, prefix, extra))
}

/// The character map; none where the key is missing or holds nothing.
fn read_map(metadata: &Metadata, path: &Path) -> Result<Option<CharacterMap>> {
    let fault = |problem: String| Error::new(path, problem).at(CHARSMAP).help(CONVERT_AGAIN);
    let bytes = match optional(metadata, CHARSMAP, path, Metadata::array)? {
        None => return Ok(None),
        Some(Array::U8(bytes)) => bytes.clone(),
        Some(Array::I8(bytes)) => bytes.iter().flat_map(|byte| byte.to_le_bytes()).collect(),
        Some(_) => return Err(fault("expected an array of u8 or i8, found another type".to_owned())),
    };
    if bytes.is_empty() { Ok(None) } else { CharacterMap::read(&bytes).map(Some).map_err(fault) }
}

fn read_merged(tokens: Vec<Token>, metadata: &Metadata, path: &Path) -> Result<Parts> {
    let known = known_pre_tokenizer(metadata, path)?;
    let bytes = known.is_byte_level();
    let merges = read_merges(&tokens, metadata, path)?;
    let has_lowercase = !bytes && optional(metadata, LOWERCASE, path, Metadata::bool)?.unwrap_or(false);
    let lowercase = has_lowercase.then_some(Normalizer::Lowercase);
    let algorithm =
        Algorithm::Merges { merges, byte_fallback: !bytes, fuse_unknown: false, ignore_merges: known.ignore_merges };
    Ok(Parts {
        algorithm,
        normalizer: known.normalizer().or(lowercase),
        pre_tokenizer: Some(known.pre_tokenizer()),
        decoder: decoder(known),
        added: added_by_kind(&tokens),
        special: Special::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        chat_template: None,
        tokens,
    })
}

/// How ids become text. Tokens of characters may contain `▁` for a space, and bytes are tokens such as `<0x0A>`.
fn decoder(known: &Known) -> Decoder {
    match (known.is_byte_level(), known.normalizer()) {
        (true, _) => Decoder::byte_level(),
        (false, Some(_)) => Decoder::sentencepiece(false),
        (false, None) => Decoder { byte_fallback: true, ..Decoder::default() },
    }
}

/// The name of the pre-tokenizer. Two families have one pre-tokenizer, whether the file names it or not.
fn name_of<'m>(metadata: &'m Metadata, path: &Path) -> Result<Option<&'m str>> {
    let model = metadata.string(MODEL).map_err(|error| error.in_file(path))?;
    let name = optional(metadata, PRE, path, Metadata::string)?;
    match model {
        GEMMA4 | WHITESPACE => Ok(Some(model)),
        BYTE_LEVEL if name == Some(WHITESPACE) => {
            let problem =
                format!("the pre-tokenizer \"{WHITESPACE}\" needs {MODEL} \"{WHITESPACE}\", found \"{model}\"");
            Err(Error::new(path, problem).at(PRE).help("convert the checkpoint again"))
        }
        _ => Ok(name),
    }
}

/// Whether a family has a list of merges, so that the name of a pre-tokenizer applies.
fn is_merged(model: &str) -> bool {
    matches!(model, BYTE_LEVEL | GEMMA4 | WHITESPACE)
}

/// The entry of the name; `default` if the file has no name.
fn known_pre_tokenizer(metadata: &Metadata, path: &Path) -> Result<&'static Known> {
    let Some(name) = name_of(metadata, path)? else { return Ok(&pre_tokenizer_names::DEFAULT) };
    pre_tokenizer_names::by_name(name).ok_or_else(|| {
        let problem = format!(
            "expected the name of a known pre-tokenizer, found \"{}\", so the pre-tokenizer is unknown",
            quote(name)
        );
        Error::new(path, problem).at(PRE).help("use --tokenizer with the model's tokenizer.json")
    })
}

fn read_merges(tokens: &[Token], metadata: &Metadata, path: &Path) -> Result<Vec<Merge>> {
    let lines = metadata.strings(MERGES).map_err(|error| error.in_file(path))?;
    let fail = |item: usize, text: String| Error::new(path, text).at(format!("{MERGES}[{item}]")).help(CONVERT_AGAIN);
    let mut pairs = Vec::with_capacity(lines.len());
    for (place, line) in lines.iter().enumerate() {
        // A token may itself begin with a space in files of other programs.
        let space = line.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let Some((left, right)) = space.and_then(|at| line.split_at_checked(at)) else {
            return Err(fail(place, format!("expected two tokens separated by a space, found \"{}\"", quote(line))));
        };
        pairs.push((left, right.get(1..).unwrap_or_default()));
    }
    resolve_merges(tokens, pairs.into_iter()).map_err(|(place, problem)| fail(place, problem))
}

fn read_around(parts: &mut Parts, model: &str, metadata: &Metadata, path: &Path) -> Result<()> {
    let named = name_of(metadata, path)?.and_then(pre_tokenizer_names::by_name);
    let bos = named.filter(|_| is_merged(model)).map_or(Bos::IfSet, |known| known.bos);
    if model == WORD_PIECE {
        word_piece::find_roles(parts, metadata, path)?;
    }
    let default_bos = matches!(model, SENTENCEPIECE | WORD_PIECE) || bos == Bos::ByDefault;
    let add_bos = optional(metadata, ADD_BOS, path, Metadata::bool)?.unwrap_or(default_bos) || bos == Bos::Always;
    let add_eos = optional(metadata, ADD_EOS, path, Metadata::bool)?.unwrap_or(model == UNIGRAM);
    parts.prefix = parts.special.bos.filter(|_| add_bos).into_iter().collect();
    let add_sep = model == WORD_PIECE && optional(metadata, ADD_SEP, path, Metadata::bool)?.unwrap_or(true);
    let separator = parts.special.separator.filter(|_| add_sep);
    parts.suffix = parts.special.eos.filter(|_| add_eos).into_iter().chain(separator).collect();
    Ok(())
}

/// Tokens that end generation in a file that has no list of them: those with the role, and those with a known name,
/// whatever their type is. A note reports a wrong type. Files of ours describe their added tokens, so their types hold.
fn find_ends(parts: &mut Parts, metadata: &Metadata, notes: &mut Vec<String>) {
    if !metadata.contains(OWN_ADDED) {
        let kind = |id: u32| usize::try_from(id).ok().and_then(|id| parts.tokens.get(id)).map(|token| token.kind);
        let before: Vec<Option<TokenKind>> = ends_by_name(&parts.tokens).into_iter().map(kind).collect();
        let wrong: Vec<TokenKind> = before.into_iter().flatten().filter(|kind| *kind != TokenKind::Control).collect();
        for (id, kind) in mark_ends(parts).into_iter().zip(wrong) {
            let text = usize::try_from(id).ok().and_then(|id| parts.tokens.get(id)).map_or("", |token| &token.text);
            notes.push(format!(
                "{TOKEN_TYPE}: token {id} \"{}\" has type {}, expected {} (control), because it ends generation; it is \
                 read as a control token",
                quote(text),
                kind.number(),
                TokenKind::Control.number()
            ));
        }
    }
    let special = &mut parts.special;
    let ends = [special.eos, special.end_of_turn, special.end_of_message];
    special.end_of_generation = ends.into_iter().flatten().chain(ends_by_name(&parts.tokens)).collect();
    special.end_of_generation.sort_unstable();
    special.end_of_generation.dedup();
}

/// What our own keys say; `read` gives the merges where they say that there are some.
pub(crate) fn read_own(
    parts: &mut Parts,
    metadata: &Metadata,
    path: &Path,
    read: impl FnOnce(&Parts) -> Result<Vec<Merge>>,
) -> Result<()> {
    replace(&mut parts.normalizer, OWN_NORMALIZER, metadata, path)?;
    replace(&mut parts.pre_tokenizer, OWN_PRE_TOKENIZER, metadata, path)?;
    replace(&mut parts.decoder, OWN_DECODER, metadata, path)?;
    replace(&mut parts.added, OWN_ADDED, metadata, path)?;
    replace(&mut parts.prefix, OWN_PREFIX, metadata, path)?;
    replace(&mut parts.suffix, OWN_SUFFIX, metadata, path)?;
    replace(&mut parts.special.end_of_generation, OWN_ENDS, metadata, path)?;
    let mut merging = None;
    replace(&mut merging, OWN_MERGING, metadata, path)?;
    match merging {
        None => {}
        Some(Merging::Scores) => parts.algorithm = Algorithm::Scores,
        Some(Merging::Unigram { rule }) => parts.algorithm = Algorithm::Unigram { rule },
        Some(Merging::WordPiece { chars_max }) => {
            parts.algorithm = word_piece::algorithm(chars_max, OWN_MERGING, path)?
        }
        Some(Merging::Missing { reason }) => parts.algorithm = Algorithm::DecodeOnly { reason },
        Some(Merging::Merges { byte_fallback, fuse_unknown, ignore_merges }) => {
            let merges = read(parts)?;
            parts.algorithm = Algorithm::Merges { merges, byte_fallback, fuse_unknown, ignore_merges };
        }
    }
    Ok(())
}

/// Replaces a part by the JSON text of a key, if the key is there.
fn replace<T: DeserializeOwned>(part: &mut T, key: &str, metadata: &Metadata, path: &Path) -> Result<()> {
    if let Some(text) = optional(metadata, key, path, Metadata::string)? {
        let fault = |problem: serde_json::Error| Error::new(path, quote(&problem.to_string())).help(CONVERT_AGAIN);
        *part = serde_json::from_str(text).map_err(|problem| fault(problem).at(format!("key {key}")))?;
    }
    Ok(())
}
