//! Fixtures with other settings or weights, which `fixtures/variants.json` describes, against transformers.

use ndarray::Array2;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use trueup::blocks::DType;
use trueup::convert::{self, Options};
use trueup::formats::{OpenOptions, open};
use trueup::quantize::NoProgress;
use trueup_tests::{nmse, root, say, write_renamed};

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
    let mut config: serde_json::Map<String, Value> = serde_json::from_slice(&config).expect("JSON");
    for (key, value) in variant["config"].as_object().expect("settings") {
        config.insert(key.clone(), value.clone());
    }
    fs::write(folder.join("config.json"), Value::from(config).to_string()).expect("files can be written");
    let file = fs::read(source.join("model.safetensors")).expect("a fixture has weights");
    let weights = SafeTensors::deserialize(&file).expect("a fixture is safetensors");
    let changes = variant["tensors"].as_object().expect("changes");
    let tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = weights
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
    for name in changes.keys() {
        assert!(weights.tensor(name).is_ok(), "{name} is not a tensor of the fixture");
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
    });
    let views: Vec<_> = views.collect();
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("a file can be written");
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

#[test]
fn settings_that_no_fixture_has_are_computed_as_in_transformers() {
    let golden = fs::read(root().join("fixtures/variants.json")).expect("the golden file");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    let ids: Vec<u32> = serde_json::from_value(golden["ids"].clone()).expect("token ids");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for (number, variant) in golden["variants"].as_array().expect("variants").iter().enumerate() {
        let rows: Vec<Vec<f64>> = serde_json::from_value(variant["logits"].clone()).expect("logits");
        let logits = logits(variant, &scratch.path().join(number.to_string()), &ids);
        let first = logits.nrows() - rows.len();
        let found: Vec<f64> = (first..logits.nrows()).flat_map(|row| logits.row(row).to_vec()).collect();
        let error = nmse(&found, &rows.concat());
        if error.is_nan() || error > NMSE_MAX {
            faults.push(format!("{}: the logits differ by an NMSE of {error:e}", variant["name"]));
        }
        if let Some(greedy) = variant.get("greedy") {
            let of = |key: &str| -> Vec<u32> { serde_json::from_value(greedy[key].clone()).expect("token ids") };
            let model = scratch.path().join(number.to_string()).join("model.gguf");
            for device in ["ref", "cpu"] {
                let said = say(&model, device, &[of("prompt")], of("ids").len(), true).remove(0).ids;
                if said != of("ids") {
                    faults.push(format!("{}: {device} continues with {said:?}", variant["name"]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
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
