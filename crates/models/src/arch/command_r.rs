//! Command R and Command R+: attention and feed-forward in parallel after one norm without a bias, scaled logits, a
//! tied head, and in the larger model norms of query and key heads.

use super::llama::{NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use crate::metadata::KeyWriter;
use crate::number::nearest_f32;
use crate::part::attention::HeadSpan;
use crate::part::norm::NormKind;
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::RopePairs;

/// `CohereForCausalLM`.
pub static COMMAND_R: Architecture = Architecture {
    gguf_name: "command-r",
    classes: &["CohereForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        config.only("tie_word_embeddings", &["true"]);
        let head_norm = config.flag_or("use_qk_norm", false).then_some(HeadSpan::EachHead);
        let scale = config.number_or("logit_scale", 0.0625);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        with_logit_scale(decoder.spec(&Style { head_norm, ..STYLE }), scale)
    },
    from_metadata: |keys| {
        let head_norm = keys.has_tensor("blk.{l}.attn_q_norm.weight").then_some(HeadSpan::EachHead);
        let scale = keys.number(LOGIT_SCALE, None);
        let decoder = Decoder::from_keys(keys, RopePairs::Neighbours, STYLE.norm);
        with_logit_scale(decoder.spec(&Style { head_norm, ..STYLE }), scale)
    },
    more_keys: write_logit_scale,
    compatibility: |spec| head_norm_note(spec).into_iter().collect(),
    // The class rotates adjacent pairs, as GGUF does.
    tensors: &[NAMES],
    ..Architecture::BASE
};

pub(super) const USUAL: Usual =
    Usual { context_absent: Some(8192), epsilon: ("layer_norm_eps", 1e-5), tied_absent: true, ..Usual::LLAMA };
pub(super) const STYLE: Style = Style {
    norm: NormKind::Layer { has_weight: true, has_bias: false },
    arrangement: Arrangement::parallel,
    ..Style::LLAMA
};
pub(super) const LOGIT_SCALE: &str = "logit_scale";
/// llama.cpp looks for norms of heads in models with at least this many layers.
const HEAD_NORM_LAYERS: usize = 64;

/// The logits are multiplied by a number.
pub(super) fn with_logit_scale(mut spec: ModelSpec, scale: f64) -> ModelSpec {
    spec.head.scale = Some(nearest_f32(scale)).filter(|scale| *scale != 1.0);
    spec
}

/// Writes the factor of the logits.
pub(super) fn write_logit_scale(spec: &ModelSpec, writer: &mut KeyWriter) {
    writer.value(LOGIT_SCALE, spec.head.scale.unwrap_or(1.0));
}

fn head_norm_note(spec: &ModelSpec) -> Option<String> {
    let has_norm = spec.attention(0).is_some_and(|attention| attention.head_norm.is_some());
    (has_norm && spec.layer_count() < HEAD_NORM_LAYERS).then(|| {
        format!(
            "norms of query and key heads are written; llama.cpp expects them only in models with at least \
             {HEAD_NORM_LAYERS} layers and rejects the file"
        )
    })
}
