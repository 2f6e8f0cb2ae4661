//! What ChatGLM2, ChatGLM3 and GLM-4 put around their vocabularies: tokens that no piece is, two of them before every
//! text, and prompts.
//!
//! ```text
//! pieces of tokenizer.model | [MASK] [gMASK] [sMASK] <sop> <eop> | ...      before every text: [gMASK] <sop>
//! ```
//!
//! GLM-4 has the same two before every text, and bytes with ranks instead of pieces.

use crate::added_files::Listed;
use crate::pre_tokenizer_names::{self, Known};
use crate::ranked::{self, is_ranks, put_at};
use crate::vocabulary::{AddedToken, Parts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles};

/// The class that `tokenizer_config.json` names.
const CLASS: &str = "ChatGLMTokenizer";
/// Tokens right behind the pieces, in the order of their ids; the program of the tokenizer has them, not its files. It
/// calls the last two `sop` and `eop` and never looks for them in texts, where such letters are words; GLM-4's names
/// are none.
const BEHIND: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"];
/// Before every text: the first token by its name, the second by one of its two names, for files may list it as its
/// program calls it.
const BEFORE: [&[&str]; 2] = [&["[gMASK]"], &["<sop>", "sop"]];
/// Prompts where no file has a template: rounds are counted from 1.
const TEMPLATE: &str = "{{ '[gMASK]<sop>' }}{% set rounds = namespace(count=0) %}{% for message in messages %}{% if message['role'] == 'user' %}\
    {% set rounds.count = rounds.count + 1 %}{{ '[Round ' ~ rounds.count ~ ']\\n\\n问：' ~ message['content'] ~ '\\n\\n答：' }}\
    {% elif message['role'] == 'assistant' %}{{ message['content'] ~ '\\n\\n' }}\
    {% else %}{{ raise_exception('this model supports only the roles user and assistant') }}{% endif %}{% endfor %}";

/// Prompts of GLM-4 where no file has a template.
const RANKED_TEMPLATE: &str = "{{ '[gMASK]<sop>' }}{% for message in messages %}{{ '<|' ~ message['role'] ~ '|>\\n' ~ message['content'] }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
/// Prompts of ChatGLM3 where no file has a template; its program calls the second token before a text `sop`.
const TURNS_TEMPLATE: &str = "{{ '[gMASK]sop' }}{% for message in messages %}{{ '<|' ~ message['role'] ~ '|>\\n ' ~ message['content'] }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
/// The token before what a user says, which ChatGLM3 and GLM-4 have.
const USER: &str = "<|user|>";
/// Where FastLLM has the first of the tokens behind the pieces, whatever a file says.
const FLM_BEHIND: usize = 64_789;
/// The tokens behind those, of ChatGLM3: in `.flm` files that have no entries for them a prompt names them by their
/// ids.
const TURNS: [&str; 4] = ["<|system|>", USER, "<|assistant|>", "<|observation|>"];

/// GGUF's name for the pre-tokenizer of GLM-4.
pub(crate) const CUT: &str = "chatglm-bpe";
/// GGUF's name for the same pre-tokenizer with `ignore_merges`.
pub(crate) const CUT_WITHOUT_MERGES: &str = "glm4";
/// What errors call GLM-4's file of ranks.
const RANKED: &str = "tokenizer.model";

/// Whether the files are of such a tokenizer.
pub(crate) fn is_here(files: &TokenizerFiles) -> bool {
    let config = files.tokenizer_config.as_ref().filter(|_| files.tokenizer_model.is_some());
    let class = config.and_then(|config| config.get("tokenizer_class")).and_then(Value::as_str);
    class == Some(CLASS) || is_ranked(files)
}

/// Whether the files are of GLM-4, whose `tokenizer.model` is a file of ranks.
fn is_ranked(files: &TokenizerFiles) -> bool {
    files.tokenizer_json.is_none() && files.tokenizer_model.as_deref().is_some_and(is_ranks)
}

/// Builds the parts of GLM-4's vocabulary without the tokens behind its ranks. A file of ranks says neither how text is
/// cut nor what stands behind it; that it is GLM-4's is told by the tokens that the small files list. Fails where they
/// do not list the two that stand before every text.
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
    ranked::parts(file, RANKED, CUT, path)
}

/// Whether a name splits text as GLM-4 does.
pub(crate) fn splits_like(known: &Known) -> bool {
    pre_tokenizer_names::by_name(CUT).is_some_and(|own| own.splits_like(known))
}

/// Whether a vocabulary is of this family: `[gMASK]` is among the tokens that were added.
pub(crate) fn is_of(parts: &Parts) -> bool {
    parts.added.iter().any(|token| token.content == "[gMASK]")
}

/// The tokens behind so many pieces, where the files do not list them.
pub(crate) fn behind(pieces: usize, listed: &[AddedToken]) -> Vec<AddedToken> {
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
    (0u32..).zip(&BEHIND).map(token).collect()
}

/// Puts its two tokens before every text.
pub(crate) fn put_before(parts: &mut Parts) {
    // Among added tokens alone: a piece may have such letters too.
    let id = |name: &&str| parts.added.iter().find(|token| token.content == *name).map(|token| token.id);
    let found: Option<Vec<u32>> = BEFORE.iter().map(|names| names.iter().find_map(id)).collect();
    parts.prefix = found.unwrap_or_default();
}

/// Puts the tokens of the program behind the pieces of a `.flm` file, which has no entries for them; `named` are the
/// ids that its prompts name. Not where the model has fewer rows.
pub(crate) fn put_program_tokens(parts: &mut Parts, vocab_size: Option<usize>, named: &BTreeSet<u32>) {
    let behind: Vec<String> = BEHIND.iter().chain(&TURNS).map(|name| (*name).to_owned()).collect();
    let has_turns = named
        .iter()
        .filter_map(|id| usize::try_from(*id).ok())
        .any(|id| id.checked_sub(FLM_BEHIND).is_some_and(|place| (BEHIND.len()..behind.len()).contains(&place)));
    let count = if has_turns { behind.len() } else { BEHIND.len() };
    let has_room = vocab_size.is_some_and(|size| size >= FLM_BEHIND.saturating_add(count));
    if has_room && !is_of(parts) {
        put_at(parts, (FLM_BEHIND..).zip(behind).take(count));
    }
}

/// How a conversation becomes text.
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
        // A piece has the letters of the second token's other name.
        let pieces = ["sop", "[gMASK]"].map(token).to_vec();
        let mut parts = sentencepiece_parts(pieces, true, false, Decoder::sentencepiece(true));
        parts.added.extend_from_slice(added);
        put_before(&mut parts);
        parts.prefix
    }

    #[test]
    fn ranks_are_of_glm4_where_its_tokens_are_listed() {
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
        let error = read(&["<|endoftext|>", "[gMASK]"]).expect_err("a fault").to_string();
        assert!(error.contains("found byte ranks") && error.contains("tokenizer_config.json"), "{error}");
    }

    #[test]
    fn two_tokens_that_were_added_stand_before_a_text() {
        let own = behind(2, &[]);
        assert_eq!(own.iter().map(|token| token.id).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert_eq!(prefix(&own), [3, 5]);
        let mut listed = own;
        listed[3].content = "sop".to_owned();
        assert_eq!(prefix(&listed), [3, 5]);
        assert!(behind(2, &listed).is_empty());
        assert!(prefix(&listed[..3]).is_empty());
    }
}
