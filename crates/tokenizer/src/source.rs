//! Reads a vocabulary from the files next to a model's weights.
//!
//! | files | vocabulary |
//! |---|---|
//! | `tokenizer.json` | determines every ID |
//! | `tokenizer.model` in addition | its scores and kinds are used if it contains the same vocabulary |
//! | only `tokenizer.model` | a SentencePiece model, BPE or Unigram, or the rank file of GLM-4 |
//! | `ice_text.model` | the SentencePiece model of ChatGLM-6B, which follows image IDs, with whitespace tokens |
//! | `qwen.tiktoken` | a rank file, and the special tokens from Qwen's Python code |
//! | `vocab.json` and `merges.txt` | byte-level BPE with the pre-tokenizer of the tokenizer class; used instead of `tokenizer.model` if the class stores its vocabulary there |
//! | `vocab.txt` | WordPiece of BERT |
//! | `tokenizer.bin` | llama2.c |
//! | a vocabulary in the `.flm` file | SentencePiece or byte-level, depending on its keys |
//!
//! Added tokens of other files are merged into the vocabularies of `tokenizer.json`, `tokenizer.model`, `vocab.json`
//! and `vocab.txt` (`added_files.rs`).

use crate::added_files::{Listed, Target, merge, note_replaced};
use crate::chat_source::chat_template;
use crate::chatglm;
use crate::chatglm1;
use crate::config_types;
use crate::flm_vocabulary;
use crate::llama_settings;
use crate::llama2c_vocabulary;
use crate::merge_order::scores_say_the_same;
use crate::normalizer::Normalizer;
use crate::pre_tokenizer::PreTokenizer;
use crate::ranked;
use crate::rounds;
use crate::sentencepiece_model;
use crate::sentinels;
use crate::special_names::SpecialNames;
use crate::special_tokens::assign;
use crate::tokenizer_json;
use crate::vocab_json::{self, first_difference};
use crate::vocab_txt;
use crate::vocabulary::{Algorithm, Parts, TokenKind, Vocabulary, pad};
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::flm::FlmVocabulary;
use trueup_formats::{Error, Result, StandIn, TokenizerFiles, quote};

/// Token settings of the model, from `config.json` or a file header.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelTokens {
    /// Rows of the embedding. The vocabulary is padded to this size.
    pub vocab_size: Option<usize>,
    /// `bos_token_id`.
    pub bos_token_id: Option<u32>,
    /// `eos_token_id`, one or several.
    pub eos_token_ids: Vec<u32>,
    /// `pad_token_id`.
    pub padding_token_id: Option<u32>,
    /// `model_type`, which determines the tokenizer class if no file names one.
    pub model_type: Option<String>,
    /// `tokenizer_class`.
    pub tokenizer_class: Option<String>,
}

impl Vocabulary {
    /// Reads the vocabulary of the model at `path`.
    ///
    /// # Errors
    /// There is no vocabulary, a file is damaged or invalid, or it needs a feature that is not supported. The message
    /// names the file and the place.
    pub fn from_files(files: &TokenizerFiles, model: &ModelTokens, path: &Path) -> Result<Vocabulary> {
        let mut notes = Notes::default();
        refuse_stand_ins(files, path)?;
        config_types::check(files, path)?;
        let mut names = match sentinels::is_here(files, model) {
            true => sentinels::names(files),
            false => SpecialNames::of(files),
        };
        let two_files = files.vocab_json.as_deref().zip(files.merges.as_deref());
        let mut parts = if let Some(bytes) = &files.tokenizer_json {
            from_tokenizer_json(bytes, files, model, path, &mut notes)?
        } else if let Some(two_files) = two_files.filter(|_| vocab_json::is_named(files, model)) {
            from_vocab_json(two_files, files, model, path, &mut names, &mut notes.conflicts)?
        } else if let Some(bytes) = &files.tokenizer_model {
            from_tokenizer_model(bytes, files, model, path, &mut notes)?
        } else if let Some(bytes) = &files.ice_text {
            chatglm1::parts(bytes, files, model.vocab_size, path)?
        } else if let Some(ranks) = &files.tiktoken {
            ranked::check_name(ranks, files, path)?;
            ranked::qwen_parts(&ranks.bytes, files, path)?
        } else if let Some(two_files) = two_files {
            from_vocab_json(two_files, files, model, path, &mut names, &mut notes.conflicts)?
        } else if let Some(bytes) = &files.vocab_txt {
            from_vocab_txt(bytes, files, model, path, &mut names, &mut notes.conflicts)?
        } else if let Some(file) = &files.llama2c {
            llama2c_vocabulary::parts(file, path)?
        } else if let Some(file) = &files.flm {
            flm_vocabulary::parts(file, model, path, &mut notes.others)?
        } else {
            return Err(no_vocabulary(files, path));
        };
        note_split(files, &mut notes.others);
        if files.is_replaced {
            note_replaced(&parts, files, &mut notes.others);
        }
        assign(&mut parts, files, model, path, &names, &mut notes.conflicts)?;
        vocab_txt::settle_accents(parts.normalizer.as_mut());
        pad(&mut parts.tokens, model.vocab_size, path)?;
        if let Some(file) = &files.flm {
            flm_vocabulary::read_own(&mut parts, file, path)?;
        }
        parts.chat_template = chat_template(files).or_else(|| template_of_kind(files, &mut parts));
        notes.others.extend(unread(files, model));
        Ok(Vocabulary::new(parts, path)?.with_conflicts(notes.conflicts).with_notes(notes.others))
    }

    /// Reads the vocabulary of a `.flm` file, like [`Vocabulary::from_files`].
    pub(crate) fn from_flm(file: FlmVocabulary, model: &ModelTokens, path: &Path) -> Result<Vocabulary> {
        let chat_template = file.value("chat_template").map(str::to_owned);
        Vocabulary::from_files(
            &TokenizerFiles { chat_template, flm: Some(file), ..TokenizerFiles::default() },
            model,
            path,
        )
    }
}

/// Notes about the files.
#[derive(Default)]
struct Notes {
    /// Files that disagree or are incomplete.
    conflicts: Vec<String>,
    /// Settings that are not applied, files that are not read.
    others: Vec<String>,
}

/// The chat template if no file has one: built from the prompt pieces of a `.flm` file, or the one in the Python code
/// of the model.
fn template_of_kind(files: &TokenizerFiles, parts: &mut Parts) -> Option<String> {
    if files.ice_text.is_some() {
        return Some(chatglm1::template());
    }
    if chatglm::is_here(files) {
        return Some(chatglm::template(parts));
    }
    let of_files = match &files.flm {
        Some(file) => flm_vocabulary::chat_template(file, parts),
        None => ranked::qwen_template(files),
    };
    of_files.or_else(|| rounds::of_program(files, parts).map(|rounds| rounds.template()))
}

/// Fails if a tokenizer file is in fact a Git LFS pointer or a web page. This error is clearer than a parse error.
fn refuse_stand_ins(files: &TokenizerFiles, path: &Path) -> Result<()> {
    let named: [(&str, Option<&[u8]>); 3] = [
        ("tokenizer.json", files.tokenizer_json.as_deref()),
        (files.model_name(), files.tokenizer_model.as_deref()),
        ("ice_text.model", files.ice_text.as_deref()),
    ];
    let are_absent = named.iter().all(|(_, bytes)| bytes.is_none());
    // The other files are read only if these are absent, in this order.
    let others = match (&files.tiktoken, &files.vocab_json, &files.merges) {
        _ if !are_absent => Vec::new(),
        (Some(ranks), ..) => vec![(ranks.name.as_str(), Some(ranks.bytes.as_slice()))],
        (None, Some(vocab), Some(merges)) => {
            vec![("vocab.json", Some(vocab.as_slice())), ("merges.txt", Some(merges.as_slice()))]
        }
        _ => vec![("vocab.txt", files.vocab_txt.as_deref())],
    };
    let mut found = named.into_iter().chain(others).filter_map(|(name, bytes)| Some((name, StandIn::of(bytes?)?)));
    found.next().map_or(Ok(()), |(name, stand_in)| Err(stand_in.error(path).at(quote(name))))
}

/// Takes scores and kinds from `tokenizer.model` if it has the same pieces, and drops the merges if merging by scores
/// gives the same result.
fn with_scores(mut parts: Parts, files: &TokenizerFiles, path: &Path, notes: &mut Vec<String>) -> Parts {
    // A unigram model has its scores in tokenizer.json.
    let model = files.tokenizer_model.as_deref().filter(|_| !matches!(parts.algorithm, Algorithm::Unigram { .. }));
    match model.map(|bytes| sentencepiece_model::read_unchecked(bytes, files.model_name(), path)) {
        None => {}
        Some(Err(problem)) => notes.push(format!("only tokenizer.json is used: {problem}")),
        Some(Ok(pieces)) => {
            let same = pieces.tokens.len() <= parts.tokens.len()
                && pieces.tokens.iter().zip(&parts.tokens).all(|(piece, token)| piece.text == token.text);
            if same {
                for (token, piece) in parts.tokens.iter_mut().zip(&pieces.tokens) {
                    token.score = piece.score;
                    if token.kind == TokenKind::Normal {
                        token.kind = piece.kind;
                    }
                }
            } else {
                notes.push(other_pieces(&pieces, &parts));
            }
        }
    }
    if let Algorithm::Merges { merges, byte_fallback: true, ignore_merges: false, .. } = &parts.algorithm
        && scores_say_the_same(&parts.tokens, &parts.added, merges)
    {
        parts.algorithm = Algorithm::Scores;
    }
    parts
}

/// A note with the first difference between the pieces of `tokenizer.model` and a vocabulary.
fn other_pieces(pieces: &Parts, parts: &Parts) -> String {
    let mut pairs = (0u32..).zip(&pieces.tokens).zip(parts.tokens.iter().map(Some).chain(std::iter::repeat(None)));
    let differing = pairs.find(|((_, piece), token)| token.is_none_or(|token| token.text != piece.text));
    let place = differing.map(|((id, piece), token)| {
        let token = token.map_or_else(|| "missing".to_owned(), |token| format!("\"{}\"", quote(&token.text)));
        format!(
            "; the first difference is at ID {id}: {token} in tokenizer.json, \"{}\" in tokenizer.model",
            quote(&piece.text)
        )
    });
    format!("tokenizer.json is used instead of tokenizer.model, as in transformers{}", place.unwrap_or_default())
}

/// The vocabulary of `tokenizer.json`, with the added tokens of other files.
fn from_tokenizer_json(
    bytes: &[u8],
    files: &TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    notes: &mut Notes,
) -> Result<Parts> {
    let tokenizer_json::Read { mut parts, beyond, conflict } = {
        let file = files.replacement.as_deref().unwrap_or(path);
        tokenizer_json::read(bytes, model.vocab_size, file, &mut notes.others)?
    };
    let notes = &mut notes.conflicts;
    notes.extend(conflict);
    if let Some((text, id, other)) = files.vocab_json.as_deref().and_then(|bytes| first_difference(bytes, &parts)) {
        let other = other.map_or_else(|| "none".to_owned(), |other| other.to_string());
        notes.push(format!(
            "tokenizer.json is used instead of vocab.json, as in transformers; they differ, first in \"{}\", which has ID {other} in \
             tokenizer.json and ID {id} in vocab.json",
            quote(&text)
        ));
    }
    let target =
        Target { file: "tokenizer.json", vocab_size: model.vocab_size, path, beyond, makes_ends: false, by_text: true };
    merge_files(&mut parts, files, &SpecialNames::of(files), target, notes)?;
    settle_prefix_space(&mut parts, files, notes);
    vocab_txt::settle_normalizer(&mut parts, files, notes);
    if let Some((line, text)) = files.vocab_txt.as_deref().and_then(|bytes| vocab_txt::first_difference(bytes, &parts))
    {
        notes.push(format!(
            "tokenizer.json is used instead of vocab.txt, as in transformers; the first difference is \"{}\" in line {line} \
             of vocab.txt",
            quote(&text)
        ));
    }
    Ok(with_scores(parts, files, path, notes))
}

/// Applies `add_prefix_space` of `tokenizer_config.json`, or false if it is absent, if `ByteLevel` is the whole
/// pre-tokenizer of `tokenizer.json`. The constructor of fast tokenizers in transformers does the same.
fn settle_prefix_space(parts: &mut Parts, files: &TokenizerFiles, notes: &mut Vec<String>) {
    let Some(config) = files.tokenizer_config.as_ref().filter(|_| !files.is_replaced) else { return };
    let wanted = config.get("add_prefix_space").and_then(serde_json::Value::as_bool).unwrap_or(false);
    if let Some(PreTokenizer::ByteLevel { add_prefix_space, .. }) = &mut parts.pre_tokenizer
        && *add_prefix_space != wanted
    {
        *add_prefix_space = wanted;
        notes.push(format!(
            "add_prefix_space is {wanted} in tokenizer_config.json and {} in tokenizer.json; {wanted} is used, as in transformers",
            !wanted
        ));
    }
}

/// The vocabulary of `vocab.json` and `merges.txt`, with the added tokens of other files.
fn from_vocab_json<'f>(
    two_files: (&[u8], &[u8]),
    files: &'f TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    names: &mut SpecialNames<'f>,
    notes: &mut Vec<String>,
) -> Result<Parts> {
    let class = vocab_json::class(files, model, path, notes)?;
    *names = SpecialNames::of(files).with_defaults(class.defaults);
    let tokenizer_json::Read { mut parts, beyond, .. } =
        vocab_json::read(two_files, class, files, model.vocab_size, path)?;
    let target = Target {
        file: vocab_json::VOCABULARY,
        vocab_size: model.vocab_size,
        path,
        beyond,
        makes_ends: true,
        by_text: true,
    };
    merge_files(&mut parts, files, names, target, notes)?;
    vocab_json::put_around(&mut parts, class, files, |key| names.role(key).map(str::to_owned));
    Ok(parts)
}

/// The vocabulary of `vocab.txt`, with the added tokens of other files.
fn from_vocab_txt<'f>(
    bytes: &[u8],
    files: &'f TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    names: &mut SpecialNames<'f>,
    notes: &mut Vec<String>,
) -> Result<Parts> {
    *names = SpecialNames::of(files).with_defaults(vocab_txt::DEFAULTS);
    let tokenizer_json::Read { mut parts, beyond, .. } = vocab_txt::read(bytes, files, model.vocab_size, path)?;
    let target = Target {
        file: vocab_txt::VOCABULARY,
        vocab_size: model.vocab_size,
        path,
        beyond,
        makes_ends: false,
        by_text: true,
    };
    merge_files(&mut parts, files, names, target, notes)?;
    vocab_txt::put_around(&mut parts, |key| names.role(key).map(str::to_owned));
    Ok(parts)
}

/// The vocabulary of `tokenizer.model`, with the added tokens of other files.
fn from_tokenizer_model(
    bytes: &[u8],
    files: &TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    notes: &mut Notes,
) -> Result<Parts> {
    let mut parts = match ranked::is_ranks(bytes) {
        true => chatglm::ranked_parts(bytes, files, path)?,
        false => sentencepiece_model::read(bytes, files.model_name(), files.replacement.as_deref().unwrap_or(path))?,
    };
    llama_settings::apply(&mut parts, files, model);
    let sentinels = match sentinels::is_here(files, model) {
        true => sentinels::tokens(&parts.tokens, files, path)?,
        false => Vec::new(),
    };
    let beyond = cut_beyond(&mut parts, model.vocab_size);
    let target = Target {
        file: files.model_name(),
        vocab_size: model.vocab_size,
        path,
        beyond,
        makes_ends: false,
        by_text: false,
    };
    if chatglm::is_here(files) {
        // The tokenizer's Python code defines more tokens and all roles. A rank file has no special tokens, so it needs
        // those of the directory even if it replaces the file there.
        let needs_list = !files.is_replaced || chatglm::is_ranked(files);
        let mut listed = if needs_list { Listed::read(files) } else { Listed::none() };
        listed.tokens.extend(chatglm::after_pieces(parts.tokens.len(), &listed.tokens));
        merge(&mut parts, listed, (files, &SpecialNames::none()), target, &mut notes.conflicts)?;
    } else if sentinels::is_here(files, model) {
        let (mut listed, names) = match files.is_replaced {
            true => (Listed::none(), SpecialNames::none()),
            false => (Listed::read(files), sentinels::names(files)),
        };
        let ids: HashSet<u32> = listed.tokens.iter().map(|token| token.id).collect();
        listed.tokens.extend(sentinels.into_iter().filter(|token| !ids.contains(&token.id)));
        notes.others.extend(sentinels::note(files));
        merge(&mut parts, listed, (files, &names), target, &mut notes.conflicts)?;
    } else {
        merge_files(&mut parts, files, &SpecialNames::of(files), target, &mut notes.conflicts)?;
    }
    if matches!(parts.normalizer, Some(Normalizer::Sentencepiece { .. })) {
        // Added tokens are found in raw text, because the normalizer of the model does not know them.
        parts.added.iter_mut().for_each(|added| added.normalized = false);
    }
    Ok(parts)
}

/// Merges the added tokens of other files, unless `--tokenizer` replaces the tokenizer.
fn merge_files(
    parts: &mut Parts,
    files: &TokenizerFiles,
    names: &SpecialNames<'_>,
    target: Target<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    match files.is_replaced {
        true => merge(parts, Listed::none(), (&TokenizerFiles::default(), &SpecialNames::none()), target, notes),
        false => merge(parts, Listed::read(files), (files, names), target, notes),
    }
}

/// Removes the tokens that have no row in the embedding, unless text can be encoded with one of them. Returns the
/// removed tokens without padding.
fn cut_beyond(parts: &mut Parts, vocab_size: Option<usize>) -> Vec<(u32, String)> {
    let rows = vocab_size.unwrap_or(usize::MAX);
    let in_text = |kind: TokenKind| match kind {
        TokenKind::Normal | TokenKind::Byte | TokenKind::Unknown => true,
        TokenKind::Control | TokenKind::UserDefined | TokenKind::Unused => false,
    };
    let mut beyond = Vec::new();
    if parts.tokens.get(rows..).is_none_or(|rest| rest.iter().any(|token| in_text(token.kind))) {
        return beyond;
    }
    for (id, token) in (0u32..).zip(&parts.tokens).skip(rows).filter(|(_, token)| token.kind != TokenKind::Unused) {
        beyond.push((id, token.text.clone()));
    }
    parts.tokens.truncate(rows);
    parts.added.retain(|added| usize::try_from(added.id).is_ok_and(|id| id < rows));
    beyond
}

/// Adds a note if `split_special_tokens` is true. With it, transformers encodes special tokens in a prompt as ordinary
/// text.
fn note_split(files: &TokenizerFiles, notes: &mut Vec<String>) {
    let key = files.tokenizer_config.as_ref().and_then(|config| config.get("split_special_tokens"));
    if key.and_then(serde_json::Value::as_bool) == Some(true) && !files.is_replaced {
        notes.push(
            "split_special_tokens in tokenizer_config.json is ignored, because GGUF has no key for it: text in a \
             prompt that spells a special token is encoded as that token; transformers splits it into ordinary tokens"
                .to_owned(),
        );
    }
}

/// Notes about the vocabularies of a directory that are not read because another one is used.
fn unread(files: &TokenizerFiles, model: &ModelTokens) -> Vec<String> {
    let two_files = files.vocab_json.is_some() && files.merges.is_some();
    let present = [
        ("tokenizer.json", files.tokenizer_json.is_some()),
        ("vocab.json with merges.txt", two_files && vocab_json::is_named(files, model)),
        (files.model_name(), files.tokenizer_model.is_some()),
        ("ice_text.model", files.ice_text.is_some()),
        ("qwen.tiktoken", files.tiktoken.is_some()),
        ("vocab.json with merges.txt", two_files),
        ("vocab.txt", files.vocab_txt.is_some()),
    ];
    let mut present = present.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name);
    let Some(used) = present.next() else { return Vec::new() };
    // These files are compared with tokenizer.json if it is used.
    let compared = [files.model_name(), "vocab.json with merges.txt", "vocab.txt"];
    let unread = present.filter(|name| *name != used && !(used == "tokenizer.json" && compared.contains(name)));
    unread.map(|name| format!("{name} is not read, because {used} is used")).collect()
}

/// The error if there is no vocabulary.
fn no_vocabulary(files: &TokenizerFiles, path: &Path) -> Error {
    if files.is_left_out {
        let error = Error::new(path, "expected a vocabulary, found none");
        return error.help("pass a tokenizer with --tokenizer");
    }
    Error::new(
        path,
        "expected a tokenizer (tokenizer.json, tokenizer.model, spiece.model, ice_text.model, qwen.tiktoken, vocab.json with \
         merges.txt, vocab.txt, or tokenizer.bin), found none",
    )
    .help("put the tokenizer of the model into its directory, or pass it with --tokenizer")
}
