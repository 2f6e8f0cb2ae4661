//! Qwen2 and Qwen2.5: biases on queries, keys and values; halves rotated; a sliding window in the upper layers, if any.

use super::llama::{INVERSE_FREQUENCIES, TENSORS_HALVES, gated_silu};
use crate::architecture::Architecture;
use crate::compatibility::{rope_factors_note, window_note};
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual, usual_config};
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
    to_config: |spec| {
        let mut config = usual_config(spec, &USUAL)?;
        if spec.window().is_some() {
            config.insert("use_sliding_window".to_owned(), true.into());
        }
        Some(config)
    },
    compatibility: |spec| window_note(spec).into_iter().chain(rope_factors_note(spec)).collect(),
    tensors: TENSORS_HALVES,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads_absent: Some(32), context_absent: Some(32_768), ..Usual::LLAMA };
pub(super) const STYLE: Style = Style { attention_bias: true, ..Style::LLAMA };

/// A window that `use_sliding_window` switches on, from the layer `max_window_layers` on or in the listed layers.
pub(super) fn upper_layers_window(config: &mut Config, layers: usize) -> Option<(usize, Vec<bool>)> {
    let is_enabled = config.flag_or("use_sliding_window", false);
    let size = config.window("sliding_window", Some(4096)).filter(|_| is_enabled);
    let first = match config.value("max_window_layers").and_then(serde_json::Value::as_u64) {
        Some(first) => usize::try_from(first).unwrap_or(usize::MAX),
        None => config.count_or("max_window_layers", 28),
    };
    let listed = config.sliding_layers(layers);
    if size.is_none() && listed.as_ref().is_some_and(|list| list.contains(&true)) {
        config.problem("layer_types: expected a sliding_window for sliding_attention, found none");
    }
    let list = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    Some((size?, list))
}
