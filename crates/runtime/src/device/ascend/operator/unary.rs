//! A function of each element.

use super::{Call, ELEMENTWISE, FUNCTION_ULP, ONE, expect_f32};
use crate::device::ascend::acl::{Array, Scalar};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Unary;

/// Beyond it softplus is its argument, to the last bit of f32.
const SOFTPLUS_LINEAR: f32 = 20.0;

/// The factor of the quick gelu.
const QUICK: f32 = 1.702;

pub fn profile(op: &Unary, inputs: &[TensorType]) -> Result<Profile, String> {
    inputs.iter().try_for_each(|ty| expect_f32("x", ty))?;
    let is_exact = matches!(
        op,
        Unary::Sqr
            | Unary::Neg
            | Unary::Abs
            | Unary::Step
            | Unary::Relu
            | Unary::Scale { .. }
            | Unary::Clamp { .. }
            | Unary::LeakyRelu { .. }
    );
    Ok(if is_exact { ELEMENTWISE } else { Profile { function_ulp: FUNCTION_ULP, ..ELEMENTWISE } })
}

pub fn compose(op: &Unary, call: &Call) -> Result<(), String> {
    apply(op, call, &call.input(0)?, &call.output()?)
}

pub fn apply(op: &Unary, call: &Call, x: &Array, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    match *op {
        Unary::Sqr => queue.mul(x, x, out),
        Unary::Sqrt => queue.sqrt(x, out),
        Unary::Exp => queue.exp(x, out),
        Unary::Log => queue.log(x, out),
        Unary::Sin => queue.sin(x, out),
        Unary::Cos => queue.cos(x, out),
        Unary::Neg => queue.neg(x, out),
        Unary::Abs => queue.abs(x, out),
        Unary::Step => {
            let is_positive = call.room(crate::device::ascend::acl::Type::Bool, &out.sizes)?;
            queue.greater(x, Scalar::F32(0.0), &is_positive)?;
            queue.copy_to(out, &is_positive)
        }
        Unary::Relu => queue.relu(x, out),
        Unary::Silu => queue.silu(x, out),
        Unary::Gelu => queue.gelu(x, 1, out),
        Unary::GeluErf => queue.gelu(x, 0, out),
        Unary::GeluQuick => {
            let scaled = call.room(x.ty, &x.sizes)?;
            queue.muls(x, Scalar::F32(QUICK), &scaled)?;
            queue.sigmoid(&scaled, out)?;
            queue.mul_by(out, x)
        }
        Unary::Sigmoid => queue.sigmoid(x, out),
        Unary::Tanh => queue.tanh(x, out),
        Unary::Hardsigmoid => queue.hardsigmoid(x, out),
        Unary::Hardswish => queue.hardswish(x, out),
        Unary::Softplus => queue.softplus(x, ONE, Scalar::F32(SOFTPLUS_LINEAR), out),
        Unary::Scale { factor, bias } => {
            let scaled = call.room(x.ty, &x.sizes)?;
            queue.muls(x, Scalar::F32(factor), &scaled)?;
            queue.adds(&scaled, Scalar::F32(bias), ONE, out)
        }
        Unary::Clamp { min, max } => queue.clamp(x, Scalar::F32(min), Scalar::F32(max), out),
        Unary::PowScalar { exponent } => queue.pow_scalar(x, Scalar::F32(exponent), out),
        Unary::LeakyRelu { slope } => queue.leaky_relu(x, Scalar::F32(slope), out),
        Unary::Elu { alpha } => queue.elu(x, Scalar::F32(alpha), ONE, ONE, out),
    }
}
