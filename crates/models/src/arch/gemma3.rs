//! Gemma 3: Gemma 2 with norms of query and key heads in place of soft caps, five layers with a sliding window for each
//! one without, and a separate rotation for either kind. Of multimodal checkpoints, the language model is read.
//!
//! As in Gemma 2, no GGUF key holds the scale of the scores. If a checkpoint has another one than readers use,
//! conversion multiplies the norm of the queries by the ratio.

use super::gemma::{NORMS, STYLE as GEMMA_STYLE, with_scaled_embedding};
use super::gemma2::{SANDWICH_NORMS, USUAL as GEMMA_USUAL, effective_cap, with_reader_scale, with_scale_of_queries};
use super::llama::{INVERSE_FREQUENCIES, NAMES};
use crate::architecture::Architecture;
use crate::checkpoint::{Target, TensorRule, plus_one, same};
use crate::decoder::{Decoder, Style, Usual};
use crate::number::nearest_f32;
use crate::part::attention::{HeadSpan, Position};
use crate::spec::{Arrangement, ModelSpec};
use crate::transform::{Transform, ValueChange};
use trueup_graph::op::{RopePairs, RopeScaling};

/// `Gemma3ForCausalLM`, and the language model of `Gemma3ForConditionalGeneration`, whose `config.json` omits
/// default values.
pub static GEMMA3: Architecture = Architecture {
    gguf_name: "gemma3",
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    from_config: |config| {
        config.only_text_model("gemma3_text");
        config.only("hidden_activation", &["\"gelu_pytorch_tanh\""]);
        config.only("attention_bias", &["false"]);
        config.only("use_bidirectional_attention", &["false"]);
        config.only("attn_logit_softcapping", &[]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let period = config.count_or("sliding_window_pattern", PERIOD);
        decoder.window = config.windows_by_period(period, decoder.layers);
        let base = config.window_base("rope_local_base_freq", 10_000.0);
        let cap = config.number("final_logit_softcapping");
        with_scale_of_queries(spec(&decoder, nearest_f32(base), cap), config)
    },
    from_metadata: |keys| {
        let mut decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        decoder.window = keys.window(decoder.layers, Some(PERIOD));
        let base = keys.positive("rope.freq_base_swa", Some(10_000.0));
        let cap = keys.number_if_present("final_logit_softcapping");
        spec(&decoder, base, cap)
    },
    more_keys: |spec, writer| {
        if let Some(cap) = spec.head.softcap {
            writer.value("final_logit_softcapping", cap);
        }
    },
    tensors: &[
        &[
            TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_norm").with(corrected_query_norm),
            TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_norm").with(plus_one),
        ],
        SANDWICH_NORMS,
        NORMS,
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    unused: VISION,
    has_free_head_size: true,
    ..Architecture::BASE
};

/// Parts of multimodal checkpoints that the language model does not use.
pub(super) const VISION: &[(&str, &str)] =
    &[("vision_tower.", "part of the vision model"), ("multi_modal_projector.", "part of the projector of images")];

const USUAL: Usual = Usual {
    heads_absent: Some(8),
    vocabulary_absent: Some(262_208),
    context_absent: Some(131_072),
    rope_base: ("rope_theta", 1_000_000.0),
    ..GEMMA_USUAL
};
const STYLE: Style = Style { arrangement: Arrangement::sandwich, head_norm: Some(HeadSpan::Head), ..GEMMA_STYLE };
/// The last of each group of this many layers has full attention.
const PERIOD: usize = 6;
/// Layers of the model for which readers use another scale of scores.
const LAYERS_27B: usize = 62;

fn spec(decoder: &Decoder, window_base: f32, cap: Option<f64>) -> ModelSpec {
    let mut spec = with_reader_scale(with_scaled_embedding(decoder.spec(&STYLE)), LAYERS_27B);
    spec.head.softcap = effective_cap(cap).filter(|cap| *cap != 0.0);
    spec.with_attention(|_, attention| {
        if let (Some(_), Position::Rope(rope)) = (attention.window, &mut attention.position) {
            rope.base = window_base;
            rope.scaling = RopeScaling::None;
        }
    })
}

/// The norm of the queries, `1 + w`, multiplied by the correction of their scale if there is one.
fn corrected_query_norm(target: &Target) -> Transform {
    let factor = target.spec.query_correction.unwrap_or(1.0);
    Transform { values: ValueChange::Affine { scale: factor, offset: factor }, ..same(target) }
}
