//! T5, flan-T5, mT5 and UMT5: encoder and decoder with buckets of distances (Raffel et al. 2020).
//!
//! Scores are not scaled. The output head of T5 v1.0 is the embedding times `hidden_size^-0.5`, for which there is no
//! GGUF key: conversion writes it as a tensor.

use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::config::Config;
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::encoder_decoder::Buckets;
use crate::metadata::Keys;
use crate::number::{nearest_f32, real};
use crate::part::attention::Position;
use crate::part::feed_forward::{Activation, Storage};
use crate::spec::{FeedForward, ModelSpec, ScaledHead};
use trueup_graph::op::RopePairs;

/// Largest distance of the buckets in every published model, and the only one that llama.cpp supports.
const DISTANCE_MAX: usize = 128;
/// Describes a tensor that old checkpoints and files contain and no program uses.
const CROSS_BUCKETS: &str = "buckets of cross attention";
/// GGUF key for a maximum distance other than 128.
const DISTANCE_KEY: &str = "attention.relative_distance_max";

/// `T5ForConditionalGeneration`.
pub static T5: Architecture = Architecture {
    classes: &["T5ForConditionalGeneration", "T5WithLMHeadModel"],
    from_config: |config| {
        let tables = Tables::First;
        from_config(config, &Defaults { usual: &USUAL, feed_forward: "relu", tables, is_scaled: true })
    },
    ..BASE
};

/// `MT5ForConditionalGeneration`: T5 with other defaults. transformers 5 saves it with `tie_word_embeddings` true, but
/// does not scale the head.
pub static MT5: Architecture = Architecture {
    classes: &["MT5ForConditionalGeneration"],
    from_config: |config| {
        let usual = Usual { tied_absent: false, ..USUAL };
        let is_scaled = !config.is_of_transformers_5();
        from_config(config, &Defaults { usual: &usual, feed_forward: "gated-gelu", tables: Tables::First, is_scaled })
    },
    ..BASE
};

/// `UMT5ForConditionalGeneration`: every layer has a table of buckets.
pub static UMT5: Architecture = Architecture {
    classes: &["UMT5ForConditionalGeneration"],
    from_config: |config| {
        let tables = Tables::Each;
        from_config(config, &Defaults { usual: &USUAL, feed_forward: "gated-gelu", tables, is_scaled: true })
    },
    ..BASE
};

/// What the classes have in common.
const BASE: Architecture = Architecture {
    gguf_name: "t5",
    from_metadata: |keys| {
        let numbers = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let layers = keys.layers_or("decoder_block_count", numbers.layers);
        let count = keys.count("attention.relative_buckets_count");
        let distance_max = keys.count_or(DISTANCE_KEY, DISTANCE_MAX);
        let start = keys.token_or("decoder_start_token_id", 0);
        let is_gated = keys.has_tensor("enc.blk.{l}.ffn_gate.weight");
        let tables = Tables::stored(keys, numbers.layers, layers);
        let parts = Parts { is_gated, buckets: Buckets { count, distance_max }, tables, start };
        let mut spec = parts.spec(&numbers, layers);
        spec.head.is_tied = numbers.is_tied;
        spec
    },
    more_keys: |spec, writer| {
        let Some((encoder, buckets)) = spec.encoder.as_ref().zip(spec.buckets()) else { return };
        writer.count("block_count", encoder.layers.len());
        writer.count("decoder_block_count", spec.layers.len());
        writer.value("decoder_start_token_id", encoder.decoder_start);
        writer.count("attention.relative_buckets_count", buckets.count);
        if buckets.distance_max != DISTANCE_MAX {
            writer.count(DISTANCE_KEY, buckets.distance_max);
        }
        writer.value("attention.layer_norm_epsilon", encoder.norm.epsilon);
    },
    compatibility: |spec| distance_note(spec).into_iter().chain(deep_decoder_note(spec)).collect(),
    tensors: &[
        &[
            TensorRule::new("token_embd", "shared").if_present(),
            TensorRule::new("token_embd", "encoder.embed_tokens").if_present(),
            TensorRule::new("token_embd", "decoder.embed_tokens").if_present(),
            TensorRule::new("enc.blk.{l}.attn_norm", "encoder.block.{l}.layer.0.layer_norm"),
            TensorRule::new("enc.blk.{l}.attn_q", "encoder.block.{l}.layer.0.SelfAttention.q"),
            TensorRule::new("enc.blk.{l}.attn_k", "encoder.block.{l}.layer.0.SelfAttention.k"),
            TensorRule::new("enc.blk.{l}.attn_v", "encoder.block.{l}.layer.0.SelfAttention.v"),
            TensorRule::new(
                "enc.blk.{l}.attn_rel_b",
                "encoder.block.{l}.layer.0.SelfAttention.relative_attention_bias",
            ),
            TensorRule::new("enc.blk.{l}.attn_o", "encoder.block.{l}.layer.0.SelfAttention.o"),
            TensorRule::new("enc.blk.{l}.ffn_norm", "encoder.block.{l}.layer.1.layer_norm"),
            TensorRule::new("enc.blk.{l}.ffn_gate", "encoder.block.{l}.layer.1.DenseReluDense.wi_0"),
            TensorRule::new("enc.blk.{l}.ffn_up", "encoder.block.{l}.layer.1.DenseReluDense.wi_1").when(has_gate),
            TensorRule::new("enc.blk.{l}.ffn_up", "encoder.block.{l}.layer.1.DenseReluDense.wi"),
            TensorRule::new("enc.blk.{l}.ffn_down", "encoder.block.{l}.layer.1.DenseReluDense.wo"),
            TensorRule::new("enc.output_norm", "encoder.final_layer_norm"),
            TensorRule::new("dec.blk.{l}.attn_norm", "decoder.block.{l}.layer.0.layer_norm"),
            TensorRule::new("dec.blk.{l}.attn_q", "decoder.block.{l}.layer.0.SelfAttention.q"),
            TensorRule::new("dec.blk.{l}.attn_k", "decoder.block.{l}.layer.0.SelfAttention.k"),
            TensorRule::new("dec.blk.{l}.attn_v", "decoder.block.{l}.layer.0.SelfAttention.v"),
            TensorRule::new(
                "dec.blk.{l}.attn_rel_b",
                "decoder.block.{l}.layer.0.SelfAttention.relative_attention_bias",
            ),
            TensorRule::new("dec.blk.{l}.attn_o", "decoder.block.{l}.layer.0.SelfAttention.o"),
            TensorRule::new("dec.blk.{l}.cross_attn_norm", "decoder.block.{l}.layer.1.layer_norm"),
            TensorRule::new("dec.blk.{l}.cross_attn_q", "decoder.block.{l}.layer.1.EncDecAttention.q"),
            TensorRule::new("dec.blk.{l}.cross_attn_k", "decoder.block.{l}.layer.1.EncDecAttention.k"),
            TensorRule::new("dec.blk.{l}.cross_attn_v", "decoder.block.{l}.layer.1.EncDecAttention.v"),
            TensorRule::new("dec.blk.{l}.cross_attn_o", "decoder.block.{l}.layer.1.EncDecAttention.o"),
            TensorRule::new("dec.blk.{l}.ffn_norm", "decoder.block.{l}.layer.2.layer_norm"),
            TensorRule::new("dec.blk.{l}.ffn_gate", "decoder.block.{l}.layer.2.DenseReluDense.wi_0"),
            TensorRule::new("dec.blk.{l}.ffn_up", "decoder.block.{l}.layer.2.DenseReluDense.wi_1").when(has_gate),
            TensorRule::new("dec.blk.{l}.ffn_up", "decoder.block.{l}.layer.2.DenseReluDense.wi"),
            TensorRule::new("dec.blk.{l}.ffn_down", "decoder.block.{l}.layer.2.DenseReluDense.wo"),
            TensorRule::new("dec.output_norm", "decoder.final_layer_norm"),
            TensorRule::new("output", "lm_head"),
        ],
        &[
            // Reported as missing if the checkpoint has none of the three names.
            TensorRule::new("token_embd", "shared"),
        ],
    ],
    has_free_head_size: true,
    copies: &["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"],
    unused: &[("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.", CROSS_BUCKETS)],
    unused_in_gguf: &[("dec.blk.{l}.cross_attn_rel_b.weight", CROSS_BUCKETS)],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    hidden_size: "d_model",
    layers: "num_layers",
    heads: "num_heads",
    kv_heads: "num_heads",
    head_size: "d_kv",
    intermediate: "d_ff",
    context: "n_positions",
    context_absent: Some(512),
    epsilon: ("layer_norm_epsilon", 1e-6),
    rope_base: (NO_KEY, 10_000.0),
    tied_absent: true,
    ..Usual::LLAMA
};
const STYLE: Style = Style { is_rotated: false, ..Style::LLAMA };

/// Defaults of a class.
struct Defaults<'u> {
    usual: &'u Usual,
    feed_forward: &'static str,
    tables: Tables,
    /// Whether a tied head is scaled.
    is_scaled: bool,
}

/// The layers with a table of buckets. The first one of each stack always has one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    First,
    Each,
}

/// The parts of a model that the usual numbers do not have.
struct Parts {
    is_gated: bool,
    buckets: Buckets,
    tables: Tables,
    start: u32,
}

fn from_config(config: &mut Config, defaults: &Defaults) -> ModelSpec {
    let numbers = Decoder::from_config(config, defaults.usual, RopePairs::Halves);
    let layers = config.layers_or("num_decoder_layers", numbers.layers);
    let count = config.count_or("relative_attention_num_buckets", 32);
    let distance_max = config.count_or("relative_attention_max_distance", DISTANCE_MAX);
    let pad = config.token_or("pad_token_id", 0);
    let start = config.token_or("decoder_start_token_id", pad);
    let is_gated = is_gated(config, defaults.feed_forward);
    let is_tied = numbers.is_tied;
    let is_scaled = config.flag_or("scale_decoder_outputs", is_tied && defaults.is_scaled);
    let tables = defaults.tables;
    let parts = Parts { is_gated, buckets: Buckets { count, distance_max }, tables, start };
    let mut spec = parts.spec(&numbers, layers);
    let factor = nearest_f32(1.0 / real(spec.hidden_size).sqrt());
    spec.head.is_tied = is_tied && !is_scaled;
    spec.head.scaled = is_scaled.then_some(ScaledHead { factor, is_embedding: is_tied });
    spec
}

impl Parts {
    fn spec(&self, numbers: &Decoder, decoder_layers: usize) -> ModelSpec {
        let style = match self.is_gated {
            true => Style { activation: Activation::Gelu, ..STYLE },
            false => Style { activation: Activation::Relu, storage: Storage::Ungated, ..STYLE },
        };
        let buckets = self.buckets;
        let stack = |layers: usize| {
            numbers.with_layers(layers).spec(&style).with_attention(|layer, attention| {
                let has_table = layer == 0 || self.tables == Tables::Each;
                attention.position = Position::Buckets { buckets, has_table };
                attention.scale = 1.0;
                attention.output = "attn_o";
            })
        };
        let encoder = stack(numbers.layers);
        stack(decoder_layers).with_encoder(encoder, numbers.norm(style.norm), self.start)
    }
}

impl Tables {
    /// Reads from the tensors which layers have a table. At least half of the layers after the first ones have a table
    /// in a model with a table for each; the others are then reported as missing.
    fn stored(keys: &Keys, encoder_layers: usize, decoder_layers: usize) -> Tables {
        let layers = [("enc", encoder_layers), ("dec", decoder_layers)];
        let names = layers
            .into_iter()
            .flat_map(|(stack, layers)| (1..layers).map(move |layer| format!("{stack}.blk.{layer}.attn_rel_b.weight")));
        let (with, without): (Vec<String>, Vec<String>) = names.partition(|name| keys.has_tensor(name));
        if !with.is_empty() && with.len() >= without.len() { Tables::Each } else { Tables::First }
    }
}

/// Whether feed-forwards are gated: the key of the function, and what newer versions write in addition.
fn is_gated(config: &mut Config, default: &str) -> bool {
    config.only("feed_forward_proj", &["\"relu\"", "\"gated-gelu\""]);
    let is_gated = config.value("feed_forward_proj").map_or(default == "gated-gelu", |name| name == "gated-gelu");
    config.only("is_gated_act", &[if is_gated { "true" } else { "false" }]);
    config.only("dense_act_fn", &[if is_gated { "\"gelu_new\"" } else { "\"relu\"" }]);
    is_gated
}

/// llama.cpp has one maximum distance.
fn distance_note(spec: &ModelSpec) -> Option<String> {
    let found = spec.buckets().map(|buckets| buckets.distance_max).filter(|found| *found != DISTANCE_MAX)?;
    Some(format!(
        "relative distances are bucketed up to {found} (t5.{DISTANCE_KEY}); llama.cpp always uses {DISTANCE_MAX}, and \
         its results differ"
    ))
}

/// llama.cpp allocates as many decoder layers as the encoder has.
fn deep_decoder_note(spec: &ModelSpec) -> Option<String> {
    let (encoder, decoder) = (spec.encoder.as_ref()?.layers.len(), spec.layers.len());
    (decoder > encoder).then(|| {
        format!("the decoder has {decoder} layers and the encoder has {encoder}; llama.cpp does not load the file")
    })
}

fn has_gate(spec: &ModelSpec) -> bool {
    spec.layers.iter().any(|layer| match &layer.feed_forward {
        FeedForward::Dense(dense) => dense.storage == Storage::Gated,
        FeedForward::Experts(_) | FeedForward::None => false,
    })
}
