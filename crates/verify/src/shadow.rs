//! The observer: judges each node on the device's own inputs, while a reference runs freely in parallel.
//!
//! ```text
//!   y_device - y_reference = [y_device - f(x_device)]  +  [f(x_device) - f(x_reference)]
//!                             local: judged               inherited: reported
//! ```
//!
//! Activations are taken when they are computed, weights from the file, host inputs from the token ids, and the KV
//! cache from the previous step. Anything that the device changes or mixes up in between shows at the node that reads
//! it.

use crate::bound::{Case, Repetition, judge};
use crate::choice::{Side, tied};
use crate::explain::Moment;
use crate::operand::{self, Operand};
use crate::pieces;
use crate::record::{ColumnHash, ColumnHashes, Judged, Phase, Records};
use crate::repeat::{Repeated, repeated};
use crate::running::{CacheRows, Inputs, Running, last_uses, with_room};
use rayon::ThreadPool;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};
use trueup_runtime::profile::Profile;
use trueup_runtime::{Entry, Error, HostTensor, ModelFile, Observer, Result, Seen};

/// What a node's result is kept as until its last use.
#[derive(Clone, Debug)]
enum Kept {
    Numbers(Vec<f64>),
    Integers(Vec<i32>),
    /// A cache, kept by the name of its state.
    Cache(String),
}

/// Watches one prompt and its further steps.
pub(crate) struct Shadow<'a> {
    model: Arc<ModelFile>,
    reference: &'a mut Running,
    records: &'a mut Records,
    prompt: usize,
    step: usize,
    /// Tokens that are being computed and were not seen yet.
    entries: Vec<Entry>,
    /// Tokens that each sequence holds.
    texts: Vec<Vec<u32>>,
    /// Tokens of the encoder's text of each sequence.
    sources: Vec<usize>,
    /// Whether the tokens that are being computed are those of the encoder.
    is_source: bool,
    inputs: Option<Inputs>,
    last_uses: Vec<usize>,
    kept: HashMap<usize, Kept>,
    caches: HashMap<String, Vec<u8>>,
    /// The reference's logits of the current step, row after row.
    reference_logits: Vec<f64>,
    /// How often each node is computed again, on the same inputs, before it is judged.
    repeats: usize,
    pool: Arc<ThreadPool>,
}

impl<'a> Shadow<'a> {
    /// A watcher of prompt number `prompt`, before its first token, which computes each node `repeats` times more and
    /// judges on the threads of `pool`.
    pub fn new(
        model: Arc<ModelFile>,
        reference: &'a mut Running,
        records: &'a mut Records,
        prompt: usize,
        repeats: usize,
        pool: Arc<ThreadPool>,
    ) -> Shadow<'a> {
        Shadow {
            model,
            reference,
            records,
            prompt,
            step: 0,
            entries: Vec::new(),
            texts: Vec::new(),
            sources: Vec::new(),
            is_source: false,
            inputs: None,
            last_uses: Vec::new(),
            kept: HashMap::new(),
            caches: HashMap::new(),
            reference_logits: Vec::new(),
            repeats,
            pool,
        }
    }

    /// Says which tokens the session computes next, as step `step`.
    pub fn expect(&mut self, step: usize, entries: &[Entry]) {
        self.step = step;
        self.is_source = false;
        self.entries = entries.to_vec();
        self.reference_logits.clear();
    }

    /// Says that the encoder reads a text next, for a sequence.
    pub fn expect_source(&mut self, sequence: usize, ids: &[u32]) {
        let entry = |id: &u32| Entry { token: *id, sequence, wants_logits: false };
        self.expect(0, &ids.iter().map(entry).collect::<Vec<Entry>>());
        self.is_source = true;
        self.sources.resize(self.sources.len().max(sequence + 1), 0);
        self.sources[sequence] = ids.len();
    }

    /// The reference's logits of the step, one row for each token that wants them.
    pub fn reference_logits(&self) -> &[f64] {
        &self.reference_logits
    }

    fn begin(&mut self, graph: &Graph, tokens: usize) -> Result<()> {
        let entries: Vec<Entry> = self.entries.drain(..tokens.min(self.entries.len())).collect();
        let rows = CacheRows::of(graph);
        let inputs = match self.is_source {
            true => Inputs::of_source(&self.model, &entries, rows),
            false => Inputs::new(&self.model, &entries, &mut self.texts, rows).with_sources(&self.sources),
        };
        self.records.expect(graph, self.is_source);
        self.reference.begin(graph, &inputs)?;
        self.inputs = Some(inputs);
        for state in graph.values().iter().filter(|value| value.origin.is_state()) {
            // What the device holds of a cache that has grown is judged as ever: rows that were stored are where they
            // should be.
            if let Some(cache) = self.caches.get_mut(&state.name).filter(|cache| cache.len() != state.ty.bytes()) {
                *cache = with_room(cache, &state.ty);
            }
        }
        self.last_uses = last_uses(graph);
        self.kept.clear();
        Ok(())
    }

    fn phase(&self) -> Phase {
        if self.step == 0 { Phase::Prompt } else { Phase::Decode }
    }

    /// Judges the node and gives what is to be kept of it.
    fn look(&mut self, seen: &Seen<'_>) -> Result<Kept> {
        let (graph, node) = (seen.graph, seen.node());
        let Repeated { output, spread, first } = repeated(seen, self.repeats)?;
        let (ty, bytes) = (*output.ty(), output.to_bytes());
        let choices = if ty.dtype == DType::I32 { output.to_indices() } else { Vec::new() };
        let reference = self.advance(graph, seen.node, &choices)?;
        let reference = reference.as_deref();
        let stored = matches!(node.op, Op::KvStore(_));
        let numbers = if stored { Vec::new() } else { operand::decode(&ty, &bytes) };
        let profile = seen.planned.profile;
        // The spread of a result that differs from run to run is judged too, so such a result repeats nothing.
        let results = if spread.is_empty() { numbers.as_slice() } else { &[] };
        let copies = self.copies(graph, node, &profile, results);
        // Lent to the block below, which reads all else of this shadow.
        let mut explanations = std::mem::take(&mut self.records.explanations);
        let statistics = {
            let own = self.own_inputs(graph, node)?;
            let pairs = node.inputs.iter().zip(&own);
            let inputs: Vec<Operand> = pairs.map(|(id, own)| self.operand(graph, *id, own)).collect::<Result<_>>()?;
            let output = match (stored, ty.dtype) {
                (true, _) => Operand::blocks(ty, &bytes),
                (false, DType::I32) => Operand::integers(ty, &choices),
                (false, _) => Operand::numbers(ty, &numbers),
            };
            let (op, profile, copies, spread) = (&node.op, &profile, &copies, &spread);
            let (step, collector) = (self.step, None);
            let case = Case { op, inputs: &inputs, profile, output, reference, copies, spread, step, collector };
            let moment = Moment { phase: self.phase(), prompt: self.prompt, step };
            self.pool.install(|| {
                let mut statistics = judge(&case);
                if let Some(detail) = &mut statistics.detail {
                    detail.look_at_inputs(&case);
                }
                explanations.look(&case, &statistics, seen, moment, first.as_deref());
                statistics
            })
        };
        self.records.explanations = explanations;
        let wanted = self.inputs.as_ref().is_some_and(Inputs::wants_logits);
        if wanted && seen.node + 1 == graph.nodes().len() {
            self.reference_logits.extend_from_slice(reference.unwrap_or_default());
        }
        let judged = Judged { node, phase: self.phase(), prompt: self.prompt, profile, output: ty, statistics };
        self.records.add(judged);
        self.look_at_pieces(seen)?;
        if stored {
            let state = graph.value(node.inputs[0]).name.clone();
            self.caches.insert(state.clone(), bytes.into_owned());
            return Ok(Kept::Cache(state));
        }
        Ok(if ty.dtype == DType::I32 { Kept::Integers(choices) } else { Kept::Numbers(numbers) })
    }

    /// Computes the pieces of a fused node the first time that it fails.
    fn look_at_pieces(&mut self, seen: &Seen<'_>) -> Result<()> {
        let (graph, node) = (seen.graph, seen.node());
        self.records.fused(&node.name, self.phase(), pieces::names(seen.fused_of));
        if !self.records.wants_pieces(&node.name) {
            return Ok(());
        }
        let found = {
            let own = self.own_inputs(graph, node)?;
            let pairs = node.inputs.iter().zip(&own);
            let inputs: Vec<Operand> = pairs.map(|(id, own)| self.operand(graph, *id, own)).collect::<Result<_>>()?;
            self.pool.install(|| pieces::run(seen, &inputs))
        };
        self.records.add_pieces(&node.name, found);
        Ok(())
    }

    /// The reference's result of a node. Where that is indices, and its scores do not tell them from the device's
    /// `choices`, the reference follows these from here on: a tie does not cascade
    /// (docs/numerics.md#logits-and-tokens).
    fn advance(&mut self, graph: &Graph, index: usize, choices: &[i32]) -> Result<Option<Vec<f64>>> {
        let node = &graph.nodes()[index];
        let is_choice = graph.value(node.output).ty.dtype == DType::I32;
        let scores = if is_choice { self.reference.scores(graph, index) } else { None };
        let result = self.reference.advance(graph, index)?.map(Cow::into_owned);
        let (Some(scores), Some(own), Some(input)) = (scores, &result, node.inputs.first()) else { return Ok(result) };
        let Some(Kept::Numbers(found)) = self.kept.get(&input.index()) else { return Ok(result) };
        let own: Vec<i32> = own.iter().map(|choice| *choice as i32).collect();
        let reference = Side { scores: &scores, choices: &own };
        let device = Side { scores: found, choices };
        if own == choices || !tied(graph.value(*input).ty.shape[0], reference, device) {
            return Ok(result);
        }
        self.reference.follow(graph, index, choices);
        Ok(Some(choices.iter().map(|choice| f64::from(*choice)).collect()))
    }

    /// How each column of a product's activations repeats a column on which the node was judged before; empty for
    /// other operators. Without `results`, repeated results are judged again.
    fn copies(&mut self, graph: &Graph, node: &Node, profile: &Profile, results: &[f64]) -> Vec<Repetition> {
        let Some(place) = node.op.multiplied() else { return Vec::new() };
        let Some(Kept::Numbers(numbers)) = self.kept.get(&node.inputs[place].index()) else { return Vec::new() };
        let ty = graph.value(node.inputs[place]).ty;
        let results = if has_one_matrix(graph, node, place) { results } else { &[] };
        let mut results = results.chunks(graph.value(node.output).ty.shape[0].max(1)).map(column_hash);
        let hashes = |column| ColumnHashes { activations: column_hash(column), result: results.next() };
        let columns: Vec<ColumnHashes> = numbers.chunks(ty.shape[0].max(1)).map(hashes).collect();
        self.records.copies(&node.name, self.phase(), profile, columns)
    }

    /// Inputs that no node computed: the host's, the file's, and caches that nothing was stored in.
    fn own_inputs(&self, graph: &Graph, node: &Node) -> Result<Vec<Own<'_>>> {
        let own = |id: &ValueId| -> Result<Own<'_>> {
            let value = graph.value(*id);
            Ok(match value.origin {
                Origin::Input(input) => match &self.inputs {
                    Some(inputs) => Own::of(inputs.tensor(input, &value.ty)),
                    None => Own::Nothing,
                },
                Origin::Weight => Own::Bytes(self.model.tensor_bytes(&value.name)?),
                Origin::State(_) => match self.caches.get(&value.name) {
                    Some(cache) => Own::Bytes(Cow::Borrowed(cache)),
                    None => Own::Bytes(Cow::Owned(vec![0; value.ty.bytes()])),
                },
                Origin::Node(_) => Own::Nothing,
            })
        };
        node.inputs.iter().map(own).collect()
    }

    fn operand<'b>(&'b self, graph: &Graph, id: ValueId, own: &'b Own<'b>) -> Result<Operand<'b>> {
        let ty = graph.value(id).ty;
        let missing = || Error::Request(format!("{} was read before it was computed", graph.value(id).name));
        Ok(match (own, self.kept.get(&id.index())) {
            (Own::Bytes(bytes), _) => Operand::blocks(ty, bytes),
            (Own::Numbers(numbers), _) => Operand::numbers(ty, numbers),
            (Own::Integers(integers), _) => Operand::integers(ty, integers),
            (Own::Nothing, Some(Kept::Numbers(numbers))) => Operand::numbers(ty, numbers),
            (Own::Nothing, Some(Kept::Integers(integers))) => Operand::integers(ty, integers),
            (Own::Nothing, Some(Kept::Cache(state))) => {
                Operand::blocks(ty, self.caches.get(state).ok_or_else(missing)?)
            }
            (Own::Nothing, None) => return Err(missing()),
        })
    }
}

/// Whether all columns of the activations, the input at `place`, are multiplied with the same matrices: with weights,
/// and not each plane with one of a stack. Equal activations then give equal results.
fn has_one_matrix(graph: &Graph, node: &Node, place: usize) -> bool {
    let activations = graph.value(node.inputs[place]).ty.shape;
    let mut others = node.inputs.iter().enumerate().filter(|(number, _)| *number != place);
    activations.rows() == activations[1] && others.all(|(_, input)| graph.value(*input).origin == Origin::Weight)
}

/// A hash of the bits of one column. It is cryptographic because a collision would hide a fault.
fn column_hash(column: &[f64]) -> ColumnHash {
    let mut hasher = Sha256::new();
    for numbers in column.chunks(HASHED) {
        let mut bytes = [0; 8 * HASHED];
        for (bytes, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *bytes = number.to_le_bytes();
        }
        hasher.update(&bytes[..8 * numbers.len()]);
    }
    hasher.finalize().into()
}

/// Numbers that are hashed at a time.
const HASHED: usize = 64;

/// An input that no node computed.
enum Own<'a> {
    Bytes(Cow<'a, [u8]>),
    Numbers(Vec<f64>),
    Integers(Vec<i32>),
    Nothing,
}

impl Own<'_> {
    fn of(tensor: HostTensor) -> Self {
        let ty: TensorType = *tensor.ty();
        if ty.dtype == DType::I32 {
            Own::Integers(tensor.to_indices())
        } else {
            Own::Numbers(tensor.values().into_owned())
        }
    }
}

impl Observer for Shadow<'_> {
    fn wants(&self, _node: &Node) -> bool {
        true
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        if seen.node == 0 {
            self.begin(seen.graph, seen.tokens.len())?;
        }
        let kept = self.look(seen)?;
        let node = seen.node();
        self.records.located(&node.name, &seen.device.name(), seen.planned.fell_back.as_deref());
        self.kept.insert(node.output.index(), kept);
        for input in &node.inputs {
            if self.last_uses[input.index()] == seen.node {
                self.kept.remove(&input.index());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_graph::op::MulMat;
    use trueup_graph::{Input, StateKind, ValueId};

    #[test]
    fn only_weights_that_are_no_stack_are_the_same_for_all_columns() {
        let mut graph = Graph::default();
        let ty = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
        let (plain, stacked) = (ty(&[8, 3]), ty(&[8, 3, 2]));
        let x = graph.input(Input::Stream, plain);
        let planes = graph.input(Input::Mask, stacked);
        let (weight, stack) = (graph.weight("w", ty(&[8, 4])), graph.weight("s", ty(&[8, 4, 2])));
        let cache = graph.state("c", StateKind::Rows, ty(&[8, 4]));
        let mut is_one = |name: &str, inputs: [ValueId; 2]| {
            graph.node(name, None, MulMat.into(), &inputs).unwrap();
            has_one_matrix(&graph, graph.nodes().last().unwrap(), 1)
        };
        assert!(is_one("weight", [weight, x]));
        assert!(!is_one("stack", [stack, planes]));
        assert!(!is_one("planes", [weight, planes]));
        assert!(!is_one("cache", [cache, x]));
        assert!(!is_one("activations", [x, x]));
    }
}
