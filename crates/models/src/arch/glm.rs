//! GLM-4 in the layout of transformers: ChatGLM with separate queries, keys and values, written as a ChatGLM GGUF file.

use super::chatglm::chatglm_from_metadata;
use super::llama::{INVERSE_FREQUENCIES, NAMES as LLAMA_NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::config::Config;
use crate::decoder::{Decoder, Rotated, Style, Usual};
use crate::part::feed_forward::Storage;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GlmForCausalLM`.
pub static GLM: Architecture = Architecture {
    gguf_name: "chatglm",
    classes: &["GlmForCausalLM"],
    from_config: |config| from_config_in(config, &STYLE),
    from_metadata: chatglm_from_metadata,
    tensors: &[NAMES, LLAMA_NAMES],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

pub(super) const STYLE: Style = Style { storage: Storage::FusedGate, ..Style::LLAMA };
const USUAL: Usual = Usual {
    kv_heads_absent: Some(2),
    head_size_absent: Some(128),
    context_absent: Some(131_072),
    epsilon: ("rms_norm_eps", 1.5625e-7),
    rotated: Rotated::Share("partial_rotary_factor", 0.5),
    ..Usual::LLAMA
};

/// Names that differ from those of Llama.
pub(super) const NAMES: &[TensorRule] = &[TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.gate_up_proj")];

/// Reads `config.json` of either class.
pub(super) fn from_config_in(config: &mut Config, style: &Style) -> ModelSpec {
    gated_silu(config);
    let attention_bias = config.flag_or("attention_bias", true);
    Decoder::from_config(config, &USUAL, RopePairs::Neighbours).spec(&Style { attention_bias, ..*style })
}
