//! A model: an embedding, a list of layers, and a head.
//!
//! ```text
//! config.json ─┐
//!              ├─▶ Architecture's functions ─▶ ModelSpec ── check: all problems at once ─▶ tensors, keys, graphs
//! GGUF keys ───┘                               (parts with their numbers, layer by layer)
//! ```
//!
//! Each part stores its parameters, and every parameter can differ between layers. The only parameters of the whole
//! model are the hidden size, the vocabulary size and the context length.

use crate::architecture::Architecture;
use crate::diagnostics::Diagnostics;
use crate::encoder_decoder::Encoder;
use crate::limit::CONTEXT_MAX;
use crate::part::attention::Attention;
use crate::part::cross_attention::CrossAttention;
use crate::part::experts::Experts;
use crate::part::feed_forward::Dense;
use crate::part::norm::{NamedNorm, Norm};
use crate::part::state_space::StateSpace;
use crate::rope::{RopeFactors, RopeSpec};
use crate::tensor::{TensorKind, TensorList, TensorSpec};

/// Maximum number of elements of the recurrent states of a sequence in all layers: 16 times the number in the largest
/// published model.
const STATES_MAX: usize = 1 << 30;

/// A model. Always valid, because only [`ModelSpec::from_config`] and [`ModelSpec::from_metadata`] create one.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelSpec {
    pub(crate) architecture: &'static Architecture,
    pub(crate) hidden_size: usize,
    pub(crate) vocabulary_size: usize,
    pub(crate) context_length: usize,
    pub(crate) embedding: Embedding,
    /// The encoder of an encoder-decoder model, whose result the layers attend to.
    pub(crate) encoder: Option<Encoder>,
    pub(crate) layers: Vec<LayerSpec>,
    pub(crate) head: Head,
    pub(crate) prefix: Option<Prefix>,
    /// Factor by which conversion multiplies queries, for a scale of scores that has no GGUF key.
    pub(crate) query_correction: Option<f32>,
    pub(crate) projections: ProjectionStorage,
}

/// How a checkpoint stores the matrices of attention and feed-forward. GGUF files always store plain matrices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ProjectionStorage {
    /// Without packing or transformation.
    #[default]
    Plain,
    /// As floating-point numbers that the model converts to ternary numbers before use.
    Latent,
    /// As ternary numbers, four per byte, that are multiplied or divided by a scale.
    Packed { is_divided: bool },
}

/// The embedding: from token IDs to the residual stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Embedding {
    /// Multiplier for the embedding rows.
    pub scale: Option<f32>,
    /// Number of learned position embeddings, which are added.
    pub positions: Option<usize>,
    /// Number of token type embeddings; the first is added to every token.
    pub token_types: Option<usize>,
    /// Norm of the sum.
    pub norm: Option<Norm>,
}

/// One layer: a mixer of tokens and a feed-forward, each with its norms.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LayerSpec {
    pub mixer: Mixer,
    /// Attention over the result of the encoder, in a decoder of an encoder-decoder model.
    pub cross: Option<CrossAttention>,
    pub feed_forward: FeedForward,
    pub arrangement: Arrangement,
    pub residual: Residual,
}

/// The part of a layer that mixes information between tokens.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Mixer {
    Attention(Attention),
    StateSpace(StateSpace),
}

/// The part of a layer that transforms each token separately.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum FeedForward {
    Dense(Dense),
    Experts(Experts),
    None,
}

/// The positions of the norms in a layer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Arrangement {
    /// Norm of the mixer's input.
    pub before_mixer: Option<NamedNorm>,
    /// Norm of the mixer's output, before it is added to the stream; with `norms_sums`, of the sum.
    pub after_mixer: Option<NamedNorm>,
    /// Norm of the feed-forward's input. In a parallel layer, `None` means that the
    /// normalized input of the mixer is used.
    pub before_feed_forward: Option<NamedNorm>,
    /// Norm of the feed-forward's output, before it is added to the stream; with `norms_sums`, of the sum.
    pub after_feed_forward: Option<NamedNorm>,
    /// Whether mixer and feed-forward both take the layer's input, and their outputs are added together.
    pub is_parallel: bool,
    /// Whether the norms after mixer and feed-forward are applied to the sums with the stream (Vaswani et al. 2017).
    pub norms_sums: bool,
}

impl Arrangement {
    /// `x += mixer(n1(x)); x += feed_forward(n2(x))`.
    pub fn pre(norm: Norm) -> Arrangement {
        Arrangement {
            before_mixer: Some(NamedNorm::new(norm, "attn_norm", "attn_norm")),
            before_feed_forward: Some(NamedNorm::new(norm, "ffn_norm", "ffn_norm")),
            after_mixer: None,
            after_feed_forward: None,
            is_parallel: false,
            norms_sums: false,
        }
    }

    /// `x += n1(mixer(x)); x += n2(feed_forward(x))`.
    pub fn post(norm: Norm) -> Arrangement {
        let Arrangement { after_mixer, after_feed_forward, .. } = Arrangement::sandwich(norm);
        Arrangement {
            after_mixer,
            after_feed_forward,
            before_mixer: None,
            before_feed_forward: None,
            is_parallel: false,
            norms_sums: false,
        }
    }

    /// `x = n1(x + mixer(x)); x = n2(x + feed_forward(x))`, as in BERT.
    pub fn post_sum(norm: Norm) -> Arrangement {
        Arrangement {
            before_mixer: None,
            before_feed_forward: None,
            after_mixer: Some(NamedNorm::new(norm, "ffn_inp", "attn_output_norm")),
            after_feed_forward: Some(NamedNorm::new(norm, "l_out", "layer_output_norm")),
            norms_sums: true,
            ..Arrangement::pre(norm)
        }
    }

    /// `x += n2(mixer(n1(x))); x += n4(feed_forward(n3(x)))`.
    pub fn sandwich(norm: Norm) -> Arrangement {
        Arrangement {
            after_mixer: Some(NamedNorm::new(norm, "attn_post_norm", "post_attention_norm")),
            after_feed_forward: Some(NamedNorm::new(norm, "ffn_post_norm", "post_ffw_norm")),
            ..Arrangement::pre(norm)
        }
    }

    /// `x += mixer(n(x)) + feed_forward(n(x))`.
    pub fn parallel(norm: Norm) -> Arrangement {
        Arrangement { before_feed_forward: None, is_parallel: true, ..Arrangement::pre(norm) }
    }

    /// `x += mixer(n1(x)) + feed_forward(n2(x))`.
    pub fn parallel_two_norms(norm: Norm) -> Arrangement {
        Arrangement { is_parallel: true, ..Arrangement::pre(norm) }
    }
}

/// The tensor that the outputs of mixer and feed-forward are added to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Residual {
    /// The residual stream.
    Stream,
    /// The residual stream, after the output was multiplied by this factor.
    Scaled(f32),
    /// The norm of their input, times this factor (ChatGLM-6B).
    ScaledNorm(f32),
}

/// The result of a model for a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelResult {
    /// For each token, the logits of the next token.
    Logits,
    /// For each token, its row of the residual stream.
    Hidden,
    /// For each text, one row.
    Pooled(Pooling),
}

/// How the rows of a text are reduced to one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pooling {
    /// The mean of all rows.
    Mean,
    /// The row of the first token.
    First,
    /// The row of the last token.
    Last,
}

/// The head: from the residual stream to the result.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Head {
    pub result: ModelResult,
    pub norm: Option<Norm>,
    /// Whether the matrix is the token embedding.
    pub is_tied: bool,
    /// A matrix that conversion creates, because its factor has no GGUF key, or because llama.cpp needs a separate
    /// matrix.
    pub scaled: Option<ScaledHead>,
    pub has_bias: bool,
    /// Multiplier for the logits.
    pub scale: Option<f32>,
    /// Logits become `cap tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// Whether the rows are divided by their norms. Conversion does this, so GGUF files have no key for it.
    pub has_unit_rows: bool,
}

/// An output head that is the product of a matrix of the checkpoint and a factor, which may be 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ScaledHead {
    pub factor: f32,
    /// Whether the matrix is the token embedding.
    pub is_embedding: bool,
}

/// The special tokens of a prefix LM, in which the prefix of a text attends bidirectionally: `prompt | mark | end,
/// answer`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The first token after the prefix.
    pub end: u32,
    /// All tokens from `end` on have the position of the first `mark`.
    pub mark: u32,
    /// Used if the text does not contain `mark`.
    pub other_mark: u32,
}

impl Prefix {
    /// Index of the first token after the prefix of a text; `None` if the text has no such token. Then every token
    /// attends to the tokens before it.
    pub fn end_in(&self, ids: impl IntoIterator<Item = u32>) -> Option<usize> {
        ids.into_iter().position(|id| id == self.end)
    }
}

impl ModelSpec {
    /// The architecture.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Elements of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Number of layers.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// The vocabulary size: the number of rows of the embedding.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The context length of the model.
    pub fn context_length(&self) -> usize {
        self.context_length
    }

    /// Maximum length of a text. If scores depend only on buckets of distances, the model has no limit, and
    /// [`ModelSpec::context_length`] is only the usual length.
    pub fn context_max(&self) -> usize {
        if self.buckets().is_some() { CONTEXT_MAX } else { self.context_length }
    }

    /// The special tokens of a prefix LM; `None` for other models.
    pub fn prefix(&self) -> Option<&Prefix> {
        self.prefix.as_ref()
    }

    /// Whether the output head is the token embedding.
    pub fn is_tied(&self) -> bool {
        self.head.is_tied && self.has_logits()
    }

    /// Whether the output head is the token embedding, or the token embedding times a factor.
    pub fn has_head_of_embedding(&self) -> bool {
        self.is_tied() || self.head.scaled.is_some_and(|scaled| scaled.is_embedding)
    }

    /// The result of the model for a text.
    pub fn result(&self) -> ModelResult {
        self.head.result
    }

    /// Whether the model computes logits, and so generates text.
    pub fn has_logits(&self) -> bool {
        self.head.result == ModelResult::Logits
    }

    /// Elements of one row of the result.
    pub fn result_size(&self) -> usize {
        if self.has_logits() { self.vocabulary_size } else { self.hidden_size }
    }

    /// Whether every token attends to the whole text. Such a model computes each text in one batch, without a cache.
    pub fn is_bidirectional(&self) -> bool {
        self.attentions().any(|(_, attention)| attention.is_bidirectional)
    }

    /// The rotation of the first layer that has one, preferably of one without a sliding window.
    pub fn rope(&self) -> Option<&RopeSpec> {
        let full = self.attentions().filter(|(_, attention)| attention.window.is_none());
        full.chain(self.attentions()).find_map(|(_, attention)| attention.rope())
    }

    /// Whether a text of this many tokens has the long divisors of LongRoPE, as in transformers.
    pub fn is_long(&self, tokens: usize) -> bool {
        self.original_context().is_some_and(|original| tokens > original)
    }

    /// The longest text with the short divisors of LongRoPE; `None` without LongRoPE.
    pub fn original_context(&self) -> Option<usize> {
        match self.rope().map(|rope| &rope.factors) {
            Some(RopeFactors::Long(factors)) => Some(factors.original_context),
            _ => None,
        }
    }

    /// The rotation of the first layer with a sliding window.
    pub(crate) fn window_rope(&self) -> Option<&RopeSpec> {
        let mut windowed = self.attentions().filter(|(_, attention)| attention.window.is_some());
        windowed.find_map(|(_, attention)| attention.rope())
    }

    /// Size of the sliding window, if any layer has one.
    pub fn window(&self) -> Option<usize> {
        self.attentions().find_map(|(_, attention)| attention.window)
    }

    /// Epsilon of the norm before the head, or of the embedding's norm.
    pub fn epsilon(&self) -> Option<f32> {
        self.outer_norm().map(|norm| norm.epsilon)
    }

    /// The norm outside of the layers.
    pub(crate) fn outer_norm(&self) -> Option<Norm> {
        self.head.norm.or(self.embedding.norm)
    }

    /// The experts of the first layer that has any.
    pub(crate) fn experts(&self) -> Option<&Experts> {
        self.layers.iter().find_map(|layer| match &layer.feed_forward {
            FeedForward::Experts(experts) => Some(experts),
            FeedForward::Dense(_) | FeedForward::None => None,
        })
    }

    /// The attention of each layer that has one.
    pub(crate) fn attentions(&self) -> impl Iterator<Item = (usize, &Attention)> {
        self.layers.iter().enumerate().filter_map(|(number, layer)| match &layer.mixer {
            Mixer::Attention(attention) => Some((number, attention)),
            Mixer::StateSpace(_) => None,
        })
    }

    /// The attention of one layer.
    pub(crate) fn attention(&self, layer: usize) -> Option<&Attention> {
        self.layers.get(layer).and_then(|layer| match &layer.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::StateSpace(_) => None,
        })
    }

    /// Whether a layer has a recurrent state, which cannot be rewound to an earlier token.
    pub fn is_recurrent(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.mixer, Mixer::StateSpace(_)))
    }

    /// Whether any layer keeps the keys and values of earlier tokens.
    pub fn has_kv_cache(&self) -> bool {
        self.cached_head_sizes().next().is_some()
    }

    /// Whether every attention layer has a sliding window, so that no layer reads all positions.
    pub fn has_only_windows(&self) -> bool {
        self.has_kv_cache() && self.attentions().all(|(_, attention)| attention.window.is_some())
    }

    /// Head sizes of the keys and values in the KV cache, for each layer. Encoders have no cache.
    pub fn cached_head_sizes(&self) -> impl Iterator<Item = usize> {
        let cached = self.attentions().filter(|(_, attention)| !attention.is_bidirectional);
        cached.flat_map(|(_, attention)| {
            let values = (!attention.has_values_in_keys()).then_some(attention.value_size);
            std::iter::once(attention.key_size).chain(values)
        })
    }

    /// The longest row of any activation in a batch whose attention reads `capacity` positions.
    pub fn widest_row(&self, capacity: usize) -> usize {
        let of_layer = |layer: &LayerSpec| {
            let mixer = match &layer.mixer {
                Mixer::Attention(attention) => attention.heads.saturating_mul(capacity).max(attention.widest_row()),
                Mixer::StateSpace(state_space) => state_space.widest_row(),
            };
            let fed = match &layer.feed_forward {
                FeedForward::Dense(dense) => dense.size,
                FeedForward::Experts(experts) => experts.widest_row(self.hidden_size),
                FeedForward::None => 0,
            };
            mixer.max(fed)
        };
        self.all_layers().map(of_layer).fold(self.hidden_size, usize::max)
    }

    /// The longest row of the KV cache.
    pub fn widest_cache_row(&self) -> usize {
        self.attentions().map(|(_, attention)| attention.widest_row()).max().unwrap_or(0)
    }

    /// The tensors of the model in a GGUF file, in the order of computation.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut list = TensorList::default();
        list.add("token_embd", "weight", &[self.hidden_size, self.vocabulary_size], TensorKind::TokenRows);
        if let Some(positions) = self.embedding.positions {
            list.matrix("position_embd", self.hidden_size, positions);
        }
        if let Some(types) = self.embedding.token_types {
            list.matrix("token_types", self.hidden_size, types);
        }
        if let Some(norm) = &self.embedding.norm {
            norm.tensors("token_embd_norm", self.hidden_size, &mut list);
        }
        if let Some(rope) = self.rope() {
            for stem in rope.factor_tensors() {
                list.add(stem, "weight", &[rope.dimensions / 2], TensorKind::RopeFactors);
            }
        }
        if let Some(encoder) = &self.encoder {
            encoder.tensors(self.hidden_size, &mut list);
        }
        list.start_stack(self.prefix_of_layers());
        for (number, layer) in self.layers.iter().enumerate() {
            list.enter(Some(number));
            layer.tensors(self.hidden_size, &mut list);
        }
        list.enter(None);
        if let Some(norm) = &self.head.norm {
            norm.tensors(self.output_norm(), self.hidden_size, &mut list);
        }
        if self.has_logits() && !self.head.is_tied {
            list.add("output", "weight", &[self.hidden_size, self.vocabulary_size], TensorKind::TokenRows);
        }
        if self.head.has_bias {
            list.add("output", "bias", &[self.vocabulary_size], TensorKind::TokenBias);
        }
        list.finish()
    }

    /// The same model with a separate output head, even if its description has a tied one.
    #[must_use]
    pub fn untied(mut self) -> ModelSpec {
        self.head.is_tied = false;
        if let Some(scaled) = &mut self.head.scaled {
            scaled.is_embedding = false;
        }
        self
    }

    /// The same model with only these token IDs, in ascending order; `None` if a special token of a prefix LM is
    /// missing, or if the list is empty.
    #[must_use]
    pub fn pruned(self, kept: &[u32]) -> Option<ModelSpec> {
        let new = |id: u32| kept.binary_search(&id).ok().and_then(|place| u32::try_from(place).ok());
        let prefix = match self.prefix {
            Some(Prefix { end, mark, other_mark }) => {
                Some(Prefix { end: new(end)?, mark: new(mark)?, other_mark: new(other_mark)? })
            }
            None => None,
        };
        let encoder = match self.encoder {
            Some(encoder) => Some(Encoder { decoder_start: new(encoder.decoder_start)?, ..encoder }),
            None => None,
        };
        (!kept.is_empty()).then_some(ModelSpec { vocabulary_size: kept.len(), prefix, encoder, ..self })
    }

    /// Adds a problem to `diagnostics` for each value that is not supported.
    pub(crate) fn check(&self, diagnostics: &mut Diagnostics) {
        let ids = self.prefix.iter().flat_map(|prefix| [prefix.end, prefix.mark, prefix.other_mark]);
        for id in ids.filter(|id| usize::try_from(*id).map_or(true, |id| id >= self.vocabulary_size)) {
            let last = self.vocabulary_size.saturating_sub(1);
            diagnostics.add(format!("special token: expected an ID from 0 to {last}, found {id}"));
        }
        self.embedding.norm.iter().chain(&self.head.norm).for_each(|norm| norm.check(diagnostics));
        let is_bidirectional = self.is_bidirectional();
        if self.attentions().any(|(_, attention)| attention.is_bidirectional != is_bidirectional) {
            diagnostics.add("models with both bidirectional and causal layers are not supported");
        }
        let Head { scale, softcap, .. } = &self.head;
        for (what, factor) in
            [("embedding scale", self.embedding.scale), ("logit scale", *scale), ("logit softcap", *softcap)]
        {
            if let Some(factor) = factor.filter(|factor| !(factor.is_finite() && *factor != 0.0)) {
                diagnostics.add(format!("{what}: expected a finite number other than 0, found {factor}"));
            }
        }
        // Layers are usually equal, so each problem is reported once.
        let mut previous = None;
        for layer in &self.layers {
            if previous != Some(layer) {
                layer.check(self.hidden_size, diagnostics);
            }
            previous = Some(layer);
        }
        let states = self.layers.iter().map(LayerSpec::state_elements).fold(0, usize::saturating_add);
        if states > STATES_MAX {
            let layers = self.layers.len();
            diagnostics.add(format!(
                "recurrent states of {layers} layers: expected at most {STATES_MAX} elements for each sequence, found \
                 {states}"
            ));
        }
        if let Some(encoder) = &self.encoder {
            encoder.check(self, diagnostics);
        }
        if self.attentions().any(|(_, attention)| attention.window.is_some() && attention.window != self.window()) {
            diagnostics.add("sliding windows of several sizes are not supported");
        }
    }
}

impl LayerSpec {
    /// Elements of the recurrent states of a sequence.
    fn state_elements(&self) -> usize {
        match &self.mixer {
            Mixer::Attention(_) => 0,
            Mixer::StateSpace(state_space) => state_space.kept_elements(),
        }
    }

    pub(crate) fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        let Arrangement { before_mixer, after_mixer, before_feed_forward, after_feed_forward, .. } = &self.arrangement;
        let norm = |norm: &Option<NamedNorm>, list: &mut TensorList| {
            if let Some(norm) = norm {
                norm.norm.tensors(norm.tensor, hidden_size, list);
            }
        };
        norm(before_mixer, list);
        match &self.mixer {
            Mixer::Attention(attention) => attention.tensors(hidden_size, list),
            Mixer::StateSpace(state_space) => state_space.tensors(hidden_size, list),
        }
        norm(after_mixer, list);
        if let Some(cross) = &self.cross {
            cross.tensors(hidden_size, list);
        }
        norm(before_feed_forward, list);
        match &self.feed_forward {
            FeedForward::Dense(dense) => dense.tensors(hidden_size, list),
            FeedForward::Experts(experts) => experts.tensors(hidden_size, list),
            FeedForward::None => {}
        }
        norm(after_feed_forward, list);
    }

    pub(crate) fn check(&self, hidden_size: usize, diagnostics: &mut Diagnostics) {
        let Arrangement { before_mixer, after_mixer, before_feed_forward, after_feed_forward, .. } = &self.arrangement;
        for norm in [before_mixer, after_mixer, before_feed_forward, after_feed_forward].into_iter().flatten() {
            norm.norm.check(diagnostics);
        }
        match &self.mixer {
            Mixer::Attention(attention) => attention.check(diagnostics),
            Mixer::StateSpace(state_space) => state_space.check(diagnostics),
        }
        if let Some(cross) = &self.cross {
            cross.check(diagnostics);
        }
        match &self.feed_forward {
            FeedForward::Dense(dense) => dense.check(diagnostics),
            FeedForward::Experts(experts) => experts.check(hidden_size, diagnostics),
            FeedForward::None => {}
        }
        if let Residual::Scaled(factor) | Residual::ScaledNorm(factor) = self.residual
            && !(factor.is_finite() && factor != 0.0)
        {
            diagnostics.add(format!("residual scale: expected a finite number other than 0, found {factor}"));
        }
    }
}
