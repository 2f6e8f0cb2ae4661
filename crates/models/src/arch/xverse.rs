//! XVERSE: Llama under another name.

use super::llama::{INVERSE_FREQUENCIES, TENSORS, gated_silu};
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
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};
