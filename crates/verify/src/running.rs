//! The free-running reference: the oracle node by node beside the device, or another device's session.
//!
//! ```text
//!   device   node 0 ─ node 1 ─ node 2 ...        each node stops for a look
//!   oracle   node 0 ─ node 1 ─ node 2 ...        computed when the device's node is seen, forgotten after its last use
//! ```

use crate::operand;
use crate::precision::Precision;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Graph, Input, Node, Origin, TensorType, ValueId};
use trueup_models::Batch;
use trueup_runtime::device::reference::evaluate;
use trueup_runtime::{Entry, Error, HostTensor, ModelFile, Observer, Result, Seen, Session};

/// What the host fills in for one batch, made from the ids alone: not taken from the session that is judged.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    tokens: Vec<i32>,
    start: usize,
    window: Option<usize>,
}

impl Inputs {
    /// The inputs for `ids` behind `start` tokens of the one sequence.
    pub fn new(model: &ModelFile, ids: &[u32], start: usize) -> Inputs {
        let tokens = ids.iter().map(|id| i32::try_from(*id).unwrap_or(-1)).collect();
        Inputs { tokens, start, window: model.model().hyper().window().map(|window| window.size()) }
    }

    /// The tensor of type `ty` that the host fills in.
    pub fn tensor(&self, input: Input, ty: &TensorType) -> HostTensor {
        let count = self.tokens.len() as i32;
        let positions = || (self.start as i32..self.start as i32 + count).collect::<Vec<i32>>();
        match input {
            Input::Tokens => HostTensor::indices(&self.tokens),
            Input::Positions | Input::KvRows => HostTensor::indices(&positions()),
            Input::Sequences => HostTensor::indices(&vec![0; self.tokens.len()]),
            Input::OutputRows => HostTensor::indices(&(0..count).collect::<Vec<i32>>()),
            Input::Mask => self.mask(ty, usize::MAX),
            Input::MaskWindow => self.mask(ty, self.window.unwrap_or(usize::MAX)),
        }
    }

    fn mask(&self, ty: &TensorType, window: usize) -> HostTensor {
        let capacity = ty.shape[0];
        let value = |index: usize| {
            let (looked_at, own) = (index % capacity, self.start + index / capacity);
            if looked_at <= own && own - looked_at < window { 0.0 } else { f64::NEG_INFINITY }
        };
        HostTensor::real(*ty, (0..ty.shape.elements()).map(value).collect())
    }
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
    /// A session on another device; its results of the current batch by node name.
    Device { session: Box<Session>, results: HashMap<String, Vec<f64>> },
}

impl Running {
    /// Starts a batch whose device graph is `graph`.
    pub fn begin(&mut self, graph: &Graph, inputs: &Inputs) -> Result<()> {
        match self {
            Running::Oracle(oracle) => oracle.begin(graph, inputs),
            Running::Device { session, results } => {
                let token = |id: &i32| Entry { token: id.unsigned_abs(), sequence: 0, wants_logits: true };
                let entries: Vec<Entry> = inputs.tokens.iter().map(token).collect();
                results.clear();
                session.compute(&entries, Some(&mut Collector { results }))?;
                Ok(())
            }
        }
    }

    /// Computes the node, if that was not done, and gives its result; for `kv_store` the rows as the reference stores them.
    pub fn advance(&mut self, graph: &Graph, index: usize) -> Result<Option<Cow<'_, [f64]>>> {
        let node = &graph.nodes()[index];
        match self {
            Running::Oracle(oracle) => oracle.advance(index),
            Running::Device { results, .. } => {
                let Some(rows) = stored_rows(node) else {
                    return Ok(results.get(&node.name).map(|result| Cow::Borrowed(result.as_slice())));
                };
                let cache = Precision::of(graph.value(node.output).ty.dtype);
                Ok(results.get(&graph.value(rows).name).map(|rows| Cow::Owned(cached(cache, rows))))
            }
        }
    }
}

/// The rows that a `kv_store` writes.
fn stored_rows(node: &Node) -> Option<ValueId> {
    matches!(node.op, trueup_graph::Op::KvStore(_)).then(|| node.inputs[1])
}

/// Rows as a cache of that precision keeps them.
fn cached(cache: Precision, rows: &[f64]) -> Vec<f64> {
    rows.iter().map(|value| cache.round(*value)).collect()
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

/// The oracle, free-running: f64 activations, and an f64 KV cache unless another is asked for.
pub(crate) struct Oracle {
    model: Arc<ModelFile>,
    kv: DType,
    graph: Graph,
    last_uses: Vec<usize>,
    values: Vec<Option<HostTensor>>,
    caches: HashMap<String, HostTensor>,
    inputs: Option<Inputs>,
}

impl Oracle {
    /// The oracle before the first token.
    pub fn new(model: Arc<ModelFile>, kv: Option<DType>) -> Oracle {
        let (last_uses, values) = (Vec::new(), Vec::new());
        let kv = kv.unwrap_or(DType::F64);
        Oracle { model, kv, graph: Graph::default(), last_uses, values, caches: HashMap::new(), inputs: None }
    }

    fn begin(&mut self, device: &Graph, inputs: &Inputs) -> Result<()> {
        let sizes = |wanted: fn(&Origin) -> bool| {
            device.values().iter().find(|value| wanted(&value.origin)).map(|value| value.ty.shape.sizes())
        };
        let [capacity, ..] = sizes(|origin| matches!(origin, Origin::Input(Input::Mask | Input::MaskWindow)))
            .ok_or_else(|| unlike("it has no mask"))?;
        let [_, context, sequences, _] =
            sizes(|origin| *origin == Origin::State).ok_or_else(|| unlike("it has no KV cache"))?;
        let tokens = inputs.tokens.len();
        let batch =
            Batch { tokens, outputs: tokens, capacity, context, sequences, activation: DType::F64, kv: self.kv };
        self.graph = self.model.model().graph(&batch)?;
        if self.graph.nodes().len() != device.nodes().len() {
            return Err(unlike("it has another number of nodes"));
        }
        self.last_uses = last_uses(&self.graph);
        self.values = vec![None; self.graph.values().len()];
        self.inputs = Some(inputs.clone());
        Ok(())
    }

    fn advance(&mut self, index: usize) -> Result<Option<Cow<'_, [f64]>>> {
        let node = self.graph.nodes()[index].clone();
        let borrowed: Vec<HostTensor> = node.inputs.iter().map(|input| self.input(*input)).collect::<Result<_>>()?;
        let result = evaluate(&node.op, &borrowed.iter().collect::<Vec<_>>())?;
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
        if stored {
            let cache = Precision::of(self.kv);
            return Ok(borrowed.get(1).map(|rows| Cow::Owned(cached(cache, &rows.values()))));
        }
        Ok(self.values[node.output.index()].as_ref().map(HostTensor::values))
    }

    /// A value as the oracle has it.
    fn input(&self, id: ValueId) -> Result<HostTensor> {
        let value = self.graph.value(id);
        let missing = || unlike(&format!("the oracle has no {}", value.name));
        match value.origin {
            Origin::Input(input) => Ok(self.inputs.as_ref().ok_or_else(missing)?.tensor(input, &value.ty)),
            Origin::Weight => Ok(HostTensor::stored(value.ty, self.model.tensor_bytes(&value.name)?.into_owned())),
            Origin::State => Ok(self
                .caches
                .get(&value.name)
                .cloned()
                .unwrap_or_else(|| HostTensor::stored(value.ty, vec![0; value.ty.bytes()]))),
            Origin::Node(_) => self.values[id.index()].clone().ok_or_else(missing),
        }
    }
}

fn unlike(problem: &str) -> Error {
    Error::Request(format!("the device's graph is not the model's: {problem}; this is a bug of the planner"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_show_the_past_and_the_window_less_of_it() {
        let inputs = Inputs { tokens: vec![7, 8], start: 2, window: Some(2) };
        let ty = TensorType::new(DType::F32, &[5, 2]);
        let seen =
            |input| -> Vec<bool> { inputs.tensor(input, &ty).values().iter().map(|value| *value == 0.0).collect() };
        let (yes, no) = (true, false);
        assert_eq!(seen(Input::Mask), [yes, yes, yes, no, no, yes, yes, yes, yes, no]);
        assert_eq!(seen(Input::MaskWindow), [no, yes, yes, no, no, no, no, yes, yes, no]);
        let positions = inputs.tensor(Input::Positions, &TensorType::new(DType::I32, &[2]));
        assert_eq!(positions.to_indices(), [2, 3]);
    }
}
