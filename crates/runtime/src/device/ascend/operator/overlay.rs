//! One tensor in another, or added to a part of it.

use super::{Call, ELEMENTWISE, ONE, expect_known};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Overlay, Overlaying};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_known("a", &inputs[0]).map(|()| ELEMENTWISE)
}

pub fn compose(op: &Overlay, call: &Call) -> Result<(), String> {
    let (queue, b, out) = (&call.engine.queue, call.input(1)?, call.output()?);
    queue.copy_to(&out, &call.input(0)?)?;
    if b.elements() == 0 {
        return Ok(());
    }
    let under = (0..4).fold(out, |out, d| out.part(d, op.start[3 - d] as i64, b.sizes[d]));
    match op.how {
        Overlaying::Set => queue.copy_to(&under, &b),
        Overlaying::Acc => queue.add_to(&under, &b, ONE),
    }
}
