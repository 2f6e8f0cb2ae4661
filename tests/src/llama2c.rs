//! llama2.c's three file versions, written from the trained model by the rules of its `export.py`.
//!
//! This is the tests' own writer: it shares no code with the reader it tests.

use half::bf16;
use safetensors::SafeTensors;
use std::fs;
use std::path::Path;

/// The version of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Without magic, f32, with frequency tables.
    V0,
    /// A header of 256 bytes, f32.
    V1,
    /// A header of 256 bytes, 8-bit groups of this many values.
    V2(usize),
}

const WIDTH: usize = 128;
const HIDDEN: usize = 352;
const LAYERS: usize = 6;
const HEADS: usize = 8;
const KV_HEADS: usize = 4;
const VOCABULARY: usize = 1024;
const CONTEXT: usize = 256;
const HEAD_SIZE: usize = WIDTH / HEADS;

/// Writes stories-1M as a llama2.c file. `theta` is the base of the frequencies in the table of version 0.
pub fn write_llama2c(model: &Path, target: &Path, version: Version, theta: f64) {
    let file = fs::read(model.join("model.safetensors")).expect("the model is in the repository");
    let weights = SafeTensors::deserialize(&file).expect("it is safetensors");
    let tensor = |name: &str| -> Vec<f32> {
        let tensor = weights.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        tensor.data().chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
    };
    let layer = |part: &str, number: usize| -> Vec<f32> {
        let values = tensor(&format!("model.layers.{number}.{part}.weight"));
        match part {
            "self_attn.q_proj" => neighbours(&values, HEADS),
            "self_attn.k_proj" => neighbours(&values, KV_HEADS),
            _ => values,
        }
    };
    let all = |part: &str| -> Vec<Vec<f32>> { (0..LAYERS).map(|number| layer(part, number)).collect() };
    let norms = [all("input_layernorm"), all("post_attention_layernorm"), vec![tensor("model.norm.weight")]].concat();
    let attention = ["q", "k", "v", "o"].map(|part| all(&format!("self_attn.{part}_proj"))).concat();
    let feed_forward = ["gate", "down", "up"].map(|part| all(&format!("mlp.{part}_proj"))).concat();
    let embedding = tensor("model.embed_tokens.weight");
    let mut bytes = header(version);
    let mut put = |tensors: &[Vec<f32>]| tensors.iter().flatten().for_each(|value| bytes.extend(value.to_le_bytes()));
    match version {
        Version::V0 => {
            put(&[embedding]);
            put(&norms[..LAYERS]);
            put(&attention);
            put(&norms[LAYERS..2 * LAYERS]);
            put(&feed_forward);
            put(&norms[2 * LAYERS..]);
            put(&frequencies(theta));
        }
        Version::V1 => {
            put(&norms);
            put(&[embedding]);
            put(&attention);
            put(&feed_forward);
        }
        Version::V2(group) => {
            put(&norms);
            let matrices = [vec![embedding], attention, feed_forward].concat();
            matrices.iter().for_each(|matrix| bytes.extend(quantized(matrix, group)));
        }
    }
    fs::write(target, bytes).expect("a scratch file can be written");
}

fn header(version: Version) -> Vec<u8> {
    let sizes = [WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT];
    let sizes = sizes.iter().flat_map(|size| (*size as i32).to_le_bytes());
    if version == Version::V0 {
        return sizes.collect();
    }
    let number = if version == Version::V1 { 1i32 } else { 2 };
    let mut bytes = b"24ka".to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(sizes);
    bytes.push(1);
    if let Version::V2(group) = version {
        bytes.extend((group as i32).to_le_bytes());
    }
    bytes.resize(256, 0);
    bytes
}

/// Rows of each head from the order of halves to the order of neighbouring pairs.
fn neighbours(values: &[f32], heads: usize) -> Vec<f32> {
    let row = |head: usize, row: usize| &values[(head * HEAD_SIZE + row) * WIDTH..][..WIDTH];
    let order = (0..heads).flat_map(|head| (0..HEAD_SIZE).map(move |place| (head, place)));
    order.flat_map(|(head, place)| row(head, place / 2 + place % 2 * (HEAD_SIZE / 2)).to_vec()).collect()
}

/// Cosine and sine tables, position by position, in f32 as torch computes them.
fn frequencies(theta: f64) -> [Vec<f32>; 2] {
    let pairs = HEAD_SIZE / 2;
    let frequency = |pair: usize| 1.0 / (theta as f32).powf(2.0 * pair as f32 / HEAD_SIZE as f32);
    let angles = (0..CONTEXT).flat_map(|position| (0..pairs).map(move |pair| position as f32 * frequency(pair)));
    let angles: Vec<f32> = angles.collect();
    [angles.iter().map(|angle| angle.cos()).collect(), angles.iter().map(|angle| angle.sin()).collect()]
}

/// All 8-bit values, then all scales; halves to even, as torch rounds.
fn quantized(values: &[f32], group: usize) -> Vec<u8> {
    let scale = |group: &[f32]| group.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
    let codes = values.chunks(group).flat_map(|values| {
        let scale = scale(values);
        values.iter().map(move |value| (value / scale).round_ties_even() as i8 as u8)
    });
    let mut bytes: Vec<u8> = codes.collect();
    bytes.extend(values.chunks(group).flat_map(|values| scale(values).to_le_bytes()));
    bytes
}
