//! OLMo 2: norms after each branch instead of before, and a norm of all query heads together and of all key heads
//! together.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::attention::HeadSpan;
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `Olmo2ForCausalLM`.
pub static OLMO2: Architecture = Architecture {
    gguf_name: "olmo2",
    classes: &["Olmo2ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let usual = Usual { epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
        Decoder::from_config(config, &usual, RopePairs::Halves).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    tensors: &[NAMES],
    needs_head: true,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const STYLE: Style = Style { arrangement: Arrangement::post, head_norm: Some(HeadSpan::AllHeads), ..Style::LLAMA };
