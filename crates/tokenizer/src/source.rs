//! A vocabulary from the files beside a model's weights.
//!
//! | there is | then |
//! |---|---|
//! | `tokenizer.json` | it decides every id |
//! | `tokenizer.model` beside it | its scores and kinds are taken over, when it is the same vocabulary |
//! | only `tokenizer.model` | sentencepiece, merging or unigram, or GLM-4's bytes with ranks, with the added tokens of the small files on top |
//! | `ice_text.model` | sentencepiece behind ids of images, with tokens for white space, as ChatGLM-6B has it |
//! | `qwen.tiktoken` | bytes with ranks, and the tokens that Qwen's program puts behind them |
//! | `vocab.json` and `merges.txt` | byte-level, cut as GPT-2 cuts, with the added tokens of the small files on top |
//! | `tokenizer.bin` | llama2.c |
//! | a vocabulary in the `.flm` file | sentencepiece or byte-level, as its keys say |

use crate::chat_source::chat_template;
use crate::chatglm;
use crate::chatglm1;
use crate::flm_vocabulary;
use crate::llama2c_vocabulary;
use crate::merge_order::scores_say_the_same;
use crate::normalizer::Normalizer;
use crate::ranked;
use crate::rounds;
use crate::sentencepiece_model;
use crate::special_tokens::{added_entry, added_on_top, assign, steer_named};
use crate::tokenizer_json;
use crate::vocab_json;
use crate::vocabulary::{Algorithm, Parts, TokenKind, Vocabulary, ids_max, pad, padding_token};
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::flm::FlmVocabulary;
use trueup_formats::{Error, Result, StandIn, TokenizerFiles, quote};

/// What the model itself says about tokens, in `config.json` or a header.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelTokens {
    /// Rows of the embedding; the vocabulary is padded up to it.
    pub vocab_size: Option<usize>,
    /// `bos_token_id`.
    pub bos_token_id: Option<u32>,
    /// `eos_token_id`, one or several.
    pub eos_token_ids: Vec<u32>,
    /// `pad_token_id`.
    pub padding_token_id: Option<u32>,
}

impl Vocabulary {
    /// Reads the vocabulary of a model at `path`. Fails when there is no file, when one lies, or when it needs what is not
    /// supported; the message names the file and the place.
    pub fn from_files(files: &TokenizerFiles, model: &ModelTokens, path: &Path) -> Result<Vocabulary> {
        let mut notes = Vec::new();
        refuse_stand_ins(files, path)?;
        let mut parts = if let Some(bytes) = &files.tokenizer_json {
            let parts = tokenizer_json::read(bytes, model.vocab_size, path)?;
            with_scores(parts, files.tokenizer_model.as_deref(), path, &mut notes)
        } else if let Some(bytes) = &files.tokenizer_model {
            let mut parts = match ranked::is_ranks(bytes) {
                true => chatglm::ranked_parts(bytes, files, path)?,
                false => sentencepiece_model::read(bytes, path)?,
            };
            put_on_top(&mut parts, files, model.vocab_size, path)?;
            if matches!(parts.normalizer, Some(Normalizer::Sentencepiece { .. })) {
                // They stand on top of the model, whose normalizer does not know them.
                parts.added.iter_mut().for_each(|added| added.normalized = false);
            }
            parts
        } else if let Some(bytes) = &files.ice_text {
            chatglm1::parts(bytes, files, path)?
        } else if let Some(bytes) = &files.qwen_tiktoken {
            ranked::qwen_parts(bytes, path)?
        } else if let (Some(vocab), Some(merges)) = (&files.vocab_json, &files.merges) {
            let mut parts = vocab_json::read(vocab, merges, model.vocab_size, path)?;
            put_on_top(&mut parts, files, model.vocab_size, path)?;
            steer_named(&mut parts, files);
            parts
        } else if let Some(file) = &files.llama2c {
            llama2c_vocabulary::parts(file, path)?
        } else if let Some(file) = &files.flm {
            flm_vocabulary::parts(file, model, path, &mut notes)?
        } else if files.is_left_out {
            let error = Error::new(path, "the file has no vocabulary");
            return Err(error.help("give token ids instead of text, or a tokenizer with --tokenizer"));
        } else {
            return Err(Error::new(
                path,
                "no tokenizer found; looked for tokenizer.json, tokenizer.model, ice_text.model, qwen.tiktoken, \
                 vocab.json with merges.txt, and tokenizer.bin",
            )
            .help("put the tokenizer of the model into its folder, or name it with --tokenizer"));
        };
        assign(&mut parts, files, model, path, &mut notes)?;
        pad(&mut parts.tokens, model.vocab_size, path)?;
        if let Some(file) = &files.flm {
            flm_vocabulary::read_own(&mut parts, file, path)?;
        }
        parts.chat_template = chat_template(files).or_else(|| template_of_kind(files, &mut parts));
        Ok(Vocabulary::new(parts, path)?.with_notes(notes))
    }

    /// Reads the vocabulary of a `.flm` file, as [`Vocabulary::from_files`].
    pub(crate) fn from_flm(file: FlmVocabulary, model: &ModelTokens, path: &Path) -> Result<Vocabulary> {
        let chat_template = file.value("chat_template").map(str::to_owned);
        Vocabulary::from_files(
            &TokenizerFiles { chat_template, flm: Some(file), ..TokenizerFiles::default() },
            model,
            path,
        )
    }
}

/// Prompts where no file has a template: the pieces of a `.flm` file, else those of the program that belongs to such files.
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

/// Fails where a pointer or a page stands for a file of the tokenizer: its first bytes say so better than what cannot be read of it.
fn refuse_stand_ins(files: &TokenizerFiles, path: &Path) -> Result<()> {
    let named = [
        ("tokenizer.json", &files.tokenizer_json),
        ("tokenizer.model", &files.tokenizer_model),
        ("ice_text.model", &files.ice_text),
    ];
    let mut found = named.into_iter().filter_map(|(name, bytes)| Some((name, StandIn::of(bytes.as_ref()?)?)));
    found.next().map_or(Ok(()), |(name, stand_in)| Err(stand_in.error(path).at(name)))
}

/// Takes scores and kinds from `tokenizer.model` where it holds the same pieces, and drops the list of merges when scores say
/// the same.
fn with_scores(mut parts: Parts, model: Option<&[u8]>, path: &Path, notes: &mut Vec<String>) -> Parts {
    // A unigram model has its scores in tokenizer.json.
    let model = model.filter(|_| !matches!(parts.algorithm, Algorithm::Unigram { .. }));
    match model.map(|bytes| sentencepiece_model::read(bytes, path)) {
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
                notes.push("only tokenizer.json is used: tokenizer.model has other pieces".to_owned());
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

/// Puts added tokens on top of a sentencepiece vocabulary.
fn put_on_top(parts: &mut Parts, files: &TokenizerFiles, vocab_size: Option<usize>, path: &Path) -> Result<()> {
    let mut on_top = added_on_top(files);
    if chatglm::is_here(files) {
        on_top.extend(chatglm::behind(parts.tokens.len(), &on_top));
    }
    let ids_max = ids_max(vocab_size, parts.tokens.len().saturating_add(on_top.len()));
    let ids: HashSet<u32> = on_top.iter().map(|added| added.id).collect();
    parts.added.retain(|known| !ids.contains(&known.id));
    for added in on_top {
        let place = || format!("added token {}", quote(&added.content));
        let index = usize::try_from(added.id).unwrap_or(usize::MAX);
        if index >= ids_max {
            let problem = format!("it has id {}, but at most {ids_max} ids are supported", added.id);
            return Err(Error::new(path, problem).at(place()).help("use the tokenizer that belongs to this model"));
        }
        while parts.tokens.len() <= index {
            parts.tokens.push(padding_token(parts.tokens.len()));
        }
        let Some(token) = parts.tokens.get_mut(index) else { continue };
        if token.kind == TokenKind::Unused {
            *token = added_entry(&added);
        } else if token.text != added.content {
            let problem = format!("id {} belongs to {} already", added.id, quote(&token.text));
            return Err(Error::new(path, problem).at(place()).help("use the files of the same tokenizer"));
        }
        parts.added.push(added);
    }
    Ok(())
}
