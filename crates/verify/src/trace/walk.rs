//! The way through the model's graph along a trace: each node from what the trace holds of its inputs, judged by what
//! it holds of its result.
//!
//! ```text
//!   trace has the inputs      y as declared, sigma of its arithmetic     gates as for a device (docs/numerics.md)
//!   it lacks some             y from computed inputs, sigma and spread of noisy runs      only |z| <= 8: errors correlate
//! ```

use super::ensemble::{MEMBERS, Value, sign, spread};
use super::flips::{Column, KeptSums, ProductFlips};
use super::known::Known;
use super::program::Program;
use super::report::PROGRAM;
use crate::activation::Row;
use crate::bound::{declares_loss, expected, gate};
use crate::cached::{cached, expected_rows};
use crate::explain::{Before, explain};
use crate::operand::Operand;
use crate::precision::{LAMBDA, Precision};
use crate::record::result_shape;
use crate::running::{CacheRows, Inputs, last_uses};
use crate::scene::{Given, Scene, usages};
use crate::statistics::{Expected, Statistics, Tally};
use crate::verdict::{Gate, Verdict};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::fuse::{Candidate, fuse};
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};
use trueup_models::{Batch, Stage};
use trueup_runtime::device::reference::evaluate;
use trueup_runtime::profile::{Activations, Profile};
use trueup_runtime::{CAPACITY_UNIT, Entry, Error, HostTensor, ModelFile, Result};

/// What the trace's result of a node comes to.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub verdict: Verdict,
    pub statistics: Statistics,
    /// Where it fails and all is known: the likely cause, a clause without a full stop.
    pub cause: Option<String>,
    /// Whether that is a cause, and not only a description of the errors.
    pub is_cause: bool,
}

/// The walk over all steps.
pub(super) struct Walk {
    model: Arc<ModelFile>,
    kv: DType,
    /// Rows of the KV cache.
    room: usize,
    /// Whether the whole text has the long factors of LongRoPE.
    is_long: bool,
    graph: Graph,
    last_uses: Vec<usize>,
    values: Vec<Option<Value>>,
    caches: HashMap<String, Value>,
    inputs: Option<Inputs>,
    texts: Vec<Vec<u32>>,
    pool: Arc<ThreadPool>,
}

/// A node's result before the trace was looked at.
struct Computed {
    /// What each element should be.
    expected: Vec<Expected>,
    /// What the noisy runs have, before errors of their own; none where the inputs are certain.
    members: Vec<Vec<f64>>,
    /// Where a product's activations are uncertain and rounded: how far roundings that go another way may put it.
    flips: Option<ProductFlips>,
    /// What each column of a product is computed from; none for other operators.
    columns: Vec<Column>,
}

impl Walk {
    /// Before the first step of a text of `length` tokens in all steps.
    pub fn new(model: Arc<ModelFile>, kv: DType, length: usize, pool: Arc<ThreadPool>) -> Walk {
        let (room, is_long) = (length.next_multiple_of(CAPACITY_UNIT), model.model().spec().is_long(length));
        let (graph, inputs, texts) = (Graph::default(), None, Vec::new());
        let (last_uses, values, caches) = (Vec::new(), Vec::new(), HashMap::new());
        Walk { model, kv, room, is_long, graph, last_uses, values, caches, inputs, texts, pool }
    }

    /// The graph of the current step.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Starts the step that computes these tokens, in nodes as the program fused them.
    pub fn begin(&mut self, entries: &[Entry], program: &Program) -> Result<()> {
        let rows = CacheRows { room: self.room, ring: self.room };
        self.inputs = Some(Inputs::new(&self.model, entries, &mut self.texts, rows));
        let length = self.texts.iter().map(Vec::len).max().unwrap_or(1);
        let batch = Batch {
            tokens: entries.len(),
            outputs: entries.len(),
            capacity: length.next_multiple_of(CAPACITY_UNIT),
            context: self.room,
            ring: self.room,
            sequences: 1,
            streams: 1,
            is_long: self.is_long,
            stage: Stage::Decoder { source: 0 },
            activation: DType::F64,
            kv: self.kv,
        };
        let accepts = |candidate: &Candidate| program.fused(candidate.name(), candidate.op.name(), entries.len());
        self.graph = fuse(self.model.model().graph(&batch)?, &accepts).graph;
        self.last_uses = last_uses(&self.graph);
        self.values = vec![None; self.graph.values().len()];
        Ok(())
    }

    /// Computes a node, judges what the trace knows of it, and keeps what the nodes behind it go on from. A failure is
    /// explained where `explains` says so.
    pub fn node(
        &mut self,
        index: usize,
        step: usize,
        known: Option<&Known>,
        profile: &Profile,
        explains: bool,
    ) -> Result<Option<Judged>> {
        let node = self.graph.nodes()[index].clone();
        if profile.output.is_quantized() && !matches!(node.op, Op::KvStore(_)) {
            let (node, dtype) = (&node.name, profile.output);
            return Err(Error::Request(format!(
                "text profiles of the trace: expected the profile of a device, found results of {node} in {dtype}, which only a KV cache holds; \
                 record the trace again"
            )));
        }
        let inputs: Vec<Value> = node.inputs.iter().map(|input| self.input(*input)).collect::<Result<_>>()?;
        let pool = self.pool.clone();
        let computed = pool.install(|| self.compute(&node, &inputs, profile))?;
        let mut judged = known.map(|known| self.judge(&node, step, known, &computed, profile));
        if let (Some(judged), Some(known)) = (&mut judged, known.filter(|_| explains)) {
            let cause = pool.install(|| self.cause(&node, &inputs, known, &judged.statistics, profile));
            judged.is_cause = cause.as_ref().is_some_and(|(_, is_cause)| *is_cause);
            judged.cause = cause.map(|(text, _)| text);
        }
        let value = if matches!(node.op, Op::KvStore(_)) {
            let cache = store(&node, &inputs)?;
            self.caches.insert(self.graph.value(node.inputs[0]).name.clone(), cache.clone());
            cache
        } else {
            kept(index, self.graph.value(node.output).ty, &computed, known)
        };
        self.values[node.output.index()] = Some(value);
        for input in &node.inputs {
            if self.last_uses[input.index()] == index {
                self.values[input.index()] = None;
            }
        }
        Ok(judged)
    }

    /// A value as the trace's program had it, or as it is computed here.
    fn input(&self, id: ValueId) -> Result<Value> {
        let value = self.graph.value(id);
        let missing = || Error::Request(format!("{} was read before it was computed", value.name));
        Ok(match value.origin {
            Origin::Input(input) => Value::certain(self.inputs.as_ref().ok_or_else(missing)?.tensor(input, &value.ty)),
            Origin::Weight => {
                Value::certain(HostTensor::stored(value.ty, self.model.tensor_bytes(&value.name)?.into_owned()))
            }
            Origin::State(_) => match self.caches.get(&value.name) {
                Some(cache) => cache.clone(),
                None => Value::certain(HostTensor::stored(value.ty, vec![0; value.ty.bytes()])),
            },
            Origin::Node(_) => self.values[id.index()].clone().ok_or_else(missing)?,
        })
    }

    /// What the node's result should be, and what the noisy runs have in its place.
    fn compute(&self, node: &Node, inputs: &[Value], profile: &Profile) -> Result<Computed> {
        let certain = inputs.iter().all(Value::is_certain);
        if let (Op::KvStore(_), Some(rows)) = (&node.op, inputs.get(1)) {
            let held = self.graph.value(node.output).ty.dtype;
            let stored = |rows: &HostTensor| cached(held, &rows.values());
            let members = if rows.is_certain() { Vec::new() } else { rows.members.iter().map(stored).collect() };
            let expected = expected_rows(held, &rows.base.values(), rows.is_certain());
            return Ok(Computed { expected, members, flips: None, columns: Vec::new() });
        }
        let bases: Vec<Decoded> =
            node.inputs.iter().zip(inputs).map(|(id, value)| self.decoded(*id, &value.base)).collect();
        let operands: Vec<Operand> = bases.iter().map(Decoded::operand).collect();
        let declared = self.graph.value(node.output).ty;
        let dtype = if declared.dtype == DType::I32 { DType::I32 } else { profile.output };
        let ty = TensorType { dtype, ..declared };
        let blank = vec![0.0; ty.shape.elements()];
        let output = Operand::numbers(ty, &blank);
        let mut expected = expected(&node.op, &operands, profile, output);
        let columns = Column::of(&node.op, &operands);
        let is_product = !columns.is_empty() && !certain;
        let kept_sums = operands.first().filter(|_| is_product);
        let kept_sums = kept_sums.and_then(|weights| KeptSums::new(weights, &columns, profile.activations));
        let run = |member: usize| -> Result<Vec<f64>> {
            let mut inputs: Vec<HostTensor> = inputs.iter().map(|input| input.member(member).clone()).collect();
            let exact = kept_sums.is_some().then(|| inputs[1].clone());
            if let Some(place) = rounded_input(&node.op) {
                inputs[place] = as_declared(&inputs[place], profile.activations);
            }
            let mut result = numbers(&evaluate(&node.op, &inputs.iter().collect::<Vec<_>>())?);
            if let (Some(sums), Some(x)) = (&kept_sums, &exact) {
                sums.add(&mut result, x, profile.activations);
            }
            Ok(result)
        };
        let count = if certain { 0 } else { MEMBERS };
        let members: Vec<Vec<f64>> = (0..count).into_par_iter().map(run).collect::<Result<_>>()?;
        let rounds = is_product && profile.activations != Activations::Unchanged;
        let flips = rounds.then(|| ProductFlips::new(&operands[0], &inputs[1], &columns, profile.activations));
        if let Some(flips) = &flips {
            let base: Vec<f64> = expected.iter().map(|expected| expected.declared).collect();
            flips.add(&mut expected, &spread(&base, &members, ty.shape[0]));
        }
        Ok(Computed { expected, members, flips, columns })
    }

    fn decoded<'a>(&self, id: ValueId, tensor: &'a HostTensor) -> Decoded<'a> {
        let value = self.graph.value(id);
        let data = if value.origin == Origin::Weight {
            Held::Blocks(tensor.to_bytes())
        } else if value.ty.dtype == DType::I32 {
            Held::Integers(tensor.to_indices())
        } else {
            Held::Numbers(tensor.values())
        };
        Decoded { ty: value.ty, data }
    }

    /// Compares what the trace knows of a result with what it should be.
    fn judge(&self, node: &Node, step: usize, known: &Known, computed: &Computed, profile: &Profile) -> Judged {
        let shape = result_shape(&self.graph, node, self.inputs.as_ref().map_or(0, Inputs::len));
        let ty = TensorType { dtype: profile.output, shape };
        let base: Vec<f64> = computed.expected.iter().map(|expected| expected.declared).collect();
        let inherited =
            if computed.members.is_empty() { Vec::new() } else { spread(&base, &computed.members, shape[0]) };
        let exact = inherited.is_empty() && known.is_exact();
        let copies = if exact { self.copies(node, &computed.columns) } else { Vec::new() };
        let mut tally = Tally::new(step, Precision::of(profile.output), &[], None);
        for (place, value) in &known.values {
            let expected = &computed.expected[*place];
            if exact && !copies.get(place / shape[0].max(1)).copied().unwrap_or(false) {
                tally.add_value(*place, *value, expected, None);
            } else if exact {
                tally.add_correlated(*place, *value, expected);
            } else {
                let noise = inherited.get(*place).copied().unwrap_or(0.0);
                tally.add_correlated(*place, *value, &widened(expected, noise, known.slack));
            }
        }
        if let Some(sum) = known.sum {
            tally.add_correlated(base.len(), sum, &sum_of(known, &base, computed, shape[0]));
        }
        if matches!(node.op, Op::SoftMax(_)) {
            // Positions behind the room for the tokens are masked: exactly 0.
            let masked = widened(&Expected::same(0.0, 0.0), 0.0, known.slack);
            known.beyond.iter().for_each(|value| tally.add_correlated(base.len() + 1, *value, &masked));
        }
        let gate = if exact { gate(&node.op) } else { Gate::Noise };
        let statistics = tally.finish();
        Judged {
            verdict: gate.verdict(&statistics, declares_loss(&node.op, profile, &ty)),
            statistics,
            cause: None,
            is_cause: false,
        }
    }

    /// What the trace's program likely did otherwise, of a failing node whose inputs and result the trace holds as they
    /// were.
    fn cause(
        &self,
        node: &Node,
        inputs: &[Value],
        known: &Known,
        statistics: &Statistics,
        profile: &Profile,
    ) -> Option<(String, bool)> {
        let ty = TensorType { dtype: profile.output, ..self.graph.value(node.output).ty };
        let complete = known.values.len() == ty.shape.elements() || matches!(node.op, Op::SoftMax(_));
        if !known.is_exact() || !complete || matches!(node.op, Op::KvStore(_)) || !inputs.iter().all(Value::is_certain)
        {
            return None;
        }
        let worst = statistics.first_broken.or(statistics.worst_z);
        if worst.is_some_and(|worst| worst.index >= ty.shape.elements()) {
            return None;
        }
        let mut device = vec![0.0; ty.shape.elements()];
        known.values.iter().for_each(|(place, value)| device[*place] = *value);
        let decoded = node.inputs.iter().zip(inputs).map(|(id, value)| self.decoded(*id, &value.base));
        let given = decoded.zip(usages(&self.graph, node)).map(|(input, usage)| Given::of(&input.operand(), usage));
        let (op, profile, inputs, focus) = (node.op.clone(), *profile, given.collect(), Vec::new());
        let scene = Scene { op, profile, inputs, output: ty, device, focus };
        if !gate(&scene.op).verdict(statistics, false).fails() {
            return None;
        }
        let found = explain(&scene, statistics, &Before::default());
        let few = found.signature.as_ref().is_some_and(|signature| 2 * signature.bad < signature.elements);
        match found.fingerprint.explained_by {
            Some(name) if found.known => Some((format!("{PROGRAM} {name}"), true)),
            // There is no upload here.
            Some(_) | None => (found.known || few).then(|| {
                (found.cause.replace("was probably uploaded incorrectly", "is probably wrong"), found.is_cause())
            }),
        }
    }

    /// Which columns of a product have the activations of a column before: their errors are the same.
    fn copies(&self, node: &Node, columns: &[Column]) -> Vec<bool> {
        let Some(x) = multiplied(&node.op).map(|place| node.inputs[place]) else { return Vec::new() };
        let Some(Some(x)) = self.values.get(x.index()) else { return Vec::new() };
        let bits = |column: &[f64]| column.iter().map(|number| number.to_bits()).collect::<Vec<u64>>();
        let all: Vec<Vec<u64>> = x.base.values().chunks(x.base.ty().shape[0].max(1)).map(bits).collect();
        let mut seen = HashSet::new();
        if columns.is_empty() {
            return all.iter().map(|column| !seen.insert(column)).collect();
        }
        let used = columns.iter().map(|column| all.get(column.activations));
        used.map(|column| column.is_some_and(|column| !seen.insert(column))).collect()
    }
}

/// The elements of a result as numbers.
fn numbers(tensor: &HostTensor) -> Vec<f64> {
    if tensor.ty().dtype == DType::I32 {
        return tensor.to_indices().into_iter().map(f64::from).collect();
    }
    tensor.values().into_owned()
}

/// An input as [`Operand`] takes it.
struct Decoded<'a> {
    ty: TensorType,
    data: Held<'a>,
}

enum Held<'a> {
    Numbers(Cow<'a, [f64]>),
    Integers(Vec<i32>),
    Blocks(Cow<'a, [u8]>),
}

impl Decoded<'_> {
    fn operand(&self) -> Operand<'_> {
        match &self.data {
            Held::Numbers(numbers) => Operand::numbers(self.ty, numbers),
            Held::Integers(integers) => Operand::integers(self.ty, integers),
            Held::Blocks(bytes) => Operand::blocks(self.ty, bytes),
        }
    }
}

/// The expectation with inherited noise and with values that are known to so many digits only.
fn widened(expected: &Expected, inherited: f64, slack: f64) -> Expected {
    let sigma = expected.sigma.hypot(inherited);
    Expected {
        exact: expected.declared,
        sigma,
        sigma_exact: sigma,
        bound: f64::INFINITY,
        ties: expected.ties + slack,
        coarse: expected.coarse + LAMBDA * inherited + slack,
        ..*expected
    }
}

/// What the sum of a printed tensor should be. Errors of one kind may all have one sign, so their deviations are added.
fn sum_of(known: &Known, base: &[f64], computed: &Computed, rows: usize) -> Expected {
    let over = |value: &dyn Fn(usize) -> f64| known.covers.iter().map(|place| value(*place)).sum::<f64>();
    let total = over(&|place| base[place]);
    let deviations = computed.members.iter().map(|member| over(&|place| member[place] - base[place]).powi(2));
    let inherited = (deviations.sum::<f64>() / computed.members.len().max(1) as f64).sqrt();
    let own = over(&|place| computed.expected[place].sigma);
    let magnitude = over(&|place| base[place].abs());
    let coarse = over(&|place| computed.expected[place].coarse);
    // The sum is printed with six digits, and may have been made in f32.
    let slack = 1e-6 + Precision::F32.unit * magnitude * (known.covers.len() as f64).sqrt();
    let ties = match (&computed.flips, known.covers.is_empty()) {
        (Some(flips), false) => (flips.of_sum(&known.covers, rows) - LAMBDA * inherited).max(0.0),
        _ => over(&|place| computed.expected[place].ties),
    };
    widened(
        &Expected { declared: total, exact: total, sigma: own, sigma_exact: own, bound: 0.0, ties, coarse },
        inherited,
        slack,
    )
}

/// What the nodes behind go on from: the trace's values where it has them exactly, else computed ones with their noise.
fn kept(index: usize, ty: TensorType, computed: &Computed, known: Option<&Known>) -> Value {
    let mut base: Vec<f64> = computed.expected.iter().map(|expected| expected.declared).collect();
    let known = known.filter(|known| known.is_exact());
    let replace = |values: &mut [f64]| {
        known.into_iter().flat_map(|known| &known.values).for_each(|(place, value)| values[*place] = *value);
    };
    // A rounding that may have gone the other way moves all that follows.
    let noise = |expected: &Expected| expected.sigma.hypot(expected.ties / LAMBDA);
    let sigma = |place: usize| Some(noise(&computed.expected[place])).filter(|sigma| sigma.is_finite()).unwrap_or(0.0);
    let complete = known.is_some_and(|known| known.values.len() == base.len());
    let noisy = !complete && (!computed.members.is_empty() || (0..base.len()).any(|place| sigma(place) > 0.0));
    let member = |member: usize| {
        let mut values = computed.members.get(member).unwrap_or(&base).clone();
        let own = |(place, value): (usize, &mut f64)| *value += sign(index, member, place) * sigma(place);
        values.iter_mut().enumerate().for_each(own);
        replace(&mut values);
        host(ty, values)
    };
    let members = if noisy { (0..MEMBERS).map(member).collect() } else { Vec::new() };
    replace(&mut base);
    Value { base: host(ty, base), members }
}

/// Numbers, or indices that a node chose, as a tensor.
fn host(ty: TensorType, values: Vec<f64>) -> HostTensor {
    if ty.dtype == DType::I32 {
        return HostTensor::stored(ty, values.into_iter().flat_map(|index| (index as i32).to_le_bytes()).collect());
    }
    HostTensor::real(ty, values)
}

/// The cache with new rows, in every run.
fn store(node: &Node, inputs: &[Value]) -> Result<Value> {
    let run = |inputs: Vec<&HostTensor>| evaluate(&node.op, &inputs);
    let base = run(inputs.iter().map(|input| &input.base).collect())?;
    let count = if inputs.iter().all(Value::is_certain) { 0 } else { MEMBERS };
    let member = |member: usize| run(inputs.iter().map(|input| input.member(member)).collect());
    Ok(Value { base, members: (0..count).map(member).collect::<Result<_>>()? })
}

/// The input that weights are multiplied with, also in products with chosen experts.
fn multiplied(op: &Op) -> Option<usize> {
    op.multiplied().or_else(|| matches!(op, Op::MulMatId(_)).then_some(1))
}

/// The input that a profile's rounding of activations is about.
fn rounded_input(op: &Op) -> Option<usize> {
    multiplied(op).or_else(|| matches!(op, Op::KvAttention(_) | Op::KvMix(_) | Op::KvScores(_)).then_some(0))
}

/// Activations as they are declared to enter products.
fn as_declared(x: &HostTensor, activations: Activations) -> HostTensor {
    if activations == Activations::Unchanged {
        return x.clone();
    }
    let rows = x.values();
    let rounded = rows.chunks(x.ty().shape[0].max(1)).flat_map(|row| Row::declared(row, activations).values);
    HostTensor::real(*x.ty(), rounded.collect())
}

#[cfg(test)]
mod tests;
