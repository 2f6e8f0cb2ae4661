//! Qwen, the first version: what Qwen2 computes, with other names, so its GGUF file is one of Qwen2.
//!
//! Queries, keys and values are the rows of one tensor in the checkpoint (`c_attn`); `intermediate_size` counts gate
//! and up together.

use super::qwen2::{QWEN2, STYLE};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, keys, queries, values};
use crate::decoder::{Decoder, Usual};
use trueup_graph::op::RopePairs;

/// `QWenLMHeadModel`.
pub static QWEN: Architecture = Architecture {
    gguf_name: QWEN2.gguf_name,
    classes: &["QWenLMHeadModel"],
    flm_name: Some("qwen"),
    from_config: |config| {
        config.only("no_bias", &["true"]);
        config.only("scale_attn_weights", &["true"]);
        config.only("rotary_pct", &["1", "1.0"]);
        let context = if config.value("seq_length").is_some() { "seq_length" } else { "max_position_embeddings" };
        let usual = Usual {
            head_size: "kv_channels",
            context,
            context_absent: None,
            epsilon: ("layer_norm_epsilon", 1e-6),
            rope_base: ("rotary_emb_base", 10_000.0),
            ..Usual::LLAMA
        };
        let mut decoder = Decoder::from_config(config, &usual, RopePairs::Halves);
        if let Some(size) = decoder.intermediate.iter().find(|size| !size.is_multiple_of(2)) {
            config.problem(format!("intermediate_size: expected a multiple of 2, found {size}"));
        }
        decoder.intermediate.iter_mut().for_each(|size| *size = (*size / 2).max(1));
        decoder.spec(&STYLE)
    },
    from_metadata: QWEN2.from_metadata,
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
        TensorRule::new("blk.{l}.attn_q", "transformer.h.{l}.attn.c_attn").with(queries),
        TensorRule::new("blk.{l}.attn_k", "transformer.h.{l}.attn.c_attn").with(keys),
        TensorRule::new("blk.{l}.attn_v", "transformer.h.{l}.attn.c_attn").with(values),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.c_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.ln_2"),
        // w2 goes through silu.
        TensorRule::new("blk.{l}.ffn_gate", "transformer.h.{l}.mlp.w2"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.w1"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.c_proj"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: &["transformer.rotary_emb.inv_freq", "transformer.h.{l}.attn.rotary_emb.inv_freq"],
    ..Architecture::BASE
};
