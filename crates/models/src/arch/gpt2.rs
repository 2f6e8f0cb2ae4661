//! GPT-2: layer norms with biases, learned positions, and matrices that the class stores transposed (`Conv1D`).

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, transposed};
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual};
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GPT2LMHeadModel`. Checkpoints of the inner model, `GPT2Model`, have no prefix and no head.
pub static GPT2: Architecture = Architecture {
    gguf_name: "gpt2",
    classes: &["GPT2LMHeadModel", "GPT2Model"],
    from_config: |config| {
        config.only("activation_function", &["\"gelu_new\"", "\"gelu_pytorch_tanh\""]);
        only_plain_scores(config);
        let usual = Usual {
            layers: config.key_or_alias(USUAL.layers, "num_hidden_layers"),
            heads: config.key_or_alias(USUAL.heads, "num_attention_heads"),
            hidden_size: config.key_or_alias(USUAL.hidden_size, "hidden_size"),
            context: config.key_or_alias(USUAL.context, "max_position_embeddings"),
            ..USUAL
        };
        with_learned_positions(Decoder::from_config(config, &usual, RopePairs::Halves).spec(&STYLE))
    },
    from_metadata: |keys| with_learned_positions(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE)),
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("position_embd", "transformer.wpe"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.attn.c_attn").with(transposed),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.c_proj").with(transposed),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.ln_2"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.c_fc").with(transposed),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.c_proj").with(transposed),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: CAUSAL_MASKS,
    ..Architecture::BASE
};

pub(super) const USUAL: Usual = Usual { context_absent: Some(1024), tied_absent: true, ..Usual::GPT };
pub(super) const STYLE: Style = Style { is_fused: true, is_rotated: false, ..Style::GPT };

/// Old checkpoints store the causal mask, and the score of the positions that it hides.
pub(super) const CAUSAL_MASKS: &[&str] =
    &["transformer.h.{l}.attn.bias", "transformer.h.{l}.attn.masked_bias", "h.{l}.attn.bias", "h.{l}.attn.masked_bias"];

/// Refuses scores that are scaled in another way than by the size of a head.
pub(super) fn only_plain_scores(config: &mut Config) {
    config.only("scale_attn_weights", &["true"]);
    config.only("scale_attn_by_inverse_layer_idx", &["false"]);
    config.only("add_cross_attention", &["false"]);
}

/// The same model with a row of a table for each position, added to the embedding.
pub(super) fn with_learned_positions(mut spec: ModelSpec) -> ModelSpec {
    spec.embedding.positions = Some(spec.context_length);
    spec
}
