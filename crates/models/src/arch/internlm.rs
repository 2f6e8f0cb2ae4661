//! InternLM, the first version: Llama with biases on all projections of attention, unless the description says that it
//! has none.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, LLAMA, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `InternLMForCausalLM`, in GGUF a `llama`.
pub static INTERNLM: Architecture = Architecture {
    gguf_name: LLAMA.gguf_name,
    classes: &["InternLMForCausalLM"],
    flm_name: Some("internlm"),
    from_config: |config| {
        gated_silu(config);
        let bias = config.flag_or("bias", true);
        let style = Style { attention_bias: bias, output_bias: bias, ..Style::LLAMA };
        Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours).spec(&style)
    },
    from_metadata: llama_from_metadata,
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};
