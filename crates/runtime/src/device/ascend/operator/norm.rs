//! Normalisation of rows and groups.

use super::{Call, ELEMENTWISE, FUNCTION_ULP, ONE, expect_f32, expect_plain};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::profile::{Products, Profile};
use trueup_graph::TensorType;
use trueup_graph::op::{Norm, NormRule, RmsNorm};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { products: Products::Rounded, function_ulp: FUNCTION_ULP, ..ELEMENTWISE })
}

pub fn profile_rms(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_plain("w", &inputs[1])?;
    profile(inputs)
}

pub fn compose(op: &Norm, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    let epsilon = f64::from(op.epsilon);
    let x = call.gathered(&x, Type::F32)?;
    match op.rule {
        NormRule::Layer => queue.layer_norm(&x, &[x.sizes[3]], None, None, epsilon, &out, None, None),
        NormRule::Group { groups } => {
            let run = op.run(&call.ty(0).shape) as i64;
            let sizes = [x.sizes[0] * groups as i64, run];
            queue.layer_norm(&x.clone().under(&sizes), &[run], None, None, epsilon, &out.under(&sizes), None, None)
        }
        NormRule::L2 => {
            let lengths = call.room(Type::F32, &[x.sizes[0], x.sizes[1], x.sizes[2], 1])?;
            queue.norm(&x, Scalar::F32(2.0), &[3], true, &lengths)?;
            let divisors = call.room(Type::F32, &lengths.sizes)?;
            queue.clamp_min(&lengths, Scalar::F32(op.epsilon), &divisors)?;
            queue.div(&x, &divisors, &out)
        }
    }
}

/// By the vendor's operator where the chip has it, else piece by piece.
pub fn rms(op: &RmsNorm, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.gathered(&call.input(0)?, Type::F32)?, call.output()?);
    let width = x.sizes[3];
    let w = call.input_f32(1)?;
    let w = call.gathered(&w.clone().ordered(&[3]), Type::F32)?;
    let row = [x.sizes[0], x.sizes[1], x.sizes[2], 1];
    let is_wide = width * 4 >= BYTES_MIN;
    if call.engine.chip.rms_norm && is_wide {
        let rstd = call.room(Type::F32, &row)?;
        return queue.rms_norm(&x, &w, f64::from(op.epsilon), &out, &rstd);
    }
    let squares = call.room(Type::F32, &x.sizes)?;
    queue.mul(&x, &x, &squares)?;
    let (means, roots) = (call.room(Type::F32, &row)?, call.room(Type::F32, &row)?);
    queue.mean(&squares, &[3], true, Type::F32, &means)?;
    queue.adds(&means, Scalar::F32(op.epsilon), ONE, &roots)?;
    queue.rsqrt(&roots, &means)?;
    queue.mul(&x, &means, &out)?;
    queue.mul_by(&out, &Array::clone(&w))
}

/// What a row has at least for the operator on small chips.
const BYTES_MIN: i64 = 32;
