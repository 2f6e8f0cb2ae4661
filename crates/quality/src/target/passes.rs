//! Runs a corpus through a model, from the embedding or from a given layer.

use super::divergence::{Prediction, TOKENS_MAX};
use crate::corpus::Corpus;
use rayon::prelude::*;
use std::collections::BTreeMap;
use trueup_graph::Node;
use trueup_runtime::{Entry, Error, ModelFile, Observer, Result, Seen, Session};

/// Maximum number of logits that are computed at once.
const LOGITS_MAX: usize = 1 << 24;

/// Maximum number of positions whose logits are computed at once.
const POSITIONS_MAX: usize = 256;

/// Maximum memory for the residual streams and the predictions, in bytes.
const MEMORY_MAX: u64 = 16 << 30;

/// Name of the node with the result of a layer, in most models.
const LAYER_RESULT: &str = "l_out";

/// The residual stream before a layer, for each chunk of the corpus.
pub(super) type Stream = Vec<Vec<f32>>;

/// The residual streams of a pass, by the index of the following layer.
#[derive(Default)]
pub(super) struct Streams {
    by_layer: BTreeMap<usize, Stream>,
    chunk: usize,
}

impl Streams {
    /// The stream before a layer; `None` if it is not complete.
    pub fn before(&self, layer: usize, corpus: &Corpus, width: usize) -> Option<&Stream> {
        let stream = self.by_layer.get(&layer)?;
        let is_whole = stream.len() == corpus.chunks()
            && stream.iter().all(|chunk| chunk.len() == width * corpus.first_unscored());
        is_whole.then_some(stream)
    }

    /// Drops the streams of earlier layers.
    pub fn forget_before(&mut self, layer: usize) {
        self.by_layer.retain(|known, _| *known >= layer);
    }
}

impl Observer for Streams {
    fn wants(&self, node: &Node) -> bool {
        node.layer.is_some_and(|layer| node.name == format!("{LAYER_RESULT}-{layer}"))
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let Some(layer) = seen.node().layer else { return Ok(()) };
        let stream = self.by_layer.entry(layer + 1).or_default();
        stream.resize_with(self.chunk + 1, Vec::new);
        stream[self.chunk].extend(seen.output()?.values().iter().map(|value| *value as f32));
        Ok(())
    }

    fn poisons(&self) -> bool {
        false
    }
}

/// The start of a pass: a layer, and the residual stream before it.
#[derive(Clone, Copy)]
pub(super) struct From<'s> {
    pub layer: usize,
    pub stream: &'s Stream,
}

/// Runs the corpus through the model, and returns the result of `of` for the logits of each scored position. `streams`
/// receives the residual streams if the pass starts at the embedding. `on_progress` is called after each chunk.
///
/// # Errors
/// Failures of devices or of `of`.
pub(super) fn pass<T: Send>(
    session: &mut Session,
    corpus: &Corpus,
    from: Option<From>,
    mut streams: Option<&mut Streams>,
    of: impl Fn(usize, &[f32]) -> Result<T> + Sync,
    on_progress: &mut dyn FnMut(),
) -> Result<Vec<T>> {
    let width = session.model().model().spec().hidden_size();
    let vocabulary = session.model().model().spec().vocabulary_size();
    let piece = (LOGITS_MAX / vocabulary.max(1)).clamp(1, POSITIONS_MAX);
    let mut results = Vec::with_capacity(corpus.chunks() * corpus.scored());
    for chunk in 0..corpus.chunks() {
        let input = &corpus.input(chunk)[..corpus.first_unscored()];
        session.truncate(0, 0);
        session.expect_length(0, input.len());
        if let Some(streams) = &mut streams {
            streams.chunk = chunk;
        }
        let ends = (corpus.first()..input.len()).step_by(piece).chain([input.len()]);
        let mut start = 0;
        for end in ends {
            let wants_logits = start >= corpus.first();
            let entries: Vec<Entry> =
                input[start..end].iter().map(|token| Entry { token: *token, sequence: 0, wants_logits }).collect();
            let logits = match from {
                Some(From { layer, stream }) => {
                    session.compute_from(layer, &stream[chunk][start * width..end * width], &entries)?
                }
                None => {
                    session.compute(&entries, streams.as_deref_mut().map(|streams| streams as &mut dyn Observer))?
                }
            };
            if wants_logits {
                let first = chunk * corpus.scored() + start - corpus.first();
                let rows = (0..logits.rows()).into_par_iter();
                let one = |row: usize| {
                    let floats: Vec<f32> = logits.row(row).iter().map(|logit| *logit as f32).collect();
                    of(first + row, &floats)
                };
                results.extend(rows.map(one).collect::<Result<Vec<T>>>()?);
            }
            start = end;
        }
        on_progress();
    }
    Ok(results)
}

/// The predictions of a model at all scored positions.
///
/// # Errors
/// Those of [`pass`], and logits that are not finite.
pub(super) fn predictions(
    session: &mut Session,
    corpus: &Corpus,
    on_progress: &mut dyn FnMut(),
) -> Result<Vec<Prediction>> {
    let of = |position: usize, logits: &[f32]| Prediction::new(logits).ok_or_else(|| not_finite(corpus, position));
    pass(session, corpus, None, None, of, on_progress)
}

/// The KL divergence from the predictions of the reference at all scored positions.
///
/// # Errors
/// Those of [`pass`], and logits that are not finite.
pub(super) fn divergences(
    session: &mut Session,
    corpus: &Corpus,
    reference: &[Prediction],
    from: Option<From>,
    streams: Option<&mut Streams>,
    on_progress: &mut dyn FnMut(),
) -> Result<Vec<f64>> {
    let of = |position: usize, logits: &[f32]| {
        reference[position].divergence(logits).ok_or_else(|| not_finite(corpus, position))
    };
    pass(session, corpus, from, streams, of, on_progress)
}

fn not_finite(corpus: &Corpus, position: usize) -> Error {
    let (chunk, position) = (position / corpus.scored(), corpus.first() + position % corpus.scored());
    Error::Request(format!(
        "chunk {chunk}, position {position}: the logits of the model are not finite; run `trueup verify` on it to find \
         the cause"
    ))
}

/// Rejects a text whose residual streams and predictions need too much memory.
pub(super) fn check_memory(model: &ModelFile, corpus: &Corpus) -> Result<()> {
    let spec = model.model().spec();
    let streams = [spec.layer_count(), spec.hidden_size(), corpus.first_unscored(), size_of::<f32>()];
    let predictions = [spec.vocabulary_size().min(TOKENS_MAX), corpus.scored(), 2 * size_of::<f32>()];
    let (most, found) = (chunks_max(&[&streams, &predictions]), corpus.chunks() as u64);
    if found > most {
        let memory = MEMORY_MAX >> 30;
        return Err(Error::Request(format!(
            "--chunks: expected at most {most} chunks, which need {memory} GiB of memory with this model, found {found}; \
             use --chunks {most}"
        )));
    }
    Ok(())
}

/// Maximum number of chunks that fit into memory if each needs the sum of these products; at least 1.
fn chunks_max(products: &[&[usize]]) -> u64 {
    let product = |factors: &&[usize]| factors.iter().fold(1, |all: u64, factor| all.saturating_mul(*factor as u64));
    let of_chunk = products.iter().map(product).fold(0, u64::saturating_add);
    (MEMORY_MAX / of_chunk.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_limited_by_their_memory() {
        // 80 layers of 8192 numbers: 1.3 GB for each chunk of 512 tokens.
        assert_eq!(chunks_max(&[&[80, 8192, 511, 4], &[16_384, 255, 8]]), 12);
        assert_eq!(chunks_max(&[&[6, 64, 255, 4], &[512, 127, 8]]), 18_840);
        assert_eq!(chunks_max(&[&[usize::MAX, usize::MAX]]), 1);
    }
}
