//! Where a model's chat template stands.

use serde_json::Value;
use trueup_formats::TokenizerFiles;

/// The template's source: a file of its own, else `chat_template` of `tokenizer_config.json`, of several the one called
/// `default`.
pub(crate) fn chat_template(files: &TokenizerFiles) -> Option<String> {
    if files.chat_template.is_some() {
        return files.chat_template.clone();
    }
    match files.tokenizer_config.as_ref()?.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let of_name = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some("default");
            Some(named.iter().find(of_name)?.get("template")?.as_str()?.to_owned())
        }
        _ => None,
    }
}
