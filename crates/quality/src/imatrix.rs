//! Collects importance matrices: for each column of a weight, the sum of the squares of the inputs that it is
//! multiplied with.
//!
//! ```text
//! chunk ─ Session ─ mul_mat, mul_mat_id ─▶ Collector (an observer) ─▶ ImportanceSums ─ every few chunks ─▶ file
//! ```
//!
//! Chunks are those of [`crate::Corpus`]; all positions count. Inputs are summed in f32, token after token, so a run
//! that was continued gives the bits of an uninterrupted one. Experts are summed as llama.cpp's imatrix program does
//! it: first the tokens' first expert, then their second.

use crate::corpus::Corpus;
use crate::score::Position;
use crate::statistics::{Estimate, Moments};
use std::collections::{HashMap, HashSet};
use trueup_formats::{ImportanceSums, WeightSums};
use trueup_graph::{Node, Op, Origin};
use trueup_runtime::{Entry, Error, HostTensor, Observer, Result, Seen, Session};

/// Positions that are computed at once: their logits are kept for a moment.
const PIECE: usize = 128;

/// The output head.
const HEAD: &str = "output.weight";

/// Which weights are collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImatrixOptions {
    /// Whether the output head is collected besides the weights of the layers.
    pub output_head: bool,
}

/// Adds the inputs of all chunks from `sums.chunks` on to the sums. `each` is called after each chunk, with the
/// perplexity of the chunks of this run.
///
/// # Errors
/// Sums of another model, logits that are not finite, and failures of devices and of `each`.
pub fn collect(
    session: &mut Session,
    corpus: &Corpus,
    sums: &mut ImportanceSums,
    options: ImatrixOptions,
    each: &mut dyn FnMut(&ImportanceSums, Estimate) -> Result<()>,
) -> Result<()> {
    let model = session.model().clone();
    let slices = model.model().slices().iter();
    let stored = stored_names(slices.map(|slice| (slice.name.as_str(), slice.stored.as_str())));
    let mut slices = model.model().slices().iter().filter(|slice| slice.name != slice.stored);
    if let Some(slice) = slices.find(|slice| sums.entries.contains_key(&slice.name)) {
        return Err(Error::Request(format!(
            "--resume: expected sums of {}, found sums of {}, which is a part of it; remove --resume to start again",
            slice.stored, slice.name
        )));
    }
    let (mut nll, mut count) = (Moments::default(), 0);
    sums.output_head = options.output_head;
    let first_chunk = usize::try_from(sums.chunks).unwrap_or(usize::MAX);
    for chunk in first_chunk..corpus.chunks() {
        let input = corpus.input(chunk);
        session.truncate(0, 0);
        session.expect_length(0, input.len());
        for start in (0..input.len()).step_by(PIECE) {
            let ids = &input[start..input.len().min(start + PIECE)];
            let entries: Vec<Entry> =
                ids.iter().map(|token| Entry { token: *token, sequence: 0, wants_logits: true }).collect();
            let mut collector = Collector { sums, options, stored: &stored, problem: None };
            let logits = session.compute(&entries, Some(&mut collector))?;
            if let Some(problem) = collector.problem {
                return Err(Error::Request(problem));
            }
            for row in 0..logits.rows() {
                let position = start + row;
                if position < corpus.first() || position >= corpus.first() + corpus.scored() {
                    continue;
                }
                let floats: Vec<f32> = logits.row(row).iter().map(|logit| *logit as f32).collect();
                let next = corpus.chunk(chunk)[position + 1] as usize;
                nll.add(Position::new(&floats).nll(next));
                count += 1;
            }
        }
        sums.chunks += 1;
        sums.text_hash = corpus.hash_through(chunk, &sums.text_hash);
        let mean = nll.mean(count);
        let perplexity = libm::exp(mean.value);
        if !perplexity.is_finite() {
            return Err(Error::Request(format!(
                "chunk {chunk}: the logits of the model are not finite; run `trueup verify` on it to find the cause"
            )));
        }
        each(sums, Estimate::new(perplexity, perplexity * mean.error))?;
    }
    Ok(())
}

/// The tensors of the file whose rows are several graph weights, such as `attn_qkv`, by the names of these weights. All
/// weights of a tensor are multiplied with the same inputs, so only the first one is collected; the others map to
/// `None`.
fn stored_names<'m>(slices: impl Iterator<Item = (&'m str, &'m str)>) -> HashMap<&'m str, Option<&'m str>> {
    let mut known = HashSet::new();
    slices.map(|(name, stored)| (name, known.insert(stored).then_some(stored))).collect()
}

/// Sees the inputs of matrix products.
struct Collector<'s> {
    sums: &'s mut ImportanceSums,
    options: ImatrixOptions,
    stored: &'s HashMap<&'s str, Option<&'s str>>,
    problem: Option<String>,
}

impl Observer for Collector<'_> {
    fn wants(&self, node: &Node) -> bool {
        matches!(node.op, Op::MulMat(_) | Op::MulMatId(_))
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let node = seen.node();
        let weight = seen.graph.value(node.inputs[0]);
        let Some(name) = self.stored.get(weight.name.as_str()).copied().unwrap_or(Some(&weight.name)) else {
            return Ok(());
        };
        let is_collected = name.starts_with("blk.") || (self.options.output_head && name == HEAD);
        if weight.origin != Origin::Weight || !is_collected {
            return Ok(());
        }
        let [columns, _, matrices, _] = weight.ty.shape.sizes();
        let new = || WeightSums::new(columns, matrices);
        let sums = self.sums.entries.entry(name.to_owned()).or_insert_with(new);
        if (sums.columns, sums.counts.len()) != (columns, matrices) {
            let found = sums.counts.len();
            self.problem.get_or_insert_with(|| {
                format!(
                    "{name}: the file has sums of {found} x {} columns, the model {matrices} x {columns}; continue \
                     with the model that the file was begun with",
                    sums.columns
                )
            });
            return Ok(());
        }
        let x = seen.input(1)?;
        let rows = rows(&x, columns);
        match node.op {
            Op::MulMatId(_) => {
                let ids = seen.input(2)?;
                let [used, tokens, ..] = ids.ty().shape.sizes();
                let seen = x.ty().shape.sizes()[1];
                let experts = ids.to_indices();
                for slot in 0..used {
                    for token in 0..tokens {
                        let expert = usize::try_from(experts[slot + used * token]).unwrap_or(usize::MAX);
                        sums.add(expert, &rows[slot % seen + seen * token]);
                    }
                }
            }
            _ => rows.iter().enumerate().for_each(|(row, x)| sums.add(row * matrices / rows.len(), x)),
        }
        if !sums.sums.iter().all(|sum| sum.is_finite()) {
            self.problem.get_or_insert_with(|| {
                format!("{name}: its inputs are not finite; run `trueup verify` on the model to find the cause")
            });
        }
        Ok(())
    }

    fn poisons(&self) -> bool {
        false
    }
}

/// The rows of activations as f32.
fn rows(x: &HostTensor, columns: usize) -> Vec<Vec<f32>> {
    let values: Vec<f32> = x.values().iter().map(|value| *value as f32).collect();
    values.chunks_exact(columns).map(<[f32]>::to_vec).collect()
}
