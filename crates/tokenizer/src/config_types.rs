//! Types of the keys in `tokenizer_config.json`. Every reader takes a default for an absent key, so a value of another
//! type must be refused first.

use serde_json::{Map, Value};
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, quote};

const FILE: &str = "tokenizer_config.json";
const HELP: &str = "correct the key, or get the file of the original model";

/// The forms of a chat template.
const TEMPLATES: &str =
    "a string, a list of objects with string fields \"name\" and \"template\", or an object that maps names to strings";

/// What the values of a key are; null counts as absent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Switch,
    Text,
    /// The text of a token, or an object with it.
    Token,
    /// One template, or several with names: a list of objects, or in older files an object.
    Template,
    /// Ids as strings, each with an object.
    Tokens,
}

const KEYS: &[(&str, Kind)] = &[
    ("add_bos_token", Kind::Switch),
    ("add_eos_token", Kind::Switch),
    ("add_prefix_space", Kind::Switch),
    ("do_basic_tokenize", Kind::Switch),
    ("do_lower_case", Kind::Switch),
    ("legacy", Kind::Switch),
    ("strip_accents", Kind::Switch),
    ("tokenize_chinese_chars", Kind::Switch),
    ("tokenizer_class", Kind::Text),
    ("bos_token", Kind::Token),
    ("eos_token", Kind::Token),
    ("unk_token", Kind::Token),
    ("sep_token", Kind::Token),
    ("pad_token", Kind::Token),
    ("cls_token", Kind::Token),
    ("mask_token", Kind::Token),
    ("chat_template", Kind::Template),
    ("added_tokens_decoder", Kind::Tokens),
];

impl Kind {
    fn accepts(self, value: &Value) -> bool {
        match self {
            Kind::Switch => value.is_boolean(),
            Kind::Text => value.is_string(),
            Kind::Token => value.is_string() || value.get("content").is_some_and(Value::is_string),
            Kind::Template => is_template(value),
            Kind::Tokens => value.is_object(),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Kind::Switch => "true or false",
            Kind::Text => "a string",
            Kind::Token => "a string, or an object with the string \"content\"",
            Kind::Template => TEMPLATES,
            Kind::Tokens => "an object",
        }
    }
}

fn is_template(value: &Value) -> bool {
    let is_text = |entry: &Value, key: &str| entry.get(key).is_some_and(Value::is_string);
    match value {
        Value::String(_) => true,
        Value::Array(named) => named.iter().all(|entry| is_text(entry, "name") && is_text(entry, "template")),
        Value::Object(named) => named.values().all(Value::is_string),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Fails if a key has a value of another type. The file does not count for a vocabulary from another place.
pub(crate) fn check(files: &TokenizerFiles, path: &Path) -> Result<()> {
    let Some(config) = files.tokenizer_config.as_ref().filter(|_| !files.is_replaced) else { return Ok(()) };
    for (key, kind) in KEYS {
        let Some(value) = config.get(*key).filter(|value| !value.is_null()) else { continue };
        if !kind.accepts(value) {
            return Err(wrong(path, key, kind.expected(), value));
        }
    }
    let listed = config.get("added_tokens_decoder").and_then(Value::as_object);
    listed.map_or(Ok(()), |listed| check_tokens(listed, path))
}

fn check_tokens(listed: &Map<String, Value>, path: &Path) -> Result<()> {
    for (id, token) in listed {
        let place = format!("added_tokens_decoder: {}", quote(id));
        if id.parse::<u32>().is_err() {
            return Err(wrong(path, "added_tokens_decoder", "token IDs as keys", &Value::from(id.as_str())));
        }
        if !token.get("content").is_some_and(Value::is_string) {
            return Err(wrong(path, &place, "an object with the string \"content\"", token));
        }
        for flag in ["special", "single_word", "lstrip", "rstrip", "normalized"] {
            if let Some(value) = token.get(flag).filter(|value| !value.is_boolean()) {
                return Err(wrong(path, &format!("{place}: {flag}"), "true or false", value));
            }
        }
    }
    Ok(())
}

fn wrong(path: &Path, place: &str, expected: &str, found: &Value) -> Error {
    let found = quote(&found.to_string()).to_string();
    Error::new(path, format!("{place}: expected {expected}, found {found}")).at(FILE).help(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(config: Value) -> std::result::Result<(), String> {
        let files = TokenizerFiles { tokenizer_config: config.as_object().cloned(), ..TokenizerFiles::default() };
        check(&files, Path::new("model")).map_err(|error| error.to_string())
    }

    #[test]
    fn values_of_other_types_are_refused() {
        let tokens = |token: Value| json!({ "added_tokens_decoder": { "7": token } });
        for (config, expected) in [
            (
                json!({ "do_lower_case": 1 }),
                "model: tokenizer_config.json: do_lower_case: expected true or false, found 1;",
            ),
            (json!({ "strip_accents": "no" }), "strip_accents: expected true or false, found \"no\""),
            (json!({ "tokenizer_class": ["A"] }), "tokenizer_class: expected a string, found [\"A\"]"),
            (json!({ "unk_token": 3 }), "unk_token: expected a string, or an object"),
            (json!({ "unk_token": { "text": "a" } }), "unk_token: expected a string, or an object"),
            (json!({ "chat_template": 3 }), "chat_template: expected a string, a list of objects with string fields"),
            (
                json!({ "chat_template": [{ "name": "default" }] }),
                "\"template\", or an object that maps names to strings, found [{\"name\":\"default\"}]",
            ),
            (json!({ "chat_template": ["a"] }), "or an object that maps names to strings, found [\"a\"]"),
            (
                json!({ "chat_template": { "default": 3 } }),
                "or an object that maps names to strings, found {\"default\":3}",
            ),
            (json!({ "added_tokens_decoder": [] }), "added_tokens_decoder: expected an object, found []"),
            (
                json!({ "added_tokens_decoder": { "x": { "content": "a" } } }),
                "added_tokens_decoder: expected token IDs as keys, found \"x\"",
            ),
            (tokens(json!("a")), "added_tokens_decoder: 7: expected an object with the string \"content\""),
            (tokens(json!({ "content": "a", "special": 1 })), "7: special: expected true or false, found 1"),
        ] {
            let found = checked(config.clone());
            assert!(found.as_ref().is_err_and(|message| message.contains(expected)), "{config}: {found:?}");
        }
    }

    #[test]
    fn usual_values_are_accepted() {
        let null = json!({ "do_lower_case": null, "legacy": null, "unk_token": null, "chat_template": null });
        let named =
            json!({ "chat_template": [{ "name": "default", "template": "" }], "unk_token": { "content": "a" } });
        let older = json!({ "chat_template": { "default": "", "tool_use": "" } });
        let token = json!({ "added_tokens_decoder": { "0": { "content": "a", "lstrip": false } } });
        for config in [json!({}), null, named, older, token] {
            assert_eq!(checked(config.clone()), Ok(()), "{config}");
        }
    }
}
