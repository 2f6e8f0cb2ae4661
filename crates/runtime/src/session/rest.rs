//! Starts a computation at a later layer, from a residual stream that an earlier computation recorded.

use super::{Entry, Logits, Session};
use crate::error::{Error, Result};

/// Where a computation begins that omits the first layers.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// The first layer that is computed.
    pub first_layer: usize,
    /// The residual stream before that layer, a row for each entry.
    pub stream: &'a [f32],
}

impl Session {
    /// Computes tokens, starting at layer `first_layer` of a decoder. `stream` is the residual stream before that
    /// layer: a row of the hidden size for each entry. All tokens of a sequence must begin at the same layer. Tokens
    /// that must be computed again (see [`Session::truncate`]) are computed from their ids, by all layers.
    ///
    /// # Errors
    /// As [`Session::compute`], and if the model is not a decoder, the layer does not exist, or `stream` has the wrong
    /// length.
    pub fn compute_from(&mut self, first_layer: usize, stream: &[f32], entries: &[Entry]) -> Result<Logits> {
        let spec = self.model().model().spec();
        let (layers, width) = (spec.layer_count(), spec.hidden_size());
        let is_decoder = !spec.is_bidirectional() && !spec.has_encoder();
        if !is_decoder || first_layer >= layers || stream.len() != width.saturating_mul(entries.len()) {
            return Err(Error::Request(format!(
                "expected a decoder, a layer below {layers} and {width} numbers for each of {} tokens, found layer \
                 {first_layer} and {} numbers",
                entries.len(),
                stream.len()
            )));
        }
        self.compute_rest(entries, Some(Start { first_layer, stream }), None)
    }
}
