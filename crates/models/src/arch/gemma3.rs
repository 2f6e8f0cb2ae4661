//! Gemma 3, text only: Gemma 2 with norms of query and key heads in place of soft caps, five layers with a sliding
//! window for each one without, and a separate rotation for either kind.
//!
//! No GGUF key holds the scale of the scores: readers use `1 / sqrt(head size)`, or `1 / sqrt(hidden size / heads)`
//! for the model with 62 layers. If the `query_pre_attn_scalar` of a checkpoint means another scale, conversion
//! multiplies the norm of the queries by the ratio, so that all readers compute the same scores.

use super::gemma::{STYLE as GEMMA_STYLE, USUAL as GEMMA_USUAL, with_scaled_embedding};
use super::gemma2::NO_CAP;
use super::llama::INVERSE_FREQUENCIES;
use crate::architecture::Architecture;
use crate::checkpoint::{Target, TensorRule, Transform, ValueChange, plus_one, same};
use crate::decoder::{Decoder, Style, Usual};
use crate::metadata::windows_by_period;
use crate::number::{nearest_f32, real};
use crate::part::attention::{HeadSpan, Position};
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::{RopePairs, RopeScaling};

/// `Gemma3ForCausalLM`.
pub static GEMMA3: Architecture = Architecture {
    gguf_name: "gemma3",
    classes: &["Gemma3ForCausalLM"],
    from_config: |config| {
        config.only("hidden_activation", &["\"gelu_pytorch_tanh\""]);
        config.only("attention_bias", &["false"]);
        config.only("use_bidirectional_attention", &["false"]);
        config.only("attn_logit_softcapping", &[]);
        config.only("quantization_config", &[]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let period = config.count_or("sliding_window_pattern", PERIOD);
        let listed = config.sliding_layers(decoder.layers);
        let layers = listed.unwrap_or_else(|| windows_by_period(period, decoder.layers));
        decoder.window = config.window("sliding_window", Some(4096)).map(|size| (size, layers));
        let base = config.number_or("rope_local_base_freq", 10_000.0);
        let cap = config.number("final_logit_softcapping");
        let scalar = config.number_or("query_pre_attn_scalar", 256.0);
        let mut spec = spec(&decoder, nearest_f32(base), cap);
        let correction = reader_scale(&spec).recip() / scalar.sqrt();
        spec.query_correction = (correction != 1.0).then(|| nearest_f32(correction));
        spec
    },
    from_metadata: |keys| {
        let mut decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        decoder.window = keys.window(decoder.layers, Some(PERIOD));
        let base = nearest_f32(keys.number("rope.freq_base_swa", Some(10_000.0)));
        let cap = keys.number_if_present("final_logit_softcapping");
        spec(&decoder, base, cap)
    },
    more_keys: |spec, writer| {
        if let Some(cap) = spec.head.softcap {
            writer.value("final_logit_softcapping", cap);
        }
    },
    tensors: &[
        TensorRule::new("token_embd", "model.embed_tokens"),
        TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm").with(plus_one),
        TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
        TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_norm").with(corrected_query_norm),
        TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
        TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_norm").with(plus_one),
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

const USUAL: Usual = Usual { context_absent: Some(131_072), rope_base: ("rope_theta", 1_000_000.0), ..GEMMA_USUAL };
const STYLE: Style = Style { arrangement: Arrangement::sandwich, head_norm: Some(HeadSpan::Head), ..GEMMA_STYLE };
/// The last of each group of this many layers sees everything.
const PERIOD: usize = 6;
/// The model whose readers take another scale.
const LAYERS_27B: usize = 62;

fn spec(decoder: &Decoder, window_base: f32, cap: Option<f64>) -> ModelSpec {
    let mut spec = with_scaled_embedding(decoder.spec(&STYLE));
    spec.head.softcap = cap.map(nearest_f32).filter(|cap| *cap != 0.0 && *cap < NO_CAP);
    let scale = reader_scale(&spec);
    spec.with_attention(|_, attention| {
        attention.scale = scale;
        if let (Some(_), Position::Rope(rope)) = (attention.window, &mut attention.position) {
            rope.base = window_base;
            rope.scaling = RopeScaling::None;
        }
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

/// The norm of the queries, `(1 + w)` times a factor if the checkpoint has another scale of scores than readers take.
fn corrected_query_norm(target: &Target) -> Transform {
    let factor = target.spec.query_correction.unwrap_or(1.0);
    Transform { values: ValueChange::Affine { scale: factor, offset: factor }, ..same(target) }
}
