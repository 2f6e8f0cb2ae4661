//! OLMoE: eight of 64 experts for each token, a norm of all query heads together and of all key heads together.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::qwen3moe::EXPERT_NAMES;
use crate::architecture::Architecture;
use crate::compatibility::renormalization_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::attention::HeadSpan;
use crate::part::experts::{ExpertKeys, Routing, SparseLayers};
use trueup_graph::op::RopePairs;

/// `OlmoeForCausalLM`.
pub static OLMOE: Architecture = Architecture {
    gguf_name: "olmoe",
    classes: &["OlmoeForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        // The class limits queries and keys after their norms.
        config.only("clip_qkv", &[]);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let routing = Routing { is_renormalized: config.flag_or("norm_topk_prob", false), ..Routing::PLAIN };
        let layers = vec![true; decoder.layers];
        let sparse = SparseLayers::from_config(config, &decoder, &EXPERTS, (routing, layers));
        decoder.spec(&STYLE).with_experts(Some(sparse))
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let sparse = SparseLayers::from_keys(keys, &decoder, Routing::PLAIN);
        decoder.spec(&STYLE).with_experts(sparse)
    },
    compatibility: |spec| renormalization_note(spec, false).into_iter().collect(),
    tensors: &[EXPERT_NAMES, NAMES],
    needs_head: true,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { context_absent: Some(4096), epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
const STYLE: Style = Style { head_norm: Some(HeadSpan::AllHeads), ..Style::LLAMA };
const EXPERTS: ExpertKeys =
    ExpertKeys { count: ("num_experts", 64), used: ("num_experts_per_tok", 8), size: None, is_stacked: false };
