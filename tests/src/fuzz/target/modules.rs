//! Folders of sentence-transformers: a tiny BERT with `modules.json` and the settings of its modules.

use super::super::grammar::{frames, join_frames, json, split_frames};
use super::super::node::Node;
use super::super::seeds::{fixture_file, tiny_encoder};
use super::super::{Answer, later, law, refused};
use super::checkpoint::converted;
use serde_json::json as value;
use std::fs;
use std::path::Path;
use trueup::formats::{OpenOptions, open};

/// `modules.json`, `1_Pooling/config.json`, `sentence_bert_config.json`.
const FILES: [&str; 3] = ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json"];

/// Each file in a frame.
pub fn grammar(bytes: &[u8]) -> Node {
    frames(bytes, &[json, json, json])
}

/// The files of the fixtures, and modules in other orders.
pub fn seeds() -> Vec<Vec<u8>> {
    let settings = value!({"max_seq_length": 64, "do_lower_case": false}).to_string().into_bytes();
    let of = |name: &str| {
        let [modules, pooling, _] = FILES;
        let file = |file: &str| fixture_file(&format!("encoders/{name}/{file}"));
        join_frames(&[file(modules), file(pooling), settings.clone()])
    };
    let kinds = ["Transformer", "Pooling", "Normalize", "Dense"]
        .map(|kind| value!({"type": format!("a.{kind}"), "path": "1_Pooling"}));
    let modes = value!({"pooling_mode_cls_token": true, "pooling_mode_lasttoken": false});
    let other = [value!(kinds), modes, value!({})].map(|file| file.to_string().into_bytes());
    ["bert", "bert-cased"].map(of).into_iter().chain([join_frames(&other)]).collect()
}

/// Converts the folder. A file of pooling that is empty does not exist.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let model = folder.join("model");
    later(fs::create_dir_all(model.join("1_Pooling")), "a directory cannot be made")?;
    let put = |name: &str, bytes: &[u8]| later(fs::write(model.join(name), bytes), "the input cannot be written");
    let encoder = tiny_encoder();
    put("config.json", &encoder.config)?;
    put("vocab.txt", &encoder.tokenizer)?;
    put("model.safetensors", &encoder.weights)?;
    for (name, bytes) in FILES.into_iter().zip(split_frames(input, FILES.len())) {
        if !bytes.is_empty() {
            put(name, &bytes)?;
        }
    }
    let source = match open(&model, &OpenOptions::default()) {
        Ok(source) => source,
        Err(problem) => return refused(&problem),
    };
    let answer = converted(source.as_ref(), folder)?;
    law(model.join("config.json").exists(), "the source is gone")?;
    Ok(answer)
}
