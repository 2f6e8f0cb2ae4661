//! What a phase must read and multiply at least, from the plans of its batches.

use crate::error::Result;
use crate::plan::Plan;
use crate::roof::{Operations, Roof};
use crate::session::{Session, SessionOptions};
use crate::weights::Weights;
use crate::work::Work;
use trueup_graph::{Graph, Node, Op, Origin, TensorType};

/// Of one or several batches.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Demand {
    /// Weights, once for each batch; of an embedding the rows that are taken.
    pub weight_bytes: u64,
    /// The KV cache of the positions that the tokens of each batch see.
    pub kv_bytes: u64,
    /// Products of weights and activations, by what they are computed in.
    pub operations: Operations,
    /// The type of the KV cache.
    pub kv: &'static str,
    batches: Vec<Batch>,
}

/// What one batch demands.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Batch {
    bytes: u64,
    operations: Operations,
}

impl Demand {
    /// Of a prompt of so many tokens with logits behind its end, in the chunks of the session.
    pub fn of_prompt(weights: &Weights, options: &SessionOptions, tokens: usize) -> Result<Demand> {
        let chunk = options.prompt_chunk.max(1);
        let ends = (0..tokens).step_by(chunk).map(|start| (start, (start + chunk).min(tokens)));
        let batches = ends.map(|(start, end)| {
            let plan = Session::plan(weights, options, end - start, 1, end)?;
            Ok(Demand::of_batch(&plan, end as u64))
        });
        batches.collect::<Result<Vec<Demand>>>().map(Demand::sum)
    }

    /// Of so many tokens, one by one, behind a prompt.
    pub fn of_decode(weights: &Weights, options: &SessionOptions, prompt: usize, tokens: usize) -> Result<Demand> {
        let plan = Session::plan(weights, options, 1, 1, prompt + tokens)?;
        Ok(Demand::sum((1..=tokens).map(|token| Demand::of_batch(&plan, (prompt + token) as u64)).collect()))
    }

    /// Of one batch whose sequences hold so many tokens at its end, all together.
    pub fn of_batch(plan: &Plan, positions: u64) -> Demand {
        let graph = plan.graph();
        let (mut weight_bytes, mut operations) = (0, Operations::default());
        for (node, planned) in graph.nodes().iter().zip(plan.nodes()) {
            let weights = weights_of(graph, node);
            weight_bytes += weights.iter().map(|ty| read_bytes(node, ty, graph)).sum::<u64>();
            if !weights.is_empty() {
                operations += Operations::of(&planned.profile, work_of(graph, node).operations);
            }
        }
        let states = || graph.values().iter().filter(|value| value.origin == Origin::State);
        let row_bytes = |ty: &TensorType| (ty.bytes() / ty.shape.rows().max(1)) as u64;
        let kv_bytes = positions * states().map(|state| row_bytes(&state.ty)).sum::<u64>();
        let kv = states().next().map_or("none", |state| state.ty.dtype.name());
        let batches = vec![Batch { bytes: weight_bytes + kv_bytes, operations }];
        Demand { weight_bytes, kv_bytes, operations, kv, batches }
    }

    fn sum(all: Vec<Demand>) -> Demand {
        Demand {
            weight_bytes: all.iter().map(|demand| demand.weight_bytes).sum(),
            kv_bytes: all.iter().map(|demand| demand.kv_bytes).sum(),
            operations: all.iter().fold(Operations::default(), |sum, demand| sum + demand.operations),
            kv: all.first().map_or("none", |demand| demand.kv),
            batches: all.into_iter().flat_map(|demand| demand.batches).collect(),
        }
    }

    /// All bytes that must be read.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes
    }

    /// The least time that a roof allows: each batch is limited by what takes longer, reading or multiplying.
    pub fn seconds(&self, roof: &Roof) -> f64 {
        self.batches.iter().map(|batch| roof.reading_seconds(batch.bytes, batch.operations)).sum()
    }
}

/// The weights that a node reads.
pub(super) fn weights_of(graph: &Graph, node: &Node) -> Vec<TensorType> {
    let values = node.inputs.iter().map(|input| graph.value(*input));
    values.filter(|value| value.origin == Origin::Weight).map(|value| value.ty).collect()
}

/// What a node moves and computes.
pub(super) fn work_of(graph: &Graph, node: &Node) -> Work {
    let types: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
    Work::of(&node.op, &types, &graph.value(node.output).ty)
}

/// Bytes of a weight that a node reads: of a table only the rows that it takes.
fn read_bytes(node: &Node, weight: &TensorType, graph: &Graph) -> u64 {
    if matches!(node.op, Op::GetRows(_)) {
        let rows = graph.value(node.output).ty.shape.rows().min(weight.shape.rows());
        return (weight.bytes() / weight.shape.rows().max(1) * rows) as u64;
    }
    weight.bytes() as u64
}
