//! What ChatGLM2 and ChatGLM3 put around a sentencepiece vocabulary: tokens that no piece is, two of them before every text, and prompts.
//!
//! ```text
//! pieces of tokenizer.model | [MASK] [gMASK] [sMASK] <sop> <eop> | ...      before every text: [gMASK] <sop>
//! ```

use crate::vocabulary::{AddedToken, Parts, ids_by_text};
use serde_json::Value;
use trueup_formats::TokenizerFiles;

/// The class that `tokenizer_config.json` names.
const CLASS: &str = "ChatGLMTokenizer";
/// Tokens right behind the pieces, in the order of their ids; the program of the tokenizer has them, not its files. It calls the last two `sop` and `eop` and never
/// looks for them in texts, where such letters are words; GLM-4's names are none.
const BEHIND: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"];
/// Before every text; the second one as files may list it.
const BEFORE: [&str; 3] = ["[gMASK]", "<sop>", "sop"];
/// Prompts where no file has a template: rounds are counted from 1.
const TEMPLATE: &str = "{{ '[gMASK]<sop>' }}{% set rounds = namespace(count=0) %}{% for message in messages %}{% if message['role'] == 'user' %}\
    {% set rounds.count = rounds.count + 1 %}{{ '[Round ' ~ rounds.count ~ ']\\n\\n问：' ~ message['content'] ~ '\\n\\n答：' }}\
    {% elif message['role'] == 'assistant' %}{{ message['content'] ~ '\\n\\n' }}\
    {% else %}{{ raise_exception('this model knows the roles user and assistant only') }}{% endif %}{% endfor %}";

/// Whether the files are of such a tokenizer.
pub(crate) fn is_here(files: &TokenizerFiles) -> bool {
    let config = files.tokenizer_config.as_ref().filter(|_| files.tokenizer_model.is_some());
    config.and_then(|config| config.get("tokenizer_class")).and_then(Value::as_str) == Some(CLASS)
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
    let ids = ids_by_text(&parts.tokens);
    parts.prefix = BEFORE.iter().filter_map(|name| ids.get(name).copied()).collect();
}

/// How rounds of a conversation become text.
pub(crate) fn template() -> String {
    TEMPLATE.to_owned()
}
