//! Mixtral: Mistral with eight experts in each layer, of which a token uses two.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, LLAMA, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::experts::{ExpertKeys, Routing, SparseLayers};
use trueup_graph::op::RopePairs;

/// `MixtralForCausalLM`, in GGUF a `llama`.
pub static MIXTRAL: Architecture = Architecture {
    gguf_name: LLAMA.gguf_name,
    classes: &["MixtralForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        decoder.window = config.windows(None, vec![true; decoder.layers]);
        let layers = vec![true; decoder.layers];
        let sparse = SparseLayers::from_config(config, &decoder, &EXPERTS, (Routing::RENORMALIZED, layers));
        decoder.spec(&Style::LLAMA).with_experts(Some(sparse))
    },
    from_metadata: llama_from_metadata,
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[EXPERT_NAMES, INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    kv_heads_absent: Some(8),
    context_absent: Some(131_072),
    epsilon: ("rms_norm_eps", 1e-5),
    rope_base: ("rope_theta", 1_000_000.0),
    ..Usual::LLAMA
};
const EXPERTS: ExpertKeys =
    ExpertKeys { count: ("num_local_experts", 8), used: ("num_experts_per_tok", 2), size: None, is_stacked: false };

const EXPERT_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.ffn_gate_inp", "model.layers.{l}.block_sparse_moe.gate"),
    TensorRule::new("blk.{l}.ffn_gate_exps", "model.layers.{l}.block_sparse_moe.experts.{e}.w1"),
    TensorRule::new("blk.{l}.ffn_up_exps", "model.layers.{l}.block_sparse_moe.experts.{e}.w3"),
    TensorRule::new("blk.{l}.ffn_down_exps", "model.layers.{l}.block_sparse_moe.experts.{e}.w2"),
];
