//! Elements to other places: a thread for each.

use super::{Argument, Call, Grid, moved};
use crate::profile::Profile;
use trueup_graph::op::Arrange;
use trueup_graph::{Op, TensorType};

pub fn profile(_: &Arrange, inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("x", &inputs[0])
}

pub fn launch(op: &Arrange, call: &mut Call) -> Result<(), String> {
    let sizes = call.inputs[0].ty.shape.sizes();
    let parameters = match op {
        // Views, which lie where their source lies.
        Arrange::Permute { .. } | Arrange::Transpose | Arrange::View { .. } => return Ok(()),
        Arrange::Repeat { .. } => Vec::new(),
        Arrange::RepeatInterleave { dimension, times } => {
            vec![Argument::Int(*dimension as i32), Argument::Index(*times as i64)]
        }
        Arrange::Pad { before, .. } => moved::indices(*before).to_vec(),
        Arrange::Roll { shifts } => {
            shifts.iter().zip(sizes).map(|(shift, size)| Argument::Index(shift.rem_euclid(size as i64))).collect()
        }
    };
    let [x, y] = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let kernel = moved::kernel(Op::Arrange(*op).name(), call.output.ty.dtype);
    call.launch(&kernel, Grid::elements(call.output.ty.shape.elements())?, &[vec![x, y], parameters].concat())
}
