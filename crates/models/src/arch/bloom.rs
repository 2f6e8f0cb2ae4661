//! BLOOM: a norm of the embedding, ALiBi, and queries, keys and values of each head side by side.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_head};
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::part::attention::Position;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `BloomForCausalLM`, also of BLOOMZ. Checkpoints of the inner model, `BloomModel`, have no prefix and no head.
pub static BLOOM: Architecture = Architecture {
    gguf_name: "bloom",
    classes: &["BloomForCausalLM", "BloomModel"],
    from_config: |config| {
        config.only("apply_residual_connection_post_layernorm", &["false"]);
        let usual = Usual {
            hidden_size: config.key_or_alias(USUAL.hidden_size, "n_embed"),
            layers: config.key_or_alias(USUAL.layers, "num_hidden_layers"),
            heads: config.key_or_alias(USUAL.heads, "num_attention_heads"),
            ..USUAL
        };
        finished(&Decoder::from_config(config, &usual, RopePairs::Halves))
    },
    from_metadata: |keys| {
        keys.only_alibi_bias(MAX_BIAS);
        finished(&Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm))
    },
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.word_embeddings"),
        TensorRule::new("token_embd_norm", "transformer.word_embeddings_layernorm"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.self_attention.query_key_value").with(split_by_head),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.self_attention.dense"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    layers: "n_layer",
    heads: "n_head",
    intermediate: NO_KEY,
    intermediate_absent: Some(4),
    context: "seq_length",
    epsilon: ("layer_norm_epsilon", 1e-5),
    tied_absent: true,
    ..Usual::LLAMA
};
const STYLE: Style = Style { is_fused: true, is_rotated: false, ..Style::GPT };
/// The largest exponent of ALiBi's slopes, for which there is no key.
const MAX_BIAS: f32 = 8.0;

fn finished(decoder: &Decoder) -> ModelSpec {
    let mut spec = decoder.spec(&STYLE).with_attention(|_, attention| attention.position = Position::alibi(MAX_BIAS));
    spec.embedding.norm = Some(decoder.norm(STYLE.norm));
    spec
}
