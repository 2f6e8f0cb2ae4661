//! `modules.json` of sentence-transformers: what is applied after the model, each part with its settings.
//!
//! ```text
//! modules.json             [{"type": "...Pooling", "path": "1_Pooling"}, ..]
//! 1_Pooling/config.json    its settings, which become the key "config" of the module
//! sentence_bert_config.json                           those of the first module if it has no folder: the model itself
//! ```

use super::tokenizer::open_if_there;
use crate::error::{Error, Result, quote};
use crate::json::{self, CONFIG_BYTES_MAX};
use crate::source_file::SourceFile;
use serde_json::Value;
use std::path::Path;

/// The file, which is also the key of the description that gets its contents.
pub(super) const MODULES: &str = "modules.json";
/// The settings of the first module if it has no folder: the model itself.
const MODEL_SETTINGS: &str = "sentence_bert_config.json";
/// Modules of one model. Published models have two to four.
const MODULES_MAX: usize = 32;

/// Reads the file and the settings that it names; `None` if there is no such file. The opened files are added to
/// `sources`.
pub(super) fn read(folder: &Path, sources: &mut Vec<SourceFile>) -> Result<Option<Value>> {
    let Some(source) = open_if_there(&folder.join(MODULES))? else { return Ok(None) };
    let mut value = json::value(source.path(), &source.read_all(CONFIG_BYTES_MAX)?)?;
    let refused = |problem: String| {
        Err(Error::new(folder.join(MODULES), problem).help("get the file of the original model, or remove it"))
    };
    let Some(modules) = value.as_array_mut() else {
        return refused("expected a list of modules, found another value".to_owned());
    };
    if modules.len() > MODULES_MAX {
        return refused(format!("expected at most {MODULES_MAX} modules, found {}", modules.len()));
    }
    sources.push(source);
    for (number, module) in modules.iter_mut().enumerate() {
        let Some(object) = module.as_object_mut() else {
            return refused("expected an object for each module, found another value".to_owned());
        };
        let path = object.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
            return refused(format!(
                "expected a directory name of letters, digits, _ and -, found \"{}\"",
                quote(&path)
            ));
        }
        let settings = match path.as_str() {
            "" if number > 0 => continue,
            "" => folder.join(MODEL_SETTINGS),
            path => folder.join(path).join("config.json"),
        };
        if let Some(settings) = open_if_there(&settings)? {
            let config = json::read_object(&settings)?;
            object.insert("config".to_owned(), Value::Object(config));
            sources.push(settings);
        }
    }
    Ok(Some(value))
}
