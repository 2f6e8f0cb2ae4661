//! State spaces.

use super::Change::{Config, Key, NoKey, NoTensor, Shape, Tensor};
use super::Given::{Bool, F32, I32, U32, U32s};
use super::{Part, Row};
use crate::case::Call;

pub const PART: Part = Part { name: "state spaces", files: FILES, folders: FOLDERS, calls: &[Call::Run] };

const MAMBA: &str = "models/mamba";
const MAMBA2: &str = "models/mamba2";

const FILES: &[Row] = &[
    (MAMBA, NoTensor("blk.1.ssm_a"), "tensor blk.1.ssm_a is missing"),
    (MAMBA, NoTensor("blk.0.ssm_conv1d.bias"), "tensor blk.0.ssm_conv1d.bias is missing"),
    (MAMBA, NoTensor("blk.0.ssm_dt.bias"), "tensor blk.0.ssm_dt.bias is missing"),
    (MAMBA, Tensor("blk.0.ssm_norm.weight", &[128]), "tensor blk.0.ssm_norm.weight is not known to mamba"),
    (MAMBA, Tensor("blk.0.attn_q.weight", &[64, 64]), "tensor blk.0.attn_q.weight is not known to mamba"),
    (MAMBA, Shape("blk.0.ssm_a", &[128, 8]), "tensor blk.0.ssm_a: expected shape [8, 128], found [128, 8]"),
    (MAMBA, Shape("blk.0.ssm_conv1d.weight", &[4, 1, 128]), "expected shape [4, 128], found [4, 1, 128]"),
    (MAMBA, Shape("blk.0.ssm_x.weight", &[128, 21]), "tensor blk.0.ssm_x.weight: expected shape [128, 20]"),
    (MAMBA, NoKey("ssm.conv_kernel"), "key mamba.ssm.conv_kernel: expected a non-negative integer, found no such key"),
    (MAMBA, Key("ssm.conv_kernel", U32(1)), "mamba.ssm.conv_kernel: convolution taps: expected 2 to 64, found 1"),
    (MAMBA, Key("ssm.conv_kernel", U32(65)), "mamba.ssm.conv_kernel: convolution taps: expected 2 to 64, found 65"),
    (MAMBA, Key("ssm.inner_size", U32(0)), "key mamba.ssm.inner_size: expected 1 to 4194304, found 0"),
    (MAMBA, Key("ssm.inner_size", U32(127)), "key mamba.ssm.inner_size: expected 128, the inner size of the tensors"),
    (MAMBA2, Key("ssm.inner_size", U32(64)), "key mamba2.ssm.inner_size: expected 128, the inner size of the tensors"),
    (MAMBA, NoKey("ssm.state_size"), "key mamba.ssm.state_size: expected a non-negative integer, found no such key"),
    (MAMBA, Key("ssm.state_size", U32(0)), "key mamba.ssm.state_size: expected 1 to 4194304, found 0"),
    (MAMBA, Key("ssm.state_size", U32(1 << 22)), "key mamba.ssm.state_size: state space: expected at most 16777216"),
    (MAMBA, Key("ssm.state_size", I32(-8)), "key mamba.ssm.state_size: expected a non-negative integer, found i32 -8"),
    (MAMBA, Key("ssm.time_step_rank", U32(5)), "blk.0.ssm_x.weight: expected shape [128, 21], found [128, 20]"),
    (MAMBA, Key("ssm.dt_b_c_rms", Bool(true)), "key mamba.ssm.dt_b_c_rms: expected false (normalized dt"),
    (MAMBA, Key("ssm.dt_b_c_rms", U32(1)), "key mamba.ssm.dt_b_c_rms: expected a bool, found u32 1"),
    (MAMBA, Key("block_count", U32(3)), "tensor blk.2.attn_norm.weight is missing"),
    (MAMBA2, NoTensor("blk.1.ssm_norm.weight"), "tensor blk.1.ssm_norm.weight is missing"),
    (MAMBA2, Shape("blk.1.ssm_norm.weight", &[64, 2]), "ssm_norm.weight: expected shape [128], found [64, 2]"),
    (MAMBA2, Shape("blk.0.ssm_a", &[8]), "tensor blk.0.ssm_a: expected shape [1, 8], found [8]"),
    (MAMBA2, NoKey("ssm.group_count"), "key mamba2.ssm.group_count: expected a non-negative integer"),
    (MAMBA2, Key("ssm.group_count", U32(0)), "key mamba2.ssm.group_count: expected 1 to 4194304, found 0"),
    (MAMBA2, Key("ssm.group_count", U32(3)), "mamba2.ssm.group_count: number of groups: expected a divisor of the 8"),
    (MAMBA2, Key("ssm.time_step_rank", U32(7)), "mamba2.ssm.time_step_rank: number of heads: expected a divisor"),
    (MAMBA2, Key("ssm.inner_size", U32s(&[128, 128])), "expected a non-negative integer, found array of u32"),
    (MAMBA2, Key("attention.layer_norm_rms_epsilon", F32(0.0)), "rms_epsilon: expected a positive number, found 0.0"),
];

const FOLDERS: &[Row] = &[
    (MAMBA, NoTensor("backbone.layers.1.mixer.A_log"), "tensor backbone.layers.1.mixer.A_log is missing"),
    (MAMBA, Shape("backbone.layers.0.mixer.conv1d.weight", &[128, 4]), "expected shape [128, 1, 4], found [128, 4]"),
    (MAMBA, Shape("backbone.layers.0.mixer.A_log", &[128, 9]), "A_log: expected shape [128, 8], found [128, 9]"),
    (MAMBA, Tensor("backbone.layers.0.mixer.in_proj.bias", &[256]), "mixer.in_proj.bias is not known"),
    (MAMBA, Config("conv_kernel", "1"), "config.json: conv_kernel: convolution taps: expected 2 to 64, found 1"),
    (MAMBA, Config("state_size", "-8"), "config.json: state_size: expected a positive integer, found -8"),
    (MAMBA, Config("time_step_rank", "\"half\""), "time_step_rank: expected a positive integer, found \"half\""),
    (MAMBA, Config("use_conv_bias", "false"), "backbone.layers.0.mixer.conv1d.bias is not known to MambaForCausalLM"),
    (MAMBA, Config("use_bias", "true"), "config.json: use_bias: expected false, found true"),
    (MAMBA, Config("num_hidden_layers", "1"), "expected 1 layer (config.json), found 10 tensors of other layers"),
    (MAMBA2, NoTensor("backbone.layers.0.mixer.norm.weight"), "backbone.layers.0.mixer.norm.weight is missing"),
    (MAMBA2, Config("num_heads", "7"), "expected num_heads * head_dim = 128 (hidden_size * expand), found 7 * 16"),
    (MAMBA2, Config("n_groups", "3"), "n_groups: number of groups: expected a divisor of the 8 heads, found 3"),
    (MAMBA2, Config("time_step_limit", "[0.0, 0.1]"), "time_step_limit: expected no limit ([0.0, Infinity])"),
    (MAMBA2, Config("rms_norm", "false"), "config.json: rms_norm: expected true, found false"),
];
