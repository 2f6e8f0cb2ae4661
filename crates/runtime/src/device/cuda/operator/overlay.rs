//! One tensor with another in it or added to it: a thread for each element.

use super::{Argument, Call, Grid, moved};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Overlay, Overlaying};

pub fn profile(_: &Overlay, inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("a", &inputs[0])
}

pub fn launch(op: &Overlay, call: &mut Call) -> Result<(), String> {
    let views = [call.inputs[0], call.inputs[1], call.output].map(|operand| Argument::View(operand.view));
    let kernel = match op.how {
        Overlaying::Set => moved::kernel("set", call.output.ty.dtype),
        Overlaying::Acc => "acc_f32".to_owned(),
    };
    let arguments = [&views[..], &moved::indices(op.start)].concat();
    call.launch(&kernel, Grid::elements(call.output.ty.shape.elements())?, &arguments)
}
