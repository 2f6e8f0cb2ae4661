//! Gemma 2: norms before and after each branch, soft caps of scores and logits, and a sliding window in every other
//! layer.
//!
//! No GGUF key holds the scale of the scores: readers use `1 / sqrt(head size)`, or `1 / sqrt(hidden size / heads)`
//! for the model with 46 layers. If the `query_pre_attn_scalar` of a checkpoint means another scale, conversion
//! multiplies the queries by the ratio, so that all readers compute the same scores.

use super::gemma::{STYLE as GEMMA_STYLE, USUAL, with_scaled_embedding};
use super::llama::INVERSE_FREQUENCIES;
use crate::architecture::Architecture;
use crate::checkpoint::{Target, TensorRule, Transform, ValueChange, plus_one, same};
use crate::decoder::{Decoder, Style};
use crate::metadata::windows_by_period;
use crate::number::{nearest_f32, real};
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::RopePairs;

/// `Gemma2ForCausalLM`.
pub static GEMMA2: Architecture = Architecture {
    gguf_name: "gemma2",
    classes: &["Gemma2ForCausalLM"],
    from_config: |config| {
        config.only("hidden_activation", &["\"gelu_pytorch_tanh\""]);
        config.only("attention_bias", &["false"]);
        config.only("use_bidirectional_attention", &["false"]);
        config.only("quantization_config", &[]);
        config.only("tie_word_embeddings", &["true"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let listed = config.sliding_layers(decoder.layers);
        let layers = listed.unwrap_or_else(|| windows_by_period(PERIOD, decoder.layers));
        decoder.window = config.window("sliding_window", Some(4096)).map(|size| (size, layers));
        let scalar = config.number_or("query_pre_attn_scalar", 256.0);
        let cap = |config: &mut crate::config::Config, key: &str, absent: f64| match config.has(key) {
            true => config.number(key),
            false => Some(absent),
        };
        let caps = [cap(config, ATTENTION_CAP.0, 50.0), cap(config, LOGIT_CAP.0, 30.0)];
        let mut spec = spec(&decoder, caps);
        let correction = reader_scale(&spec).recip() / scalar.sqrt();
        spec.query_correction = (correction != 1.0).then(|| nearest_f32(correction));
        spec
    },
    from_metadata: |keys| {
        let mut decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        decoder.window = keys.window(decoder.layers, Some(PERIOD));
        let caps =
            [(ATTENTION_CAP.1, 50.0), (LOGIT_CAP.1, 30.0)].map(|(key, absent)| Some(keys.number(key, Some(absent))));
        spec(&decoder, caps)
    },
    more_keys: |spec, writer| {
        // Readers apply a cap whatever the file says; one of 1e30 changes nothing.
        let attention = spec.attention(0).and_then(|attention| attention.softcap);
        writer.value(ATTENTION_CAP.1, attention.unwrap_or(NO_CAP));
        writer.value(LOGIT_CAP.1, spec.head.softcap.unwrap_or(NO_CAP));
    },
    tensors: &[
        TensorRule::new("token_embd", "model.embed_tokens"),
        TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm").with(plus_one),
        TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj").with(corrected_query),
        TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
        TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
        TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
        TensorRule::new("blk.{l}.post_attention_norm", "model.layers.{l}.post_attention_layernorm").with(plus_one),
        TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.pre_feedforward_layernorm").with(plus_one),
        TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj"),
        TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj"),
        TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj"),
        TensorRule::new("blk.{l}.post_ffw_norm", "model.layers.{l}.post_feedforward_layernorm").with(plus_one),
        TensorRule::new("output_norm", "model.norm").with(plus_one),
        TensorRule::new("output", "lm_head"),
    ],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const STYLE: Style = Style { arrangement: Arrangement::sandwich, ..GEMMA_STYLE };
/// The last of each group of this many layers sees everything.
const PERIOD: usize = 2;
/// Keys of the soft caps, in `config.json` and in GGUF.
const ATTENTION_CAP: (&str, &str) = ("attn_logit_softcapping", "attn_logit_softcapping");
const LOGIT_CAP: (&str, &str) = ("final_logit_softcapping", "final_logit_softcapping");
/// A cap that changes no f32.
pub(super) const NO_CAP: f32 = 1e30;
/// The model whose readers take another scale.
const LAYERS_27B: usize = 46;

fn spec(decoder: &Decoder, [attention_cap, logit_cap]: [Option<f64>; 2]) -> ModelSpec {
    let cap = |cap: Option<f64>| cap.map(nearest_f32).filter(|cap| *cap < NO_CAP);
    let mut spec = with_scaled_embedding(decoder.spec(&STYLE));
    spec.head.softcap = cap(logit_cap);
    let scale = reader_scale(&spec);
    spec.with_attention(|_, attention| {
        attention.softcap = cap(attention_cap);
        attention.scale = scale;
    })
}

/// The scale of scores that readers of the file take.
fn reader_scale(spec: &ModelSpec) -> f64 {
    let Some(attention) = spec.attention(0) else { return 1.0 };
    match spec.layer_count() == LAYERS_27B {
        true => (real(attention.heads) / real(spec.hidden_size)).sqrt(),
        false => 1.0 / real(attention.key_size).sqrt(),
    }
}

/// Queries, multiplied if the checkpoint has another scale of scores than readers take.
fn corrected_query(target: &Target) -> Transform {
    let values = match target.spec.query_correction {
        Some(scale) => ValueChange::Affine { scale, offset: 0.0 },
        None => ValueChange::None,
    };
    Transform { values, ..same(target) }
}
