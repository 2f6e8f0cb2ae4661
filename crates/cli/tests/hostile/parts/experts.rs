//! Mixtures of experts.

use super::Change::{Config, Key, NoKey, NoTensor, Shape, Tensor};
use super::Given::{Bool, F32, I32, Text, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "experts", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

const MIXTRAL: &str = "models/mixtral";
const QWEN2MOE: &str = "models/qwen2moe";
const GRANITEMOE: &str = "models/granitemoe";
const DEEPSEEK3: &str = "models/deepseek3";

const FILES: &[Row] = &[
    (MIXTRAL, NoTensor("blk.0.ffn_gate_inp.weight"), "tensor blk.0.ffn_gate_inp.weight is missing"),
    (MIXTRAL, NoTensor("blk.1.ffn_up_exps.weight"), "tensor blk.1.ffn_up_exps.weight is missing"),
    (MIXTRAL, Tensor("blk.0.ffn_gate_shexp.weight", &[64, 32]), "blk.0.ffn_gate_shexp.weight is not known to llama"),
    (MIXTRAL, Tensor("blk.0.ffn_up.weight", &[64, 32]), "tensor blk.0.ffn_up.weight is not known to llama"),
    (MIXTRAL, Shape("blk.0.ffn_gate_inp.weight", &[64, 3]), "ffn_gate_inp.weight: expected shape [64, 4], found [64"),
    (MIXTRAL, Shape("blk.1.ffn_gate_inp.weight", &[65, 4]), "ffn_gate_inp.weight: expected shape [64, 4], found [65"),
    (MIXTRAL, Shape("blk.0.ffn_down_exps.weight", &[32, 64, 3]), "expected shape [32, 64, 4], found [32, 64, 3]"),
    (MIXTRAL, Shape("blk.0.ffn_gate_exps.weight", &[64, 128]), "expected shape [64, 32, 4], found [64, 128]"),
    (MIXTRAL, NoKey("expert_count"), "key llama.expert_count: expected a non-negative integer, found no such key"),
    (MIXTRAL, Key("expert_count", U32(0)), "key llama.expert_count: expected 1 to 65536, found 0"),
    (MIXTRAL, Key("expert_count", U32(5)), "expected 4, the number of experts in the tensors of layer 0, found 5"),
    (MIXTRAL, Key("expert_count", U32(1 << 31)), "key llama.expert_count: expected 1 to 65536, found 2147483648"),
    (MIXTRAL, Key("expert_count", I32(-4)), "llama.expert_count: expected a non-negative integer, found i32 -4"),
    (MIXTRAL, Key("expert_count", U32s(&[4, 4])), "expert_count: expected a non-negative integer, found array of u32"),
    (MIXTRAL, NoKey("expert_used_count"), "key llama.expert_used_count: expected a non-negative integer"),
    (MIXTRAL, Key("expert_used_count", U32(0)), "key llama.expert_used_count: expected 1 to 65536, found 0"),
    (MIXTRAL, Key("expert_used_count", U32(5)), "llama.expert_used_count: experts per token: expected 1 to 4"),
    (MIXTRAL, Key("expert_used_count", Text("2")), "expected a non-negative integer, found string \"2\""),
    (
        MIXTRAL,
        Key("expert_feed_forward_length", U32(33)),
        "key llama.expert_feed_forward_length: expected 32, the size",
    ),
    (MIXTRAL, Key("expert_gating_func", U32(9)), "llama.expert_gating_func: expected 1 (softmax) or 2 (sigmoid)"),
    (MIXTRAL, Key("expert_weights_norm", U32(1)), "key llama.expert_weights_norm: expected a bool, found u32 1"),
    (MIXTRAL, Key("expert_weights_scale", F32(f32::NAN)), "llama.expert_weights_scale: scale of expert weights:"),
    (MIXTRAL, Key("expert_group_count", U32(2)), "key llama.expert_group_count: expected 0 or 1, found 2"),
    (QWEN2MOE, Key("expert_shared_feed_forward_length", U32(0)), "shared_feed_forward_length: expected 1 to 4194304"),
    (QWEN2MOE, NoTensor("blk.0.ffn_down_shexp.weight"), "tensor blk.0.ffn_down_shexp.weight is missing"),
    (QWEN2MOE, Shape("blk.2.ffn_gate_inp_shexp.weight", &[64, 2]), "expected shape [64, 1], found [64, 2]"),
    (QWEN2MOE, Key("feed_forward_length", U32s(&[96, 96])), "expected 3 integers, one for each layer, found 2"),
    (QWEN2MOE, NoTensor("blk.1.ffn_gate.weight"), "tensor blk.1.ffn_gate.weight is missing"),
    (DEEPSEEK3, Key("expert_group_count", U32(3)), "expert_group_count: number of expert groups: expected a divisor"),
    (DEEPSEEK3, Key("expert_group_used_count", U32(3)), "group_used_count: expert groups per token: expected 1 to 2"),
    (DEEPSEEK3, NoTensor("blk.1.exp_probs_b.bias"), "tensor blk.1.exp_probs_b.bias is missing"),
    (DEEPSEEK3, Key("leading_dense_block_count", U32(2)), "leading_dense_block_count: expected 1 (layer 1 is"),
    (DEEPSEEK3, Key("expert_shared_count", Bool(true)), "expert_shared_count: expected a non-negative integer"),
];

const FOLDERS: &[Row] = &[
    (MIXTRAL, NoTensor("model.layers.0.block_sparse_moe.experts.3.w2.weight"), "moe.experts.3.w2.weight is missing"),
    (MIXTRAL, NoTensor("model.layers.1.block_sparse_moe.gate.weight"), "layers.1.block_sparse_moe.gate.weight is"),
    (MIXTRAL, Tensor("model.layers.0.block_sparse_moe.experts.4.w1.weight", &[32, 64]), "experts.4.w1.weight is not"),
    (MIXTRAL, Shape("model.layers.0.block_sparse_moe.gate.weight", &[5, 64]), "expected shape [4, 64], found [5, 64]"),
    (
        MIXTRAL,
        Config("num_local_experts", "5"),
        "num_local_experts: expected 4 (the number of experts in the tensors), found 5",
    ),
    (MIXTRAL, Config("num_local_experts", "-4"), "num_local_experts: expected a positive integer, found -4"),
    (MIXTRAL, Config("num_local_experts", "4e9"), "num_local_experts: expected a positive integer"),
    (MIXTRAL, Config("num_experts_per_tok", "5"), "num_experts_per_tok: experts per token: expected 1 to 4, found 5"),
    (QWEN2MOE, Config("mlp_only_layers", "[7]"), "mlp_only_layers: expected a list of layers below 3, found [7]"),
    (
        QWEN2MOE,
        Config("decoder_sparse_step", "2"),
        "decoder_sparse_step, mlp_only_layers: layer 0: expected experts, as in the tensors",
    ),
    (QWEN2MOE, Config("decoder_sparse_step", "0"), "decoder_sparse_step: expected 1 to 65536, found 0"),
    (GRANITEMOE, Config("num_local_experts", "3"), "input_linear.weight: expected shape [3, 64, 64], found [4, 64"),
    (DEEPSEEK3, Config("n_group", "3"), "n_group: number of expert groups: expected a divisor of 8"),
    (
        DEEPSEEK3,
        Config("first_k_dense_replace", "2"),
        "first_k_dense_replace: layer 1: expected experts, as in the tensors",
    ),
];
