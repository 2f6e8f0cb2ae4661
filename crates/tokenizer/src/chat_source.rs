//! The source of a model's chat template.
//!
//! ```text
//! chat_template.jinja                                       the text of the file
//! tokenizer_config.json   "chat_template": text
//!                         "chat_template": [{"name": "default", "template": text}, ...]
//!                         "chat_template": {"default": text, ...}
//! ```

use serde_json::Value;
use trueup_formats::TokenizerFiles;

/// The template's source: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`. If there are
/// several, the one named `default`.
pub fn chat_template(files: &TokenizerFiles) -> Option<String> {
    if files.chat_template.is_some() {
        return files.chat_template.clone();
    }
    match files.tokenizer_config.as_ref()?.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let of_name = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some("default");
            Some(named.iter().find(of_name)?.get("template")?.as_str()?.to_owned())
        }
        Value::Object(named) => Some(named.get("default")?.as_str()?.to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(template: Value) -> Option<String> {
        let config = json!({ "chat_template": template }).as_object().cloned();
        chat_template(&TokenizerFiles { tokenizer_config: config, ..TokenizerFiles::default() })
    }

    /// `default` is never the first template here, so the order cannot select it.
    #[test]
    fn the_default_template_is_chosen_in_each_form() {
        let list = json!([{ "name": "tool_use", "template": "b" }, { "name": "default", "template": "a" }]);
        for template in [json!("a"), list, json!({ "a_tool_use": "b", "default": "a" })] {
            assert_eq!(of(template.clone()), Some("a".to_owned()), "{template}");
        }
        let list = json!([{ "name": "tool_use", "template": "b" }]);
        for template in [Value::Null, json!([]), json!({}), list, json!({ "tool_use": "b" })] {
            assert_eq!(of(template.clone()), None, "{template}");
        }
    }

    #[test]
    fn chat_template_jinja_overrides_tokenizer_config() {
        let config = json!({ "chat_template": { "default": "a" } }).as_object().cloned();
        let chat_template_file = Some("c".to_owned());
        let files = TokenizerFiles {
            tokenizer_config: config,
            chat_template: chat_template_file.clone(),
            ..TokenizerFiles::default()
        };
        assert_eq!(chat_template(&files), chat_template_file);
    }
}
