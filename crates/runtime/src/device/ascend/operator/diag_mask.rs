//! One side of a diagonal overwritten, by a mask that is made there.

use super::Call;
use crate::device::ascend::acl::{Scalar, Type};
use trueup_graph::op::{DiagMask, Triangle};

pub fn compose(op: &DiagMask, call: &Call) -> Result<(), String> {
    let (queue, out) = (&call.engine.queue, call.output()?);
    queue.copy_to(&out, &call.input(0)?)?;
    let mask = call.room(Type::U8, &[1, 1, out.sizes[2], out.sizes[3]])?;
    queue.fill(&mask, Scalar::I64(1))?;
    let past = i64::try_from(op.past).unwrap_or(i64::MAX / 2);
    match op.triangle {
        Triangle::Upper => queue.keep_upper(&mask, past.saturating_add(1))?,
        Triangle::Lower => queue.keep_lower(&mask, past.saturating_sub(1))?,
    }
    queue.fill_where(&out, &mask.clone().of(Type::Bool), Scalar::F32(op.value))
}
