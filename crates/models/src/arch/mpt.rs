//! MPT: layer norms without biases, ALiBi or learned positions, and queries, keys and values in one tensor, optionally
//! limited to a range, with norms of queries and keys after that.
//!
//! The class of transformers ignores `alibi`, `alibi_bias_max` and `qk_ln`. The original MPT code and llama.cpp apply
//! these keys, and so does this file.

use super::olmo::CLAMP;
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::gelu_note;
use crate::config::Config;
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::number::nearest_f32;
use crate::part::attention::{HeadNorm, HeadSpan, Position};
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
        let mut options = config.nested("attn_config", Options::from_config);
        options.has_table = options.max_bias.is_none() && config.flag_or("learned_pos_emb", true);
        let usual = Usual {
            hidden_size: config.key_or_alias(USUAL.hidden_size, "hidden_size"),
            layers: config.key_or_alias(USUAL.layers, "num_hidden_layers"),
            heads: config.key_or_alias(USUAL.heads, "num_attention_heads"),
            ..USUAL
        };
        options.applied(&Decoder::from_config(config, &usual, RopePairs::Halves))
    },
    from_metadata: |keys| {
        let mut unless_zero = |key| keys.number_if_present(key).map(nearest_f32).filter(|number| *number != 0.0);
        let (max_bias, clamp) = (unless_zero(MAX_BIAS), unless_zero(CLAMP));
        let has_head_norm = keys.has_tensor("blk.{l}.attn_q_norm.weight");
        let options = Options { max_bias, clamp, has_head_norm, has_table: keys.has_tensor("position_embd.weight") };
        options.applied(&Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm))
    },
    more_keys: |spec, writer| {
        let Some(attention) = spec.attention(0) else { return };
        let alibi = if let Position::Alibi(alibi) = attention.position { Some(alibi) } else { None };
        writer.value(MAX_BIAS, alibi.map_or(0.0, |alibi| alibi.max_bias));
        if let Some(clamp) = attention.clamp {
            writer.value(CLAMP, clamp);
        }
    },
    compatibility: |_| vec![gelu_note()],
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("position_embd", "transformer.wpe"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.blocks.{l}.norm_1"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.blocks.{l}.attn.Wqkv"),
        TensorRule::new("blk.{l}.attn_q_norm", "transformer.blocks.{l}.attn.q_ln"),
        TensorRule::new("blk.{l}.attn_k_norm", "transformer.blocks.{l}.attn.k_ln"),
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

/// What checkpoints of the class differ in.
struct Options {
    /// The largest exponent of ALiBi's slopes; `None` without ALiBi.
    max_bias: Option<f32>,
    /// The limit of queries, keys and values.
    clamp: Option<f32>,
    /// Whether all heads of queries have one norm, and all heads of keys.
    has_head_norm: bool,
    /// Whether the embedding has a row for each position.
    has_table: bool,
}

impl Options {
    /// Reads `attn_config`.
    fn from_config(config: &mut Config) -> Options {
        config.only("attn_type", &["\"multihead_attention\""]);
        config.only("prefix_lm", &["false"]);
        config.only("softmax_scale", &[]);
        config.only("attn_uses_sequence_id", &["false"]);
        config.only("rope", &["false"]);
        let has_alibi = config.flag_or("alibi", true);
        let max_bias = has_alibi.then(|| nearest_f32(config.positive_or("alibi_bias_max", 8.0)));
        let has_head_norm = config.flag_or("qk_ln", false);
        let others = max_bias.is_some_and(|max_bias| max_bias != 8.0);
        for (key, is_ignored) in [("alibi", !has_alibi), ("alibi_bias_max", others), ("qk_ln", has_head_norm)] {
            if is_ignored {
                config.note(format!(
                    "attn_config: {key}: computed as in the original MPT code; transformers ignores this key"
                ));
            }
        }
        let clamp = config.number("clip_qkv").map(nearest_f32).filter(|clamp| *clamp != 0.0);
        Options { max_bias, clamp, has_head_norm, has_table: false }
    }

    fn applied(&self, decoder: &Decoder) -> ModelSpec {
        let norm = HeadNorm { norm: decoder.norm(STYLE.norm), span: HeadSpan::AllHeads };
        let mut spec = decoder.spec(&STYLE).with_attention(|_, attention| {
            attention.position = self.max_bias.map_or(Position::None, Position::alibi);
            attention.clamp = self.clamp;
            attention.head_norm = self.has_head_norm.then_some(norm);
        });
        spec.embedding.positions = self.has_table.then_some(spec.context_length);
        spec
    }
}
