//! Yi as first published: Llama with other names of norms and other defaults, written as a Llama GGUF file. Later
//! revisions have the class of Llama.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `YiForCausalLM`.
pub static YI: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["YiForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        Decoder::from_config(config, &USUAL, RopePairs::Neighbours).spec(&Style::LLAMA)
    },
    from_metadata: llama_from_metadata,
    tensors: &[
        INTERLEAVED,
        &[
            TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.ln1").if_present(),
            TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.ln2").if_present(),
        ],
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    kv_heads_absent: Some(4),
    context_absent: Some(4096),
    epsilon: ("rms_norm_eps", 1e-5),
    rope_base: ("rope_theta", 5_000_000.0),
    ..Usual::LLAMA
};
