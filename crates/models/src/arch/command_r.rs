//! Command R and Command R+: attention and feed-forward in parallel after one norm without a bias, scaled logits, a
//! tied head, and in the larger model norms of query and key heads.

use super::llama::gated_silu;
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style, Usual};
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
    more_keys: |spec, writer| writer.value(LOGIT_SCALE, spec.head.scale.unwrap_or(1.0)),
    tensors: TENSORS,
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

/// The names of the class, which rotates neighbours as GGUF does.
pub(super) const TENSORS: &[TensorRule] = &[
    TensorRule::new("token_embd", "model.embed_tokens"),
    TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm"),
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
    TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_norm"),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
    TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_norm"),
    TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
    TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
    TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj"),
    TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj"),
    TensorRule::new("output_norm", "model.norm"),
    TensorRule::new("output", "lm_head"),
];

/// The logits are multiplied by a number.
pub(super) fn with_logit_scale(mut spec: ModelSpec, scale: f64) -> ModelSpec {
    spec.head.scale = Some(nearest_f32(scale)).filter(|scale| *scale != 1.0);
    spec
}
