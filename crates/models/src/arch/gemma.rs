//! Gemma, the first version: Llama with a scaled embedding, norms of `1 + w`, a gelu gate, and a tied head.

use super::llama::{INVERSE_FREQUENCIES, NAMES};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, plus_one};
use crate::decoder::{Decoder, Style, Usual};
use crate::number::{nearest_f32, real};
use crate::part::feed_forward::Activation;
use crate::spec::ModelSpec;
use serde_json::Value;
use trueup_graph::op::RopePairs;

/// `GemmaForCausalLM`.
pub static GEMMA: Architecture = Architecture {
    gguf_name: "gemma",
    classes: &["GemmaForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &[TANH, "\"gelu\""]);
        config.only("hidden_activation", &[TANH]);
        let is_unclear = config.value("hidden_activation").is_none();
        if is_unclear && config.value("hidden_act").and_then(Value::as_str) == Some("gelu") {
            config.note(
                "hidden_act is gelu, as in early configurations of Gemma; the tanh form is used, as in the original \
                 implementation, while transformers 4.57 uses the error function",
            );
        }
        config.only("attention_bias", &["false"]);
        config.only("tie_word_embeddings", &["true"]);
        with_scaled_embedding(Decoder::from_config(config, &USUAL, RopePairs::Halves).spec(&STYLE))
    },
    from_metadata: |keys| with_scaled_embedding(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE)),
    tensors: &[NORMS, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

/// The activation, as JSON prints it.
const TANH: &str = "\"gelu_pytorch_tanh\"";

pub(super) const USUAL: Usual = Usual {
    kv_heads_absent: Some(16),
    head_size_absent: Some(256),
    context_absent: Some(8192),
    tied_absent: true,
    ..Usual::LLAMA
};
pub(super) const STYLE: Style = Style { activation: Activation::Gelu, ..Style::LLAMA };

/// The rows of the embedding are multiplied by the square root of the hidden size, for which there is no key.
pub(super) fn with_scaled_embedding(mut spec: ModelSpec) -> ModelSpec {
    spec.embedding.scale = Some(nearest_f32(real(spec.hidden_size).sqrt()));
    spec
}

/// Norms of `1 + w`.
pub(super) const NORMS: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm").with(plus_one),
    TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.post_attention_layernorm").with(plus_one),
    TensorRule::new("output_norm", "model.norm").with(plus_one),
];
