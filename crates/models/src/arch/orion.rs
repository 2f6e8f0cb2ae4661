//! Orion: Llama with layer norms that have biases; GGUF rotates halves of a head, as the class does.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::norm::NormKind;
use trueup_graph::op::RopePairs;

/// `OrionForCausalLM`.
pub static ORION: Architecture = Architecture {
    gguf_name: "orion",
    classes: &["OrionForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        Decoder::from_config(config, &USUAL, RopePairs::Halves).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    needs_head: true,
    tensors: &[NAMES],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

// The class names its layer norms' epsilon after the norms of Llama.
const USUAL: Usual = Usual { context_absent: Some(4096), epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
const STYLE: Style = Style { norm: NormKind::LAYER, ..Style::LLAMA };
