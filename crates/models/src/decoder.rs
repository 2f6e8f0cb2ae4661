//! Parameters and layers that most decoders share: reads the parameters from either kind of description, and builds the
//! layers.
//!
//! ```text
//! Config + Usual (names and defaults of keys) ─┐
//!                                              ├─▶ Decoder (numbers) + Style ─▶ ModelSpec, which an architecture may
//! Keys ────────────────────────────────────────┘                               then change layer by layer
//! ```

use crate::architecture::Architecture;
use crate::config::{Config, Object};
use crate::limit::{COUNT_MAX, SIZE_MAX};
use crate::metadata::Keys;
use crate::number::{nearest_f32, real};
use crate::part::attention::{Attention, HeadNorm, HeadSpan, Position};
use crate::part::experts::SparseLayers;
use crate::part::feed_forward::{Activation, Dense, Storage};
use crate::part::norm::{Norm, NormKind};
use crate::rope::{RopeFactors, RopeSpec};
use crate::spec::{
    Arrangement, Embedding, FeedForward, Head, LayerSpec, Mixer, ModelResult, ModelSpec, Prefix, ProjectionStorage,
    Residual,
};
use serde_json::{Value, json};
use trueup_graph::op::{RopePairs, RopeScaling};

/// Names of common keys in `config.json`, and the defaults of the class that reads them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    pub hidden_size: &'static str,
    pub layers: &'static str,
    pub heads: &'static str,
    /// Number of attention heads if the key is absent; `None` if the key is required.
    pub heads_absent: Option<usize>,
    pub kv_heads: &'static str,
    /// Number of KV heads if the key is absent; `None` means the number of attention heads, as does an explicit null.
    pub kv_heads_absent: Option<usize>,
    pub head_size: &'static str,
    /// Head size if the key is absent; `None` means `hidden_size / heads`, as does an explicit null.
    pub head_size_absent: Option<usize>,
    pub intermediate: &'static str,
    /// Feed-forward size as a multiple of the hidden size if the key is absent; `None` if the key is required.
    pub intermediate_absent: Option<usize>,
    pub vocabulary: &'static str,
    /// Vocabulary size if the key is absent; `None` if the key is required.
    pub vocabulary_absent: Option<usize>,
    pub context: &'static str,
    /// Context length if the key is absent; `None` if the key is required.
    pub context_absent: Option<usize>,
    pub epsilon: (&'static str, f64),
    pub rope_base: (&'static str, f64),
    pub rotated: Rotated,
    /// Whether the head is tied to the embedding if `tie_word_embeddings` is absent.
    pub tied_absent: bool,
}

/// Placeholder key for a value that the class hard-codes; the default always applies.
pub(crate) const NO_KEY: &str = "";

/// The part of a head that is rotated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rotated {
    /// All of it.
    Whole,
    /// Its first half.
    Half,
    /// The number of elements in a key, and its default.
    Count(&'static str, usize),
    /// The share in a key, and its default.
    Share(&'static str, f64),
}

impl Usual {
    /// The keys and defaults of `LlamaForCausalLM`.
    pub const LLAMA: Usual = Usual {
        hidden_size: "hidden_size",
        layers: "num_hidden_layers",
        heads: "num_attention_heads",
        heads_absent: None,
        kv_heads: "num_key_value_heads",
        kv_heads_absent: None,
        head_size: "head_dim",
        head_size_absent: None,
        intermediate: "intermediate_size",
        intermediate_absent: None,
        vocabulary: "vocab_size",
        vocabulary_absent: None,
        context: "max_position_embeddings",
        context_absent: Some(2048),
        epsilon: ("rms_norm_eps", 1e-6),
        rope_base: ("rope_theta", 10_000.0),
        rotated: Rotated::Whole,
        tied_absent: false,
    };

    /// The keys of GPT-2, which other classes also use.
    pub const GPT: Usual = Usual {
        hidden_size: "n_embd",
        layers: "n_layer",
        heads: "n_head",
        kv_heads: "num_key_value_heads",
        intermediate: "n_inner",
        intermediate_absent: Some(4),
        context: "n_positions",
        epsilon: ("layer_norm_epsilon", 1e-5),
        ..Usual::LLAMA
    };
}

/// Parameters of a decoder.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    pub architecture: &'static Architecture,
    pub hidden_size: usize,
    pub layers: usize,
    /// Attention heads of each layer.
    pub heads: Vec<usize>,
    /// KV heads of each layer.
    pub kv_heads: Vec<usize>,
    pub key_size: usize,
    pub value_size: usize,
    /// Elements of the feed-forward's hidden layer in each layer.
    pub intermediate: Vec<usize>,
    pub vocabulary: usize,
    pub context: usize,
    pub epsilon: f32,
    pub rope: RopeSpec,
    /// The sliding window, and whether each layer has it.
    pub window: Option<(usize, Vec<bool>)>,
    pub is_tied: bool,
}

/// Variants of a decoder layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub norm: NormKind,
    pub arrangement: fn(Norm) -> Arrangement,
    /// Whether heads are rotated (RoPE).
    pub is_rotated: bool,
    pub head_norm: Option<HeadSpan>,
    pub activation: Activation,
    pub storage: Storage,
    /// Whether queries, keys and values are stored as one tensor.
    pub is_fused: bool,
    /// Biases of queries, keys and values.
    pub attention_bias: bool,
    /// Bias of the attention's output.
    pub output_bias: bool,
    /// Biases of the feed-forward.
    pub feed_forward_bias: bool,
    /// Bias of the output head.
    pub head_bias: bool,
}

impl Style {
    /// The layers of Llama.
    pub const LLAMA: Style = Style {
        norm: NormKind::Rms,
        arrangement: Arrangement::pre,
        is_rotated: true,
        head_norm: None,
        activation: Activation::Silu,
        storage: Storage::Gated,
        is_fused: false,
        attention_bias: false,
        output_bias: false,
        feed_forward_bias: false,
        head_bias: false,
    };

    /// Layer norms with biases, and an ungated feed-forward, as in GPT-2.
    pub const GPT: Style = Style {
        norm: NormKind::LAYER,
        activation: Activation::Gelu,
        storage: Storage::Ungated,
        attention_bias: true,
        output_bias: true,
        feed_forward_bias: true,
        ..Style::LLAMA
    };
}

impl Decoder {
    /// Reads the common keys of `config.json`. `pairs` are the rotated pairs in the GGUF file.
    pub fn from_config(config: &mut Config, usual: &Usual, pairs: RopePairs) -> Decoder {
        let layers = config.layers(usual.layers);
        let heads = config.per_layer(usual.heads, layers, COUNT_MAX, usual.heads_absent);
        let hidden_size = config.size(usual.hidden_size);
        let kv_heads = match usual.kv_heads_absent.filter(|_| !config.has(usual.kv_heads)) {
            Some(absent) => vec![absent; layers],
            None if config.value(usual.kv_heads).is_none() => heads.clone(),
            None => config.per_layer(usual.kv_heads, layers, COUNT_MAX, None),
        };
        let head_size = head_size(config, usual, hidden_size, layers, heads.first().copied().unwrap_or(1));
        let intermediate = usual.intermediate_absent.map(|times| hidden_size.saturating_mul(times));
        let intermediate = config.per_layer(usual.intermediate, layers, SIZE_MAX, intermediate);
        let vocabulary = match usual.vocabulary_absent.filter(|_| config.value(usual.vocabulary).is_none()) {
            Some(absent) => absent,
            None => config.vocabulary(usual.vocabulary),
        };
        let context = config.context(usual.context, usual.context_absent);
        let epsilon = nearest_f32(config.positive_or(usual.epsilon.0, usual.epsilon.1));
        let base = config.positive_or(usual.rope_base.0, usual.rope_base.1);
        let dimensions = match usual.rotated {
            Rotated::Whole => {
                config.only_share(1.0);
                head_size
            }
            Rotated::Half => {
                config.only_share(0.5);
                head_size / 2
            }
            Rotated::Count(key, absent) => {
                let count = config.count_or(key, absent);
                config.only_share(real(count) / real(head_size));
                count
            }
            Rotated::Share(key, absent) => share_of(head_size, config.rotated_share(key, absent)),
        };
        Decoder {
            architecture: config.architecture(),
            hidden_size,
            layers,
            heads,
            kv_heads,
            key_size: head_size,
            value_size: head_size,
            intermediate,
            vocabulary,
            context,
            epsilon,
            rope: config.rope(pairs, base, dimensions, context),
            window: None,
            is_tied: config.flag_or("tie_word_embeddings", usual.tied_absent),
        }
    }

    /// Reads the common keys of a GGUF file. The kind of norm determines the key of the epsilon.
    pub fn from_keys(keys: &mut Keys, pairs: RopePairs, norm: NormKind) -> Decoder {
        let layers = keys.layers();
        let hidden_size = keys.size("embedding_length");
        let heads = keys.per_layer("attention.head_count", layers, COUNT_MAX, None);
        let kv_heads = keys.per_layer("attention.head_count_kv", layers, COUNT_MAX, Some(heads.clone()));
        let first = heads.first().copied().unwrap_or(1);
        let size = hidden_size.checked_div(first).filter(|_| hidden_size.is_multiple_of(first));
        let key_size = keys.shared_count("attention.key_length", layers, size);
        let value_size = keys.shared_count("attention.value_length", layers, Some(key_size));
        let context = keys.context();
        Decoder {
            architecture: keys.architecture(),
            hidden_size,
            layers,
            heads,
            kv_heads,
            key_size,
            value_size,
            intermediate: keys.per_layer("feed_forward_length", layers, SIZE_MAX, None),
            vocabulary: keys.vocabulary(),
            context,
            epsilon: keys.epsilon(Norm { kind: norm, epsilon: 1.0 }.epsilon_key()),
            rope: keys.rope(pairs, key_size, context, layers),
            window: keys.window(layers, None),
            is_tied: !keys.has_tensor(crate::tensor::OUTPUT),
        }
    }

    /// The same parameters for another number of layers, each like the first.
    pub fn with_layers(&self, layers: usize) -> Decoder {
        let all = |list: &[usize]| vec![list.first().copied().unwrap_or(1); layers];
        let (heads, kv_heads, intermediate) = (all(&self.heads), all(&self.kv_heads), all(&self.intermediate));
        Decoder { layers, heads, kv_heads, intermediate, ..self.clone() }
    }

    /// A norm of this kind with the decoder's epsilon.
    pub fn norm(&self, kind: NormKind) -> Norm {
        Norm { kind, epsilon: self.epsilon }
    }

    /// The model in this style.
    pub fn spec(&self, style: &Style) -> ModelSpec {
        let norm = self.norm(style.norm);
        ModelSpec {
            architecture: self.architecture,
            hidden_size: self.hidden_size,
            vocabulary_size: self.vocabulary,
            context_length: self.context,
            embedding: Embedding::default(),
            encoder: None,
            layers: (0..self.layers).map(|layer| self.layer(layer, style)).collect(),
            head: Head {
                result: ModelResult::Logits,
                norm: Some(norm),
                is_tied: self.is_tied,
                scaled: None,
                has_bias: style.head_bias,
                scale: None,
                softcap: None,
                has_unit_rows: false,
            },
            prefix: None,
            query_correction: None,
            projections: ProjectionStorage::default(),
        }
    }

    fn layer(&self, layer: usize, style: &Style) -> LayerSpec {
        let norm = self.norm(style.norm);
        let of = |list: &[usize]| list.get(layer).copied().unwrap_or(1);
        let window = self.window.as_ref().filter(|(_, layers)| layers.get(layer) == Some(&true));
        LayerSpec {
            mixer: Mixer::Attention(Attention {
                heads: of(&self.heads),
                kv_heads: of(&self.kv_heads),
                key_size: self.key_size,
                value_size: self.value_size,
                position: if style.is_rotated { Position::Rope(self.rope.clone()) } else { Position::None },
                window: window.map(|(size, _)| *size),
                scale: 1.0 / real(self.key_size).sqrt(),
                softcap: None,
                clamp: None,
                is_clamped_after_norm: false,
                head_norm: style.head_norm.map(|span| HeadNorm { norm, span }),
                has_bias: style.attention_bias,
                has_output_bias: style.output_bias,
                is_fused: style.is_fused,
                output_norm: None,
                output: "attn_output",
                has_prefix: false,
                is_bidirectional: false,
                latent: None,
            }),
            cross: None,
            feed_forward: FeedForward::Dense(Dense {
                size: of(&self.intermediate),
                activation: style.activation,
                storage: style.storage,
                has_up_bias: style.feed_forward_bias,
                has_down_bias: style.feed_forward_bias,
                hidden_norm: None,
            }),
            arrangement: (style.arrangement)(norm),
            residual: Residual::Stream,
        }
    }
}

impl ModelSpec {
    /// The same model with experts in the layers that have them, if any.
    pub(crate) fn with_experts(mut self, sparse: Option<SparseLayers>) -> ModelSpec {
        let Some(SparseLayers { experts, layers }) = sparse else { return self };
        for (layer, _) in self.layers.iter_mut().zip(layers).filter(|(_, is_sparse)| *is_sparse) {
            layer.feed_forward = FeedForward::Experts(experts.clone());
        }
        self
    }

    /// Changes the attention of every layer.
    pub(crate) fn with_attention(mut self, change: impl Fn(usize, &mut Attention)) -> ModelSpec {
        for (number, layer) in self.layers.iter_mut().enumerate() {
            if let Mixer::Attention(attention) = &mut layer.mixer {
                change(number, attention);
            }
        }
        self
    }

    /// The same model as a prefix LM: the prefix of a text attends bidirectionally.
    pub(crate) fn with_prefix(self, prefix: Prefix) -> ModelSpec {
        let spec = self.with_attention(|_, attention| attention.has_prefix = true);
        ModelSpec { prefix: Some(prefix), ..spec }
    }
}

/// Elements of a head: the key, the class's default, or `hidden_size / heads`.
fn head_size(config: &mut Config, usual: &Usual, hidden_size: usize, layers: usize, heads: usize) -> usize {
    if config.value(usual.head_size).is_some() {
        let sizes = config.per_layer(usual.head_size, layers, COUNT_MAX, None);
        let first = sizes.first().copied().unwrap_or(1);
        if sizes.iter().any(|size| *size != first) {
            let key = usual.head_size;
            config.problem(format!("{key}: layers with different sizes of heads are not supported"));
        }
        return first;
    }
    if let Some(absent) = usual.head_size_absent.filter(|_| !config.has(usual.head_size)) {
        return absent;
    }
    // After another problem, these numbers can be placeholders.
    if hidden_size.is_multiple_of(heads) || config.has_problem() {
        return hidden_size.checked_div(heads).unwrap_or(1);
    }
    let Usual { heads: key, hidden_size: whole, .. } = usual;
    config.problem(format!("{key}: expected a divisor of {whole} ({hidden_size}), found {heads}"));
    1
}

/// This share of a head, rounded down to whole elements.
#[allow(
    clippy::as_conversions,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "at most the head size"
)]
fn share_of(head_size: usize, share: f64) -> usize {
    (real(head_size) * share.clamp(0.0, 1.0)) as usize
}

/// A description that [`Decoder::from_config`] reads as these parameters, for a model read from a GGUF file. `None` if
/// the file stores divisors of the frequencies, because the parameters that they were computed from are unknown.
pub(crate) fn usual_config(spec: &ModelSpec, usual: &Usual) -> Option<Object> {
    let (_, attention) = spec.attentions().next()?;
    if spec.experts().is_some() {
        return None;
    }
    let FeedForward::Dense(dense) = spec.layers.first().map(|layer| &layer.feed_forward)? else { return None };
    let mut config = Object::new();
    config.insert("architectures".to_owned(), json!([spec.architecture.classes.first()?]));
    config.insert("model_type".to_owned(), spec.architecture.flm_name.unwrap_or(spec.architecture.gguf_name).into());
    for (key, value) in [
        (usual.hidden_size, spec.hidden_size),
        (usual.layers, spec.layers.len()),
        (usual.heads, attention.heads),
        (usual.kv_heads, attention.kv_heads),
        (usual.head_size, attention.key_size),
        (usual.intermediate, dense.size),
        (usual.vocabulary, spec.vocabulary_size),
        (usual.context, spec.context_length),
    ] {
        config.insert(key.to_owned(), value.into());
    }
    config.insert(usual.epsilon.0.to_owned(), shortest(spec.epsilon()?).into());
    config.insert("tie_word_embeddings".to_owned(), spec.is_tied().into());
    if let Some(rope) = attention.rope() {
        config.insert(usual.rope_base.0.to_owned(), shortest(rope.base).into());
        if let Rotated::Count(key, _) = usual.rotated {
            config.insert(key.to_owned(), rope.dimensions.into());
        }
        if rope.factors != RopeFactors::None {
            return None;
        }
        let scaling = scaling_object(&rope.scaling)?;
        config.extend(scaling.map(|scaling| ("rope_scaling".to_owned(), scaling)));
    }
    if let Some(window) = spec.window() {
        config.insert("sliding_window".to_owned(), window.into());
        let kind = |slides| if slides { "sliding_attention" } else { "full_attention" };
        let kinds: Vec<&str> = spec.attentions().map(|(_, attention)| kind(attention.window.is_some())).collect();
        config.insert("layer_types".to_owned(), json!(kinds));
    }
    Some(config)
}

/// `rope_scaling` of a scaling; the outer `None` if `config.json` cannot express it.
fn scaling_object(scaling: &RopeScaling) -> Option<Option<Value>> {
    Some(match *scaling {
        RopeScaling::None => None,
        RopeScaling::Linear { factor } => Some(json!({"type": "linear", "factor": shortest(factor)})),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => Some(json!({
            "type": "yarn",
            "factor": shortest(factor),
            "original_max_position_embeddings": original_context,
            "beta_fast": shortest(beta_fast),
            "beta_slow": shortest(beta_slow),
            "attention_factor": shortest(magnitude),
        })),
        RopeScaling::Long { .. } => return None,
    })
}

/// The f64 with the shortest decimal text of this f32, so that 1e-5 is not written as 9.99999974e-6.
pub(crate) fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}
