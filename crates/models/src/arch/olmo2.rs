//! OLMo 2: norms after each branch instead of before, and a norm of all query heads together and of all key heads
//! together.

use super::llama::{INVERSE_FREQUENCIES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::attention::HeadSpan;
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `Olmo2ForCausalLM`.
pub static OLMO2: Architecture = Architecture {
    gguf_name: "olmo2",
    classes: &["Olmo2ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let usual = Usual { epsilon: ("rms_norm_eps", 1e-5), ..Usual::LLAMA };
        Decoder::from_config(config, &usual, RopePairs::Halves).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    tensors: &[
        TensorRule::new("token_embd", "model.embed_tokens"),
        TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
        TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_norm"),
        TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
        TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_norm"),
        TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
        TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
        TensorRule::new("blk.{l}.post_attention_norm", "model.layers.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj"),
        TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj"),
        TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj"),
        TensorRule::new("blk.{l}.post_ffw_norm", "model.layers.{l}.post_feedforward_layernorm"),
        TensorRule::new("output_norm", "model.norm"),
        TensorRule::new("output", "lm_head"),
    ],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const STYLE: Style = Style { arrangement: Arrangement::post, head_norm: Some(HeadSpan::AllHeads), ..Style::LLAMA };
