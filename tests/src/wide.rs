//! A mixture of experts whose rows hold whole blocks of 256, for the types that need them. The fixtures are smaller.

use crate::fixture;
use half::bf16;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The fixture that is widened, and its sizes: hidden, of an expert, of the keys.
const NAME: &str = "mixtral";
const HIDDEN: usize = 64;
const EXPERT: usize = 32;
const KEYS: usize = 32;

/// Elements in a row of the widened model.
const WIDE: usize = 256;

/// Writes a checkpoint to the folder `target`: the fixture `mixtral` with rows of 256. Its weights repeat those of the
/// fixture, each changed a little.
pub fn write_wide(target: &Path) {
    let source = fixture(NAME).folder;
    fs::create_dir_all(target).expect("a scratch folder can be made");
    for name in ["generation_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(source.join(name), target.join(name)).expect("files can be copied");
    }
    let config = fs::read(source.join("config.json")).expect("a fixture has a description");
    let mut config: serde_json::Map<String, Value> = serde_json::from_slice(&config).expect("JSON");
    for key in ["num_attention_heads", "num_key_value_heads"] {
        let heads = config[key].as_u64().expect("a number") * (WIDE / HIDDEN) as u64;
        config.insert(key.to_owned(), heads.into());
    }
    for key in ["hidden_size", "intermediate_size"] {
        config.insert(key.to_owned(), WIDE.into());
    }
    fs::write(target.join("config.json"), Value::from(config).to_string()).expect("files can be written");
    let file = fs::read(source.join("model.safetensors")).expect("a fixture has weights");
    let weights = SafeTensors::deserialize(&file).expect("a fixture is safetensors");
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = weights
        .tensors()
        .into_iter()
        .map(|(name, tensor)| {
            let shape: Vec<usize> = tensor.shape().iter().map(|size| wide(&name, *size)).collect();
            let bytes = repeated(&tensor, &shape);
            (name, shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::BF16, shape.clone(), bytes).expect("sizes fit"))
    });
    let views: Vec<_> = views.collect();
    safetensors::serialize_to_file(views, None, &target.join("model.safetensors")).expect("a file can be written");
}

fn wide(name: &str, size: usize) -> usize {
    match size {
        HIDDEN => WIDE,
        EXPERT if name.contains("experts") => WIDE,
        KEYS => KEYS * WIDE / HIDDEN,
        _ => size,
    }
}

/// The values of a fixture's tensor, repeated to a larger shape. Sums over rows keep their magnitude.
fn repeated(tensor: &TensorView, shape: &[usize]) -> Vec<u8> {
    assert_eq!(tensor.dtype(), Dtype::BF16, "fixtures are stored as bf16");
    let values: Vec<f32> =
        tensor.data().chunks_exact(2).map(|bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()).collect();
    let (columns, from_columns) = (shape[shape.len() - 1], tensor.shape()[shape.len() - 1]);
    let is_matrix = shape.len() > 1;
    let from_rows = values.len() / from_columns;
    let scale = if is_matrix { (from_columns as f32 / columns as f32).sqrt() } else { 1.0 };
    let rows = shape.iter().product::<usize>() / columns;
    let value = |row: usize, column: usize| {
        let change = 0.2 * ((row * 31 + column * 7) as f32).sin();
        values[row % from_rows * from_columns + column % from_columns] * scale * (1.0 + change)
    };
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    all.flat_map(|(row, column)| bf16::from_f32(value(row, column)).to_le_bytes()).collect()
}
