//! A small Llama with random weights, written as GGUF.

use std::path::Path;
use trueup_blocks::{DType, SplitScale};
use trueup_formats::TensorInfo;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};

pub const VOCABULARY: usize = 48;
pub const CONTEXT: usize = 160;
const WIDTH: u64 = 64;
const FFN: u64 = 96;
const LAYERS: u64 = 2;

/// Writes the model with matrices of type `dtype`; `split` in the split-scale layout.
pub fn write(path: &Path, dtype: DType, split: bool) {
    let mut metadata = metadata();
    let (mut infos, mut contents) = (Vec::new(), Vec::new());
    for (seed, (name, shape)) in (1..).zip(tensors()) {
        let dtype = if shape.len() == 1 { DType::F32 } else { dtype };
        let info = TensorInfo::new(name, &shape, dtype).unwrap();
        let bytes = encoded(&info, seed);
        match SplitScale::of(dtype).filter(|_| split) {
            None => {
                infos.push(info);
                contents.push(bytes);
            }
            Some(layout) => {
                let blocks = bytes.len() / dtype.block_bytes();
                let (mut values, mut scales) = (vec![0; blocks * layout.value_bytes()], vec![0; blocks * 2]);
                layout.split(&bytes, &mut values, &mut scales);
                let columns = shape[0] / 32;
                let value_shape = [columns * layout.value_bytes() as u64, shape[1]];
                infos.push(TensorInfo::new(info.name.clone(), &value_shape, DType::I8).unwrap());
                infos.push(TensorInfo::new(format!("{}.scale", info.name), &[columns, shape[1]], DType::F16).unwrap());
                contents.extend([values, scales]);
            }
        }
    }
    if split {
        metadata.insert("trueup.layout", "split-scale");
    }
    let writer = GgufWriter::create(GgufPlan::new(path, &metadata, &infos, None).unwrap(), &[]).unwrap();
    for (tensor, bytes) in contents.iter().enumerate() {
        writer.write(tensor, 0, bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let counts = [
        ("vocab_size", VOCABULARY as u32),
        ("context_length", CONTEXT as u32),
        ("embedding_length", WIDTH as u32),
        ("block_count", LAYERS as u32),
        ("feed_forward_length", FFN as u32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ];
    for (key, count) in counts {
        metadata.insert(format!("llama.{key}"), count);
    }
    metadata.insert("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    metadata.insert("llama.rope.freq_base", 10_000f32);
    metadata
}

fn tensors() -> Vec<(String, Vec<u64>)> {
    let mut tensors = vec![("token_embd.weight".to_owned(), vec![WIDTH, VOCABULARY as u64])];
    for layer in 0..LAYERS {
        let of_layer = [
            ("attn_norm", vec![WIDTH]),
            ("attn_q", vec![WIDTH, WIDTH]),
            ("attn_k", vec![WIDTH, WIDTH / 2]),
            ("attn_v", vec![WIDTH, WIDTH / 2]),
            ("attn_output", vec![WIDTH, WIDTH]),
            ("ffn_norm", vec![WIDTH]),
            ("ffn_gate", vec![WIDTH, FFN]),
            ("ffn_up", vec![WIDTH, FFN]),
            ("ffn_down", vec![FFN, WIDTH]),
        ];
        tensors.extend(of_layer.map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape)));
    }
    tensors.push(("output_norm.weight".to_owned(), vec![WIDTH]));
    tensors
}

/// Random numbers from -0.5 to 0.5, near 1 for norms, by a linear congruential generator.
fn encoded(info: &TensorInfo, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let centre = if info.shape.len() == 1 { 1.0 } else { 0.0 };
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        centre + (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let weights: Vec<f32> = (0..info.elements()).map(|_| next()).collect();
    let mut bytes = vec![0; info.bytes as usize];
    (info.dtype.codec().unwrap().encode)(&weights, &mut bytes);
    bytes
}
