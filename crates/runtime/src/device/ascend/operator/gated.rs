//! The gate's function times the other half.

use super::{Call, unary};
use trueup_graph::op::Gated;

pub fn compose(op: &Gated, call: &Call) -> Result<(), String> {
    let out = call.output()?;
    unary::apply(&op.function(), call, &call.input(0)?, &out)?;
    call.engine.queue.mul_by(&out, &call.input(1)?)
}
