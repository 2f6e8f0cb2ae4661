//! Functions of each element.

use super::{Call, ELEMENTWISE, expect_f32, pieces_min};
use crate::profile::{Accumulator, Profile};
use trueup_graph::TensorType;
use trueup_graph::op::Unary;
use trueup_kernels as kernel;

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 10;

pub fn profile(op: &Unary, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(declared(op))
}

/// How the kernels compute a function.
pub fn declared(op: &Unary) -> Profile {
    match op {
        Unary::Sqr | Unary::Sqrt | Unary::Neg | Unary::Abs | Unary::Step | Unary::Relu => ELEMENTWISE,
        Unary::Hardsigmoid | Unary::Hardswish | Unary::Scale { .. } | Unary::Clamp { .. } => ELEMENTWISE,
        Unary::LeakyRelu { .. } => ELEMENTWISE,
        Unary::Exp | Unary::Silu | Unary::Gelu | Unary::GeluQuick | Unary::Sigmoid => {
            Profile { function_ulp: kernel::EXPONENTIAL_ULP, ..ELEMENTWISE }
        }
        // In f64, rounded once.
        Unary::Log | Unary::Sin | Unary::Cos | Unary::GeluErf | Unary::Tanh | Unary::Softplus => {
            Profile { accumulator: Accumulator::F64, ..ELEMENTWISE }
        }
        Unary::PowScalar { .. } | Unary::Elu { .. } => Profile { accumulator: Accumulator::F64, ..ELEMENTWISE },
    }
}

pub fn compute(op: &Unary, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let y = Call::output_floats(call.output)?;
    let chunks = y.chunks_mut(CHUNK).zip(x.chunks(CHUNK));
    call.team.each(chunks, pieces_min(4 * CHUNK), |(y, x)| kernel::unary(call.instructions, *op, x, y));
    Ok(())
}
