//! Mistral 7B and its relatives: Llama's tensors without biases, grouped heads, a sliding window in all layers.

use super::gemma3::VISION;
use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, LLAMA, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Style, Usual, usual_config};
use trueup_graph::op::RopePairs;

/// `MistralForCausalLM`, and the language model of `Mistral3ForConditionalGeneration`; in GGUF a `llama`.
pub static MISTRAL: Architecture = Architecture {
    gguf_name: LLAMA.gguf_name,
    classes: &["MistralForCausalLM", "Mistral3ForConditionalGeneration"],
    flm_name: Some("llama"),
    from_config: |config| {
        config.only_text_model("mistral");
        gated_silu(config);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        decoder.window = config.windows(Some(4096), vec![true; decoder.layers]);
        decoder.spec(&Style::LLAMA)
    },
    from_metadata: llama_from_metadata,
    to_config: |spec| usual_config(spec, &USUAL),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    unused: VISION,
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads_absent: Some(8), context_absent: Some(131_072), ..Usual::LLAMA };
