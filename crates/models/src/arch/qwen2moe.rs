//! Qwen1.5-MoE and Qwen2 MoE: the attention of Qwen2, four of 60 experts for each token, and a gated expert that
//! every token uses.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::qwen2::STYLE;
use super::qwen3moe::{EXPERT_NAMES, sparse_layers};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::{dense_layers_note, renormalization_note};
use crate::decoder::{Decoder, Usual};
use crate::part::experts::{ExpertKeys, Routing, SharedExpert, SparseLayers};
use trueup_graph::op::RopePairs;

/// `Qwen2MoeForCausalLM`.
pub static QWEN2MOE: Architecture = Architecture {
    gguf_name: "qwen2moe",
    classes: &["Qwen2MoeForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("qkv_bias", &["true"]);
        config.only("use_sliding_window", &["false"]);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        config.without_effect("sliding_window");
        let routing = Routing { is_renormalized: config.flag_or("norm_topk_prob", false), ..Routing::PLAIN };
        let layers = sparse_layers(config, decoder.layers);
        let mut sparse = SparseLayers::from_config(config, &decoder, &EXPERTS, (routing, layers));
        let size = config.size_or("shared_expert_intermediate_size", 5632);
        sparse.experts.shared = Some(SharedExpert { size, is_gated: true });
        decoder.spec(&STYLE).with_experts(Some(sparse))
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let sparse = SparseLayers::from_keys(keys, &decoder, Routing::PLAIN);
        decoder.spec(&STYLE).with_experts(sparse)
    },
    compatibility: |spec| renormalization_note(spec, false).into_iter().chain(dense_layers_note(spec)).collect(),
    tensors: &[SHARED_NAMES, EXPERT_NAMES, NAMES],
    needs_head: true,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads_absent: Some(16), context_absent: Some(32_768), ..Usual::LLAMA };
const EXPERTS: ExpertKeys = ExpertKeys {
    count: ("num_experts", 60),
    used: ("num_experts_per_tok", 4),
    size: Some(("moe_intermediate_size", 1408)),
    is_stacked: false,
};

const SHARED_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.ffn_gate_inp_shexp", "model.layers.{l}.mlp.shared_expert_gate"),
    TensorRule::new("blk.{l}.ffn_gate_shexp", "model.layers.{l}.mlp.shared_expert.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up_shexp", "model.layers.{l}.mlp.shared_expert.up_proj"),
    TensorRule::new("blk.{l}.ffn_down_shexp", "model.layers.{l}.mlp.shared_expert.down_proj"),
];
