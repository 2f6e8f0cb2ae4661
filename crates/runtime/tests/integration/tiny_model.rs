//! Small models with random weights, written as GGUF: a Llama, and relatives that have what it lacks.

use std::path::Path;
use trueup_blocks::{DType, SplitScale};
use trueup_formats::TensorInfo;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata, Value};

pub const VOCABULARY: usize = 48;
pub const CONTEXT: usize = 160;
const WIDTH: u64 = 64;
const FFN: u64 = 96;
const LAYERS: u64 = 2;
const HEAD_SIZE: u64 = 16;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const EXPERTS: u64 = 4;
/// Elements of the state of each channel of `Kind::Mamba2`, and taps of its convolution.
const STATE_SIZE: u64 = 8;
const TAPS: u64 = 4;
/// What the convolution of `Kind::Mamba2` runs over: as many channels as the width, and two vectors of the state.
const CHANNELS: u64 = WIDTH + 2 * STATE_SIZE;

/// Positions that a token of the relatives sees, itself included.
pub const WINDOW: usize = 16;

/// Which model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Plain.
    Llama,
    /// Plain, with heads of 32, whole blocks of the KV cache, and an embedding that is not the head.
    Wide,
    /// With biases of queries, keys and values, and a sliding window on its last layer.
    Qwen2,
    /// With norms of heads, factors of rope's frequencies, and a sliding window on all layers.
    Qwen3,
    /// With four experts in each layer, of which a token uses two.
    #[allow(dead_code, reason = "only tests of other crates use it")]
    Experts,
    /// The same, where the first two experts of each layer have the same score for every token.
    TiedExperts,
    /// With soft caps of scores and logits, norms after each branch, and a sliding window on its first layer.
    #[allow(dead_code, reason = "only tests of other crates use it")]
    Gemma2,
    /// With norms of heads and after each branch, and a sliding window and another base of rope on its first layer.
    #[allow(dead_code, reason = "only tests of other crates use it")]
    Gemma3,
    /// A state space in each layer, which keeps recurrent states.
    Mamba2,
    /// The first ChatGLM, whose prompts see themselves to the token `END`.
    ChatGlm,
}

/// Tokens that divide texts of `Kind::ChatGlm`: the first behind the beginning, the mark, and the other mark.
pub const DIVIDING: [u32; 3] = [45, 46, 47];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Llama | Kind::Wide | Kind::Experts | Kind::TiedExperts => "llama",
            Kind::Qwen2 => "qwen2",
            Kind::Qwen3 => "qwen3",
            Kind::Gemma2 => "gemma2",
            Kind::Gemma3 => "gemma3",
            Kind::Mamba2 => "mamba2",
            Kind::ChatGlm => "chatglm1",
        }
    }

    fn head_size(self) -> u64 {
        if self == Kind::Wide { 2 * HEAD_SIZE } else { HEAD_SIZE }
    }

    fn has_window(self) -> bool {
        matches!(self, Kind::Qwen2 | Kind::Qwen3 | Kind::Gemma2 | Kind::Gemma3)
    }

    fn kv_heads(self) -> u64 {
        if self == Kind::ChatGlm { HEADS } else { KV_HEADS }
    }

    /// What a layer has beside a Llama's.
    fn of_layer(self) -> Vec<(&'static str, u64)> {
        let branches = [("post_attention_norm.weight", WIDTH), ("post_ffw_norm.weight", WIDTH)];
        let heads = [("attn_q_norm.weight", HEAD_SIZE), ("attn_k_norm.weight", HEAD_SIZE)];
        match self {
            Kind::Llama | Kind::Wide | Kind::Experts | Kind::TiedExperts => vec![],
            Kind::Gemma2 => branches.to_vec(),
            Kind::Gemma3 => [branches, heads].concat(),
            Kind::Mamba2 => vec![("ssm_conv1d.bias", CHANNELS), ("ssm_dt.bias", HEADS), ("ssm_norm.weight", WIDTH)],
            Kind::Qwen2 => vec![("attn_q.bias", WIDTH), ("attn_k.bias", WIDTH / 2), ("attn_v.bias", WIDTH / 2)],
            Kind::Qwen3 => heads.to_vec(),
            Kind::ChatGlm => vec![
                ("attn_norm.bias", WIDTH),
                ("attn_qkv.bias", 3 * WIDTH),
                ("attn_output.bias", WIDTH),
                ("ffn_norm.bias", WIDTH),
                ("ffn_up.bias", FFN),
                ("ffn_down.bias", WIDTH),
            ],
        }
    }
}

/// Writes the Llama with matrices of type `dtype`; `split` in the split-scale layout.
pub fn write(path: &Path, dtype: DType, split: bool) {
    write_kind(path, Kind::Llama, CONTEXT, dtype, split);
}

/// Writes a model that claims a context of `context` tokens.
pub fn write_kind(path: &Path, kind: Kind, context: usize, dtype: DType, split: bool) {
    let mut metadata = metadata(kind, context);
    let (mut infos, mut contents) = (Vec::new(), Vec::new());
    for (seed, (name, shape)) in (1..).zip(tensors(kind)) {
        let is_table = [".ssm_a", ".ssm_d", ".ssm_conv1d.weight"].iter().any(|end| name.ends_with(end));
        let dtype = if shape.len() == 1 || is_table { DType::F32 } else { dtype };
        let info = TensorInfo::new(name, &shape, dtype).unwrap();
        let mut bytes = encoded(&info, seed);
        if kind == Kind::TiedExperts && info.name.ends_with("ffn_gate_inp.weight") {
            let row = bytes.len() / EXPERTS as usize;
            bytes.copy_within(..row, row);
        }
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

fn metadata(kind: Kind, context: usize) -> Metadata {
    let mut metadata = Metadata::default();
    let architecture = kind.name();
    metadata.insert("general.architecture", architecture);
    let counts = [
        ("vocab_size", VOCABULARY as u32),
        ("context_length", context as u32),
        ("embedding_length", WIDTH as u32),
        ("block_count", LAYERS as u32),
        ("feed_forward_length", FFN as u32),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", kind.kv_heads() as u32),
    ];
    for (key, count) in counts {
        metadata.insert(format!("{architecture}.{key}"), count);
    }
    if matches!(kind, Kind::Experts | Kind::TiedExperts) {
        metadata.insert("llama.expert_count", EXPERTS as u32);
        metadata.insert("llama.expert_used_count", 2u32);
    }
    if kind == Kind::Wide {
        for key in ["attention.key_length", "attention.value_length"] {
            metadata.insert(format!("{architecture}.{key}"), kind.head_size() as u32);
        }
    }
    metadata.insert(format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5f32);
    // The layers of Gemma 3 with a sliding window have 10000.
    let base = if kind == Kind::Gemma3 { 1_000_000f32 } else { 10_000f32 };
    metadata.insert(format!("{architecture}.rope.freq_base"), base);
    if kind == Kind::ChatGlm {
        metadata.insert(format!("{architecture}.rope.dimension_count"), (HEAD_SIZE / 2) as u32);
        for (name, id) in ["end", "mark", "other_mark"].iter().zip(DIVIDING) {
            metadata.insert(format!("{architecture}.prefix.{name}_token_id"), id);
        }
    }
    let mut add = |key: &str, value: Value| drop(metadata.insert(format!("{architecture}.{key}"), value));
    if kind.has_window() {
        add("attention.sliding_window", (WINDOW as u32).into());
    }
    match kind {
        Kind::Qwen2 => add("attention.sliding_window_pattern", vec![false, true].into()),
        Kind::Gemma2 => {
            add("attn_logit_softcapping", 4f32.into());
            add("final_logit_softcapping", 30f32.into());
        }
        Kind::Gemma3 => add("attention.sliding_window_pattern", vec![true, false].into()),
        Kind::Mamba2 => {
            let numbers = [TAPS, WIDTH, STATE_SIZE, HEADS, 1].map(|number| number as u32);
            let keys = ["conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"];
            keys.iter().zip(numbers).for_each(|(key, number)| add(&format!("ssm.{key}"), number.into()));
        }
        _ => {}
    }
    metadata
}

fn tensors(kind: Kind) -> Vec<(String, Vec<u64>)> {
    let mut tensors = vec![("token_embd.weight".to_owned(), vec![WIDTH, VOCABULARY as u64])];
    if kind == Kind::Qwen3 {
        tensors.push(("rope_freqs.weight".to_owned(), vec![HEAD_SIZE / 2]));
    }
    let (queries, cached) = (HEADS * kind.head_size(), KV_HEADS * kind.head_size());
    for layer in 0..LAYERS {
        if kind == Kind::Mamba2 {
            let tables = [("ssm_a", vec![1, HEADS]), ("ssm_d", vec![1, HEADS])];
            let matrices = [
                ("attn_norm.weight", vec![WIDTH]),
                ("ssm_in.weight", vec![WIDTH, WIDTH + CHANNELS + HEADS]),
                ("ssm_conv1d.weight", vec![TAPS, CHANNELS]),
                ("ssm_out.weight", vec![WIDTH, WIDTH]),
            ];
            let of_layer = tables.into_iter().chain(matrices);
            tensors.extend(of_layer.map(|(name, shape)| (format!("blk.{layer}.{name}"), shape)));
            let of_kind = kind.of_layer().into_iter();
            tensors.extend(of_kind.map(|(name, size)| (format!("blk.{layer}.{name}"), vec![size])));
            continue;
        }
        let attention = match kind {
            Kind::ChatGlm => vec![("attn_qkv", vec![WIDTH, 3 * WIDTH])],
            _ => {
                vec![("attn_q", vec![WIDTH, queries]), ("attn_k", vec![WIDTH, cached]), ("attn_v", vec![WIDTH, cached])]
            }
        };
        let fed = match kind {
            Kind::ChatGlm => vec![("ffn_up", vec![WIDTH, FFN]), ("ffn_down", vec![FFN, WIDTH])],
            Kind::Experts | Kind::TiedExperts => vec![
                ("ffn_gate_inp", vec![WIDTH, EXPERTS]),
                ("ffn_gate_exps", vec![WIDTH, FFN, EXPERTS]),
                ("ffn_up_exps", vec![WIDTH, FFN, EXPERTS]),
                ("ffn_down_exps", vec![FFN, WIDTH, EXPERTS]),
            ],
            _ => {
                vec![("ffn_gate", vec![WIDTH, FFN]), ("ffn_up", vec![WIDTH, FFN]), ("ffn_down", vec![FFN, WIDTH])]
            }
        };
        let of_layer = [vec![("attn_norm", vec![WIDTH])], attention]
            .into_iter()
            .flatten()
            .chain([("attn_output", vec![queries, WIDTH]), ("ffn_norm", vec![WIDTH])])
            .chain(fed);
        tensors.extend(of_layer.map(|(name, shape)| (format!("blk.{layer}.{name}.weight"), shape)));
        let of_kind = kind.of_layer().into_iter();
        tensors.extend(of_kind.map(|(name, size)| (format!("blk.{layer}.{name}"), vec![size])));
    }
    tensors.push(("output_norm.weight".to_owned(), vec![WIDTH]));
    if kind == Kind::ChatGlm {
        tensors.push(("output_norm.bias".to_owned(), vec![WIDTH]));
    }
    if kind == Kind::Wide {
        tensors.push(("output.weight".to_owned(), vec![WIDTH, VOCABULARY as u64]));
    }
    tensors
}

/// Random numbers from -0.5 to 0.5, near 1 for norms and factors, near -1 for decay rates, by a linear congruential
/// generator.
fn encoded(info: &TensorInfo, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let centre = match info.shape.len() {
        1 if !info.name.ends_with(".bias") => 1.0,
        _ if info.name.ends_with(".ssm_a") => -1.0,
        _ => 0.0,
    };
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        centre + (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let weights: Vec<f32> = (0..info.elements()).map(|_| next()).collect();
    let mut bytes = vec![0; info.bytes as usize];
    (info.dtype.codec().unwrap().encode)(&weights, &mut bytes);
    bytes
}
