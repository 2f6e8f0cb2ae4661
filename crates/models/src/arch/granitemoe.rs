//! Granite 3 MoE: the multipliers of Granite; a checkpoint has the experts of a layer in two tensors.

use super::granite::{GRANITE, Multipliers, granite_from_metadata};
use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, first_half_rows, second_half_rows};
use crate::decoder::{Decoder, Style, Usual};
use crate::part::experts::{ExpertKeys, Routing, SharedExpert, SparseLayers};
use trueup_graph::op::RopePairs;

/// `GraniteMoeForCausalLM`, and the class that has a shared expert too. Its softmax over the chosen experts is the same
/// as a softmax over all of them that is renormalized.
pub static GRANITEMOE: Architecture = Architecture {
    gguf_name: "granitemoe",
    classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let multipliers = Multipliers::from_config(config);
        let decoder = Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours);
        let layers = vec![true; decoder.layers];
        let mut sparse = SparseLayers::from_config(config, &decoder, &EXPERTS, (Routing::RENORMALIZED, layers));
        // 0 means that there is no shared expert.
        let shared = config.size_unless_zero("shared_intermediate_size");
        sparse.experts.shared = shared.map(|size| SharedExpert { size, is_gated: false });
        multipliers.applied(decoder.spec(&Style::LLAMA)).with_experts(Some(sparse))
    },
    from_metadata: granite_from_metadata,
    more_keys: GRANITE.more_keys,
    tensors: &[EXPERT_NAMES, INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const EXPERTS: ExpertKeys =
    ExpertKeys { count: ("num_local_experts", 8), used: ("num_experts_per_tok", 2), size: None, is_stacked: true };

const EXPERT_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.ffn_gate_inp", "model.layers.{l}.block_sparse_moe.router.layer"),
    TensorRule::new("blk.{l}.ffn_gate_exps", "model.layers.{l}.block_sparse_moe.input_linear").with(first_half_rows),
    TensorRule::new("blk.{l}.ffn_up_exps", "model.layers.{l}.block_sparse_moe.input_linear").with(second_half_rows),
    TensorRule::new("blk.{l}.ffn_down_exps", "model.layers.{l}.block_sparse_moe.output_linear"),
    TensorRule::new("blk.{l}.ffn_gate_shexp", "model.layers.{l}.shared_mlp.input_linear").with(first_half_rows),
    TensorRule::new("blk.{l}.ffn_up_shexp", "model.layers.{l}.shared_mlp.input_linear").with(second_half_rows),
    TensorRule::new("blk.{l}.ffn_down_shexp", "model.layers.{l}.shared_mlp.output_linear"),
];
