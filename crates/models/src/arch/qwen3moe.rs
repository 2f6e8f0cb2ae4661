//! Qwen3 MoE, such as Qwen3-30B-A3B: the attention of Qwen3, and eight of 128 experts for each token.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::qwen3::{STYLE, USUAL as QWEN3_USUAL};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::{dense_layers_note, renormalization_note};
use crate::config::Config;
use crate::decoder::{Decoder, Usual};
use crate::part::experts::{ExpertKeys, Routing, SparseLayers};
use serde_json::Value;
use trueup_formats::quote;
use trueup_graph::op::RopePairs;

/// `Qwen3MoeForCausalLM`.
pub static QWEN3MOE: Architecture = Architecture {
    gguf_name: "qwen3moe",
    classes: &["Qwen3MoeForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        config.only("use_sliding_window", &["false"]);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        config.without_effect("sliding_window");
        let routing = Routing { is_renormalized: config.flag_or("norm_topk_prob", false), ..Routing::RENORMALIZED };
        // Files of other libraries use the other name.
        let count = if config.has("num_experts") { "num_experts" } else { "num_local_experts" };
        let keys = ExpertKeys { count: (count, 128), ..EXPERTS };
        let layers = sparse_layers(config, decoder.layers);
        let sparse = SparseLayers::from_config(config, &decoder, &keys, (routing, layers));
        decoder.spec(&STYLE).with_experts(Some(sparse))
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let sparse = SparseLayers::from_keys(keys, &decoder, Routing::RENORMALIZED);
        decoder.spec(&STYLE).with_experts(sparse)
    },
    compatibility: |spec| renormalization_note(spec, true).into_iter().chain(dense_layers_note(spec)).collect(),
    tensors: &[EXPERT_NAMES, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

/// Without a key, heads have the size that the hidden size gives them.
const USUAL: Usual = Usual { kv_heads_absent: Some(4), head_size_absent: None, ..QWEN3_USUAL };
const EXPERTS: ExpertKeys = ExpertKeys {
    count: ("num_experts", 128),
    used: ("num_experts_per_tok", 8),
    size: Some(("moe_intermediate_size", 768)),
    is_stacked: false,
};

/// The layers that have experts: the last of each `decoder_sparse_step`, those of `mlp_only_layers` excepted.
pub(super) fn sparse_layers(config: &mut Config, layers: usize) -> Vec<bool> {
    let step = config.count_or("decoder_sparse_step", 1);
    let dense = dense_layers(config, layers);
    (0..layers).map(|layer| layer.saturating_add(1).is_multiple_of(step) && !dense.contains(&layer)).collect()
}

/// `mlp_only_layers`: a list of layers; empty if the key is absent or null.
fn dense_layers(config: &mut Config, layers: usize) -> Vec<usize> {
    let Some(found) = config.value("mlp_only_layers").cloned() else { return Vec::new() };
    let index = |value: &Value| value.as_u64().and_then(|index| usize::try_from(index).ok());
    let list: Option<Vec<usize>> = found.as_array().and_then(|list| list.iter().map(index).collect());
    list.filter(|list| list.iter().all(|layer| *layer < layers)).unwrap_or_else(|| {
        let found = quote(&found.to_string()).to_string();
        config.problem(format!("mlp_only_layers: expected a list of layers below {layers}, found {found}"));
        Vec::new()
    })
}

pub(super) const EXPERT_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.ffn_gate_inp", "model.layers.{l}.mlp.gate"),
    TensorRule::new("blk.{l}.ffn_gate_exps", "model.layers.{l}.mlp.experts.{e}.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up_exps", "model.layers.{l}.mlp.experts.{e}.up_proj"),
    TensorRule::new("blk.{l}.ffn_down_exps", "model.layers.{l}.mlp.experts.{e}.down_proj"),
];
