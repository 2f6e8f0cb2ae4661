//! Two tensors element by element, each repeated where it is smaller.

use super::{Call, ELEMENTWISE, FUNCTION_ULP, ONE, broadcast, expect_f32, expect_plain};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Arithmetic;

pub fn profile(op: &Arithmetic, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("a", &inputs[0])?;
    expect_plain("b", &inputs[1])?;
    Ok(match op {
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul => ELEMENTWISE,
        Arithmetic::Div | Arithmetic::Pow => Profile { function_ulp: FUNCTION_ULP, ..ELEMENTWISE },
    })
}

pub fn compose(op: &Arithmetic, call: &Call) -> Result<(), String> {
    let queue = &call.engine.queue;
    let b = call.input_f32(1)?;
    let [out, a, b] = broadcast([call.output()?, call.input(0)?, b.clone()])?;
    match op {
        Arithmetic::Add => queue.add(&a, &b, ONE, &out),
        Arithmetic::Sub => queue.sub(&a, &b, ONE, &out),
        Arithmetic::Mul => queue.mul(&a, &b, &out),
        Arithmetic::Div => queue.div(&a, &b, &out),
        Arithmetic::Pow => queue.pow(&a, &b, &out),
    }
}
