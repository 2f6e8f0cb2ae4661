//! Vocabulary of ChatGLM-6B: SentencePiece pieces that follow image IDs, whitespace tokens, two tokens after every
//! text, and a chat template.
//!
//! ```text
//! IDs of ice_text.model     images 0 .. num_image_tokens | pieces       after every text: [gMASK] <sop>
//! <n>  <|tab|>  <|blank_7|>     a line feed, a tab, seven spaces; a token has 2 to 80 spaces
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

/// Number of image IDs before the first piece, if `tokenizer_config.json` does not specify it.
const IMAGES: u64 = 20_000;
/// Maximum number of spaces in one token; the minimum is 2.
const SPACES_MAX: usize = 80;
/// The tokens after every text: the key of each token's name in `tokenizer_config.json`, and the default name.
const BEHIND: [(&str, &str); 2] = [("gmask_token", "[gMASK]"), ("bos_token", "<sop>")];
/// Pieces that become control tokens.
const STEERING: [&str; 5] = ["[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"];
/// The chat template. A single message is used as is; in longer conversations, rounds are counted from 0.
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
            .help("download the model's tokenizer_config.json again"));
    };
    let image = |number: usize| Token { text: format!("<image_{number}>"), score: 0.0, kind: TokenKind::Unused };
    parts.tokens = (0..images).map(image).chain(parts.tokens).collect();
    let shift = u32::try_from(images).unwrap_or(u32::MAX);
    parts.added.iter_mut().for_each(|added| added.id = added.id.saturating_add(shift));
    parts.special.unknown = parts.special.unknown.map(|id| id.saturating_add(shift));
    arrange(&mut parts);
    Ok(parts)
}

/// Whether a `.flm` file contains ChatGLM-6B and not a later model of the family.
pub(crate) fn is_in(file: &FlmVocabulary) -> bool {
    file.flag("position_encoding_2d", false) || file.value("inner_hidden_size").is_some_and(|value| value != "None")
}

/// Sets the added tokens of this vocabulary: whitespace tokens, control tokens and user-defined pieces. Other pieces
/// are not searched for in texts. SentencePiece's space marker is put once, before the whole text. A character map is
/// kept, because whitespace tokens are found before it is applied.
pub(crate) fn arrange(parts: &mut Parts) {
    let is_user_defined = |id: u32| {
        let token = usize::try_from(id).ok().and_then(|id| parts.tokens.get(id));
        token.is_some_and(|token| token.kind == TokenKind::UserDefined)
    };
    parts.added.retain(|added| is_user_defined(added.id));
    let mut seen: HashSet<String> = HashSet::new();
    for (id, token) in (0u32..).zip(&mut parts.tokens) {
        let steers = STEERING.contains(&token.text.as_str());
        // Only the first token with a text is added, which limits the number of added tokens for any file.
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

/// Adds a token that is found in texts as `content`, and removes its earlier entries.
fn put(added: &mut Vec<AddedToken>, id: u32, content: String, special: bool) {
    added.retain(|known| known.id != id);
    let (single_word, lstrip, rstrip, normalized) = (false, false, false, false);
    added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special });
}

/// The text that a whitespace token represents.
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

/// Puts the two tokens of this model after every text.
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

/// Puts these tokens after every text, and none before it. The tokens become control tokens.
pub(crate) fn put_ids_behind(parts: &mut Parts, ids: &[u32]) {
    for id in ids {
        let Some(token) = usize::try_from(*id).ok().and_then(|place| parts.tokens.get_mut(place)) else { continue };
        token.kind = TokenKind::Control;
        put(&mut parts.added, *id, token.text.clone(), true);
    }
    parts.prefix = Vec::new();
    parts.suffix = ids.to_vec();
}

/// The chat template.
pub(crate) fn template() -> String {
    TEMPLATE.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_tokens_are_recognized() {
        assert_eq!(white_space("<n>").as_deref(), Some("\n"));
        assert_eq!(white_space("<|blank_3|>").as_deref(), Some("   "));
        for other in ["<|blank_1|>", "<|blank_81|>", "<|blank_x|>", "<|blank_|>", "n"] {
            assert_eq!(white_space(other), None, "{other}");
        }
        assert_eq!(white_space("<|blank_99999999999999999999|>"), None);
    }
}
