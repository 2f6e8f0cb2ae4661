//! Mistral 7B and its relatives: Llama's tensors without biases, grouped heads, a sliding window in all layers.

use super::llama::{INVERSE_FREQUENCIES, LLAMA, TENSORS, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Style, Usual, usual_config};
use trueup_graph::op::RopePairs;

/// `MistralForCausalLM`, in GGUF a `llama`.
pub static MISTRAL: Architecture = Architecture {
    gguf_name: LLAMA.gguf_name,
    classes: &["MistralForCausalLM"],
    flm_name: Some("llama"),
    from_config: |config| {
        gated_silu(config);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        let layers = config.sliding_layers(decoder.layers).unwrap_or_else(|| vec![true; decoder.layers]);
        decoder.window = config.window("sliding_window", Some(4096)).map(|size| (size, layers));
        decoder.spec(&Style::LLAMA)
    },
    from_metadata: llama_from_metadata,
    to_config: |spec| usual_config(spec, &USUAL),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads_absent: Some(8), context_absent: Some(131_072), ..Usual::LLAMA };
