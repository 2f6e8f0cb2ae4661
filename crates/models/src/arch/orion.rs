//! Orion 14B: Llama with layer norms that have biases, and halves rotated.

use super::llama::{INVERSE_FREQUENCIES, TENSORS_HALVES, gated_silu};
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
        let usual = Usual { epsilon: ("rms_norm_eps", 1e-5), context_absent: Some(4096), ..Usual::LLAMA };
        Decoder::from_config(config, &usual, RopePairs::Halves).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    tensors: TENSORS_HALVES,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const STYLE: Style = Style { norm: NormKind::LAYER, ..Style::LLAMA };
