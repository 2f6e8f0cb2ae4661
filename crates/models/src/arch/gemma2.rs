//! Gemma 2: norms before and after each branch, soft caps of scores and logits, and a sliding window in every other
//! layer.
//!
//! No GGUF key holds the scale of the scores: readers use `1 / sqrt(head size)`, or `1 / sqrt(hidden size / heads)`
//! for the model with 46 layers. If the `query_pre_attn_scalar` of a checkpoint means another scale, conversion
//! multiplies the queries by the ratio, so that all readers compute the same scores.

use super::gemma::{NORMS, STYLE as GEMMA_STYLE, USUAL as GEMMA_USUAL, with_scaled_embedding};
use super::llama::{INVERSE_FREQUENCIES, NAMES};
use crate::architecture::Architecture;
use crate::checkpoint::{Target, TensorRule, plus_one, same};
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual};
use crate::number::{nearest_f32, real};
use crate::spec::{Arrangement, ModelSpec};
use crate::transform::{Transform, ValueChange};
use trueup_graph::op::RopePairs;

/// `Gemma2ForCausalLM`.
pub static GEMMA2: Architecture = Architecture {
    gguf_name: "gemma2",
    classes: &["Gemma2ForCausalLM"],
    from_config: |config| {
        config.only("hidden_activation", &["\"gelu_pytorch_tanh\""]);
        config.only("attention_bias", &["false"]);
        config.only("use_bidirectional_attention", &["false"]);
        config.only("tie_word_embeddings", &["true"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = config.windows_by_period(PERIOD, decoder.layers);
        // An explicit null means no cap.
        let caps = CAPS.map(|(key, absent)| if config.has(key) { config.number(key) } else { Some(absent) });
        with_scale_of_queries(spec(&decoder, caps), config)
    },
    from_metadata: |keys| {
        let mut decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        decoder.window = keys.window(decoder.layers, Some(PERIOD));
        let caps = CAPS.map(|(key, absent)| Some(keys.number(key, Some(absent))));
        spec(&decoder, caps)
    },
    more_keys: |spec, writer| {
        // Readers apply a cap whatever the file says; one of 1e30 changes nothing.
        let attention = spec.attention(0).and_then(|attention| attention.softcap);
        for ((key, _), cap) in CAPS.into_iter().zip([attention, spec.head.softcap]) {
            writer.value(key, cap.unwrap_or(NO_CAP));
        }
    },
    tensors: &[
        &[TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj").with(corrected_query)],
        SANDWICH_NORMS,
        NORMS,
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

pub(super) const USUAL: Usual = Usual { kv_heads_absent: Some(4), ..GEMMA_USUAL };
const STYLE: Style = Style { arrangement: Arrangement::sandwich, ..GEMMA_STYLE };
/// The last of each group of this many layers has full attention.
const PERIOD: usize = 2;
/// Keys of the soft caps of scores and logits, in `config.json` and in GGUF, and their defaults.
const CAPS: [(&str, f64); 2] = [("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)];
/// A cap that changes no f32.
const NO_CAP: f32 = 1e30;
/// Layers of the model for which readers use another scale of scores.
const LAYERS_27B: usize = 46;

/// Norms after each branch, and the other name of the norm before the feed-forward.
pub(super) const SANDWICH_NORMS: &[TensorRule] = &[
    TensorRule::new("blk.{l}.post_attention_norm", "model.layers.{l}.post_attention_layernorm").with(plus_one),
    TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.pre_feedforward_layernorm").with(plus_one),
    TensorRule::new("blk.{l}.post_ffw_norm", "model.layers.{l}.post_feedforward_layernorm").with(plus_one),
];

fn spec(decoder: &Decoder, [attention_cap, logit_cap]: [Option<f64>; 2]) -> ModelSpec {
    let mut spec = with_reader_scale(with_scaled_embedding(decoder.spec(&STYLE)), LAYERS_27B);
    spec.head.softcap = effective_cap(logit_cap);
    spec.with_attention(|_, attention| attention.softcap = effective_cap(attention_cap))
}

/// A soft cap, unless it is so large that it changes nothing.
pub(super) fn effective_cap(cap: Option<f64>) -> Option<f32> {
    cap.map(nearest_f32).filter(|cap| cap.is_nan() || *cap < NO_CAP)
}

/// Sets the attention scale that GGUF readers compute; models with `layers` layers have a special scale.
pub(super) fn with_reader_scale(spec: ModelSpec, layers: usize) -> ModelSpec {
    let (depth, width) = (spec.layer_count(), real(spec.hidden_size));
    spec.with_attention(|_, attention| {
        attention.scale = match depth == layers {
            true => (real(attention.heads) / width).sqrt(),
            false => 1.0 / real(attention.key_size).sqrt(),
        };
    })
}

/// Sets the factor that is applied to queries if the model's scale, `1 / sqrt(query_pre_attn_scalar)`, is not the one
/// that GGUF readers compute.
pub(super) fn with_scale_of_queries(mut spec: ModelSpec, config: &mut Config) -> ModelSpec {
    let scalar = config.positive_or("query_pre_attn_scalar", 256.0);
    let scale = spec.attention(0).map_or(1.0, |attention| attention.scale);
    let correction = nearest_f32(1.0 / (scale * scalar.sqrt()));
    spec.query_correction = (correction != 1.0).then_some(correction);
    spec
}

/// Queries, multiplied by the correction of their scale if there is one.
fn corrected_query(target: &Target) -> Transform {
    let values = match target.spec.query_correction {
        Some(scale) => ValueChange::Affine { scale, offset: 0.0 },
        None => ValueChange::None,
    };
    Transform { values, ..same(target) }
}
