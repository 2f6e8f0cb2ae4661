//! InternLM3: Llama with optional biases, written as a Llama GGUF file.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `InternLM3ForCausalLM`.
pub static INTERNLM3: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["InternLM3ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        let bias = config.flag_or("bias", false);
        let style = Style {
            attention_bias: config.flag_or("qkv_bias", false),
            output_bias: bias,
            feed_forward_bias: bias,
            ..Style::LLAMA
        };
        Decoder::from_config(config, &USUAL, RopePairs::Neighbours).spec(&style)
    },
    from_metadata: llama_from_metadata,
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { context_absent: Some(32_768), ..Usual::LLAMA };
