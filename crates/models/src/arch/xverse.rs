//! XVERSE: the layers of Llama in a separate class and a separate GGUF architecture.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `XverseForCausalLM`.
pub static XVERSE: Architecture = Architecture {
    gguf_name: "xverse",
    classes: &["XverseForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours).spec(&Style::LLAMA)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Neighbours, Style::LLAMA.norm).spec(&Style::LLAMA),
    needs_head: true,
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};
