//! BitNet b1.58 (Ma et al. 2024): Llama with ternary matrices, and an additional norm before the output projection of
//! attention and before the down projection.
//!
//! ```text
//! BitnetForCausalLM   the reproduction by 1bitLLM       silu     matrices become ternary at conversion
//! BitNetForCausalLM   Microsoft's BitNet b1.58 2B4T     relu2    the same, or packed: four ternary numbers in a byte
//! ```
//!
//! Both classes also round the input of each matrix to 8 bits. Programs that read GGUF files do not, and neither does
//! the graph.

use super::llama::{INVERSE_FREQUENCIES, NAMES};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, ternary};
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual};
use crate::metadata::Keys;
use crate::part::feed_forward::Activation;
use crate::spec::{FeedForward, ModelSpec, ProjectionStorage};
use crate::tensor::OUTPUT;
use trueup_formats::gguf::Metadata;
use trueup_formats::quote;
use trueup_graph::op::RopePairs;

/// `BitnetForCausalLM`, of 1bitLLM.
pub static BITNET: Architecture = Architecture {
    gguf_name: "bitnet",
    classes: &["BitnetForCausalLM"],
    from_config: |config| {
        config.only("weight_bits", &["1"]);
        config.only("input_bits", &["8"]);
        note_rounding(config);
        from_config(config, &Usual::LLAMA, "silu", ProjectionStorage::Latent)
    },
    from_metadata,
    more_keys: |spec, writer| {
        if activation(spec) == Activation::ReluSquared {
            writer.value(ACTIVATION, RELU_SQUARED);
        }
    },
    compatibility: notes,
    tensors: &[
        PROJECTIONS,
        &[
            TensorRule::new("blk.{l}.attn_sub_norm", "model.layers.{l}.self_attn.inner_attn_ln"),
            TensorRule::new("blk.{l}.ffn_sub_norm", "model.layers.{l}.mlp.ffn_layernorm"),
        ],
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

/// `BitNetForCausalLM`, of Microsoft.
pub static BITNET_B158_2B: Architecture = Architecture {
    classes: &["BitNetForCausalLM"],
    from_config: |config| {
        let storage = storage(config);
        from_config(config, &USUAL_2B, RELU_SQUARED, storage)
    },
    tensors: &[
        PROJECTIONS,
        &[
            TensorRule::new("blk.{l}.attn_sub_norm", "model.layers.{l}.self_attn.attn_sub_norm"),
            TensorRule::new("blk.{l}.ffn_sub_norm", "model.layers.{l}.mlp.ffn_sub_norm"),
        ],
        NAMES,
    ],
    quantization_methods: &["bitnet"],
    ..BITNET
};

const PROJECTIONS: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj").with(ternary),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj").with(ternary),
    TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj").with(ternary),
    TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj").with(ternary),
    TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj").with(ternary),
    TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj").with(ternary),
    TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj").with(ternary),
];
const USUAL_2B: Usual = Usual {
    kv_heads_absent: Some(5),
    epsilon: ("rms_norm_eps", 1e-5),
    rope_base: ("rope_theta", 500_000.0),
    ..Usual::LLAMA
};

/// GGUF key of the activation function, and its values. Readers that ignore the key compute silu.
const ACTIVATION: &str = "hidden_activation";
const RELU_SQUARED: &str = "relu2";
const SILU: &str = "silu";
const QUANTIZATION: &str = "quantization_config";

fn from_config(config: &mut Config, usual: &Usual, usual_act: &str, storage: ProjectionStorage) -> ModelSpec {
    config.only("hidden_act", &["\"silu\"", "\"swish\"", "\"relu2\""]);
    config.only("attention_bias", &["false"]);
    let found = config.value("hidden_act").and_then(serde_json::Value::as_str).unwrap_or(usual_act);
    let activation = if found == RELU_SQUARED { Activation::ReluSquared } else { Activation::Silu };
    let decoder = Decoder::from_config(config, usual, RopePairs::Halves);
    if let ProjectionStorage::Packed { .. } = storage {
        check_packed_rows(config, &decoder);
    }
    ModelSpec { projections: storage, ..finished(&decoder, activation) }
}

/// Four rows of a packed matrix share a row of bytes.
fn check_packed_rows(config: &mut Config, decoder: &Decoder) {
    let of_heads = |heads: &[usize]| heads.iter().map(|heads| heads.saturating_mul(decoder.key_size)).collect();
    let rows: [Vec<usize>; 3] = [of_heads(&decoder.heads), of_heads(&decoder.kv_heads), decoder.intermediate.clone()];
    let all = rows.into_iter().flatten().chain([decoder.hidden_size]);
    if let Some(rows) = all.into_iter().find(|rows| !rows.is_multiple_of(4)) {
        config.problem(format!(
            "packed weights: expected matrices whose number of rows is a multiple of 4, found {rows} rows"
        ));
    }
}

fn from_metadata(keys: &mut Keys) -> ModelSpec {
    let name = keys.key(ACTIVATION);
    let activation = match keys.get(&name, Metadata::string).unwrap_or(SILU) {
        SILU => Activation::Silu,
        RELU_SQUARED => Activation::ReluSquared,
        other => {
            keys.wrong(ACTIVATION, &format!("expected {SILU} or {RELU_SQUARED}, found \"{}\"", quote(other)));
            Activation::Silu
        }
    };
    finished(&Decoder::from_keys(keys, RopePairs::Halves, Style::LLAMA.norm), activation)
}

fn finished(decoder: &Decoder, activation: Activation) -> ModelSpec {
    let norm = decoder.norm(Style::LLAMA.norm);
    let spec = decoder.spec(&Style { activation, ..Style::LLAMA });
    let mut spec = spec.with_attention(|_, attention| attention.output_norm = Some(norm));
    for layer in &mut spec.layers {
        if let FeedForward::Dense(dense) = &mut layer.feed_forward {
            dense.hidden_norm = Some(norm);
        }
    }
    spec
}

/// Reads how the matrices are stored. Without `quantization_config`, they are used unchanged.
fn storage(config: &mut Config) -> ProjectionStorage {
    if config.value(QUANTIZATION).is_none() {
        config.note("config.json has no quantization_config: weights are used as they are, and do not become ternary");
        return ProjectionStorage::Plain;
    }
    note_rounding(config);
    config.nested(QUANTIZATION, |config| {
        config.only("use_rms_norm", &["false"]);
        config.only("modules_to_not_convert", &["[\"lm_head\"]"]);
        config.only("linear_class", &["\"bitlinear\"", "\"autobitlinear\""]);
        config.only("quantization_mode", &["\"online\"", "\"offline\""]);
        let is = |key: &str, value: &str| config.value(key).is_some_and(|found| found == value);
        let is_automatic = is("linear_class", "autobitlinear");
        match is_automatic && is("quantization_mode", "online") {
            true => ProjectionStorage::Latent,
            // `bitlinear` expects packed weights in both modes.
            false => ProjectionStorage::Packed { is_divided: !is_automatic },
        }
    })
}

fn note_rounding(config: &mut Config) {
    config.note(
        "the original model rounds the input of each ternary matrix to 8 bits; GGUF programs do not, so logits differ \
         slightly from those of transformers",
    );
}

fn activation(spec: &ModelSpec) -> Activation {
    let activation = spec.layers.first().and_then(|layer| match &layer.feed_forward {
        FeedForward::Dense(dense) => Some(dense.activation),
        FeedForward::Experts(_) | FeedForward::None => None,
    });
    activation.unwrap_or(Activation::Silu)
}

fn notes(spec: &ModelSpec) -> Vec<String> {
    let mut notes = Vec::new();
    if activation(spec) == Activation::ReluSquared {
        notes.push(format!(
            "the feed-forward uses relu2 (bitnet.{ACTIVATION}); llama.cpp computes silu, and its results are wrong"
        ));
    }
    if !spec.is_tied() {
        notes.push(format!(
            "the output head is a separate tensor, {OUTPUT}; llama.cpp expects the embedding there and rejects the file"
        ));
    }
    notes
}
