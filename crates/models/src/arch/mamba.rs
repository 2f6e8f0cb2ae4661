//! Mamba: layers of one selective state space each, without attention, positions and feed-forward.
//!
//! ```text
//! x += mixer(norm(x))        A = -exp(A_log)        conv1d [channels, 1, taps] stored as [channels, taps]
//! ```

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, negated_exponential};
use crate::metadata::Keys;
use crate::number::nearest_f32;
use crate::part::norm::{NamedNorm, Norm, NormKind};
use crate::part::state_space::{Rates, StateSpace};
use crate::spec::{
    Arrangement, Embedding, FeedForward, Head, LayerSpec, Mixer, ModelResult, ModelSpec, ProjectionStorage, Residual,
};
use serde_json::Value;

/// `MambaForCausalLM`.
pub static MAMBA: Architecture = Architecture {
    gguf_name: "mamba",
    classes: &["MambaForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"silu\""]);
        // GGUF has no biases for the projections.
        config.only("use_bias", &["false"]);
        config.only("quantization_config", &[]);
        let layers = config.layers("num_hidden_layers");
        let hidden_size = config.size("hidden_size");
        let inner_size = match config.value("intermediate_size") {
            Some(_) => config.size("intermediate_size"),
            None => hidden_size.saturating_mul(config.count_or("expand", 2)),
        };
        let rank = match config.value("time_step_rank").and_then(Value::as_str) {
            Some("auto") => hidden_size.div_ceil(16),
            _ => config.count_or("time_step_rank", hidden_size.div_ceil(16)),
        };
        let mixer = StateSpace {
            inner_size,
            state_size: config.count_or("state_size", 16),
            taps: config.count_or("conv_kernel", 4),
            rates: Rates::Channels { rank },
            has_bias: config.flag_or("use_conv_bias", true),
        };
        let numbers = Numbers {
            hidden_size,
            vocabulary_size: config.vocabulary("vocab_size"),
            context_length: CONTEXT,
            epsilon: nearest_f32(config.positive_or("layer_norm_epsilon", 1e-5)),
            is_tied: config.flag_or("tie_word_embeddings", true),
        };
        spec(config.architecture(), &vec![mixer; layers], &numbers)
    },
    from_metadata: |keys| {
        let layers = keys.layers();
        if keys.flag_or("ssm.dt_b_c_rms", false) {
            keys.wrong("ssm.dt_b_c_rms", "expected false (normalized dt, B and C are not supported), found true");
        }
        let mixer = StateSpace::from_keys(keys, Rates::Channels { rank: 1 });
        let numbers = Numbers::from_keys(keys);
        spec(keys.architecture(), &vec![mixer; layers], &numbers)
    },
    more_keys: |_, writer| {
        // Other programs look for them in every file.
        writer.count("attention.head_count", 0);
        writer.value("ssm.dt_b_c_rms", false);
    },
    compatibility: |spec| width_note(spec).into_iter().collect(),
    tensors: &[&[
        TensorRule::new("token_embd", "backbone.embedding").if_present(),
        TensorRule::new("token_embd", "backbone.embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "backbone.layers.{l}.norm"),
        TensorRule::new("blk.{l}.ssm_in", "backbone.layers.{l}.mixer.in_proj"),
        TensorRule::new("blk.{l}.ssm_conv1d.weight", "backbone.layers.{l}.mixer.conv1d.weight").with_unit_axis(),
        TensorRule::new("blk.{l}.ssm_conv1d", "backbone.layers.{l}.mixer.conv1d"),
        TensorRule::new("blk.{l}.ssm_x", "backbone.layers.{l}.mixer.x_proj"),
        TensorRule::new("blk.{l}.ssm_dt", "backbone.layers.{l}.mixer.dt_proj"),
        TensorRule::new("blk.{l}.ssm_a", "backbone.layers.{l}.mixer.A_log").with(negated_exponential),
        TensorRule::new("blk.{l}.ssm_d", "backbone.layers.{l}.mixer.D"),
        TensorRule::new("blk.{l}.ssm_out", "backbone.layers.{l}.mixer.out_proj"),
        TensorRule::new("output_norm", "backbone.norm_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ..Architecture::BASE
};

/// Positions do not matter to it; llama.cpp's converter writes this number.
pub(super) const CONTEXT: usize = 1 << 20;

/// The numbers outside of the layers.
pub(super) struct Numbers {
    pub hidden_size: usize,
    pub vocabulary_size: usize,
    pub context_length: usize,
    pub epsilon: f32,
    pub is_tied: bool,
}

impl Numbers {
    pub fn from_keys(keys: &mut Keys) -> Numbers {
        let norm = Norm { kind: NormKind::Rms, epsilon: 1.0 };
        Numbers {
            hidden_size: keys.size("embedding_length"),
            vocabulary_size: keys.vocabulary(),
            context_length: keys.context(),
            epsilon: keys.epsilon(norm.epsilon_key()),
            is_tied: !keys.has_tensor(crate::tensor::OUTPUT),
        }
    }
}

/// Layers of one state space each.
pub(super) fn spec(architecture: &'static Architecture, mixers: &[StateSpace], numbers: &Numbers) -> ModelSpec {
    let norm = Norm { kind: NormKind::Rms, epsilon: numbers.epsilon };
    let layer = |mixer: &StateSpace| LayerSpec {
        mixer: Mixer::StateSpace(*mixer),
        cross: None,
        feed_forward: FeedForward::None,
        arrangement: Arrangement {
            before_mixer: Some(NamedNorm::new(norm, "attn_norm", "attn_norm")),
            before_feed_forward: None,
            ..Arrangement::pre(norm)
        },
        residual: Residual::Stream,
    };
    ModelSpec {
        architecture,
        hidden_size: numbers.hidden_size,
        vocabulary_size: numbers.vocabulary_size,
        context_length: numbers.context_length,
        embedding: Embedding::default(),
        encoder: None,
        layers: mixers.iter().map(layer).collect(),
        head: Head {
            result: ModelResult::Logits,
            norm: Some(norm),
            is_tied: numbers.is_tied,
            scaled: None,
            has_bias: false,
            scale: None,
            softcap: None,
            has_unit_rows: false,
        },
        prefix: None,
        query_correction: None,
        projections: ProjectionStorage::default(),
    }
}

fn width_note(spec: &ModelSpec) -> Option<String> {
    let is_other = |layer: &LayerSpec| match &layer.mixer {
        Mixer::StateSpace(mixer) => mixer.inner_size != spec.hidden_size.saturating_mul(2),
        Mixer::Attention(_) => false,
    };
    let note = "llama.cpp cannot load this model: it requires an inner size of twice the hidden size";
    spec.layers.iter().any(is_other).then(|| note.to_owned())
}
