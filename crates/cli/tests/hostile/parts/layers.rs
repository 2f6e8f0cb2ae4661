//! Layers with different numbers of heads, LongRoPE, and packed ternary matrices.

use super::Change::{Config, Key, NoKey, NoTensor, Shape, Tensor};
use super::Given::{F32, I32, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "layers", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

const OPENELM: &str = "models/openelm";
const LONG: &str = "models/phi4-long";
const BITNET: &str = "models/bitnet";
const PACKED: &str = "models/bitnet-2b";

const FILES: &[Row] = &[
    (OPENELM, Key("attention.head_count", U32s(&[2])), "key openelm.attention.head_count: expected 2 integers, one"),
    (OPENELM, Key("attention.head_count", U32s(&[2, 4, 4])), "key openelm.attention.head_count: expected 2 integers,"),
    (OPENELM, Key("attention.head_count", U32s(&[])), "key openelm.attention.head_count: expected 2 integers, one"),
    (OPENELM, Key("attention.head_count", U32s(&[2, 0])), "key openelm.attention.head_count: expected 1 to 65536,"),
    (OPENELM, Key("attention.head_count", U32s(&[2, 5])), "number of KV heads: expected a divisor of"),
    (OPENELM, Key("attention.head_count", U32(4)), "tensor blk.0.attn_qkv.weight: expected shape [64, 96], found"),
    (OPENELM, Key("attention.head_count_kv", U32s(&[1, 3])), "number of KV heads: expected a divisor of"),
    (OPENELM, Key("attention.head_count_kv", U32s(&[1])), "key openelm.attention.head_count_kv: expected 2 integers,"),
    (OPENELM, Key("attention.head_count_kv", I32(-1)), "key openelm.attention.head_count_kv: expected a non-negative"),
    (OPENELM, NoKey("attention.head_count"), "key openelm.attention.head_count: expected a non-negative integer,"),
    (OPENELM, Key("feed_forward_length", U32s(&[64, 1 << 23])), "key openelm.feed_forward_length: expected 1 to"),
    (OPENELM, Key("feed_forward_length", U32s(&[64, 65])), "tensor blk.1.ffn_gate.weight: expected shape [64, 65],"),
    (OPENELM, NoTensor("blk.1.attn_q_norm.weight"), "tensor blk.1.attn_q_norm.weight is missing"),
    (OPENELM, Shape("blk.0.attn_qkv.weight", &[64, 65]), "tensor blk.0.attn_qkv.weight: expected shape [64, 64],"),
    (LONG, NoTensor("rope_factors_long.weight"), "tensor rope_factors_long.weight is missing; rope"),
    (LONG, NoTensor("rope_factors_short.weight"), "tensor rope_factors_short.weight is missing"),
    (LONG, Shape("rope_factors_long.weight", &[7]), "tensor rope_factors_long.weight: expected shape [8], found [7]"),
    (LONG, Key("rope.scaling.original_context_length", U32(0)), "key phi3.rope.scaling.original_context_length:"),
    (LONG, Key("rope.scaling.original_context_length", Text("16")), "key phi3.rope.scaling.original_context_length:"),
    (LONG, Key("rope.scaling.attn_factor", F32(f32::NAN)), "key phi3.rope.scaling.attn_factor: RoPE scaling"),
    (LONG, Key("rope.dimension_count", U32(14)), "tensor rope_factors_long.weight: expected shape [7], found [8];"),
    (BITNET, NoTensor("blk.0.attn_sub_norm.weight"), "tensor blk.0.attn_sub_norm.weight is missing"),
    (BITNET, Shape("blk.1.ffn_sub_norm.weight", &[64]), "tensor blk.1.ffn_sub_norm.weight: expected shape [32],"),
    (BITNET, Tensor("blk.0.attn_q.bias", &[64]), "tensor blk.0.attn_q.bias is not known to bitnet"),
    (BITNET, Key("attention.layer_norm_rms_epsilon", F32(0.0)), "key bitnet.attention.layer_norm_rms_epsilon:"),
];

const FOLDERS: &[Row] = &[
    (OPENELM, Config("num_query_heads", "[2]"), "num_query_heads: expected 2 integers, one for each layer, found 1"),
    (OPENELM, Config("num_query_heads", "[2, -4]"), "num_query_heads: expected a positive integer for each layer,"),
    (OPENELM, Config("num_query_heads", "[2, 3]"), "number of KV heads: expected a divisor of"),
    (OPENELM, Config("num_kv_heads", "[1, 3]"), "number of KV heads: expected a divisor of"),
    (OPENELM, Config("num_kv_heads", "{}"), "num_kv_heads: expected a positive integer, found {}"),
    (OPENELM, Config("ffn_multipliers", "[0.7]"), "ffn_multipliers: expected a list of 2 numbers, found [0.7]"),
    (OPENELM, Config("ffn_multipliers", "[0.7, -2]"), "ffn_multipliers: expected positive numbers, found -2"),
    (OPENELM, Config("ffn_dim_divisor", "0"), "ffn_dim_divisor: expected 1 to 65536, found 0"),
    (OPENELM, Config("head_dim", "15"), "head_dim: RoPE dimensions: expected an even number from 2 to 15, found 15"),
    (
        LONG,
        Config("rope_scaling", "{\"type\": \"longrope\", \"long_factor\": [1], \"short_factor\": [1]}"),
        "rope_scaling: long_factor: expected 8 numbers, found 1; rope_scaling: short_factor:",
    ),
    (
        LONG,
        Config("rope_scaling", "{\"type\": \"longrope\", \"long_factor\": [1, 1, 1, 1, 1, 1, 1, 1]}"),
        "rope_scaling: short_factor: expected a list of numbers, found",
    ),
    (
        LONG,
        Config("rope_scaling", "{\"type\": \"longrope\", \"long_factor\": 2, \"short_factor\": 1}"),
        "rope_scaling: long_factor: expected a list of numbers, found 2; rope_scaling:",
    ),
    (LONG, Config("original_max_position_embeddings", "0"), "original_max_position_embeddings: expected 1 to"),
    (LONG, Config("original_max_position_embeddings", "1e99"), "original_max_position_embeddings: expected 1 to"),
    (BITNET, Config("weight_bits", "2"), "weight_bits: expected 1, found 2"),
    (
        PACKED,
        Config("quantization_config", "{\"quant_method\": \"bitnet\", \"linear_class\": \"other\"}"),
        "quantization_config: linear_class: expected \"bitlinear\" or \"autobitlinear\",",
    ),
    (PACKED, Config("quantization_config", "{\"quant_method\": \"awq\"}"), "quantization_config: expected an"),
    (PACKED, NoTensor("model.layers.0.mlp.down_proj.weight_scale"), "expected a scale for each packed weight, found"),
    (PACKED, Shape("model.layers.0.mlp.up_proj.weight", &[7, 64]), "tensor model.layers.0.mlp.up_proj.weight:"),
    (PACKED, Tensor("model.layers.0.mlp.up_proj.bias", &[32]), "tensor model.layers.0.mlp.up_proj.bias is not known"),
];
