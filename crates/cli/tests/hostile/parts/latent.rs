//! Latent attention.

use super::Change::{Config, Key, NoKey, NoTensor, Shape, Tensor};
use super::Given::{F32, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "latent attention", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

/// Without a vector for queries.
const DEEPSEEK2: &str = "models/deepseek2";
const DEEPSEEK3: &str = "models/deepseek3";

const FILES: &[Row] = &[
    (DEEPSEEK2, NoTensor("blk.0.attn_q.weight"), "tensor blk.0.attn_q.weight is missing"),
    (DEEPSEEK3, NoTensor("blk.0.attn_kv_a_norm.weight"), "tensor blk.0.attn_kv_a_norm.weight is missing"),
    (DEEPSEEK3, NoTensor("blk.0.attn_q_b.weight"), "tensor blk.0.attn_q_b.weight is missing"),
    (DEEPSEEK3, NoTensor("blk.1.attn_v_b.weight"), "tensor blk.1.attn_v_b.weight is missing"),
    (DEEPSEEK3, Tensor("blk.0.attn_q.weight", &[64, 256]), "tensor blk.0.attn_q.weight is not known to deepseek2"),
    (DEEPSEEK3, Tensor("blk.0.attn_kv_b.weight", &[32, 256]), "tensor blk.0.attn_kv_b.weight is not known"),
    (DEEPSEEK3, Shape("blk.0.attn_kv_a_mqa.weight", &[64, 63]), "expected shape [64, 64], found [64, 63]"),
    (DEEPSEEK3, Shape("blk.1.attn_k_b.weight", &[32, 128]), "expected shape [32, 32, 4], found [32, 128]"),
    (DEEPSEEK3, NoKey("attention.kv_lora_rank"), "attention.kv_lora_rank: expected a non-negative integer"),
    (DEEPSEEK3, Key("attention.kv_lora_rank", U32(0)), "attention.kv_lora_rank: expected 1 to 4194304, found 0"),
    (DEEPSEEK3, Key("attention.kv_lora_rank", U32(1 << 31)), "kv_lora_rank: expected 1 to 4194304, found 2147483648"),
    (DEEPSEEK3, Key("attention.kv_lora_rank", U32(64)), "(attention.kv_lora_rank 64 + "),
    (DEEPSEEK3, Key("attention.q_lora_rank", U32(0)), "attention.q_lora_rank: expected 1 to 4194304, found 0"),
    (DEEPSEEK3, Key("attention.q_lora_rank", U32(47)), "blk.0.attn_q_a.weight: expected shape [64, 47], found [64"),
    (DEEPSEEK3, NoKey("attention.key_length_mla"), "attention.key_length_mla: expected a non-negative integer"),
    (DEEPSEEK3, Key("attention.key_length_mla", U32(32)), "RoPE dimensions of a key of 32 elements: expected 1"),
    (DEEPSEEK3, Key("attention.value_length_mla", U32(16)), "attn_v_b.weight: expected shape [32, 16, 4], found [32"),
    (
        DEEPSEEK3,
        Key("attention.key_length", U32(48)),
        "key deepseek2.attention.key_length: expected 64 (attention.kv_lora_rank 32 + ",
    ),
    (DEEPSEEK3, Key("attention.value_length", U32(99)), "key deepseek2.attention.value_length: expected 32"),
    (DEEPSEEK3, Key("attention.head_count_kv", U32(4)), "key deepseek2.attention.head_count_kv: expected 1"),
    (DEEPSEEK3, Key("attention.head_count", U32(8)), "attn_q_b.weight: expected shape [48, 512], found [48, 256]"),
    (DEEPSEEK3, Key("attention.head_count", U32s(&[4, 4, 4])), "expected 2 integers, one for each layer, found 3"),
    (DEEPSEEK3, Key("rope.dimension_count", U32(31)), "rope.dimension_count: RoPE dimensions: expected an even"),
    (DEEPSEEK3, Key("rope.dimension_count", U32(64)), "rope.dimension_count: RoPE dimensions of a key of 64 elements"),
    (DEEPSEEK3, Key("rope.scaling.yarn_log_multiplier", F32(f32::NAN)), "yarn_log_multiplier"),
    (DEEPSEEK3, Key("attention.latent_norm_epsilon", F32(-1.0)), "latent_norm_epsilon: expected a positive number"),
    (DEEPSEEK3, Key("nextn_predict_layers", U32(1)), "key deepseek2.nextn_predict_layers: expected 0, found 1"),
];

const FOLDERS: &[Row] = &[
    (DEEPSEEK3, NoTensor("model.layers.0.self_attn.kv_a_layernorm.weight"), "kv_a_layernorm.weight is missing"),
    (DEEPSEEK3, NoTensor("model.layers.1.self_attn.kv_b_proj.weight"), "layers.1.self_attn.kv_b_proj.weight is"),
    (DEEPSEEK3, Shape("model.layers.1.self_attn.kv_b_proj.weight", &[256, 31]), "expected shape [256, 32]"),
    (DEEPSEEK3, Shape("model.layers.0.self_attn.q_b_proj.weight", &[255, 48]), "expected shape [256, 48]"),
    (DEEPSEEK3, Tensor("model.layers.0.self_attn.q_proj.weight", &[256, 64]), "layers.0.self_attn.q_proj.weight is"),
    (DEEPSEEK3, Config("kv_lora_rank", "0"), "config.json: kv_lora_rank: expected 1 to 4194304, found 0"),
    (DEEPSEEK3, Config("kv_lora_rank", "\"32\""), "config.json: kv_lora_rank: expected a positive integer"),
    (DEEPSEEK3, Config("q_lora_rank", "null"), "tensor model.layers.0.self_attn.q_proj.weight is missing"),
    (DEEPSEEK3, Config("qk_rope_head_dim", "31"), "qk_rope_head_dim: RoPE dimensions: expected an even number from 2"),
    (DEEPSEEK3, Config("qk_nope_head_dim", "-32"), "qk_nope_head_dim: expected a positive integer, found -32"),
    (DEEPSEEK3, Config("v_head_dim", "16"), "kv_b_proj.weight: expected shape [192, 32], found [256, 32]"),
    (
        DEEPSEEK3,
        Config("num_key_value_heads", "2"),
        "num_key_value_heads: expected 4, the number of attention heads, found 2",
    ),
    (DEEPSEEK3, Config("rope_interleave", "false"), "rope_interleave: expected true, found false"),
    (DEEPSEEK3, Config("moe_layer_freq", "2"), "moe_layer_freq: expected 1, found 2"),
];
