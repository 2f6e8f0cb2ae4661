//! What ChatGLM-6B puts around a sentencepiece vocabulary: ids of images before it, tokens for white space, two tokens
//! behind every text, and prompts.
//!
//! ```text
//! ids of ice_text.model     images 0 .. num_image_tokens | pieces       behind every text: [gMASK] <sop>
//! <n>  <|tab|>  <|blank_7|>                                             a line's end, a tab, seven spaces: 2 to 80 are one token
//! ```

use crate::decoder::{Decoder, LeadingSpace};
use crate::normalizer::Normalizer;
use crate::pre_tokenizer::{PreTokenizer, PrependScheme};
use crate::sentencepiece_model;
use crate::vocabulary::{AddedToken, Parts, TOKENS_MAX, Token, TokenKind};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::flm::FlmVocabulary;
use trueup_formats::{Error, Result, TokenizerFiles};

/// Ids of images before the first piece, where `tokenizer_config.json` does not count them.
const IMAGES: u64 = 20_000;
/// The most spaces that are one token; one space is none.
const SPACES_MAX: usize = 80;
/// Behind every text: the key that names each token in `tokenizer_config.json`, and its usual name.
const BEHIND: [(&str, &str); 2] = [("gmask_token", "[gMASK]"), ("bos_token", "<sop>")];
/// Pieces that steer the model.
const STEERING: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"];
/// Prompts: a first question stands alone; with answers before it rounds are counted from 0.
const TEMPLATE: &str = "{% if messages|length == 1 %}{{ messages[0]['content'] }}{% else %}{% set rounds = namespace(count=0) %}\
    {% for message in messages %}{% if message['role'] == 'user' %}\
    {{ '[Round ' ~ rounds.count ~ ']\\n问：' ~ message['content'] ~ '\\n答：' }}{% set rounds.count = rounds.count + 1 %}\
    {% elif message['role'] == 'assistant' %}{{ message['content'] ~ '\\n' }}\
    {% else %}{{ raise_exception('this model supports only the roles user and assistant') }}{% endif %}{% endfor %}{% endif %}\
    {% if add_generation_prompt %}{{ '[gMASK]<sop>' }}{% endif %}";

/// Reads `ice_text.model`. `vocab_size` is the number of rows of the model's embedding; errors name the model `path`.
pub(crate) fn parts(bytes: &[u8], files: &TokenizerFiles, vocab_size: Option<usize>, path: &Path) -> Result<Parts> {
    let mut parts = sentencepiece_model::read(bytes, "ice_text.model", path)?;
    let config = files.tokenizer_config.as_ref();
    let images = config.and_then(|config| config.get("num_image_tokens"));
    let images = images.map_or(Some(IMAGES), Value::as_u64).and_then(|images| usize::try_from(images).ok());
    let most = vocab_size.unwrap_or(TOKENS_MAX).min(TOKENS_MAX).saturating_sub(parts.tokens.len());
    let Some(images) = images.filter(|images| *images <= most) else {
        let found = images.map_or_else(|| "another value".to_owned(), |images| images.to_string());
        let problem = format!("expected a number up to {most}, found {found}");
        return Err(Error::new(path, problem)
            .at("tokenizer_config.json, num_image_tokens")
            .help("get the file of the model again"));
    };
    let image = |number: usize| Token { text: format!("<image_{number}>"), score: 0.0, kind: TokenKind::Unused };
    parts.tokens = (0..images).map(image).chain(parts.tokens).collect();
    let shift = u32::try_from(images).unwrap_or(u32::MAX);
    parts.added.iter_mut().for_each(|added| added.id = added.id.saturating_add(shift));
    parts.special.unknown = parts.special.unknown.map(|id| id.saturating_add(shift));
    arrange(&mut parts);
    Ok(parts)
}

/// Whether a `.flm` file is of such a model, and not of a later one of the family.
pub(crate) fn is_in(file: &FlmVocabulary) -> bool {
    file.flag("position_encoding_2d", false) || file.value("inner_hidden_size").is_some_and(|value| value != "None")
}

/// White space and what steers the model as this vocabulary has it; its other pieces are not looked for in texts. The
/// mark of sentencepiece stands once, before a text. A character map stays: white space is found before it is applied.
pub(crate) fn arrange(parts: &mut Parts) {
    let is_user_defined = |id: u32| {
        let token = usize::try_from(id).ok().and_then(|id| parts.tokens.get(id));
        token.is_some_and(|token| token.kind == TokenKind::UserDefined)
    };
    parts.added.retain(|added| is_user_defined(added.id));
    let mut seen: HashSet<String> = HashSet::new();
    for (id, token) in (0u32..).zip(&mut parts.tokens) {
        let steers = STEERING.contains(&token.text.as_str());
        // A text belongs to the first of its tokens, so that these are few, whatever a file lists.
        if !(steers || white_space(&token.text).is_some()) || !seen.insert(token.text.clone()) {
            continue;
        }
        if steers {
            token.kind = TokenKind::Control;
            put(&mut parts.added, id, token.text.clone(), true);
        } else if let Some(content) = white_space(&token.text) {
            token.kind = TokenKind::UserDefined;
            put(&mut parts.added, id, content, false);
        }
    }
    match &mut parts.normalizer {
        Some(Normalizer::Sentencepiece { add_dummy_prefix, whole_text, .. }) => {
            (*add_dummy_prefix, *whole_text) = (true, true);
            if parts.decoder.leading_space == LeadingSpace::Keep {
                parts.decoder.leading_space = LeadingSpace::DropOne;
            }
        }
        other => {
            *other = None;
            parts.pre_tokenizer =
                Some(PreTokenizer::Metaspace { replacement: '▁', prepend_scheme: PrependScheme::Text, split: false });
            parts.decoder = Decoder::sentencepiece(true);
        }
    }
}

/// Has a token found by its text, in the place of what it was found by before.
fn put(added: &mut Vec<AddedToken>, id: u32, content: String, special: bool) {
    added.retain(|known| known.id != id);
    let (single_word, lstrip, rstrip, normalized) = (false, false, false, false);
    added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special });
}

/// What a token for white space stands for.
fn white_space(text: &str) -> Option<String> {
    match text {
        "<n>" => Some("\n".to_owned()),
        "<|tab|>" => Some("\t".to_owned()),
        _ => {
            let count = text.strip_prefix("<|blank_")?.strip_suffix("|>")?.parse::<usize>().ok()?;
            (2..=SPACES_MAX).contains(&count).then(|| " ".repeat(count))
        }
    }
}

/// Puts its two tokens behind every text.
pub(crate) fn put_behind(parts: &mut Parts, config: Option<&Map<String, Value>>) {
    let name = |key: &str, usual: &'static str| match config.and_then(|config| config.get(key)) {
        Some(Value::String(name)) => name.clone(),
        _ => usual.to_owned(),
    };
    let place = |name: String| parts.tokens.iter().position(|token| token.text == name);
    let found: Option<Vec<usize>> = BEHIND.iter().map(|(key, usual)| place(name(key, usual))).collect();
    let ids: Vec<u32> = found.iter().flatten().filter_map(|place| u32::try_from(*place).ok()).collect();
    put_ids_behind(parts, &ids);
}

/// Puts these tokens behind every text and nothing before it; whatever they are, they steer the model.
pub(crate) fn put_ids_behind(parts: &mut Parts, ids: &[u32]) {
    for id in ids {
        let Some(token) = usize::try_from(*id).ok().and_then(|place| parts.tokens.get_mut(place)) else { continue };
        token.kind = TokenKind::Control;
        put(&mut parts.added, *id, token.text.clone(), true);
    }
    parts.prefix = Vec::new();
    parts.suffix = ids.to_vec();
}

/// How rounds of a conversation become text.
pub(crate) fn template() -> String {
    TEMPLATE.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_for_white_space() {
        assert_eq!(white_space("<n>").as_deref(), Some("\n"));
        assert_eq!(white_space("<|blank_3|>").as_deref(), Some("   "));
        for other in ["<|blank_1|>", "<|blank_81|>", "<|blank_x|>", "<|blank_|>", "n"] {
            assert_eq!(white_space(other), None, "{other}");
        }
        assert_eq!(white_space("<|blank_99999999999999999999|>"), None);
    }
}
