//! The free-running reference: the f64 reference node by node in parallel with the device, or the session of another
//! device.
//!
//! ```text
//!   device      node 0 ─ node 1 ─ node 2 ...        each node is observed
//!   reference   node 0 ─ node 1 ─ node 2 ...        computed when the device's node is seen, freed after its last use
//! ```

use crate::cached::cached;
use crate::operand;
use rayon::ThreadPool;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::fuse::fuse;
use trueup_graph::{Graph, Input, Node, Op, Origin, StateKind, TensorType, Value, ValueId};
use trueup_models::{Batch, Buckets, LONG_FACTORS, ModelResult, Pooling, Prefix, Stage};
use trueup_runtime::device::reference::evaluate;
use trueup_runtime::{Entry, Error, HostTensor, ModelFile, Observer, Result, Seen, Session};

/// What the host fills in for one batch, made from the ids alone: not taken from the session that is judged.
///
/// A token follows those that its sequence already holds. It is written to row `sequence * room + position` of the
/// cache, where `room` is the number of rows of each sequence. It attends to the positions of its sequence up to its
/// own. In layers with a sliding window, the rows are a ring: position `p` is in row `p % ring`.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    entries: Vec<Entry>,
    positions: Vec<usize>,
    rows: CacheRows,
    window: Option<usize>,
    result: ModelResult,
    /// For each token, where the first one behind the beginning of its text stands, if it is there, and where the mark:
    /// of models whose texts have a beginning that sees itself.
    divisions: Vec<(Option<usize>, usize)>,
    buckets: Option<Buckets>,
    /// Tokens of the encoder's text of each sequence, in a model with an encoder.
    sources: Vec<usize>,
    /// Whether the tokens are those of the encoder.
    is_source: bool,
}

impl Inputs {
    /// The inputs of a batch that follows the tokens of each sequence in `texts`; appends the batch to `texts`.
    pub fn new(model: &ModelFile, entries: &[Entry], texts: &mut Vec<Vec<u32>>, rows: CacheRows) -> Inputs {
        let spec = model.model().spec();
        let window = spec.window();
        let mut inputs = Inputs::placed(entries, texts, rows, window);
        inputs.result = spec.result();
        inputs.buckets = spec.buckets();
        if let Some(prefix) = spec.prefix() {
            inputs.divisions = entries.iter().map(|entry| divided(prefix, &texts[entry.sequence])).collect();
        }
        inputs
    }

    /// The inputs of the encoder for a text of one sequence.
    pub fn of_source(model: &ModelFile, entries: &[Entry], rows: CacheRows) -> Inputs {
        let mut inputs = Inputs::new(model, entries, &mut Vec::new(), rows);
        inputs.is_source = true;
        inputs
    }

    /// The same inputs for a decoder whose encoder has read texts of these lengths, sequence by sequence.
    pub fn with_sources(self, sources: &[usize]) -> Inputs {
        Inputs { sources: sources.to_vec(), ..self }
    }

    fn placed(entries: &[Entry], texts: &mut Vec<Vec<u32>>, rows: CacheRows, window: Option<usize>) -> Inputs {
        let place = |entry: &Entry| {
            if texts.len() <= entry.sequence {
                texts.resize(entry.sequence + 1, Vec::new());
            }
            texts[entry.sequence].push(entry.token);
            texts[entry.sequence].len() - 1
        };
        let positions = entries.iter().map(place).collect();
        let (result, divisions) = (ModelResult::Logits, Vec::new());
        Inputs {
            entries: entries.to_vec(),
            positions,
            rows,
            window,
            result,
            divisions,
            buckets: None,
            sources: Vec::new(),
            is_source: false,
        }
    }

    /// Tokens of the batch.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether logits are requested for any of the tokens.
    pub fn wants_logits(&self) -> bool {
        self.entries.iter().any(|entry| entry.wants_logits)
    }

    /// The tensor of type `ty` that the host fills in.
    pub fn tensor(&self, input: Input, ty: &TensorType) -> HostTensor {
        let each = |value: &dyn Fn(&Entry, usize) -> i32| {
            let pairs = self.entries.iter().zip(&self.positions);
            HostTensor::indices(&pairs.map(|(entry, position)| value(entry, *position)).collect::<Vec<i32>>())
        };
        match input {
            Input::Tokens => each(&|entry, _| index(entry.token as usize)),
            Input::Positions => each(&|_, position| index(position)),
            Input::PositionPairs => self.position_pairs(),
            Input::KvRows => each(&|entry, position| index(entry.sequence * self.rows.room + position)),
            Input::KvRowsWindow => {
                let ring = self.rows.ring.max(1);
                each(&|entry, position| index(entry.sequence * ring + position % ring))
            }
            Input::Sequences => each(&|entry, _| index(entry.sequence)),
            Input::TokenTypes | Input::WholeBatch => each(&|_, _| 0),
            Input::PoolBatch => HostTensor::indices(&vec![0; self.outputs().len()]),
            Input::PoolShares => HostTensor::real(*ty, vec![1.0 / self.entries.len() as f64; ty.shape.elements()]),
            Input::MaskText => HostTensor::real(*ty, vec![0.0; ty.shape.elements()]),
            Input::MaskSource => self.mask_source(ty),
            Input::Buckets => self.distances(ty, false),
            Input::BucketsText => self.distances(ty, true),
            Input::Stream => unreachable!("verified graphs begin with the embedding"),
            Input::OutputRows => HostTensor::indices(&self.outputs()),
            Input::StateSources => self.slots(ty, |position| position == 0),
            Input::StateTargets => self.slots(ty, |_| false),
            Input::Mask => self.mask(ty, |_| 0.0),
            Input::MaskWindow => self.mask_window(ty),
            Input::MaskPrefix => self.mask_prefix(ty),
            Input::MaskDistance => self.mask(ty, |distance| -(distance as f64)),
        }
    }

    /// The tokens with wanted logits; the last one where none is wanted, for a graph computes at least one row. In a
    /// model that pools, the token that stands for the text: its first or last one.
    fn outputs(&self) -> Vec<i32> {
        if let ModelResult::Pooled(pooling) = self.result {
            // The batch is one text.
            let place = if pooling == Pooling::First { 0 } else { self.entries.len().saturating_sub(1) };
            return vec![index(place)];
        }
        let wanted = |place: &usize| self.entries[*place].wants_logits;
        let mut outputs: Vec<i32> = (0..self.entries.len()).filter(wanted).map(index).collect();
        if outputs.is_empty() {
            outputs.extend(self.entries.len().checked_sub(1).map(index));
        }
        outputs
    }

    /// The slot of each sequence of the batch in a recurrent state: that of zeros where the position of its first token
    /// `starts`, else its own.
    fn slots(&self, ty: &TensorType, starts: fn(usize) -> bool) -> HostTensor {
        let each = (self.entries.len() / ty.shape[0].max(1)).max(1);
        let firsts = self.entries.iter().zip(&self.positions).step_by(each);
        let slot = |(entry, position): (&Entry, &usize)| if starts(*position) { 0 } else { index(entry.sequence + 1) };
        HostTensor::indices(&firsts.map(slot).collect::<Vec<i32>>())
    }

    /// A token of the decoder looks at all tokens that the encoder has read for its sequence.
    fn mask_source(&self, ty: &TensorType) -> HostTensor {
        let positions = ty.shape[0].max(1);
        let length = |token: usize| {
            let entry = self.entries.get(token);
            entry.and_then(|entry| self.sources.get(entry.sequence)).copied().unwrap_or(0)
        };
        let value = |index: usize| if index % positions < length(index / positions) { 0.0 } else { f64::NEG_INFINITY };
        HostTensor::real(*ty, (0..ty.shape.elements()).map(value).collect())
    }

    /// The bucket of the distance of each token to each position, or to each token of the same text.
    fn distances(&self, ty: &TensorType, is_text: bool) -> HostTensor {
        let tokens = self.positions.len().max(1);
        let seen = ty.shape[0] / tokens;
        let bucket = |index: usize| {
            let (own, other) = (self.positions.get(index / seen.max(1)), index % seen.max(1));
            let other = if is_text { self.positions.get(other).copied() } else { Some(other) };
            match (self.buckets, own, other) {
                (Some(buckets), Some(own), Some(other)) => bucket(buckets, *own, other, is_text),
                _ => -1,
            }
        };
        HostTensor::indices(&(0..seen * tokens).map(bucket).collect::<Vec<i32>>())
    }

    /// In the beginning of a text its positions and zeros, behind it the position of the mark and a count from 1.
    fn position_pairs(&self) -> HostTensor {
        let tokens = || self.positions.iter().zip(&self.divisions);
        let is_behind = |position: usize, end: Option<usize>| end.is_some_and(|end| position >= end);
        let first = tokens().map(|(own, (end, mark))| if is_behind(*own, *end) { *mark } else { *own });
        let second = tokens().map(|(own, (end, _))| end.map_or(0, |end| (own + 1).saturating_sub(end)));
        let pairs: Vec<u8> = first.chain(second).flat_map(|number| index(number).to_le_bytes()).collect();
        HostTensor::stored(TensorType::new(DType::I32, &[self.positions.len(), 2]), pairs)
    }

    /// A token looks at what is before it, and one of the beginning at all of the beginning.
    fn mask_prefix(&self, ty: &TensorType) -> HostTensor {
        let capacity = ty.shape[0];
        let value = |index: usize| {
            let (looked_at, token) = (index % capacity, index / capacity);
            let own = self.positions.get(token).is_some_and(|own| looked_at <= *own);
            let end = self.divisions.get(token).and_then(|(end, _)| *end);
            if own || end.is_some_and(|end| looked_at < end) { 0.0 } else { -10_000.0 }
        };
        HostTensor::real(*ty, (0..ty.shape.elements()).map(value).collect())
    }

    fn mask(&self, ty: &TensorType, shown: fn(usize) -> f64) -> HostTensor {
        let capacity = ty.shape[0];
        let value = |index: usize| {
            // A mask of more columns than tokens is not this batch's: no column shows anything then.
            let (looked_at, own) = (index % capacity, self.positions.get(index / capacity));
            own.and_then(|own| own.checked_sub(looked_at)).map_or(f64::NEG_INFINITY, shown)
        };
        HostTensor::real(*ty, (0..ty.shape.elements()).map(value).collect())
    }

    /// The mask of a ring. After the batch is stored, each row holds the last position that was written to it. A token
    /// attends to the rows whose positions are in its window. If a later position has overwritten a needed row, the row
    /// is masked, so a ring that is too short shows up as a difference.
    fn mask_window(&self, ty: &TensorType) -> HostTensor {
        let (capacity, ring, window) = (ty.shape[0], self.rows.ring.max(1), self.window.unwrap_or(usize::MAX));
        let places = || self.entries.iter().zip(&self.positions);
        let last = |sequence: usize| {
            places().filter(|(entry, _)| entry.sequence == sequence).map(|(_, position)| *position).max()
        };
        let tokens: Vec<(usize, usize)> =
            places().map(|(entry, own)| (*own, last(entry.sequence).unwrap_or(*own))).collect();
        let value = |index: usize| {
            let Some((own, last)) = tokens.get(index / capacity) else { return f64::NEG_INFINITY };
            let row = index % capacity;
            // The largest position up to `last` in this row.
            let held = last.checked_sub(row).map(|rounds| rounds / ring * ring + row);
            match held.and_then(|held| own.checked_sub(held)) {
                Some(distance) if distance < window => 0.0,
                Some(_) | None => f64::NEG_INFINITY,
            }
        };
        HostTensor::real(*ty, (0..ty.shape.elements()).map(value).collect())
    }
}

/// Where the beginning of a text ends, and where its mark is, of all its ids; without one, right before the end. A text
/// whose beginning does not end needs no mark, and 0 stands there.
pub(crate) fn divided(prefix: &Prefix, text: &[u32]) -> (Option<usize>, usize) {
    let first = |wanted: u32| text.iter().position(|id| *id == wanted);
    let Some(end) = first(prefix.end) else { return (None, 0) };
    let mark = [prefix.mark, prefix.other_mark].into_iter().find_map(first);
    (Some(end), mark.unwrap_or(end.saturating_sub(1)))
}

/// The bucket of the distance from a token at `own` to one at `other`. Small distances have one bucket each; larger
/// distances share buckets whose bounds grow geometrically (Raffel et al. 2020, section 2.1). In bidirectional
/// attention, the upper half of the buckets is for later tokens; otherwise, later tokens have distance 0. The bounds
/// are those of transformers, which computes them in f32.
fn bucket(buckets: Buckets, own: usize, other: usize, both: bool) -> i32 {
    let distance = if both { own.abs_diff(other) } else { own.saturating_sub(other) };
    let count = if both { buckets.count / 2 } else { buckets.count };
    let first = if both && other > own { count } else { 0 };
    let near = count / 2;
    let within = if distance < near {
        distance
    } else {
        // The logarithm is the nearest f32.
        let log = |ratio: f64| ratio.ln() as f32;
        let (own_log, log_max) =
            (log((distance as f32 / near as f32).into()), log(buckets.distance_max as f64 / near as f64));
        let place = own_log / log_max * (count - near) as f32;
        (near + place.floor() as usize).min(count - 1)
    };
    index(first + within)
}

/// A number as an index; -1, which no table has, where it is too large.
fn index(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(-1)
}

/// A cache that has grown to `ty`: the rows of each sequence, then zeros.
pub(crate) fn with_room(bytes: &[u8], ty: &TensorType) -> Vec<u8> {
    let sequences = ty.shape.sizes()[2];
    let each = |len: usize| (len / sequences.max(1)).max(1);
    let mut grown = vec![0; ty.bytes()];
    for (grown, rows) in grown.chunks_mut(each(ty.bytes())).zip(bytes.chunks(each(bytes.len()))) {
        let len = rows.len().min(grown.len());
        grown[..len].copy_from_slice(&rows[..len]);
    }
    grown
}

/// Rows of each sequence in the KV cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheRows {
    pub room: usize,
    /// In layers with a sliding window.
    pub ring: usize,
}

impl CacheRows {
    /// The cache rows of a graph. If only one kind of cache exists, both numbers are its rows; without a cache, 1.
    pub fn of(graph: &Graph) -> CacheRows {
        let rows = |wanted: StateKind| {
            let mut states = graph.values().iter().filter(|value| value.origin == Origin::State(wanted));
            states.next().map(|state| state.ty.shape[1])
        };
        let (room, ring) = (rows(StateKind::Rows), rows(StateKind::Ring));
        CacheRows { room: room.or(ring).unwrap_or(1), ring: ring.or(room).unwrap_or(1) }
    }
}

/// Number of sequences in the states of a graph; 1 without states. Recurrent states have one slot more.
fn sequences(graph: &Graph) -> usize {
    let of_state = |value: &Value| match value.origin {
        Origin::State(StateKind::Recurrent) => Some(value.ty.shape[2].saturating_sub(1)),
        Origin::State(StateKind::Rows | StateKind::Ring) => Some(value.ty.shape[2]),
        Origin::Input(_) | Origin::Weight | Origin::Node(_) => None,
    };
    graph.values().iter().find_map(of_state).unwrap_or(1)
}

/// Sequences of a batch of the graph, if it has recurrent states; else 1.
pub(crate) fn streams(graph: &Graph) -> usize {
    graph.find(Input::StateTargets.name()).map_or(1, |input| graph.value(input).ty.shape[0])
}

/// The stage of a graph that is not the encoder's: positions of the encoder's texts that it looks at.
pub(crate) fn decoder_stage(graph: &Graph) -> Stage {
    let source = graph.find(Input::MaskSource.name()).map_or(0, |input| graph.value(input).ty.shape[0]);
    Stage::Decoder { source }
}

/// The graph with the same groups fused as in `device`, whose types may be others.
pub(crate) fn fused_as(graph: Graph, device: &Graph) -> Graph {
    let ops: HashMap<&str, &Op> = device.nodes().iter().map(|node| (node.name.as_str(), &node.op)).collect();
    fuse(graph, &|candidate| ops.get(candidate.name()).is_some_and(|op| *op == candidate.op)).graph
}

/// For each value of a graph, the last node that reads it.
pub(crate) fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        last[node.output.index()] = index;
        node.inputs.iter().for_each(|input| last[input.index()] = index);
    }
    last
}

/// The reference on its own way through the same tokens.
pub(crate) enum Running {
    /// The oracle.
    Oracle(Box<Oracle>),
    /// No reference runs: the logits of the batch are bit-identical to runs that were already compared with it.
    Known,
    /// A session on another device; its results of the current batch by node name.
    Device { session: Box<Session>, results: HashMap<String, Vec<f64>> },
}

impl Running {
    /// Starts a batch whose device graph is `graph`.
    pub fn begin(&mut self, graph: &Graph, inputs: &Inputs) -> Result<()> {
        match self {
            Running::Oracle(oracle) => oracle.begin(graph, inputs),
            Running::Known => Ok(()),
            Running::Device { session, results } => {
                results.clear();
                let mut collector = Collector { results };
                match inputs.entries.first().filter(|_| inputs.is_source) {
                    Some(Entry { sequence, .. }) => {
                        let ids: Vec<u32> = inputs.entries.iter().map(|entry| entry.token).collect();
                        session.encode(*sequence, &ids, Some(&mut collector))?;
                    }
                    None => drop(session.compute(&inputs.entries, Some(&mut collector))?),
                }
                Ok(())
            }
        }
    }

    /// The first input of a node that was not advanced to yet, as the reference has it: the scores that a choice is
    /// made by.
    pub fn scores(&self, graph: &Graph, index: usize) -> Option<Vec<f64>> {
        let input = *graph.nodes()[index].inputs.first()?;
        match self {
            Running::Oracle(oracle) => oracle.values[input.index()].as_ref().map(|scores| scores.values().into_owned()),
            Running::Device { results, .. } => results.get(&graph.value(input).name).cloned(),
            Running::Known => None,
        }
    }

    /// Replaces the indices that the reference chose at a node, before a later node is advanced to. A reference that is
    /// another device has computed the whole batch already and keeps its own.
    pub fn follow(&mut self, graph: &Graph, index: usize, choices: &[i32]) {
        match self {
            Running::Oracle(oracle) => {
                let output = graph.nodes()[index].output;
                let ty = oracle.graph.value(output).ty;
                oracle.values[output.index()] = Some(indices(ty, choices));
            }
            Running::Device { .. } | Running::Known => {}
        }
    }

    /// Computes the node, if that was not done, and gives its result; for `kv_store` the rows as the reference stores
    /// them.
    pub fn advance(&mut self, graph: &Graph, index: usize) -> Result<Option<Cow<'_, [f64]>>> {
        let node = &graph.nodes()[index];
        match self {
            Running::Oracle(oracle) => oracle.advance(index),
            Running::Known => Ok(None),
            Running::Device { results, .. } => {
                let Some(rows) = stored_rows(node) else {
                    return Ok(results.get(&node.name).map(|result| Cow::Borrowed(result.as_slice())));
                };
                let cache = graph.value(node.output).ty.dtype;
                Ok(results.get(&graph.value(rows).name).map(|rows| Cow::Owned(cached(cache, rows))))
            }
        }
    }
}

/// Indices as a result of this type.
fn indices(ty: TensorType, choices: &[i32]) -> HostTensor {
    HostTensor::stored(ty, choices.iter().flat_map(|choice| choice.to_le_bytes()).collect())
}

/// The rows that a `kv_store` writes.
fn stored_rows(node: &Node) -> Option<ValueId> {
    matches!(node.op, Op::KvStore(_)).then(|| node.inputs[1])
}

/// Keeps every result of a batch.
struct Collector<'a> {
    results: &'a mut HashMap<String, Vec<f64>>,
}

impl Observer for Collector<'_> {
    fn wants(&self, node: &Node) -> bool {
        stored_rows(node).is_none()
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let output = seen.output()?;
        self.results.insert(seen.node().name.clone(), operand::decode(output.ty(), &output.to_bytes()));
        Ok(())
    }
}

/// Bytes of memory that are kept for weights at most: the largest ones are few.
const SPARE_MAX: usize = 1 << 24;

/// The oracle, free-running: f64 activations, and an f64 KV cache unless another is asked for.
pub(crate) struct Oracle {
    model: Arc<ModelFile>,
    kv: DType,
    /// What each sequence will have after the last step: it chooses the factors of LongRoPE.
    lengths: Vec<usize>,
    graph: Graph,
    last_uses: Vec<usize>,
    values: Vec<Option<HostTensor>>,
    caches: HashMap<String, HostTensor>,
    inputs: Option<Inputs>,
    /// Memory for a weight, kept from node to node: the system takes longer to give it than a copy does.
    spare: Vec<u8>,
    pool: Arc<ThreadPool>,
}

impl Oracle {
    /// The oracle before the first token of sequences that will have these lengths, computing on the threads of `pool`.
    pub fn new(model: Arc<ModelFile>, kv: Option<DType>, lengths: Vec<usize>, pool: Arc<ThreadPool>) -> Oracle {
        let (last_uses, values) = (Vec::new(), Vec::new());
        let kv = kv.unwrap_or(DType::F64);
        let (graph, caches, inputs, spare) = (Graph::default(), HashMap::new(), None, Vec::new());
        Oracle { model, kv, lengths, graph, last_uses, values, caches, inputs, spare, pool }
    }

    fn begin(&mut self, device: &Graph, inputs: &Inputs) -> Result<()> {
        let is_mask =
            |origin: &Origin| matches!(origin, Origin::Input(input) if input.is_mask() && *input != Input::MaskSource);
        // The mask of a ring may have fewer columns than others.
        let masks = device.values().iter().filter(|value| is_mask(&value.origin));
        let (CacheRows { room: context, ring }, sequences) = (CacheRows::of(device), sequences(device));
        // A graph without attention looks at no positions.
        let capacity = masks.map(|mask| mask.ty.shape[0]).max().unwrap_or(context);
        let stage = if inputs.is_source { Stage::Encoder } else { decoder_stage(device) };
        let streams = streams(device);
        let (tokens, outputs) = (inputs.entries.len(), inputs.outputs().len());
        let length = inputs.entries.first().and_then(|entry| self.lengths.get(entry.sequence).copied());
        let is_long = self.model.model().spec().is_long(length.unwrap_or(0));
        if is_long != device.find(LONG_FACTORS).is_some() && !inputs.is_source {
            let (found, expected) = if is_long { ("short", "long") } else { ("long", "short") };
            return Err(unlike(&format!(
                "the device has the {found} factors of LongRoPE, expected the {expected} ones"
            )));
        }
        let batch = Batch {
            tokens,
            outputs,
            capacity,
            context,
            ring,
            sequences,
            streams,
            is_long,
            stage,
            activation: DType::F64,
            kv: self.kv,
        };
        self.graph = fused_as(self.model.model().graph(&batch)?, device);
        if self.graph.nodes().len() != device.nodes().len() {
            return Err(unlike("it has a different number of nodes"));
        }
        self.last_uses = last_uses(&self.graph);
        self.values = vec![None; self.graph.values().len()];
        self.inputs = Some(inputs.clone());
        for state in self.graph.values().iter().filter(|value| value.origin.is_state()) {
            if let Some(cache) = self.caches.get_mut(&state.name).filter(|cache| *cache.ty() != state.ty) {
                *cache = HostTensor::stored(state.ty, with_room(&cache.to_bytes(), &state.ty));
            }
        }
        Ok(())
    }

    fn advance(&mut self, index: usize) -> Result<Option<Cow<'_, [f64]>>> {
        let node = self.graph.nodes()[index].clone();
        let mut borrowed: Vec<HostTensor> = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let tensor = self.input(*input)?;
            borrowed.push(tensor);
        }
        let result = self.pool.install(|| evaluate(&node.op, &borrowed.iter().collect::<Vec<_>>()))?;
        let stored = stored_rows(&node).is_some();
        if stored {
            let state = self.graph.value(node.inputs[0]).name.clone();
            self.caches.insert(state, result.clone());
        }
        self.values[node.output.index()] = Some(result);
        for input in &node.inputs {
            if self.last_uses[input.index()] == index {
                self.values[input.index()] = None;
            }
        }
        let weight = node.inputs.iter().position(|input| self.graph.value(*input).origin == Origin::Weight);
        if let Some(weight) = weight {
            self.spare = borrowed.swap_remove(weight).into_bytes();
            if self.spare.len() > SPARE_MAX {
                self.spare = Vec::new();
            }
        }
        if stored {
            let held = self.graph.value(node.output).ty.dtype;
            return Ok(borrowed.get(1).map(|rows| Cow::Owned(cached(held, &rows.values()))));
        }
        Ok(self.values[node.output.index()].as_ref().map(HostTensor::values))
    }

    /// A value as the oracle has it.
    fn input(&mut self, id: ValueId) -> Result<HostTensor> {
        let value = self.graph.value(id);
        let missing = || unlike(&format!("the reference has no {}", value.name));
        match value.origin {
            Origin::Input(input) => Ok(self.inputs.as_ref().ok_or_else(missing)?.tensor(input, &value.ty)),
            Origin::Weight => {
                let bytes = match self.model.tensor_bytes(&value.name)? {
                    Cow::Owned(bytes) => bytes,
                    Cow::Borrowed(stored) => {
                        let mut bytes = std::mem::take(&mut self.spare);
                        bytes.clear();
                        bytes.extend_from_slice(stored);
                        bytes
                    }
                };
                Ok(HostTensor::stored(value.ty, bytes))
            }
            Origin::State(_) => Ok(self
                .caches
                .get(&value.name)
                .cloned()
                .unwrap_or_else(|| HostTensor::stored(value.ty, vec![0; value.ty.bytes()]))),
            Origin::Node(_) => self.values[id.index()].clone().ok_or_else(missing),
        }
    }
}

fn unlike(problem: &str) -> Error {
    Error::Request(format!(
        "the device's graph differs from the model's graph: {problem}; this is a bug in the \
        planner"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_show_the_past_and_the_window_less_of_it() {
        let mut inputs = inputs(&[(7, 0, true), (8, 0, true)], &[2]);
        inputs.window = Some(2);
        let ty = TensorType::new(DType::F32, &[5, 2]);
        let seen =
            |input| -> Vec<bool> { inputs.tensor(input, &ty).values().iter().map(|value| *value == 0.0).collect() };
        let (yes, no) = (true, false);
        assert_eq!(seen(Input::Mask), [yes, yes, yes, no, no, yes, yes, yes, yes, no]);
        assert_eq!(seen(Input::MaskWindow), [no, yes, yes, no, no, no, no, yes, yes, no]);
    }

    /// Positions 8 and 9 in a ring of 6 rows, which holds positions 4 to 9 after them.
    #[test]
    fn ring_rows_are_reused() {
        let mut inputs = inputs(&[(7, 1, true), (8, 1, true)], &[0, 8]);
        (inputs.window, inputs.rows.ring) = (Some(4), 6);
        let rows = inputs.tensor(Input::KvRowsWindow, &TensorType::new(DType::I32, &[2]));
        assert_eq!(rows.to_indices(), [8, 9]);
        let seen = |inputs: &Inputs, ring: usize| -> Vec<Vec<usize>> {
            let mask = inputs.tensor(Input::MaskWindow, &TensorType::new(DType::F32, &[ring, 2])).values().to_vec();
            let shown = |row: &[f64]| (0..ring).filter(|place| row[*place] == 0.0).collect();
            mask.chunks(ring).map(shown).collect()
        };
        assert_eq!(seen(&inputs, 6), [[0, 1, 2, 5], [0, 1, 2, 3]]);
        inputs.rows.ring = 4;
        assert_eq!(seen(&inputs, 4), [vec![0, 2, 3], vec![0, 1, 2, 3]], "position 5 is lost to position 9");
    }

    #[test]
    fn tokens_of_several_sequences_stand_behind_their_own() {
        let inputs = inputs(&[(7, 1, false), (8, 1, true), (9, 0, false), (5, 1, true)], &[0, 3]);
        let ty = TensorType::new(DType::I32, &[4]);
        let indices = |input| inputs.tensor(input, &ty).to_indices();
        assert_eq!(indices(Input::Tokens), [7, 8, 9, 5]);
        assert_eq!(indices(Input::Positions), [3, 4, 0, 5]);
        assert_eq!(indices(Input::Sequences), [1, 1, 0, 1]);
        assert_eq!(indices(Input::KvRows), [67, 68, 0, 69]);
        assert_eq!(indices(Input::OutputRows), [1, 3]);
        let mask = inputs.tensor(Input::Mask, &TensorType::new(DType::F32, &[6, 4]));
        let shown: Vec<usize> = mask.values().chunks(6).map(|row| row.iter().filter(|x| **x == 0.0).count()).collect();
        assert_eq!(shown, [4, 5, 1, 6]);
    }

    /// As the session has them, which knows nothing of this code: two texts, one of them behind its end.
    #[test]
    fn beginnings_see_themselves() {
        let prefix = Prefix { end: 90, mark: 91, other_mark: 92 };
        let mut inputs = inputs(&[(5, 0, false), (8, 1, false), (91, 0, false), (90, 0, false)], &[0, 3]);
        let texts = [vec![5, 91, 90], vec![7, 91, 90, 8]];
        inputs.divisions = inputs.entries.iter().map(|entry| divided(&prefix, &texts[entry.sequence])).collect();
        let pairs = inputs.tensor(Input::PositionPairs, &TensorType::new(DType::I32, &[4, 2]));
        assert_eq!(pairs.to_indices(), [0, 1, 1, 1, 0, 2, 0, 1]);
        let mask = inputs.tensor(Input::MaskPrefix, &TensorType::new(DType::F32, &[6, 4]));
        let shown: Vec<usize> = mask.values().chunks(6).map(|row| row.iter().filter(|x| **x == 0.0).count()).collect();
        assert_eq!(shown, [2, 4, 2, 3]);
    }

    /// As `T5Attention._relative_position_bucket` of transformers 4.57.6 has them.
    #[test]
    fn distances_are_in_the_buckets_of_transformers() {
        let buckets = Buckets { count: 32, distance_max: 128 };
        let distances = [0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 90, 127, 128, 500];
        let of = |own: fn(usize) -> (usize, usize), both| {
            distances.map(|distance| bucket(buckets, own(distance).0, own(distance).1, both))
        };
        type Distances = fn(usize) -> (usize, usize);
        let (before, after): (Distances, Distances) = (|d| (d, 0), |d| (0, d));
        assert_eq!(of(before, false), [0, 1, 7, 8, 15, 16, 21, 21, 26, 26, 29, 31, 31, 31]);
        assert_eq!(of(before, true), [0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 14, 15, 15, 15]);
        assert_eq!(of(after, true), [0, 17, 23, 24, 25, 26, 27, 28, 29, 30, 30, 31, 31, 31]);
        assert_eq!(of(after, false), [0; 14], "what follows is not seen");
    }

    #[test]
    fn buckets_of_unusual_sizes_are_those_of_transformers() {
        let goldens = include_str!("../../../fixtures/relative-buckets.txt");
        for line in goldens.lines().filter(|line| !line.starts_with('#')) {
            let numbers: Vec<usize> = line.split([' ', ':']).map(|number| number.parse().unwrap()).collect();
            let buckets = Buckets { count: numbers[0], distance_max: numbers[1] };
            let changes = numbers[2..].as_chunks::<2>().0;
            for distance in 0..1200 {
                let expected = changes.iter().rfind(|[first, _]| *first <= distance).unwrap()[1];
                assert_eq!(bucket(buckets, distance, 0, false), index(expected), "{buckets:?}, distance {distance}");
            }
        }
    }

    #[test]
    fn one_row_is_computed_even_when_none_is_wanted() {
        let inputs = inputs(&[(7, 0, false), (8, 0, false)], &[]);
        assert!(!inputs.wants_logits());
        assert_eq!(inputs.outputs(), [1]);
    }

    /// Inputs of tokens, their sequences and whether logits are wanted, behind so many tokens, in a cache with 64 rows
    /// each.
    fn inputs(tokens: &[(u32, usize, bool)], lengths: &[usize]) -> Inputs {
        let entry = |(token, sequence, wants_logits): &(u32, usize, bool)| Entry {
            token: *token,
            sequence: *sequence,
            wants_logits: *wants_logits,
        };
        let entries: Vec<Entry> = tokens.iter().map(entry).collect();
        let mut texts: Vec<Vec<u32>> = lengths.iter().map(|length| vec![0; *length]).collect();
        Inputs::placed(&entries, &mut texts, CacheRows { room: 64, ring: 64 }, None)
    }
}
