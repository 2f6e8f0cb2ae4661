//! Vocabularies of ChatGLM2, ChatGLM3 and GLM-4: special tokens that files may not list, two tokens before every text,
//! and chat templates.
//!
//! ```text
//! pieces of tokenizer.model | [MASK] [gMASK] [sMASK] <sop> <eop> | ...      before every text: [gMASK] <sop>
//! ```
//!
//! GLM-4 also puts these two tokens before every text, but its `tokenizer.model` is a rank file and has no pieces.

use crate::added_files::Listed;
use crate::pre_tokenizer_names::{self, Known};
use crate::ranked::{self, is_ranks, put_at};
use crate::vocabulary::{AddedToken, Parts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, quote};

/// The tokenizer class in `tokenizer_config.json`.
const CLASS: &str = "ChatGLMTokenizer";
/// Special tokens that follow the pieces, by ID. They are defined in the tokenizer's Python code, not in its files. The
/// code calls the last two `sop` and `eop` and does not search texts for them. GLM-4's names are used here, because
/// `sop` and `eop` are ordinary words in texts.
const AFTER_PIECES: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"];
/// Names of the two tokens before every text. Some files list the second one by the name that the Python code uses.
const BEFORE: [&[&str]; 2] = [&["[gMASK]"], &["<sop>", "sop"]];
/// Chat template of ChatGLM2 if no file has one. Rounds are counted from 1.
const TEMPLATE: &str = "{{ '[gMASK]<sop>' }}{% set rounds = namespace(count=0) %}{% for message in messages %}{% if message['role'] == 'user' %}\
    {% set rounds.count = rounds.count + 1 %}{{ '[Round ' ~ rounds.count ~ ']\\n\\n问：' ~ message['content'] ~ '\\n\\n答：' }}\
    {% elif message['role'] == 'assistant' %}{{ message['content'] ~ '\\n\\n' }}\
    {% else %}{{ raise_exception('this model supports only the roles user and assistant') }}{% endif %}{% endfor %}";

/// Chat template of GLM-4 if no file has one.
const RANKED_TEMPLATE: &str = "{{ '[gMASK]<sop>' }}{% for message in messages %}{{ '<|' ~ message['role'] ~ '|>\\n' ~ message['content'] }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
/// Chat template of ChatGLM3 if no file has one. Its Python code calls the second token before a text `sop`.
const TURNS_TEMPLATE: &str = "{{ '[gMASK]sop' }}{% for message in messages %}{{ '<|' ~ message['role'] ~ '|>\\n ' ~ message['content'] }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
/// The token before a user's message in ChatGLM3 and GLM-4.
const USER: &str = "<|user|>";
/// The ID that FastLLM gives to the first of [`AFTER_PIECES`] in every file.
const FLM_AFTER_PIECES: usize = 64_789;
/// The tokens of ChatGLM3 that follow [`AFTER_PIECES`]. If a `.flm` file has no entries for them, its prompts name them
/// by ID.
const TURNS: [&str; 4] = ["<|system|>", USER, "<|assistant|>", "<|observation|>"];

/// GGUF's name for the pre-tokenizer of GLM-4.
pub(crate) const CUT: &str = "chatglm-bpe";
/// GGUF's name for the same pre-tokenizer with `ignore_merges`.
pub(crate) const CUT_WITHOUT_MERGES: &str = "glm4";
/// Name of GLM-4's rank file in errors.
const RANKED: &str = "tokenizer.model";

/// Whether the files belong to a tokenizer of this family.
pub(crate) fn is_here(files: &TokenizerFiles) -> bool {
    let config = files.tokenizer_config.as_ref().filter(|_| files.tokenizer_model.is_some());
    let class = config.and_then(|config| config.get("tokenizer_class")).and_then(Value::as_str);
    class == Some(CLASS) || is_ranked(files)
}

/// Whether the files belong to GLM-4, whose `tokenizer.model` is a rank file.
pub(crate) fn is_ranked(files: &TokenizerFiles) -> bool {
    files.tokenizer_json.is_none() && files.tokenizer_model.as_deref().is_some_and(is_ranks)
}

/// Builds the parts of GLM-4's vocabulary without its special tokens. A rank file contains neither a pre-tokenizer nor
/// special tokens; GLM-4 is identified by the added tokens in other files.
///
/// # Errors
/// The rank file is damaged, the two tokens before every text are not listed, or the ranks end before the first listed
/// token.
pub(crate) fn ranked_parts(file: &[u8], files: &TokenizerFiles, path: &Path) -> Result<Parts> {
    let listed = Listed::read(files).tokens;
    let is_listed = |names: &&[&str]| listed.iter().any(|token| names.contains(&token.content.as_str()));
    if !BEFORE.iter().all(is_listed) {
        let problem = "expected a SentencePiece model or the byte ranks of GLM-4, found byte ranks without a file that \
            lists [gMASK] and <sop>";
        let help = "put the tokenizer.json of the model into its directory; for GLM-4, tokenizer_config.json with \
            added_tokens_decoder is enough";
        return Err(Error::new(path, problem).at(RANKED).help(help));
    }
    let parts = ranked::parts(file, RANKED, CUT, path)?;
    let count = parts.tokens.len();
    // A token listed at the ID of a rank is reported when the tokens are merged.
    match listed.first() {
        Some(first) if usize::try_from(first.id).is_ok_and(|id| id > count) => {
            let problem = format!(
                "expected {} ranks, because the first listed special token, \"{}\", has ID {}, found {count}",
                first.id,
                quote(&first.content),
                first.id
            );
            let help = "the file is truncated or belongs to another model; download it again";
            let file = files.replacement.as_deref().unwrap_or(path);
            Err(Error::new(file, problem).at(RANKED).help(help))
        }
        Some(_) | None => Ok(parts),
    }
}

/// Whether a pre-tokenizer splits text as GLM-4 does.
pub(crate) fn splits_like(known: &Known) -> bool {
    pre_tokenizer_names::by_name(CUT).is_some_and(|own| own.splits_like(known))
}

/// Whether a vocabulary is of this family: `[gMASK]` is one of its added tokens.
pub(crate) fn is_of(parts: &Parts) -> bool {
    parts.added.iter().any(|token| token.content == "[gMASK]")
}

/// The special tokens that follow `pieces` pieces, or none if the files list them.
pub(crate) fn after_pieces(pieces: usize, listed: &[AddedToken]) -> Vec<AddedToken> {
    let first = u32::try_from(pieces).unwrap_or(u32::MAX);
    let is_listed = |name: &str| listed.iter().any(|token| token.content == name);
    if is_listed("[gMASK]") {
        return Vec::new();
    }
    let token = |(place, name): (u32, &&str)| AddedToken {
        id: first.saturating_add(place),
        content: (*name).to_owned(),
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
    };
    (0u32..).zip(&AFTER_PIECES).map(token).collect()
}

/// Puts the two tokens of this family before every text, or none if one of them is missing.
pub(crate) fn put_before(parts: &mut Parts) {
    // Only added tokens count, because a piece can have the same text.
    let id = |name: &&str| parts.added.iter().find(|token| token.content == *name).map(|token| token.id);
    let found: Option<Vec<u32>> = BEFORE.iter().map(|names| names.iter().find_map(id)).collect();
    parts.prefix = found.unwrap_or_default();
}

/// Adds the special tokens to the pieces of a `.flm` file that has no entries for them, if the embedding has rows for
/// them. `named` contains the IDs that the file's prompts name.
pub(crate) fn put_program_tokens(parts: &mut Parts, vocab_size: Option<usize>, named: &BTreeSet<u32>) {
    let names: Vec<String> = AFTER_PIECES.iter().chain(&TURNS).map(|name| (*name).to_owned()).collect();
    let has_turns = named
        .iter()
        .filter_map(|id| usize::try_from(*id).ok())
        .any(|id| id.checked_sub(FLM_AFTER_PIECES).is_some_and(|at| (AFTER_PIECES.len()..names.len()).contains(&at)));
    let count = if has_turns { names.len() } else { AFTER_PIECES.len() };
    let has_rows = vocab_size.is_some_and(|size| size >= FLM_AFTER_PIECES.saturating_add(count));
    if has_rows && !is_of(parts) {
        put_at(parts, (FLM_AFTER_PIECES..).zip(names).take(count));
    }
}

/// The chat template if no file has one.
pub(crate) fn template(parts: &Parts) -> String {
    let has_turns = parts.added.iter().any(|token| token.content == USER);
    match (parts.decoder.byte_level, has_turns) {
        (true, _) => RANKED_TEMPLATE,
        (false, true) => TURNS_TEMPLATE,
        (false, false) => TEMPLATE,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Decoder;
    use crate::sentencepiece_model::sentencepiece_parts;
    use crate::source::ModelTokens;
    use crate::vocabulary::{Token, TokenKind, Vocabulary};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    fn prefix(added: &[AddedToken]) -> Vec<u32> {
        let token = |text: &str| Token { text: text.to_owned(), score: 0.0, kind: TokenKind::Normal };
        // Pieces with the names of these tokens as their texts are not used.
        let pieces = ["sop", "[gMASK]"].map(token).to_vec();
        let mut parts = sentencepiece_parts(pieces, true, false, Decoder::sentencepiece(true));
        parts.added.extend_from_slice(added);
        put_before(&mut parts);
        parts.prefix
    }

    #[test]
    fn rank_files_belong_to_glm4_if_its_tokens_are_listed() {
        let ranks: String = (0..=255u8).map(|byte| format!("{} {byte}\n", STANDARD.encode([byte]))).collect();
        let listed = |names: &[&str]| {
            let token =
                |(id, name): (usize, &&str)| (id.to_string(), serde_json::json!({"content": name, "special": true}));
            let tokens: serde_json::Map<String, Value> = (256_usize..).zip(names).map(token).collect();
            let tokenizer_config = serde_json::json!({"added_tokens_decoder": tokens}).as_object().cloned();
            TokenizerFiles {
                tokenizer_model: Some(ranks.clone().into_bytes()),
                tokenizer_config,
                ..TokenizerFiles::default()
            }
        };
        let read = |names: &[&str]| {
            Vocabulary::from_files(&listed(names), &ModelTokens::default(), Path::new("m"))
                .map(|read| read.parts().prefix.clone())
        };
        assert_eq!(read(&["<|endoftext|>", "[gMASK]", "<sop>"]).expect("a vocabulary"), [257, 258]);
        let given = TokenizerFiles { is_replaced: true, ..listed(&["<|endoftext|>", "[gMASK]", "<sop>"]) };
        let given = Vocabulary::from_files(&given, &ModelTokens::default(), Path::new("m")).expect("a vocabulary");
        assert_eq!(given.parts().prefix, [257, 258], "a rank file given by the user has the same special tokens");
        let error = read(&["<|endoftext|>", "[gMASK]"]).expect_err("a fault").to_string();
        assert!(error.contains("found byte ranks") && error.contains("tokenizer_config.json"), "{error}");
    }

    #[test]
    fn two_added_tokens_are_put_before_a_text() {
        let own = after_pieces(2, &[]);
        assert_eq!(own.iter().map(|token| token.id).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert_eq!(prefix(&own), [3, 5]);
        let mut listed = own;
        listed[3].content = "sop".to_owned();
        assert_eq!(prefix(&listed), [3, 5]);
        assert!(after_pieces(2, &listed).is_empty());
        assert!(prefix(&listed[..3]).is_empty());
    }
}
