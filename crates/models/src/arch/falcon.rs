//! Falcon: of 7 and 40 billion parameters with attention and feed-forward in parallel and heads that share keys and
//! values; Falcon-RW like BLOOM, with feed-forward after attention, biases and ALiBi.
//!
//! ```text
//! 7B    one norm                                           attn_norm
//! 40B   one norm for attention, one for the feed-forward   attn_norm_2, attn_norm
//! RW    the same, in sequence                              attn_norm, ffn_norm
//! ```
//!
//! The original checkpoints have the class `RWForCausalLM` and the keys `n_layer`, `n_head` and `n_head_kv`.
//! `n_head_kv` implies the layers of 40B. Flags that are absent are false.
//!
//! In Falcon-RW, scores are `(q k - slope distance) / sqrt(head size)`: the scale applies to ALiBi too. transformers
//! rounds `slope position` to bf16, which is exact at up to 256 positions of models with up to 8 heads; trueup computes
//! it in f32. The eager attention of transformers 4.57.6 adds ALiBi twice, its default attention once.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_kv_head};
use crate::compatibility::gelu_note;
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual};
use crate::metadata::Keys;
use crate::number::nearest_f32;
use crate::part::attention::{Alibi, Position};
use crate::part::feed_forward::Activation;
use crate::part::norm::{NamedNorm, Norm};
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::RopePairs;

/// `FalconForCausalLM`; `RWForCausalLM` in the original checkpoints.
pub static FALCON: Architecture = Architecture {
    gguf_name: "falcon",
    classes: &["FalconForCausalLM", "RWForCausalLM"],
    from_config,
    from_metadata,
    more_keys: |spec, writer| {
        if let Some(Alibi { max_bias, scale }) = alibi(spec) {
            writer.value(MAX_BIAS, max_bias);
            writer.value(BIAS_SCALE, scale);
        }
    },
    compatibility: |spec| [gelu_note()].into_iter().chain(layer_note(spec)).collect(),
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.word_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_mlp").when(has_two_norms),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_norm_2", "transformer.h.{l}.ln_attn"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.self_attention.query_key_value").with(split_by_kv_head),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.self_attention.dense"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: &["transformer.h.{l}.self_attention.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    intermediate: "ffn_hidden_size",
    intermediate_absent: Some(4),
    epsilon: ("layer_norm_epsilon", 1e-5),
    tied_absent: true,
    ..Usual::LLAMA
};
/// Largest exponent of the ALiBi slopes (absent with RoPE), and the scale of the bias.
const MAX_BIAS: &str = "attention.max_alibi_bias";
const BIAS_SCALE: &str = "attention.alibi_scale";
/// The exponent of every published model.
const USUAL_MAX_BIAS: f32 = 8.0;
/// Positions and heads of models for which ALiBi is exact in bf16.
const POSITIONS_OF_BF16: usize = 256;
const HEADS_OF_BF16: usize = 8;

const ONE_NORM: Style = Style {
    arrangement: Arrangement::parallel,
    is_fused: true,
    activation: Activation::GeluErf,
    attention_bias: false,
    output_bias: false,
    feed_forward_bias: false,
    ..Style::GPT
};

fn from_config(config: &mut Config) -> ModelSpec {
    config.only("activation", &["\"gelu\""]);
    let is_first = config.class().starts_with("RW");
    let kv_heads_key = if is_first { "n_head_kv" } else { "num_kv_heads" };
    let is_new = config.flag_or("new_decoder_architecture", is_first && config.value(kv_heads_key).is_some());
    let is_parallel = config.flag_or("parallel_attn", !is_first);
    if is_new && !is_parallel {
        config.problem("parallel_attn: expected true with new_decoder_architecture, found false");
    }
    let has_alibi = config.flag_or("alibi", false);
    let has_bias = config.flag_or("bias", false);
    let usual = Usual {
        layers: config.key_or_alias(USUAL.layers, "n_layer"),
        heads: config.key_or_alias(USUAL.heads, "n_head"),
        ..USUAL
    };
    let mut decoder = Decoder::from_config(config, &usual, RopePairs::Halves);
    let heads = decoder.heads.first().copied().unwrap_or(1);
    let kv_heads = match (is_new, config.flag_or("multi_query", !is_first)) {
        (true, _) => config.count_or(kv_heads_key, heads),
        (false, true) => 1,
        (false, false) => heads,
    };
    decoder.kv_heads.fill(kv_heads);
    let has_two_norms = is_new && config.count_or("num_ln_in_parallel_attn", 2) == 2;
    let arrangement = match (is_parallel, has_two_norms) {
        (true, true) => two_norms,
        (true, false) => Arrangement::parallel,
        (false, _) => Arrangement::pre,
    };
    let mut spec = decoder.spec(&style(arrangement, has_bias, !has_alibi));
    if has_alibi {
        config.note(format!(
            "ALiBi is computed in f32; transformers rounds it to bf16, so logits differ after {POSITIONS_OF_BF16} \
             positions, and at all positions of models with more than {HEADS_OF_BF16} heads"
        ));
        spec = spec.with_attention(|_, attention| {
            let scale = nearest_f32(attention.scale);
            attention.position = Position::Alibi(Alibi { max_bias: USUAL_MAX_BIAS, scale });
        });
    }
    spec
}

fn from_metadata(keys: &mut Keys) -> ModelSpec {
    let arrangement = match (keys.has_tensor("blk.{l}.attn_norm_2.weight"), keys.has_tensor("blk.{l}.ffn_norm.weight"))
    {
        (true, _) => two_norms,
        (false, true) => Arrangement::pre,
        (false, false) => Arrangement::parallel,
    };
    let max_bias = keys.number_if_present(MAX_BIAS).map(nearest_f32).filter(|bias| *bias != 0.0);
    let scale = nearest_f32(keys.number(BIAS_SCALE, Some(1.0)));
    let style = style(arrangement, keys.has_tensor("blk.{l}.attn_qkv.bias"), max_bias.is_none());
    let spec = Decoder::from_keys(keys, RopePairs::Halves, style.norm).spec(&style);
    match max_bias {
        None => spec,
        Some(max_bias) => spec.with_attention(|_, attention| {
            attention.position = Position::Alibi(Alibi { max_bias, scale });
        }),
    }
}

fn style(arrangement: fn(Norm) -> Arrangement, has_bias: bool, is_rotated: bool) -> Style {
    Style {
        arrangement,
        is_rotated,
        attention_bias: has_bias,
        output_bias: has_bias,
        feed_forward_bias: has_bias,
        ..ONE_NORM
    }
}

fn two_norms(norm: Norm) -> Arrangement {
    Arrangement {
        before_mixer: Some(NamedNorm::new(norm, "attn_norm", "attn_norm_2")),
        before_feed_forward: Some(NamedNorm::new(norm, "ffn_norm", "attn_norm")),
        ..Arrangement::parallel(norm)
    }
}

fn has_two_norms(spec: &ModelSpec) -> bool {
    let parallel = |arrangement: &Arrangement| arrangement.is_parallel && arrangement.before_feed_forward.is_some();
    spec.layers.iter().any(|layer| parallel(&layer.arrangement))
}

fn alibi(spec: &ModelSpec) -> Option<Alibi> {
    spec.attention(0).and_then(|attention| match attention.position {
        Position::Alibi(alibi) => Some(alibi),
        Position::Rope(_) | Position::Buckets { .. } | Position::None => None,
    })
}

/// A note on features that llama.cpp lacks for this architecture.
fn layer_note(spec: &ModelSpec) -> Option<String> {
    let is_sequential = spec.layers.iter().any(|layer| !layer.arrangement.is_parallel);
    let has_bias = spec.attentions().any(|(_, attention)| attention.has_bias);
    if is_sequential {
        return Some(
            "attention and feed-forward run in sequence; llama.cpp supports only the parallel form for falcon and cannot \
             load the file"
                .to_owned(),
        );
    }
    if has_bias {
        return Some(
            "the model has biases, which llama.cpp does not support for falcon; llama.cpp cannot load the file"
                .to_owned(),
        );
    }
    alibi(spec).map(|_| {
        format!(
            "positions are encoded with ALiBi (falcon.{MAX_BIAS}); llama.cpp rotates heads, and its results are wrong"
        )
    })
}
