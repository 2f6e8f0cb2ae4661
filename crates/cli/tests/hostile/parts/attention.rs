//! Attention with softcaps, ALiBi, clamps, windows and partial rotation, and scaled streams.

use super::Change::{Config, Key, NoKey, NoTensor, Shape};
use super::Given::{Bool, Bools, F32, I32, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "attention", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

const GEMMA2: &str = "models/gemma2";
const GEMMA3: &str = "models/gemma3";
const MPT: &str = "models/mpt";
const BLOOM: &str = "models/bloom";
const FALCON: &str = "models/falcon-rw";
const COHERE2: &str = "models/cohere2";
const GRANITE: &str = "models/granite";
const MINICPM: &str = "models/minicpm";
const PHI2: &str = "models/phi2";
const NEOX: &str = "models/gptneox";
const MOSS: &str = "models/moss";
const QWEN: &str = "models/qwen";
const LLAMA: &str = "models/llama3";

const FILES: &[Row] = &[
    (GEMMA2, Key("attn_logit_softcapping", F32(0.0)), "key gemma2.attn_logit_softcapping: attention softcap:"),
    (GEMMA2, Key("attn_logit_softcapping", F32(-4.0)), "key gemma2.attn_logit_softcapping: attention softcap:"),
    (GEMMA2, Key("attn_logit_softcapping", F32(f32::NAN)), "key gemma2.attn_logit_softcapping: attention softcap:"),
    (GEMMA2, Key("attn_logit_softcapping", Text("4")), "key gemma2.attn_logit_softcapping: expected a float, found"),
    (GEMMA2, Key("final_logit_softcapping", F32(f32::NEG_INFINITY)), "key gemma2.final_logit_softcapping: logit"),
    (GEMMA2, Key("final_logit_softcapping", U32(6)), "key gemma2.final_logit_softcapping: expected a float, found"),
    (GEMMA2, Key("attention.sliding_window", I32(-1)), "key gemma2.attention.sliding_window: expected a non-negative"),
    (GEMMA2, Key("attention.sliding_window", U32(1 << 31)), "key gemma2.attention.sliding_window: expected 1 to"),
    (GEMMA2, Key("attention.sliding_window_pattern", Bools(&[true])), "key gemma2.attention.sliding_window_pattern:"),
    (GEMMA2, Key("attention.sliding_window_pattern", U32s(&[1, 0])), "key gemma2.attention.sliding_window_pattern:"),
    (GEMMA2, Key("attention.key_length", U32(33)), "tensor blk.0.attn_q.weight: expected shape [64, 132], found [64,"),
    (
        GEMMA3,
        Key("attention.sliding_window_pattern", Bools(&[true, false, true, false])),
        "key gemma3.attention.sliding_window_pattern: expected 3 entries, one for each layer,",
    ),
    (GEMMA3, Key("attention.sliding_window_pattern", U32(0)), "key gemma3.attention.sliding_window_pattern: expected"),
    (GEMMA3, Key("rope.freq_base_swa", F32(0.0)), "key gemma3.rope.freq_base_swa: expected a positive number, found"),
    (GEMMA3, Key("rope.scaling.factor", F32(f32::NAN)), "key gemma3.rope.scaling.factor: RoPE scaling factor:"),
    (GEMMA3, NoTensor("blk.1.attn_q_norm.weight"), "tensor blk.1.attn_q_norm.weight is missing"),
    (GEMMA3, Shape("blk.0.attn_k_norm.weight", &[17]), "tensor blk.0.attn_k_norm.weight: expected shape [16], found"),
    (MPT, Key("attention.max_alibi_bias", F32(-8.0)), "key mpt.attention.max_alibi_bias: largest ALiBi exponent:"),
    (MPT, Key("attention.max_alibi_bias", F32(f32::INFINITY)), "key mpt.attention.max_alibi_bias: largest ALiBi"),
    (MPT, Key("attention.max_alibi_bias", Bool(true)), "key mpt.attention.max_alibi_bias: expected a float, found"),
    (MPT, Key("attention.clamp_kqv", F32(-1.5)), "key mpt.attention.clamp_kqv: attention clamp: expected a finite"),
    (MPT, Key("attention.clamp_kqv", F32(f32::NAN)), "key mpt.attention.clamp_kqv: attention clamp: expected a"),
    (MPT, Key("attention.head_count_kv", U32(3)), "number of KV heads: expected a divisor of 4"),
    (BLOOM, Key("attention.head_count", U32(0)), "key bloom.attention.head_count: expected 1 to 65536, found 0"),
    (FALCON, Key("attention.layer_norm_epsilon", F32(-1.0)), "key falcon.attention.layer_norm_epsilon: expected a"),
    (COHERE2, Key("logit_scale", F32(0.0)), "key cohere2.logit_scale: logit scale: expected a finite number other"),
    (COHERE2, Key("attention.sliding_window_pattern", U32(1 << 20)), "key cohere2.attention.sliding_window_pattern:"),
    (GRANITE, Key("attention.scale", F32(-0.2)), "key granite.attention.scale: attention scale: expected a finite"),
    (GRANITE, Key("embedding_scale", F32(f32::NAN)), "key granite.embedding_scale: embedding scale: expected a"),
    (GRANITE, Key("residual_scale", F32(0.0)), "key granite.residual_scale: residual scale: expected a finite number"),
    (GRANITE, Key("residual_scale", Text("one")), "key granite.residual_scale: expected a float, found string \"one\""),
    (MINICPM, Key("logit_scale", F32(f32::INFINITY)), "key minicpm.logit_scale: expected a positive number, found inf"),
    (PHI2, Key("rope.dimension_count", U32(7)), "key phi2.rope.dimension_count: RoPE dimensions: expected an even"),
    (PHI2, Key("rope.dimension_count", U32(18)), "key phi2.rope.dimension_count: RoPE dimensions: expected an even"),
    (PHI2, NoKey("attention.layer_norm_epsilon"), "key phi2.attention.layer_norm_epsilon: expected a float, found no"),
    (LLAMA, Key("attention.max_alibi_bias", F32(8.0)), "key llama.attention.max_alibi_bias: expected 0, found 8"),
    (LLAMA, Key("rope.scaling.attn_factor", F32(1.5)), "key llama.rope.scaling.attn_factor: expected 1, found 1.5"),
    (LLAMA, Key("attention.shared_kv_layers", U32(1)), "key llama.attention.shared_kv_layers: expected 0, found 1"),
    (LLAMA, Key("attention.kv_lora_rank", U32(8)), "key llama.attention.kv_lora_rank: expected no such key, found 8"),
    (LLAMA, Key("block_count", U32(500)), "key llama.block_count: expected at most 22 (the number of tensors),"),
];

const FOLDERS: &[Row] = &[
    (GEMMA2, Config("attn_logit_softcapping", "0"), "attn_logit_softcapping: attention softcap: expected a finite"),
    (GEMMA2, Config("attn_logit_softcapping", "\"4\""), "attn_logit_softcapping: expected a number, found \"4\""),
    (GEMMA2, Config("final_logit_softcapping", "0"), "final_logit_softcapping: logit softcap: expected a finite"),
    (GEMMA2, Config("query_pre_attn_scalar", "-24"), "query_pre_attn_scalar: expected a positive number, found -24"),
    (GEMMA2, Config("sliding_window", "null"), "layer_types: expected a sliding_window for sliding_attention, found"),
    (GEMMA2, Config("layer_types", "[\"sliding_attention\"]"), "layer_types: expected 2 entries, one for each layer,"),
    (
        GEMMA2,
        Config("layer_types", "[\"sliding_attention\", \"linear_attention\"]"),
        "layer_types: expected full_attention and sliding_attention only, found",
    ),
    (GEMMA3, Config("rope_local_base_freq", "0"), "rope_local_base_freq: expected a positive number, found 0"),
    (GEMMA3, Config("head_dim", "7"), "head_dim: RoPE dimensions: expected an even number from 2 to 7, found 7"),
    (MPT, Config("attn_config", "{\"alibi\": true, \"alibi_bias_max\": -8}"), "attn_config: alibi_bias_max: expected"),
    (MPT, Config("attn_config", "{\"alibi\": true, \"clip_qkv\": -1}"), "attn_config: attention clamp: expected a"),
    (MPT, Config("attn_config", "{\"alibi\": false}"), "tensor transformer.wpe.weight is missing"),
    (MPT, Config("attn_config", "[8]"), "attn_config: expected an object, found [8]"),
    (FALCON, Config("alibi", "1"), "alibi: expected true or false, found 1"),
    (COHERE2, Config("logit_scale", "0"), "logit_scale: logit scale: expected a finite number other than 0, found 0"),
    (COHERE2, Config("layer_types", "[]"), "layer_types: expected 3 entries, one for each layer, found 0"),
    (GRANITE, Config("residual_multiplier", "0"), "residual_multiplier: residual scale: expected a finite number"),
    (GRANITE, Config("logits_scaling", "0"), "logits_scaling: expected a positive number, found 0"),
    (GRANITE, Config("attention_multiplier", "\"0.2\""), "attention_multiplier: expected a number, found \"0.2\""),
    (MINICPM, Config("dim_model_base", "0"), "dim_model_base: expected a positive number, found 0"),
    (PHI2, Config("partial_rotary_factor", "1.5"), "partial_rotary_factor: expected a number above 0 and at most 1,"),
    (PHI2, Config("partial_rotary_factor", "-0.5"), "partial_rotary_factor: expected a number above 0 and at most 1,"),
    (PHI2, Config("partial_rotary_factor", "0.45"), "partial_rotary_factor: RoPE dimensions: expected an even number"),
    (NEOX, Config("rotary_pct", "1.7"), "rotary_pct: expected a number above 0 and at most 1, found 1.7"),
    (NEOX, Config("rotary_pct", "0"), "rotary_pct: expected a number above 0 and at most 1, found 0"),
    (NEOX, Config("rotary_pct", "0.3125"), "rotary_pct: RoPE dimensions: expected an even number from 2 to 16, found"),
    (MOSS, Config("rotary_dim", "7"), "rotary_dim: RoPE dimensions: expected an even number from 2 to 16, found 7"),
    (MOSS, Config("n_head", "2"), "tensor transformer.h.0.attn.qkv_proj.weight: its rows cannot be split into groups"),
    (QWEN, Config("kv_channels", "15"), "kv_channels: RoPE dimensions: expected an even number from 2 to 15, found 15"),
    (QWEN, Config("intermediate_size", "191"), "intermediate_size: expected a multiple of 2, found 191"),
    (LLAMA, Config("num_hidden_layers", "500"), "num_hidden_layers: expected at most 21 (the number of tensors),"),
    (LLAMA, Config("num_attention_heads", "5"), "number of KV heads: expected a divisor of 5"),
];
