//! Checks the parts of a fused node that failed: is the fused kernel wrong, or one of its parts?
//!
//! ```text
//!   inputs of the fused node, in place ─┬─ ffn_gate-0 ─┐
//!                                       └─ ffn_up-0 ───┴─ ffn_swiglu-0      each judged on its own inputs
//! ```
//!
//! The parts run on the device that computed the fused node, on the same input tensors and uploaded weights. Results
//! between them go to separate memory. Each part is judged like any node: with the weights of the file, and with the
//! device's result of the previous part.

use crate::bound::{Case, declares_loss, gate, judge};
use crate::operand::{self, Operand};
use crate::verdict::Verdict;
use serde::Serialize;
use trueup_blocks::DType;
use trueup_graph::fuse::Pieces;
use trueup_graph::{Graph, Node, TensorType, ValueId};
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};
use trueup_runtime::{Error, Result, Seen};

/// One piece of a fused node, computed alone on the same inputs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PieceReport {
    /// Its name in the graph without fusion.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// The verdict on it; unchecked where the device failed to compute it.
    pub verdict: Verdict,
    /// The largest error in its standard deviations; null where it has no finite value.
    pub worst_z: Option<f64>,
}

/// Computes the pieces of a fused node and judges each; `inputs` are the node's own as the verifier knows them. None
/// for other nodes.
pub(crate) fn run(seen: &Seen<'_>, inputs: &[Operand]) -> Vec<PieceReport> {
    let Some(pieces) = seen.fused_of else { return Vec::new() };
    let mut run = Run { seen, graph: pieces.graph, inputs, made: Vec::new() };
    pieces.nodes().map(|piece| run.piece(piece)).collect()
}

/// What the pieces say, as a clause: whose fault it is. None where there are no pieces.
pub(crate) fn clause(pieces: &[PieceReport]) -> Option<String> {
    let names: Vec<&str> = pieces.iter().map(|piece| piece.node.as_str()).collect();
    if let Some(wrong) = pieces.iter().find(|piece| piece.verdict.fails()) {
        return Some(format!("{} is already wrong when computed separately", wrong.node));
    }
    if pieces.is_empty() {
        None
    } else if pieces.iter().all(|piece| piece.verdict.passes()) {
        let names = names.join(", ");
        Some(format!("its unfused nodes are correct ({names}): the fused kernel is at fault; try --fusion off"))
    } else {
        Some(format!("its unfused nodes ({}) could not all be judged", names.join(", ")))
    }
}

/// A result of a piece: its name, where it lies, and what it holds.
struct Made {
    name: String,
    tensor: Tensor,
    numbers: Vec<f64>,
}

struct Run<'a> {
    seen: &'a Seen<'a>,
    /// The graph that the pieces stand in.
    graph: &'a Graph,
    inputs: &'a [Operand<'a>],
    made: Vec<Made>,
}

impl Run<'_> {
    fn piece(&mut self, piece: &Node) -> PieceReport {
        let (verdict, worst_z) = self.judged(piece).unwrap_or((Verdict::Unchecked, None));
        PieceReport { node: piece.name.clone(), op: piece.op.name().to_owned(), verdict, worst_z }
    }

    fn judged(&mut self, piece: &Node) -> Result<(Verdict, Option<f64>)> {
        let device = self.seen.device;
        let inputs: Vec<(Tensor, Operand)> = piece.inputs.iter().map(|id| self.input(*id)).collect::<Result<_>>()?;
        let (tensors, operands): (Vec<Tensor>, Vec<Operand>) = inputs.into_iter().unzip();
        let types: Vec<TensorType> = tensors.iter().map(|tensor| tensor.ty).collect();
        let ty = self.graph.value(piece.output).ty;
        let refused = |reason| Error::Request(format!("{}: {reason}", piece.name));
        let profile = device.supports(&piece.op, &types, &ty).map_err(refused)?;
        let output = alone(device, ty)?;
        device.upload(&vec![0xff; ty.bytes()], &output)?;
        // The place of the fused node: to the device these steps are of it.
        let step = Step { node: self.seen.node, op: piece.op.clone(), inputs: tensors, output: output.clone() };
        device.execute(&[step])?;
        device.sync()?;
        let mut bytes = vec![0; ty.bytes()];
        device.download(&output, &mut bytes)?;
        let numbers = operand::decode(&ty, &bytes);
        let case = Case {
            op: &piece.op,
            inputs: &operands,
            profile: &profile,
            output: Operand::numbers(ty, &numbers),
            reference: None,
            copies: &[],
            spread: &[],
            step: 0,
            collector: None,
        };
        let statistics = judge(&case);
        let verdict = gate(&piece.op).verdict(&statistics, declares_loss(&piece.op, &profile, &ty));
        let worst_z = statistics.worst_z.map(|worst| worst.ratio).filter(|ratio| ratio.is_finite());
        self.made.push(Made { name: piece.name.clone(), tensor: output, numbers });
        Ok((verdict, worst_z))
    }

    /// An input of a piece: what a piece before made, or an input of the fused node, which has the same name in both
    /// graphs.
    fn input(&self, id: ValueId) -> Result<(Tensor, Operand<'_>)> {
        let value = self.graph.value(id);
        if let Some(made) = self.made.iter().find(|made| made.name == value.name) {
            return Ok((made.tensor.clone(), Operand::numbers(value.ty, &made.numbers)));
        }
        let own = &self.seen.node().inputs;
        let place = own.iter().position(|input| self.seen.graph.value(*input).name == value.name);
        let missing = || Error::Request(format!("{} is not an input of {}", value.name, self.seen.node().name));
        let place = place.ok_or_else(missing)?;
        Ok((self.seen.step.inputs[place].clone(), self.inputs[place]))
    }
}

/// Memory for one result, of the kind that results have.
fn alone(device: &dyn Device, ty: TensorType) -> Result<Tensor> {
    let bytes = ty.bytes().max(1).next_multiple_of(ARENA_ALIGN_BYTES);
    let buffer = device.alloc(&TensorType::new(DType::I8, &[bytes]), Usage::Arena)?;
    Ok(Tensor { buffer, offset_bytes: 0, ty })
}

/// Names of what a fused node is made of, the node's own last; none of a node that is not fused.
pub(crate) fn names(pieces: Option<Pieces<'_>>) -> Vec<String> {
    pieces.into_iter().flat_map(Pieces::nodes).map(|node| node.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_piece_is_named_before_the_fused_kernel_is_accused() {
        let piece = |node: &str, verdict| PieceReport {
            node: node.to_owned(),
            op: "mul_mat".to_owned(),
            verdict,
            worst_z: None,
        };
        let of = |verdicts: [Verdict; 2]| clause(&[piece("gate", verdicts[0]), piece("up", verdicts[1])]).unwrap();
        let right = of([Verdict::DeclaredLoss, Verdict::Exact]);
        assert_eq!(right, "its unfused nodes are correct (gate, up): the fused kernel is at fault; try --fusion off");
        assert_eq!(of([Verdict::Unchecked, Verdict::StructuralBug]), "up is already wrong when computed separately");
        assert!(of([Verdict::Rounding, Verdict::Unchecked]).contains("could not all be judged"));
        assert_eq!(clause(&[]), None);
    }
}
