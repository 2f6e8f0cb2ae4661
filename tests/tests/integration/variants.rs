//! Fixtures with other settings or weights, which `fixtures/variants.json` and `fixtures/layouts.json` describe,
//! against transformers.

use ndarray::Array2;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use trueup::blocks::DType;
use trueup::convert::{self, Options};
use trueup::formats::{OpenOptions, json, open};
use trueup::quantize::NoProgress;
use trueup::runtime::{DeviceOptions, open_device};
use trueup_tests::{fixture, nmse, root, say, verdict, write_renamed};

/// The largest error of the oracle.
const NMSE_MAX: f64 = 1e-9;

/// Writes the checkpoint of a variant.
fn write(variant: &Value, folder: &Path) {
    let source = root().join("fixtures/models").join(variant["fixture"].as_str().expect("a name"));
    fs::create_dir_all(folder).expect("a scratch directory can be made");
    for name in ["tokenizer.json", "tokenizer.model", "tokenizer_config.json"] {
        if source.join(name).exists() {
            fs::copy(source.join(name), folder.join(name)).expect("files can be copied");
        }
    }
    let config = fs::read(source.join("config.json")).expect("a fixture has a description");
    let mut config = json::object("config.json", &config).expect("JSON");
    for (key, value) in variant["config"].as_object().expect("settings") {
        config.insert(key.clone(), value.clone());
    }
    fs::write(folder.join("config.json"), Value::from(config).to_string()).expect("files can be written");
    let file = fs::read(source.join("model.safetensors")).expect("a fixture has weights");
    let weights = SafeTensors::deserialize(&file).expect("a fixture is safetensors");
    let empty = serde_json::Map::new();
    let object = |key: &str| variant.get(key).map_or(&empty, |object| object.as_object().expect("an object"));
    let (changes, added) = (object("tensors"), object("added"));
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = weights
        .tensors()
        .into_iter()
        .filter_map(|(name, tensor)| {
            let shape = tensor.shape().to_vec();
            match changes.get(&name) {
                None => Some((name, tensor.dtype(), shape, tensor.data().to_vec())),
                Some(Value::Null) => None,
                Some(changes) => Some((name, Dtype::F32, shape, changed(&tensor, changes))),
            }
        })
        .collect();
    tensors.extend(added.iter().map(|(name, shape)| {
        let shape: Vec<usize> = serde_json::from_value(shape.clone()).expect("a shape");
        let bytes = added_values(&shape).flat_map(f32::to_le_bytes).collect();
        (name.clone(), Dtype::F32, shape, bytes)
    }));
    for name in changes.keys() {
        assert!(weights.tensor(name).is_ok(), "{name} is not a tensor of the fixture");
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
    });
    let views: Vec<_> = views.collect();
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("a file can be written");
}

/// The values that `scripts/make_layout_goldens.py` gives a tensor that the fixture does not have.
fn added_values(shape: &[usize]) -> impl Iterator<Item = f32> {
    let base = if shape.len() == 1 { 1.0 } else { 0.0 };
    (0..shape.iter().product::<usize>()).map(move |number| ((37 * number % 64) as f32 - 32.0) / 32.0 + base)
}

/// `value * factor + summand` in the rows of each change, each step rounded to f32.
fn changed(tensor: &TensorView, changes: &Value) -> Vec<u8> {
    let mut values: Vec<f32> = match tensor.dtype() {
        Dtype::BF16 => tensor.data().as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::F32 => tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        other => panic!("fixtures are stored as bf16 and f32, not as {other:?}"),
    };
    let rows = tensor.shape()[0];
    let width = values.len() / rows;
    for change in changes.as_array().expect("a list of changes") {
        let number = |key: &str| change[key].as_f64().expect("a number") as f32;
        let (factor, summand) = (number("factor"), number("summand"));
        let bound = |place: usize, all: usize| change["rows"][place].as_u64().map_or(all, |row| row as usize);
        for value in &mut values[bound(0, 0) * width..bound(1, rows) * width] {
            *value = *value * factor + summand;
        }
    }
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes a variant and its GGUF file, and returns the logits of all tokens.
fn logits(variant: &Value, folder: &Path, ids: &[u32]) -> Array2<f64> {
    let model = folder.join("model.gguf");
    write(variant, folder);
    trueup_tests::convert(folder, &model, Some(DType::F32), None);
    say(&model, "ref", &[ids.to_vec()], 0, true).remove(0).prompt_logits
}

/// A golden file of this folder, and its token ids.
fn golden(name: &str) -> (Value, Vec<u32>) {
    let golden = fs::read(root().join("fixtures").join(name)).expect("the golden file");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    let ids = serde_json::from_value(golden["ids"].clone()).expect("token ids");
    (golden["variants"].clone(), ids)
}

/// Compares the logits of a variant with the golden ones. Returns what is wrong.
fn compare_logits(variant: &Value, folder: &Path, ids: &[u32]) -> Option<String> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(variant["logits"].clone()).expect("logits");
    let logits = logits(variant, folder, ids);
    let first = logits.nrows() - rows.len();
    let found: Vec<f64> = (first..logits.nrows()).flat_map(|row| logits.row(row).to_vec()).collect();
    let error = nmse(&found, &rows.concat());
    let is_wrong = error.is_nan() || error > NMSE_MAX;
    is_wrong.then(|| format!("{}: the logits differ by an NMSE of {error:e}", variant["name"]))
}

#[test]
fn settings_that_no_fixture_has_are_computed_as_in_transformers() {
    let (variants, ids) = golden("variants.json");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for (number, variant) in variants.as_array().expect("variants").iter().enumerate() {
        let folder = scratch.path().join(number.to_string());
        faults.extend(compare_logits(variant, &folder, &ids));
        if let Some(greedy) = variant.get("greedy") {
            let of = |key: &str| -> Vec<u32> { serde_json::from_value(greedy[key].clone()).expect("token ids") };
            for device in ["ref", "cpu"] {
                let said =
                    say(&folder.join("model.gguf"), device, &[of("prompt")], of("ids").len(), true).remove(0).ids;
                if said != of("ids") {
                    faults.push(format!("{}: {device} continues with {said:?}", variant["name"]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// They run on `cpu`, too, and every node of them is verified.
#[test]
fn settings_of_other_layouts_are_computed_as_in_transformers_5_and_verified() {
    let (variants, ids) = golden("layouts.json");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let device = open_device("cpu", &DeviceOptions::default()).expect("cpu");
    let mut faults = Vec::new();
    for (number, variant) in variants.as_array().expect("variants").iter().enumerate() {
        let folder = scratch.path().join(number.to_string());
        faults.extend(compare_logits(variant, &folder, &ids));
        let fixture = fixture(variant["fixture"].as_str().expect("a name"));
        let report = verdict(&device, &fixture, &folder.join("model.gguf"), true, None);
        faults.extend(report.err().map(|problem| format!("{}: {problem}", variant["name"])));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Heads that share one head of keys and values give the same logits as heads with equal ones each, whose rows are
/// neighbours of the rows of their queries.
#[test]
fn starcoder_may_have_keys_and_values_for_each_head() {
    // Heads, and elements of each.
    const HEADS: usize = 4;
    const SIZE: usize = 16;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = fixture("starcoder");
    write(&json!({ "fixture": "starcoder", "config": { "multi_query": false } }), scratch.path());
    let path = scratch.path().join("model.safetensors");
    let file = fs::read(&path).expect("the file that was written");
    let weights = SafeTensors::deserialize(&file).expect("safetensors");
    let tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = weights
        .tensors()
        .into_iter()
        .map(|(name, tensor)| {
            let (mut shape, mut bytes) = (tensor.shape().to_vec(), tensor.data().to_vec());
            if name.contains("c_attn") {
                let head = bytes.len() / shape[0] * SIZE;
                let rows = |number: usize| &tensor.data()[number * head..(number + 1) * head];
                bytes = (0..HEADS).flat_map(|query| [rows(query), rows(HEADS), rows(HEADS + 1)].concat()).collect();
                shape[0] = 3 * HEADS * SIZE;
            }
            (name, tensor.dtype(), shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
    });
    let views: Vec<_> = views.collect();
    safetensors::serialize_to_file(views, None, &path).expect("a file can be written");
    let model = scratch.path().join("model.gguf");
    trueup_tests::convert(scratch.path(), &model, Some(DType::F32), None);
    for (number, prompt) in fixture.prompts().into_iter().enumerate() {
        let golden: Vec<f64> = fixture.logits(&format!("logits_{number}")).iter().copied().collect();
        let found = say(&model, "ref", &[prompt.ids], 0, true).remove(0).prompt_logits;
        let error = nmse(&found.iter().copied().collect::<Vec<f64>>(), &golden);
        assert!(error <= NMSE_MAX, "prompt {number}: {error:e}");
    }
}

/// The two groups have equal scores, 0.5 each, of different experts. Only the first may be used.
#[test]
fn of_groups_with_equal_scores_only_as_many_as_allowed_are_used() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let set = |first: usize, value: f64| json!({ "factor": 0.0, "summand": value, "rows": [first, first + 1] });
    let of = |name: &str, last: f64| {
        let biases = [0.375, 0.125, 0.0, 0.0, 0.25, last, 0.0, 0.0];
        let biases: Vec<Value> = biases.into_iter().enumerate().map(|(expert, bias)| set(expert, bias)).collect();
        let router: Vec<Value> = (0..8).map(|expert| set(expert, 0.0)).collect();
        let tensors = json!({ "model.layers.1.mlp.gate.weight": router,
            "model.layers.1.mlp.gate.e_score_correction_bias": biases });
        let variant = json!({ "fixture": "deepseek3", "config": {}, "tensors": tensors });
        logits(&variant, &scratch.path().join(name), &[5, 6, 7, 1])
    };
    assert_eq!(of("equal", 0.25), of("lower", 0.125));
    assert_ne!(of("equal-again", 0.25), of("higher", 0.5));
}

/// A layer after the last one is omitted only if its tensors show that it predicts the token after the next one.
#[test]
fn only_prediction_layers_are_omitted() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = root().join("fixtures/models/deepseek3");
    for (name, is_omitted) in [("eh_proj", true), ("mlp.up_proj", false)] {
        let folder = scratch.path().join(name);
        let tensor = |name: &str| (format!("model.layers.2.{name}.weight"), Dtype::F32, vec![2, 2], vec![0; 16]);
        write_renamed(&source, &folder, str::to_owned, &[tensor(name), tensor("enorm")]);
        let opened = open(&folder, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let result = convert::convert(opened.as_ref(), &folder.join("m.gguf"), &Options::default(), &NoProgress);
        match (result, is_omitted) {
            (Ok(report), true) => {
                let notes = report.notes.join("\n");
                assert!(notes.contains("multi-token prediction layer"), "{notes}");
            }
            (Err(error), false) => assert!(error.to_string().contains("model.layers.2.enorm.weight"), "{error}"),
            (result, _) => panic!("{name}: {:?}", result.map(|report| report.notes)),
        }
    }
}
