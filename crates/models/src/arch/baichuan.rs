//! Baichuan 1 and 2, with 7 and 13 billion parameters: one class; the variant is selected by `config.json`.
//!
//! ```text
//! 7B    RoPE; context length in `max_position_embeddings`
//! 13B   ALiBi; context length in `model_max_length`
//! 2     rows of the output head are normalized; marked by `z_loss_weight`, which only training needs
//! ```
//!
//! Queries, keys and values are the rows of one tensor in the checkpoint (`W_pack`). FastLLM also stores them
//! separately.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::{Architecture, Marker};
use crate::checkpoint::{TensorRule, interleave_heads, interleaved_keys, interleaved_queries, unit_rows, values};
use crate::decoder::{Decoder, Style, Usual, usual_config};
use crate::number::nearest_f32;
use crate::part::attention::Position;
use crate::spec::ModelSpec;
use serde_json::Value;
use trueup_graph::op::RopePairs;

/// `BaichuanForCausalLM`; the first version spells it differently.
pub static BAICHUAN: Architecture = Architecture {
    gguf_name: "baichuan",
    classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
    flm_name: Some("baichuan"),
    from_config: |config| {
        gated_silu(config);
        let has_context = config.value(USUAL.context).is_some();
        let context = if has_context { USUAL.context } else { "model_max_length" };
        let decoder = Decoder::from_config(config, &Usual { context, ..USUAL }, RopePairs::Neighbours);
        let mut spec = decoder.spec(&Style::LLAMA);
        if !has_context || config.is_marked(Marker::True("use_alibi")) {
            spec = with_alibi(spec, MAX_BIAS);
            config.note(
                "positions are encoded with ALiBi instead of RoPE: config.json has no max_position_embeddings, or \
                 sets use_alibi",
            );
        }
        let size = config.value("vocab_size").and_then(Value::as_u64);
        if config.value("z_loss_weight").is_some() || size == Some(125_696) {
            spec.head.has_unit_rows = true;
            config.note(
                "rows of the output head are normalized, as in the original model: config.json has z_loss_weight, or \
                 the vocabulary size of version 2",
            );
        }
        spec
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Neighbours, Style::LLAMA.norm);
        let usual = if decoder.layers == ALIBI_LAYERS { MAX_BIAS } else { 0.0 };
        let exponent = nearest_f32(keys.number(MAX_ALIBI_BIAS, Some(usual.into())));
        let spec = decoder.spec(&Style::LLAMA);
        if exponent == 0.0 { spec } else { with_alibi(spec, exponent) }
    },
    to_config: |spec| {
        let mut config = usual_config(spec, &USUAL)?;
        config.extend(flm_keys(spec));
        Some(config)
    },
    flm_keys,
    more_keys: |spec, writer| writer.value(MAX_ALIBI_BIAS, alibi(spec).unwrap_or(0.0)),
    compatibility: |spec| position_note(spec).into_iter().collect(),
    tensors: &[APART, PACKED, &[TensorRule::new("output", "lm_head").with(unit_rows)], NAMES],
    needs_head: true,
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const PACK: &str = "model.layers.{l}.self_attn.W_pack";
const PACKED: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_q", PACK).with(interleaved_queries),
    TensorRule::new("blk.{l}.attn_k", PACK).with(interleaved_keys),
    TensorRule::new("blk.{l}.attn_v", PACK).with(values),
];
const APART: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj").with(interleave_heads).if_present(),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj").with(interleave_heads).if_present(),
    TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj").if_present(),
];

const USUAL: Usual = Usual { context_absent: None, ..Usual::LLAMA };

/// Largest exponent of the ALiBi slopes; 0 with RoPE.
const MAX_ALIBI_BIAS: &str = "attention.max_alibi_bias";
/// The exponent of the 13B models.
const MAX_BIAS: f32 = 8.0;
/// A GGUF file without the key has ALiBi if it has this many layers, as other programs assume.
const ALIBI_LAYERS: usize = 40;
/// Layers of the 7B models.
const ROPE_LAYERS: usize = 32;

fn with_alibi(spec: ModelSpec, exponent: f32) -> ModelSpec {
    spec.with_attention(|_, attention| attention.position = Position::alibi(exponent))
}

fn alibi(spec: &ModelSpec) -> Option<f32> {
    match spec.attention(0)?.position {
        Position::Alibi(alibi) => Some(alibi.max_bias),
        Position::Rope(_) | Position::Buckets { .. } | Position::None => None,
    }
}

/// FastLLM uses ALiBi only if this key is set.
fn flm_keys(spec: &ModelSpec) -> Vec<(String, Value)> {
    alibi(spec).map(|_| ("use_alibi".to_owned(), 1.into())).into_iter().collect()
}

/// llama.cpp knows the two kinds of models by their numbers of layers.
fn position_note(spec: &ModelSpec) -> Option<String> {
    let layers = spec.layer_count();
    match alibi(spec) {
        Some(_) if layers != ALIBI_LAYERS => Some(format!(
            "baichuan.{MAX_ALIBI_BIAS} is written; programs that ignore it apply ALiBi only to models with \
             {ALIBI_LAYERS} layers"
        )),
        None if layers != ROPE_LAYERS => Some(format!(
            "positions are encoded with RoPE; llama.cpp applies it only to Baichuan models with {ROPE_LAYERS} layers"
        )),
        Some(_) | None => None,
    }
}
