//! Sums along the innermost dimension, or over everything.

use super::{Call, ELEMENTWISE, expect_f32};
use crate::device::ascend::acl::Type;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Reduce, Reduction};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0]).map(|()| ELEMENTWISE)
}

pub fn compose(op: &Reduce, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    if x.elements() == 0 {
        return queue.zero(&out);
    }
    match op.rule {
        Reduction::Sum => queue.sum(&x, &[0, 1, 2, 3], false, Type::F32, &out.under(&[])),
        Reduction::SumRows => queue.sum(&x, &[3], true, Type::F32, &out),
        Reduction::Mean => queue.mean(&x, &[3], true, Type::F32, &out),
        Reduction::CumSum => queue.cumsum(&x, 3, Type::F32, &out),
    }
}
