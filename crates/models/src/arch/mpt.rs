//! MPT: layer norms without biases, ALiBi, and queries, keys and values in one tensor, optionally limited to a range.

use super::olmo::CLAMP;
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::gelu_note;
use crate::config::Config;
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::number::nearest_f32;
use crate::part::attention::Position;
use crate::part::feed_forward::Activation;
use crate::part::norm::NormKind;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `MptForCausalLM`; `MPTForCausalLM` in the publication.
pub static MPT: Architecture = Architecture {
    gguf_name: "mpt",
    classes: &["MptForCausalLM", "MPTForCausalLM"],
    from_config: |config| {
        config.only("expansion_ratio", &["4"]);
        config.only("no_bias", &["true"]);
        config.only("logit_scale", &[]);
        config.only("embedding_fraction", &["1", "1.0"]);
        config.only("norm_type", &["\"low_precision_layernorm\"", "\"layernorm\""]);
        let (bias, clamp) = config.nested("attn_config", attention);
        let usual = Usual {
            hidden_size: config.key_or_alias(USUAL.hidden_size, "hidden_size"),
            layers: config.key_or_alias(USUAL.layers, "num_hidden_layers"),
            heads: config.key_or_alias(USUAL.heads, "num_attention_heads"),
            ..USUAL
        };
        finished(&Decoder::from_config(config, &usual, RopePairs::Halves), bias, clamp)
    },
    from_metadata: |keys| {
        let bias = nearest_f32(keys.number(MAX_BIAS, None));
        let clamp = keys.number_if_present(CLAMP).map(nearest_f32).filter(|clamp| *clamp != 0.0);
        finished(&Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm), bias, clamp)
    },
    more_keys: |spec, writer| {
        let Some(attention) = spec.attention(0) else { return };
        if let Position::Alibi(alibi) = attention.position {
            writer.value(MAX_BIAS, alibi.max_bias);
        }
        if let Some(clamp) = attention.clamp {
            writer.value(CLAMP, clamp);
        }
    },
    compatibility: |_| vec![gelu_note()],
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.blocks.{l}.norm_1"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.blocks.{l}.attn.Wqkv"),
        TensorRule::new("blk.{l}.attn_output", "transformer.blocks.{l}.attn.out_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.blocks.{l}.norm_2"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.blocks.{l}.ffn.up_proj"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.blocks.{l}.ffn.down_proj"),
        TensorRule::new("output_norm", "transformer.norm_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    hidden_size: "d_model",
    layers: "n_layers",
    heads: "n_heads",
    intermediate: NO_KEY,
    intermediate_absent: Some(4),
    context: "max_seq_len",
    epsilon: ("layer_norm_epsilon", 1e-5),
    tied_absent: true,
    ..Usual::LLAMA
};
const STYLE: Style = Style {
    norm: NormKind::Layer { has_weight: true, has_bias: false },
    activation: Activation::GeluErf,
    is_fused: true,
    is_rotated: false,
    attention_bias: false,
    output_bias: false,
    feed_forward_bias: false,
    ..Style::GPT
};
const MAX_BIAS: &str = "attention.max_alibi_bias";

/// The largest exponent of ALiBi's slopes, and the limit of queries, keys and values.
fn attention(config: &mut Config) -> (f32, Option<f32>) {
    config.only("attn_type", &["\"multihead_attention\""]);
    config.only("alibi", &["true"]);
    config.only("prefix_lm", &["false"]);
    config.only("qk_ln", &["false"]);
    config.only("softmax_scale", &[]);
    config.only("attn_uses_sequence_id", &["false"]);
    let clamp = config.number("clip_qkv").map(nearest_f32).filter(|clamp| *clamp != 0.0);
    // transformers ignores this key, and the published program does not.
    config.only("alibi_bias_max", &["8", "8.0"]);
    (8.0, clamp)
}

fn finished(decoder: &Decoder, max_bias: f32, clamp: Option<f32>) -> ModelSpec {
    decoder.spec(&STYLE).with_attention(|_, attention| {
        attention.position = Position::alibi(max_bias);
        attention.clamp = clamp;
    })
}
