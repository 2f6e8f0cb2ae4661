//! llama2.c: Llama with the names and the row order of the first published weights, which rotate adjacent pairs.

use super::llama::{LLAMA, llama_from_metadata};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// What the header of a llama2.c file describes; in GGUF a `llama`.
pub static LLAMA2C: Architecture = Architecture {
    gguf_name: LLAMA.gguf_name,
    classes: &["Llama2cForCausalLM"],
    is_internal: true,
    from_config: |config| {
        let usual = Usual { context_absent: None, epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
        Decoder::from_config(config, &usual, RopePairs::Neighbours).spec(&Style::LLAMA)
    },
    from_metadata: llama_from_metadata,
    tensors: &[&[
        TensorRule::new("token_embd", "tok_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "layers.{l}.attention_norm"),
        TensorRule::new("blk.{l}.attn_q", "layers.{l}.attention.wq"),
        TensorRule::new("blk.{l}.attn_k", "layers.{l}.attention.wk"),
        TensorRule::new("blk.{l}.attn_v", "layers.{l}.attention.wv"),
        TensorRule::new("blk.{l}.attn_output", "layers.{l}.attention.wo"),
        TensorRule::new("blk.{l}.ffn_norm", "layers.{l}.ffn_norm"),
        TensorRule::new("blk.{l}.ffn_gate", "layers.{l}.feed_forward.w1"),
        TensorRule::new("blk.{l}.ffn_up", "layers.{l}.feed_forward.w3"),
        TensorRule::new("blk.{l}.ffn_down", "layers.{l}.feed_forward.w2"),
        TensorRule::new("output_norm", "norm"),
        TensorRule::new("output", "output"),
    ]],
    has_free_head_size: true,
    ..Architecture::BASE
};
