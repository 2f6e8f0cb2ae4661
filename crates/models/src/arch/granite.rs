//! Granite 3: Llama with four multipliers: of the embedding, of the outputs of attention and feed-forward, of the
//! scores, and of the logits.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu, llama_from_metadata};
use crate::architecture::Architecture;
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual};
use crate::metadata::Keys;
use crate::number::nearest_f32;
use crate::spec::{ModelSpec, Residual};
use trueup_graph::op::RopePairs;

/// `GraniteForCausalLM`.
pub static GRANITE: Architecture = Architecture {
    gguf_name: "granite",
    classes: &["GraniteForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        let bias = config.flag_or("attention_bias", false);
        let style = Style {
            attention_bias: bias,
            output_bias: bias,
            feed_forward_bias: config.flag_or("mlp_bias", false),
            ..Style::LLAMA
        };
        let multipliers = Multipliers::from_config(config);
        multipliers.applied(Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours).spec(&style))
    },
    from_metadata: granite_from_metadata,
    more_keys: |spec, writer| {
        writer.value("embedding_scale", spec.embedding.scale.unwrap_or(1.0));
        let residual = spec.layers.first().map(|layer| layer.residual);
        writer.value("residual_scale", if let Some(Residual::Scaled(scale)) = residual { scale } else { 1.0 });
        if let Some(attention) = spec.attention(0) {
            writer.value("attention.scale", nearest_f32(attention.scale));
        }
        writer.value("logit_scale", spec.head.scale.map_or(1.0, |scale| 1.0 / scale));
    },
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

/// Reads the keys of a GGUF file, whose tensors decide which biases there are, and whether layers have experts.
pub(super) fn granite_from_metadata(keys: &mut Keys) -> ModelSpec {
    let multipliers = Multipliers {
        embedding: keys.number("embedding_scale", Some(1.0)),
        residual: keys.number("residual_scale", Some(1.0)),
        attention: keys.number_if_present("attention.scale"),
        logits: keys.positive("logit_scale", Some(1.0)).into(),
    };
    multipliers.applied(llama_from_metadata(keys))
}

/// The multipliers as both descriptions have them; logits are divided by theirs.
pub(super) struct Multipliers {
    embedding: f64,
    residual: f64,
    attention: Option<f64>,
    logits: f64,
}

impl Multipliers {
    pub fn from_config(config: &mut Config) -> Multipliers {
        Multipliers {
            embedding: config.number_or("embedding_multiplier", 1.0),
            residual: config.number_or("residual_multiplier", 1.0),
            attention: Some(config.number_or("attention_multiplier", 1.0)),
            logits: config.positive_or("logits_scaling", 1.0),
        }
    }

    pub fn applied(&self, mut spec: ModelSpec) -> ModelSpec {
        let unless_one = |factor: f64| Some(nearest_f32(factor)).filter(|factor| *factor != 1.0);
        spec.embedding.scale = unless_one(self.embedding);
        spec.head.scale = unless_one(1.0 / self.logits);
        if let Some(factor) = unless_one(self.residual) {
            spec.layers.iter_mut().for_each(|layer| layer.residual = Residual::Scaled(factor));
        }
        spec.with_attention(|_, attention| attention.scale = self.attention.unwrap_or(attention.scale))
    }
}
