//! Gemma, the first version: Llama with a scaled embedding, norms of `1 + w`, a gelu gate, and a tied head.

use super::llama::INVERSE_FREQUENCIES;
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, plus_one};
use crate::decoder::{Decoder, Style, Usual};
use crate::number::{nearest_f32, real};
use crate::part::feed_forward::Activation;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GemmaForCausalLM`.
pub static GEMMA: Architecture = Architecture {
    gguf_name: "gemma",
    classes: &["GemmaForCausalLM"],
    from_config: |config| {
        // The class computes the tanh form whatever the older key says.
        config.only("hidden_act", &["\"gelu_pytorch_tanh\"", "\"gelu\""]);
        config.only("hidden_activation", &["\"gelu_pytorch_tanh\"", "\"gelu\""]);
        config.only("attention_bias", &["false"]);
        config.only("quantization_config", &[]);
        config.only("tie_word_embeddings", &["true"]);
        with_scaled_embedding(Decoder::from_config(config, &USUAL, RopePairs::Halves).spec(&STYLE))
    },
    from_metadata: |keys| with_scaled_embedding(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE)),
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

pub(super) const USUAL: Usual =
    Usual { head_size_absent: Some(256), context_absent: Some(8192), tied_absent: true, ..Usual::LLAMA };
pub(super) const STYLE: Style = Style { activation: Activation::Gelu, ..Style::LLAMA };

/// The rows of the embedding are multiplied by the square root of the hidden size, which no key says.
pub(super) fn with_scaled_embedding(mut spec: ModelSpec) -> ModelSpec {
    spec.embedding.scale = Some(nearest_f32(real(spec.hidden_size).sqrt()));
    spec
}

const TENSORS: &[TensorRule] = &[
    TensorRule::new("token_embd", "model.embed_tokens"),
    TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm").with(plus_one),
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
    TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
    TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
    TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.post_attention_layernorm").with(plus_one),
    TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj"),
    TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj"),
    TensorRule::new("output_norm", "model.norm").with(plus_one),
    TensorRule::new("output", "lm_head"),
];
