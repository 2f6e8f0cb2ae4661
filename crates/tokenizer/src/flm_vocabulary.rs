//! The vocabulary of a `.flm` file.
//!
//! ```text
//! tokens with scores                    sentencepiece: the best score is merged first; <0x0A> are bytes
//! tokenizer_byte_as_char                a byte-level vocabulary: a score of -r is rank r among the merges, a score above 0 is no merge
//! tokenizer_class GLM4Tokenizer, ..     tokens of raw bytes: rank and id are one
//! ```
//!
//! The file keeps what a merge makes, not what it is made of: the two parts are those that the merges before it leave of its text.
//! It does not keep how text is cut into words before anything is merged either: that follows from the kind of model.

use crate::byte_alphabet;
use crate::chatglm;
use crate::chatglm1;
use crate::decoder::{Decoder, LeadingSpace};
use crate::normalizer::Normalizer;
use crate::pre_tokenizer_names::{self, Known};
use crate::ranked::merges;
use crate::sentencepiece_model::{added_by_kind, sentencepiece_parts};
use crate::source::ModelTokens;
use crate::vocabulary::{
    Algorithm, Merge, Parts, Special, Token, TokenKind, Vocabulary, byte_of, ids_max, padding_token,
};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::flm::{FlmToken, FlmVocabulary};
use trueup_formats::{Error, Result, quote};

/// What errors call the place.
const PLACE: &str = "vocabulary";
/// Classes whose tokens are raw bytes, merged in the order of their ids.
const RANKED_CLASSES: [&str; 2] = ["GLM4Tokenizer", "ChatGLM4Tokenizer"];
/// Kinds of models with byte-level vocabularies, and the name of how they cut text.
const CUTS: [(&str, &str); 4] = [("qwen2", "qwen2"), ("qwen", "qwen2"), ("llama", "llama-bpe"), ("chatglm", "glm4")];
/// The kind of model whose texts begin with two tokens.
const CHATGLM: &str = "chatglm";
/// Cuts text where the kind of model says nothing.
const CUT_OF_OTHERS: &str = "gpt-2";
/// What is not known is the text of this token, in vocabularies of sentencepiece.
const UNKNOWN: &str = "<unk>";

/// How the tokens of a file are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Text with marks for spaces.
    Sentencepiece,
    /// Bytes in the printable alphabet.
    ByteLevel,
    /// Bytes as they are.
    Ranked,
}

/// Builds the parts; `path` is the model that errors name.
pub(crate) fn parts(file: &FlmVocabulary, model: &ModelTokens, path: &Path, notes: &mut Vec<String>) -> Result<Parts> {
    let ranked = file.value("tokenizer_class").is_some_and(|class| RANKED_CLASSES.contains(&class));
    let family = match (ranked, file.flag("tokenizer_byte_as_char", false)) {
        (true, _) => Family::Ranked,
        (false, true) => Family::ByteLevel,
        (false, false) => Family::Sentencepiece,
    };
    let entries = by_id(file, model.vocab_size, path, notes)?;
    let mut tokens = Vec::with_capacity(entries.len());
    for (id, entry) in entries.iter().enumerate() {
        tokens.push(match entry {
            None => padding_token(id),
            Some((entry, score)) => token(entry, *score, family, path)?,
        });
    }
    mark_special(&mut tokens, file, model, notes);
    let mut parts = match family {
        Family::Sentencepiece => {
            let prefix = file.flag("tokenizer_add_dummy_prefix", true);
            // FastLLM takes runs of spaces together where the key is missing; the tokenizers that files are made from do not.
            let extra = file.flag("tokenizer_remove_extra_whitespaces", false);
            sentencepiece_parts(tokens, prefix, extra, Decoder::sentencepiece(prefix))
        }
        Family::ByteLevel | Family::Ranked => byte_level(tokens, &entries, file, family, notes),
    };
    let adds_bos = family == Family::Sentencepiece || known_cut(file).is_some_and(|known| known.adds_bos);
    parts.special.bos = model.bos_token_id;
    parts.prefix = parts.special.bos.filter(|_| adds_bos).into_iter().collect();
    if family == Family::Sentencepiece && chatglm1::is_in(file) {
        chatglm1::arrange(&mut parts);
        let id = |key: &str| file.value(key).and_then(|text| text.parse().ok());
        let ids: Option<Vec<u32>> = ["gmask_token_id", "bos_token_id"].into_iter().map(id).collect();
        let inside = |id: &u32| usize::try_from(*id).is_ok_and(|id| model.vocab_size.is_none_or(|size| id < size));
        chatglm1::put_ids_behind(&mut parts, &ids.filter(|ids| ids.iter().all(inside)).unwrap_or_default());
    } else if file.value("model_type") == Some(CHATGLM) {
        chatglm::put_before(&mut parts);
        if parts.prefix.is_empty() && family == Family::Sentencepiece {
            parts.prefix = chatglm_ids(file, model.vocab_size);
        }
    }
    Ok(parts)
}

/// What FastLLM puts before every text of ChatGLM2 and 3, by ids that the table may say; none where the vocabulary is too small.
fn chatglm_ids(file: &FlmVocabulary, vocab_size: Option<usize>) -> Vec<u32> {
    let id = |key: &str, usual: u32| file.value(key).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let ids = [id("gmask_token_id", 64_790), id("bos_token_id", 64_792)];
    let fits = |id: &u32| usize::try_from(*id).is_ok_and(|id| vocab_size.is_some_and(|size| id < size));
    if ids.iter().all(fits) { ids.to_vec() } else { Vec::new() }
}

/// An entry, and its score.
type Scored<'f> = (&'f FlmToken, f32);

/// Entries at the places of their ids. Of several with one id the last one counts, as in FastLLM.
fn by_id<'f>(
    file: &'f FlmVocabulary,
    vocab_size: Option<usize>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Scored<'f>>>> {
    let ids_max = ids_max(vocab_size, file.tokens.len());
    let (mut entries, mut again) = (Vec::new(), 0_usize);
    // Without a score the earlier entry goes first. Places stay exact: there are fewer than 2^24 of them.
    let mut place = 0.0_f32;
    for (number, entry) in file.tokens.iter().enumerate() {
        let index = usize::try_from(entry.id).unwrap_or(usize::MAX);
        if index >= ids_max {
            let problem = format!("expected an id below {ids_max}, found {}", entry.id);
            return Err(Error::new(path, problem)
                .at(format!("token {number} of the {PLACE}"))
                .help("the file is damaged"));
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
        notes.push(format!("{again} tokens have an id that another one has too; the last one counts"));
    }
    Ok(entries)
}

fn token(entry: &FlmToken, score: f32, family: Family, path: &Path) -> Result<Token> {
    let text = match (family, std::str::from_utf8(&entry.bytes)) {
        (Family::Ranked, _) => byte_alphabet::encode_bytes(&entry.bytes),
        (Family::Sentencepiece | Family::ByteLevel, Ok(text)) => text.to_owned(),
        (Family::Sentencepiece | Family::ByteLevel, Err(_)) => {
            let problem = format!("its text is not UTF-8: \"{}\"", quote(&String::from_utf8_lossy(&entry.bytes)));
            return Err(Error::new(path, problem)
                .at(format!("token {} of the {PLACE}", entry.id))
                .help("name a tokenizer.json or a tokenizer.model with --tokenizer"));
        }
    };
    let kind = match family {
        Family::Sentencepiece if byte_of(&text).is_some() => TokenKind::Byte,
        Family::Sentencepiece if text == UNKNOWN => TokenKind::Unknown,
        Family::Sentencepiece | Family::ByteLevel | Family::Ranked => TokenKind::Normal,
    };
    // Bytes have no scores: they are not merged.
    let score = if family == Family::Sentencepiece { score } else { 0.0 };
    Ok(Token { text, score, kind })
}

/// Tokens that steer the model: the file's list, and those that begin and end a text.
fn mark_special(tokens: &mut [Token], file: &FlmVocabulary, model: &ModelTokens, notes: &mut Vec<String>) {
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
        match places.get(text).and_then(|place| tokens.get_mut(*place)) {
            Some(token) if token.kind == TokenKind::Normal => token.kind = TokenKind::Control,
            Some(_) => {}
            None if seen.insert(text) => missing.push(format!("\"{}\"", quote(text))),
            None => {}
        }
    }
    if !missing.is_empty() {
        let listed = trueup_formats::listed(&missing, ", ");
        notes.push(format!("special tokens without an entry in the vocabulary are left out: {listed}"));
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
    if let Some(name) = known.and_then(|known| known.names.first()) {
        notes.push(format!(
            "the file does not say how text is cut into words: by the kind of model it is cut as \"{name}\" names it; where that is another, \
             name the tokenizer.json of the model with --tokenizer"
        ));
    }
    let ranks = ranks(&tokens, entries, family);
    let algorithm = match merges(&tokens, &ranks) {
        _ if ranks.is_empty() => Algorithm::DecodeOnly { reason: NO_ORDER.to_owned() },
        (_, Some(text)) => Algorithm::DecodeOnly {
            reason: format!(
                "the token \"{}\" of the .flm file cannot be made by the merges before it, so text cannot be encoded, only ids can be \
                 decoded; name the tokenizer.json of the model with --tokenizer",
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

/// Said where no token has a rank.
const NO_ORDER: &str = "the vocabulary of the .flm file has no order of merging, as exporters write it for slow tokenizers, so text cannot be \
     encoded, only ids can be decoded; name the tokenizer.json of the model with --tokenizer";

/// Tokens that are merged, the first to be merged first: their ids.
fn ranks(tokens: &[Token], entries: &[Option<Scored<'_>>], family: Family) -> Vec<u32> {
    let merged = (0u32..).zip(tokens.iter().zip(entries)).filter_map(|(id, (token, entry))| {
        let (_, score) = (*entry)?;
        let is_merge = family == Family::Ranked || score <= 0.0;
        (is_merge && token.kind == TokenKind::Normal && token.text.chars().nth(1).is_some()).then_some((id, score))
    });
    let mut merged: Vec<(u32, f32)> = merged.collect();
    if family == Family::ByteLevel {
        merged.sort_by(|first, second| second.1.total_cmp(&first.1));
    }
    merged.into_iter().map(|(id, _)| id).collect()
}

/// Prompts as a template: what FastLLM puts before, between and behind what is said. `None` where the file has none.
pub(crate) fn chat_template(file: &FlmVocabulary, tokens: &[Token]) -> Option<String> {
    if file.value("user_role").is_none() && file.value("bot_role").is_none() {
        return None;
    }
    let piece = |key: &str| literal(file.value(key).unwrap_or_default(), tokens);
    let (before, user, bot, after) =
        (piece("pre_prompt")?, piece("user_role")?, piece("bot_role")?, piece("history_sep")?);
    Some(format!(
        "{{{{ {before} }}}}{{% for message in messages %}}{{% if message['role'] == 'user' %}}{{{{ {user} + message['content'] + {bot} }}}}\
         {{% elif message['role'] == 'assistant' %}}{{{{ message['content'] + {after} }}}}\
         {{% else %}}{{{{ raise_exception('this model knows the roles user and assistant only') }}}}{{% endif %}}{{% endfor %}}"
    ))
}

/// Most bytes of one piece of a prompt.
const PIECE_BYTES_MAX: usize = 1 << 15;
/// Digits of an id, and the sign behind them.
const NUMBER_BYTES_MAX: usize = 9;

/// A text as Jinja writes it, in which `<FLM_FIX_TOKEN_n>` stands for token n; `None` where it would be longer than any prompt.
fn literal(text: &str, tokens: &[Token]) -> Option<String> {
    const MARK: &str = "<FLM_FIX_TOKEN_";
    let (mut rest, mut plain) = (text, String::new());
    while let Some((before, behind)) = rest.split_once(MARK) {
        plain.push_str(before);
        let end = behind.bytes().take(NUMBER_BYTES_MAX).position(|byte| byte == b'>');
        let number = end.and_then(|end| behind.get(..end)?.parse::<usize>().ok());
        match number.and_then(|id| tokens.get(id)).zip(behind.split_once('>')) {
            Some((token, (_, after))) => {
                plain.push_str(&token.text);
                rest = after;
            }
            None => {
                plain.push_str(MARK);
                rest = behind;
            }
        }
        if plain.len() > PIECE_BYTES_MAX {
            return None;
        }
    }
    plain.push_str(rest);
    if plain.len() > PIECE_BYTES_MAX {
        return None;
    }
    let escaped = plain.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r");
    Some(format!("'{escaped}'"))
}

impl Vocabulary {
    /// As a `.flm` file has it: entries with scores, special tokens, and the keys that say how they are used. The file cannot keep what cuts text
    /// into words, nor normalizers.
    pub fn to_flm(&self) -> FlmVocabulary {
        let byte_level = self.is_byte_level();
        let ranks: HashMap<u32, f32> = match self.algorithm() {
            Algorithm::Merges { merges, .. } => first_ranks(merges),
            Algorithm::Scores | Algorithm::Unigram { .. } | Algorithm::DecodeOnly { .. } => HashMap::new(),
        };
        let score = |id: u32, token: &Token| match self.algorithm() {
            Algorithm::Scores | Algorithm::Unigram { .. } => token.score,
            // What no merge makes is above all ranks, as FastLLM's exporter writes it.
            Algorithm::Merges { .. } | Algorithm::DecodeOnly { .. } => ranks.get(&id).map_or(NO_MERGE, |rank| -rank),
        };
        let entries = (0u32..).zip(self.tokens()).filter(|(_, token)| token.kind != TokenKind::Unused);
        let tokens = entries.map(|(id, token)| FlmToken {
            bytes: token.text.clone().into_bytes(),
            id,
            score: Some(score(id, token)),
        });
        let special: Vec<String> =
            self.added().iter().filter(|added| added.special).map(|added| added.content.clone()).collect();
        let mut table = vec![("tokenizer_use_score".to_owned(), "1".to_owned())];
        let mut set = |key: &str, value: &str| table.push((key.to_owned(), value.to_owned()));
        set("tokenizer_add_dummy_prefix", if self.puts_space_before() { "True" } else { "False" });
        if let Some(Normalizer::Sentencepiece { remove_extra_whitespaces: true, .. }) = self.normalizer() {
            set("tokenizer_remove_extra_whitespaces", "True");
        }
        if byte_level {
            set("tokenizer_byte_as_char", "True");
        }
        if !special.is_empty() {
            set("tokenizer_has_special_tokens", "1");
        }
        if let Some(template) = self.chat_template() {
            set("chat_template", template);
        }
        let special_ids = self.special();
        for (key, id) in [
            ("bos_token_id", special_ids.bos),
            ("eos_token_id", special_ids.eos),
            ("pad_token_id", special_ids.padding),
        ] {
            if let Some(id) = id {
                set(key, &id.to_string());
            }
        }
        FlmVocabulary { tokens: tokens.collect(), special, table }
    }

    /// Whether a space is put before every text.
    fn puts_space_before(&self) -> bool {
        let marked = |text: &str| text.starts_with(['▁', ' ']);
        let in_normalizer =
            |normalizer: &Normalizer| matches!(normalizer, Normalizer::Prepend { prepend } if marked(prepend));
        let normalized = match self.normalizer() {
            Some(Normalizer::Sequence { normalizers }) => normalizers.iter().any(in_normalizer),
            Some(Normalizer::Sentencepiece { add_dummy_prefix, .. }) => *add_dummy_prefix,
            Some(one) => in_normalizer(one),
            None => false,
        };
        // A decoder drops the first space where runs of spaces were taken together, too.
        let is_own_rule = matches!(self.normalizer(), Some(Normalizer::Sentencepiece { .. }));
        normalized || (!is_own_rule && self.decoder().leading_space != LeadingSpace::Keep)
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
