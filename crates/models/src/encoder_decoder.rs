//! Encoder-decoder models: an encoder reads one text, and a decoder that attends to its output writes another.
//!
//! ```text
//! text ─ enc_inp_embd ─ bidirectional layers ─ enc_result_norm ─ keys and values of each decoder layer: states
//!                                                                                                         │
//! text so far ─ inp_embd ─ layers: attention over the cache, cross attention over the states ◀────────────┘─ logits
//! ```
//!
//! The encoder has a separate graph, and computes a text once. Its result stays in states that the decoder reads.

use crate::build::{Builder, Stage, embedding};
use crate::diagnostics::Diagnostics;
use crate::part::attention::{Attention, Position};
use crate::part::norm::Norm;
use crate::spec::{LayerSpec, Mixer, ModelSpec};
use crate::tensor::TensorList;
use trueup_graph::ShapeError;

/// Name prefix of the encoder's tensors.
const ENCODER: &str = "enc.";
/// Name prefix of the decoder's tensors.
const DECODER: &str = "dec.";
/// Name prefix of the encoder's nodes.
const NODES: &str = "enc_";
/// Norm of the encoder's result.
const ENCODER_NORM: &str = "enc.output_norm";
/// Norm of the decoder's result.
const DECODER_NORM: &str = "dec.output_norm";

/// The encoder of an encoder-decoder model.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Encoder {
    pub layers: Vec<LayerSpec>,
    /// Norm of the result.
    pub norm: Norm,
    /// The first token of the decoder's text.
    pub decoder_start: u32,
}

/// Buckets of distances between tokens: the near ones have one each, the far ones share some (Raffel et al. 2020).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets {
    /// Number of buckets. Bidirectional attention uses half of them for each direction.
    pub count: usize,
    /// All distances from here on are in the last bucket.
    pub distance_max: usize,
}

impl Buckets {
    /// Checks the numbers for the encoder and the decoder. In each direction, half of the buckets hold one distance
    /// each: `count / 4` buckets in the encoder, which needs at least one, and `count / 2` in the decoder. The maximum
    /// distance must be larger.
    pub(crate) fn check(self, diagnostics: &mut Diagnostics) {
        let Buckets { count, distance_max } = self;
        let exact = count / 2;
        if count < 4 {
            diagnostics.add(format!("relative attention buckets: expected at least 4, found {count}"));
        } else if distance_max <= exact {
            diagnostics
                .add(format!("maximum relative attention distance: expected more than {exact}, found {distance_max}"));
        }
    }
}

impl Encoder {
    pub(crate) fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        list.start_stack(ENCODER);
        for (number, layer) in self.layers.iter().enumerate() {
            list.enter(Some(number));
            layer.tensors(hidden_size, list);
        }
        list.enter(None);
        self.norm.tensors(ENCODER_NORM, hidden_size, list);
    }

    pub(crate) fn check(&self, spec: &ModelSpec, diagnostics: &mut Diagnostics) {
        self.norm.check(diagnostics);
        if let Some(layer) = self.layers.first() {
            layer.check(spec.hidden_size(), diagnostics);
        }
        if usize::try_from(self.decoder_start).map_or(true, |id| id >= spec.vocabulary_size()) {
            let (id, last) = (self.decoder_start, spec.vocabulary_size().saturating_sub(1));
            diagnostics.add(format!("decoder start token: expected an ID from 0 to {last}, found {id}"));
        }
    }

    /// The graph of the encoder: its layers, then the states of the decoder's layers.
    pub(crate) fn build(&self, builder: &mut Builder, spec: &ModelSpec) -> Result<(), ShapeError> {
        builder.enter_stack(ENCODER, NODES);
        let mut stream = embedding(builder, spec)?;
        for (number, layer) in self.layers.iter().enumerate() {
            builder.enter(Some(number));
            stream = layer.build(builder, stream)?;
        }
        builder.enter(None);
        let result = self.norm.build(builder, "result_norm", stream, ENCODER_NORM)?;
        builder.enter_stack(DECODER, "");
        for (number, layer) in spec.layers.iter().enumerate() {
            builder.enter(Some(number));
            if let Some(cross) = &layer.cross {
                cross.store(builder, result)?;
            }
        }
        Ok(())
    }
}

impl ModelSpec {
    /// The first token of the decoder's text; `None` if the model has no encoder.
    pub fn decoder_start(&self) -> Option<u32> {
        self.encoder.as_ref().map(|encoder| encoder.decoder_start)
    }

    /// Stage of a decoder batch that attends to `source` positions of the encoder's result; 0 if the model has no
    /// encoder.
    pub fn decoder_stage(&self, source: usize) -> Stage {
        Stage::Decoder { source: if self.has_encoder() { source } else { 0 } }
    }

    /// Whether texts are read by an encoder before the model writes.
    pub fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    /// The buckets of distances, if scores have them.
    pub fn buckets(&self) -> Option<Buckets> {
        self.attentions().find_map(|(_, attention)| match attention.position {
            Position::Buckets { buckets, .. } => Some(buckets),
            Position::Rope(_) | Position::Alibi(_) | Position::None => None,
        })
    }

    /// Name prefix of the layer tensors outside the encoder.
    pub(crate) fn prefix_of_layers(&self) -> &'static str {
        if self.has_encoder() { DECODER } else { "" }
    }

    /// The norm before the head.
    pub(crate) fn output_norm(&self) -> &'static str {
        if self.has_encoder() { DECODER_NORM } else { "output_norm" }
    }

    /// The layers of encoder and decoder.
    pub(crate) fn all_layers(&self) -> impl Iterator<Item = &LayerSpec> {
        self.encoder.iter().flat_map(|encoder| &encoder.layers).chain(&self.layers)
    }

    /// The same model with the layers of `encoder` as its encoder: these attend bidirectionally.
    pub(crate) fn with_encoder(mut self, encoder: ModelSpec, norm: Norm, decoder_start: u32) -> ModelSpec {
        let encoder = encoder.with_attention(|_, attention: &mut Attention| attention.is_bidirectional = true);
        for layer in &mut self.layers {
            if let Mixer::Attention(attention) = &layer.mixer {
                layer.cross = Some(attention.cross(norm));
            }
        }
        self.encoder = Some(Encoder { layers: encoder.layers, norm, decoder_start });
        self
    }
}
