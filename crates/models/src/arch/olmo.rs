//! OLMo, the first version: layer norms without weights, and queries, keys and values limited to a range.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use crate::number::nearest_f32;
use crate::part::norm::NormKind;
use trueup_graph::op::RopePairs;

/// `OlmoForCausalLM`.
pub static OLMO: Architecture = Architecture {
    gguf_name: "olmo",
    classes: &["OlmoForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let clamp = config.number("clip_qkv").map(nearest_f32);
        let mut decoder = Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours);
        // The class has no key for it.
        decoder.epsilon = 1e-5;
        decoder.spec(&STYLE).with_attention(|_, attention| attention.clamp = clamp)
    },
    from_metadata: |keys| {
        let clamp = keys.number_if_present(CLAMP).map(nearest_f32).filter(|clamp| *clamp != 0.0);
        let decoder = Decoder::from_keys(keys, RopePairs::Neighbours, STYLE.norm);
        decoder.spec(&STYLE).with_attention(|_, attention| attention.clamp = clamp)
    },
    more_keys: |spec, writer| {
        if let Some(clamp) = spec.attention(0).and_then(|attention| attention.clamp) {
            writer.value(CLAMP, clamp);
        }
    },
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const STYLE: Style = Style { norm: NormKind::Layer { has_weight: false, has_bias: false }, ..Style::LLAMA };
pub(super) const CLAMP: &str = "attention.clamp_kqv";
