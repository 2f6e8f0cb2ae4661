//! OLMoE: eight of 64 experts for each token, a norm of all query heads together and of all key heads together, and
//! optionally a limit of queries and keys, after their norms, and values.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::olmo::CLAMP;
use super::qwen3moe::EXPERT_NAMES;
use crate::architecture::Architecture;
use crate::compatibility::renormalization_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::number::nearest_f32;
use crate::part::attention::HeadSpan;
use crate::part::experts::{ExpertKeys, Routing, SparseLayers};
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `OlmoeForCausalLM`.
pub static OLMOE: Architecture = Architecture {
    gguf_name: "olmoe",
    classes: &["OlmoeForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let clamp = config.number("clip_qkv").map(nearest_f32);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let routing = Routing { is_renormalized: config.flag_or("norm_topk_prob", false), ..Routing::PLAIN };
        let layers = vec![true; decoder.layers];
        let sparse = SparseLayers::from_config(config, &decoder, &EXPERTS, (routing, layers));
        limited(decoder.spec(&STYLE).with_experts(Some(sparse)), clamp)
    },
    from_metadata: |keys| {
        let clamp = keys.number_if_present(CLAMP).map(nearest_f32).filter(|clamp| *clamp != 0.0);
        let decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let sparse = SparseLayers::from_keys(keys, &decoder, Routing::PLAIN);
        limited(decoder.spec(&STYLE).with_experts(sparse), clamp)
    },
    more_keys: |spec, writer| {
        if let Some(clamp) = spec.attention(0).and_then(|attention| attention.clamp) {
            writer.value(CLAMP, clamp);
        }
    },
    compatibility: |spec| renormalization_note(spec, false).into_iter().chain(clamp_note(spec)).collect(),
    tensors: &[EXPERT_NAMES, NAMES],
    needs_head: true,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { context_absent: Some(4096), epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
const STYLE: Style = Style { head_norm: Some(HeadSpan::AllHeads), ..Style::LLAMA };
const EXPERTS: ExpertKeys =
    ExpertKeys { count: ("num_experts", 64), used: ("num_experts_per_tok", 8), size: None, is_stacked: false };

fn limited(spec: ModelSpec, clamp: Option<f32>) -> ModelSpec {
    spec.with_attention(|_, attention| (attention.clamp, attention.is_clamped_after_norm) = (clamp, true))
}

fn clamp_note(spec: &ModelSpec) -> Option<String> {
    let clamp = spec.attention(0)?.clamp?;
    Some(format!(
        "queries, keys and values are limited to {clamp} (olmoe.{CLAMP}); llama.cpp ignores the limit, and its results \
         differ"
    ))
}
