//! Qwen2 and Qwen2.5: biases on queries, keys and values; halves rotated; a sliding window in the upper layers, if any.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::compatibility::window_note;
use crate::config::{Config, Object};
use crate::decoder::{Decoder, Style, Usual, usual_config};
use crate::spec::ModelSpec;
use serde_json::Value;
use trueup_graph::op::RopePairs;

/// `Qwen2ForCausalLM`.
pub static QWEN2: Architecture = Architecture {
    gguf_name: "qwen2",
    classes: &["Qwen2ForCausalLM"],
    flm_name: Some("qwen2"),
    from_config: |config| {
        gated_silu(config);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = upper_layers_window(config, decoder.layers);
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    to_config: |spec| config_with_window(spec, &USUAL),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[NAMES],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads_absent: Some(32), context_absent: Some(32_768), ..Usual::LLAMA };
pub(super) const STYLE: Style = Style { attention_bias: true, ..Style::LLAMA };

/// A window that `use_sliding_window` switches on, from the layer `max_window_layers` on or in the listed layers.
pub(super) fn upper_layers_window(config: &mut Config, layers: usize) -> Option<(usize, Vec<bool>)> {
    let is_enabled = config.flag_or("use_sliding_window", false);
    // Zero is allowed: all layers.
    let first = match config.value("max_window_layers").and_then(Value::as_u64) {
        Some(first) => usize::try_from(first).unwrap_or(usize::MAX),
        None => config.count_or("max_window_layers", 28),
    };
    if !is_enabled {
        config.no_windows(layers);
        return None;
    }
    config.windows(Some(4096), (0..layers).map(|layer| layer >= first).collect())
}

/// The usual keys, and the switch of the window.
pub(super) fn config_with_window(spec: &ModelSpec, usual: &Usual) -> Option<Object> {
    let mut config = usual_config(spec, usual)?;
    if spec.window().is_some() {
        config.insert("use_sliding_window".to_owned(), true.into());
    }
    Some(config)
}
