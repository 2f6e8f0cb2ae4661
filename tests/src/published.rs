//! Models whose `config.json` is a published one with smaller sizes (`fixtures/published.json`, made by
//! `scripts/make_published_goldens.py`). Their weights follow from a formula.

use crate::fixture::{Fixture, fixture, root};
use crate::storage::copy_description;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// One model, with what other software computed.
pub struct Published {
    /// The name of the published model.
    pub name: String,
    /// The fixture whose tokenizer it uses.
    pub tokenizer: String,
    /// `config.json`.
    pub config: Map<String, Value>,
    /// A prompt.
    pub ids: Vec<u32>,
    /// The 16 greedy tokens that follow the prompt.
    pub greedy_ids: Vec<u32>,
    /// The logits after the last token of the prompt.
    pub logits: Vec<f64>,
    seed: u32,
    tensors: Map<String, Value>,
}

/// All models of `fixtures/published.json`.
pub fn published() -> Vec<Published> {
    let bytes = fs::read(root().join("fixtures/published.json")).expect("the golden file");
    let golden: Value = serde_json::from_slice(&bytes).expect("JSON");
    let ids = |value: &Value| serde_json::from_value(value.clone()).expect("token ids");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let object = |value: &Value| value.as_object().expect("an object").clone();
    let one = |model: &Value| Published {
        name: text(&model["name"]),
        tokenizer: text(&model["tokenizer"]),
        config: object(&model["config"]),
        ids: ids(&golden["ids"]),
        greedy_ids: ids(&model["greedy_ids"]),
        logits: serde_json::from_value(model["logits"].clone()).expect("logits"),
        seed: serde_json::from_value(model["seed"].clone()).expect("a seed"),
        tensors: object(&model["tensors"]),
    };
    golden["models"].as_array().expect("models").iter().map(one).collect()
}

/// The models of [`published`] in folders under `scratch`, with the prompts of the fixtures whose tokenizers they use.
/// Their weights are synthetic.
pub fn published_config_fixtures(scratch: &Path) -> Vec<Fixture> {
    let one = |model: Published| {
        let folder = scratch.join(&model.name);
        model.write(&folder);
        Fixture { name: model.name, folder, ..fixture(&model.tokenizer) }
    };
    published().into_iter().map(one).collect()
}

impl Published {
    /// Writes the checkpoint to a folder.
    pub fn write(&self, folder: &Path) {
        copy_description(&root().join("fixtures/models").join(&self.tokenizer), folder);
        let config = Value::from(self.config.clone()).to_string();
        fs::write(folder.join("config.json"), config).expect("files can be written");
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (pattern, described) in &self.tensors {
            let shape: Vec<usize> = serde_json::from_value(described[0].clone()).expect("a shape");
            let number = |place: usize| described[place].as_f64().expect("a number");
            // A star stands for the numbers of both layers.
            let names = if pattern.contains(".*.") { 0..2 } else { 0..1 };
            for name in names.map(|layer| pattern.replacen(".*.", &format!(".{layer}."), 1)) {
                let key = format!("{}/{name}", self.name);
                let values = values(&key, shape.iter().product(), self.seed, (number(1), number(2)));
                tensors.push((name, shape.clone(), values.into_iter().flat_map(f32::to_le_bytes).collect()));
            }
        }
        let views: Vec<(&str, TensorView)> = tensors
            .iter()
            .map(|(name, shape, bytes)| {
                (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("sizes fit"))
            })
            .collect();
        safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("a file can be written");
    }
}

/// `values` of `scripts/make_published_goldens.py`.
fn values(name: &str, count: usize, seed: u32, (center, half): (f64, f64)) -> Vec<f32> {
    let start = name.bytes().fold(seed, |start, byte| start.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let value = |index: usize| {
        let counter = (index as u32).wrapping_mul(2_654_435_761).wrapping_add(start);
        let number = f64::from(mixed(counter) >> 24);
        (center + half * (number - 128.0) / 128.0) as f32
    };
    (0..count).map(value).collect()
}

/// The last step of MurmurHash3 (fmix32).
fn mixed(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
    h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}
