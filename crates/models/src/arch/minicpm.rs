//! MiniCPM: Llama with multipliers of the embedding, of the outputs of attention and feed-forward, and of the logits.

use super::llama::{INTERLEAVED, INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use crate::number::{nearest_f32, real};
use crate::spec::{ModelSpec, Residual};
use trueup_graph::op::RopePairs;

/// `MiniCPMForCausalLM`.
pub static MINICPM: Architecture = Architecture {
    gguf_name: "minicpm",
    classes: &["MiniCPMForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        config.only("num_experts", &["0"]);
        config.only("sparse_config", &[]);
        let embedding = config.number_or("scale_emb", 1.0);
        let depth = config.number_or("scale_depth", 1.0);
        let width = config.positive_or("dim_model_base", 1.0);
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        // A second name for the number of layers.
        let layers = decoder.layers.to_string();
        config.only("mup_denominator", &[layers.as_str()]);
        let residual = depth / real(decoder.layers).sqrt();
        with_multipliers(decoder.spec(&Style::LLAMA), [embedding, residual, width / real(decoder.hidden_size)])
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Neighbours, Style::LLAMA.norm);
        // The first files have no keys: all models had these numbers.
        let [residual, logits] = [1.4 / real(decoder.layers).sqrt(), real(decoder.hidden_size) / 256.0];
        let multipliers = [
            keys.number(EMBEDDING, Some(12.0)),
            keys.number(RESIDUAL, Some(residual)),
            1.0 / f64::from(keys.positive(LOGITS, Some(logits))),
        ];
        with_multipliers(decoder.spec(&Style::LLAMA), multipliers)
    },
    more_keys: |spec, writer| {
        writer.value(EMBEDDING, spec.embedding.scale.unwrap_or(1.0));
        let residual = spec.layers.first().map(|layer| layer.residual);
        writer.value(RESIDUAL, if let Some(Residual::Scaled(scale)) = residual { scale } else { 1.0 });
        writer.value(LOGITS, spec.head.scale.map_or(1.0, |scale| 1.0 / scale));
    },
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual { tied_absent: true, ..Usual::LLAMA };
/// Keys of the multipliers; logits are divided by theirs.
const EMBEDDING: &str = "embedding_scale";
const RESIDUAL: &str = "residual_scale";
const LOGITS: &str = "logit_scale";

/// The same model with factors of the embedding, of both branches of a layer, and of the logits.
fn with_multipliers(mut spec: ModelSpec, factors: [f64; 3]) -> ModelSpec {
    let [embedding, residual, logits] = factors.map(|factor| Some(nearest_f32(factor)).filter(|factor| *factor != 1.0));
    (spec.embedding.scale, spec.head.scale) = (embedding, logits);
    if let Some(factor) = residual {
        spec.layers.iter_mut().for_each(|layer| layer.residual = Residual::Scaled(factor));
    }
    spec
}
