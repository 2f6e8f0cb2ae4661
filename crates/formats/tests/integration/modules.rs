//! `modules.json` of sentence-transformers next to a model, honest and lying.

use serde_json::json;
use std::fs;
use std::path::Path;
use trueup_formats::{Checkpoint, Description, SafetensorsDir};

/// A folder with a model of one tensor, and this modules.json.
fn folder(modules: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    fs::write(folder.path().join("modules.json"), modules).unwrap();
    folder
}

fn open(folder: &Path) -> Result<serde_json::Value, String> {
    let model = SafetensorsDir::open(folder).map_err(|error| error.to_string())?;
    let Description::Json(config) = model.description() else { unreachable!() };
    Ok(config["modules.json"].clone())
}

#[test]
fn settings_of_modules_are_read_with_them() {
    let folder = folder(r#"[{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]"#);
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    fs::write(folder.path().join("1_Pooling/config.json"), r#"{"pooling_mode_mean_tokens": true}"#).unwrap();
    let modules = open(folder.path()).unwrap();
    assert_eq!(modules[1]["config"], json!({"pooling_mode_mean_tokens": true}));
    assert_eq!(modules[0].get("config"), None);
    fs::write(folder.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 256}"#).unwrap();
    assert_eq!(open(folder.path()).unwrap()[0]["config"], json!({"max_seq_length": 256}));
    fs::write(folder.path().join("modules.json"), r#"[{"path": ""}, {"path": ""}]"#).unwrap();
    assert_eq!(open(folder.path()).unwrap()[1].get("config"), None, "only the first module is the model");
    fs::write(folder.path().join("sentence_bert_config.json"), "[]").unwrap();
    assert!(open(folder.path()).is_err_and(|error| error.contains("sentence_bert_config.json")));
}

#[test]
fn lies_are_refused() {
    let many = format!("[{}]", vec!["{}"; 33].join(","));
    for (modules, expected) in [
        ("{}", "expected a list of modules"),
        ("[1]", "expected an object for each module"),
        ("[", "modules.json"),
        (many.as_str(), "at most 32 modules, found 33"),
        (r#"[{"path": "../x"}]"#, "expected a directory name"),
        (r#"[{"path": "/etc"}]"#, "expected a directory name"),
        (r#"[{"path": "a/b"}]"#, "expected a directory name"),
        (r#"[{"path": "a\u001b"}]"#, "\\u{1b}"),
        (r#"[{"path": ".."}]"#, "expected a directory name"),
    ] {
        let error = open(folder(modules).path()).expect_err(modules);
        assert!(error.contains("modules.json") && error.contains(expected), "{modules}: {error}");
    }
    let folder = folder(r#"[{"path": "1_Pooling"}]"#);
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    fs::write(folder.path().join("1_Pooling/config.json"), "[]").unwrap();
    assert!(open(folder.path()).is_err_and(|error| error.contains("1_Pooling")));
}
