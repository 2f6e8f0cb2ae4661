//! The observer: judges each node on the inputs that the device gave it, while a reference runs freely beside it.
//!
//! ```text
//!   y_device - y_reference = [y_device - f(x_device)]  +  [f(x_device) - f(x_reference)]
//!                             local: judged               inherited: reported
//! ```
//!
//! Activations are taken when they are computed, weights from the file, the host's inputs from the ids, and the KV cache from the last
//! step: what the device changes or mixes up in between shows at the node that reads it.

use crate::bound::{Case, judge};
use crate::operand::{self, Operand};
use crate::record::{Judged, Phase, Records};
use crate::running::{Inputs, Running, last_uses};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};
use trueup_runtime::{Error, HostTensor, ModelFile, Observer, Result, Seen};

/// What a node's result is kept as until its last use.
#[derive(Clone, Debug)]
enum Kept {
    Numbers(Vec<f64>),
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
    /// Ids that are being computed and were not seen yet, with the position of the first.
    ids: Vec<u32>,
    start: usize,
    inputs: Option<Inputs>,
    last_uses: Vec<usize>,
    kept: HashMap<usize, Kept>,
    caches: HashMap<String, Vec<u8>>,
    /// The reference's logits of the current step, one row behind the other.
    reference_logits: Vec<f64>,
}

impl<'a> Shadow<'a> {
    /// A watcher of prompt number `prompt`, before its first token.
    pub fn new(
        model: Arc<ModelFile>,
        reference: &'a mut Running,
        records: &'a mut Records,
        prompt: usize,
    ) -> Shadow<'a> {
        Shadow {
            model,
            reference,
            records,
            prompt,
            step: 0,
            ids: Vec::new(),
            start: 0,
            inputs: None,
            last_uses: Vec::new(),
            kept: HashMap::new(),
            caches: HashMap::new(),
            reference_logits: Vec::new(),
        }
    }

    /// Says which ids the session computes next, as step `step`.
    pub fn expect(&mut self, step: usize, ids: &[u32]) {
        self.step = step;
        self.ids = ids.to_vec();
        self.reference_logits.clear();
    }

    /// The reference's logits of the step, one row for each of its ids.
    pub fn reference_logits(&self) -> &[f64] {
        &self.reference_logits
    }

    fn begin(&mut self, graph: &Graph, tokens: usize) -> Result<()> {
        let ids: Vec<u32> = self.ids.drain(..tokens.min(self.ids.len())).collect();
        let inputs = Inputs::new(&self.model, &ids, self.start);
        self.start += ids.len();
        self.records.expect(graph);
        self.reference.begin(graph, &inputs)?;
        self.inputs = Some(inputs);
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
        let output = seen.output()?;
        let (ty, bytes) = (*output.ty(), output.to_bytes());
        let reference = self.reference.advance(graph, seen.node)?.map(Cow::into_owned);
        let reference = reference.as_deref();
        let stored = matches!(node.op, Op::KvStore(_));
        let numbers = if stored { Vec::new() } else { operand::decode(&ty, &bytes) };
        let profile = seen.planned.profile;
        let copies = self.copies(graph, node);
        let statistics = {
            let own = self.own_inputs(graph, node)?;
            let pairs = node.inputs.iter().zip(&own);
            let inputs: Vec<Operand> = pairs.map(|(id, own)| self.operand(graph, *id, own)).collect::<Result<_>>()?;
            let output = if stored { Operand::blocks(ty, &bytes) } else { Operand::numbers(ty, &numbers) };
            let (op, profile, copies) = (&node.op, &profile, &copies);
            judge(&Case { op, inputs: &inputs, profile, output, reference, copies, step: self.step })
        };
        if seen.node + 1 == graph.nodes().len() {
            self.reference_logits.extend_from_slice(reference.unwrap_or_default());
        }
        let judged = Judged { node, phase: self.phase(), prompt: self.prompt, profile, output: ty, statistics };
        self.records.add(judged);
        if stored {
            let state = graph.value(node.inputs[0]).name.clone();
            self.caches.insert(state.clone(), bytes.into_owned());
            return Ok(Kept::Cache(state));
        }
        Ok(Kept::Numbers(numbers))
    }

    /// Which columns of the activations of a product the node was judged on before; none for other operators.
    fn copies(&mut self, graph: &Graph, node: &Node) -> Vec<bool> {
        let (Op::MulMat(_), [_, activations, ..]) = (&node.op, node.inputs.as_slice()) else { return Vec::new() };
        let Some(Kept::Numbers(numbers)) = self.kept.get(&activations.index()) else { return Vec::new() };
        let columns: Vec<u64> = numbers.chunks(graph.value(*activations).ty.shape[0]).map(column_hash).collect();
        self.records.copies(&node.name, self.phase(), &columns)
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
                Origin::State => match self.caches.get(&value.name) {
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
            (Own::Nothing, Some(Kept::Cache(state))) => {
                Operand::blocks(ty, self.caches.get(state).ok_or_else(missing)?)
            }
            (Own::Nothing, None) => return Err(missing()),
        })
    }
}

/// A hash of the bits of one column.
fn column_hash(column: &[f64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    column.iter().for_each(|number| number.to_bits().hash(&mut hasher));
    hasher.finish()
}

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
        if ty.dtype == trueup_blocks::DType::I32 {
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
        self.records.located(&node.name, &seen.device.about().name, seen.planned.fell_back.as_deref());
        self.kept.insert(node.output.index(), kept);
        for input in &node.inputs {
            if self.last_uses[input.index()] == seen.node {
                self.kept.remove(&input.index());
            }
        }
        Ok(())
    }
}
