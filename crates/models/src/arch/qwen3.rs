//! Qwen3: heads with an explicit size, each query and key head normed before it is rotated, no biases.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::qwen2::{config_with_window, upper_layers_window};
use crate::architecture::Architecture;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::attention::HeadSpan;
use trueup_graph::op::RopePairs;

/// `Qwen3ForCausalLM`.
pub static QWEN3: Architecture = Architecture {
    gguf_name: "qwen3",
    classes: &["Qwen3ForCausalLM"],
    flm_name: Some("qwen3"),
    from_config: |config| {
        gated_silu(config);
        // GGUF's qwen3 has no names for them.
        config.only("attention_bias", &["false"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = upper_layers_window(config, decoder.layers);
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    to_config: |spec| config_with_window(spec, &USUAL),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

pub(super) const USUAL: Usual =
    Usual { kv_heads_absent: Some(32), head_size_absent: Some(128), context_absent: Some(32_768), ..Usual::LLAMA };
pub(super) const STYLE: Style = Style { head_norm: Some(HeadSpan::Head), ..Style::LLAMA };
