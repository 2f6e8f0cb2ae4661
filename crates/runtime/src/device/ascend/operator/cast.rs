//! Elements in another type. Blocks are decoded and encoded; of the same type they are moved.

use super::encode::{cut, encode};
use super::get_rows::{decode, expect_readable};
use super::{Call, ELEMENTWISE};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::chip::Chip;
use crate::device::ascend::pool::Room;
use crate::device::ascend::split::{Matrix, Split};
use crate::profile::Profile;
use half::f16;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// From here on numbers are infinite in f16.
const F16_END: f32 = 65_520.0;

pub fn profile(op: &Op, inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    let Op::Cast(cast) = op else { return Err("it is not a cast".to_owned()) };
    expect_readable("x", &inputs[0], chip)?;
    expect_readable("the output", &TensorType { dtype: cast.to, ..inputs[0] }, chip)?;
    if is_integer(inputs[0].dtype) && cast.to == DType::Bf16 {
        return Err("integers are converted to bf16 through f32, which rounds some of them twice".to_owned());
    }
    Ok(ELEMENTWISE)
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I64)
}

pub fn compose(call: &Call) -> Result<(), String> {
    let (from, to) = (call.ty(0).dtype, call.step.output.ty.dtype);
    if Split::of(&call.step.output.ty).is_some() {
        let targets = call.output_matrices()?;
        return if from == to { moved(call, &targets) } else { encode(call, &*in_f32(call)?, &targets) };
    }
    let (queue, out) = (&call.engine.queue, call.output()?);
    if call.engine.chip.f16_saturates && to == DType::F16 && from != to {
        return halves(call, &*in_f32(call)?, &out);
    }
    if !is_integer(to) || from == to {
        return if Split::of(call.ty(0)).is_some() {
            decoded(call, &out)
        } else {
            queue.copy_to(&out, &call.input(0)?)
        };
    }
    if from == DType::I64 {
        let x = call.input(0)?;
        let within = call.room(Type::I64, &x.sizes)?;
        let [least, most] = [i32::MIN, i32::MAX].map(|end| Scalar::I64(i64::from(end)));
        queue.clamp(&x, least, most, &within)?;
        return queue.copy_to(&out, &within);
    }
    if from == DType::I32 { queue.copy_to(&out, &call.input(0)?) } else { whole(call, &*in_f32(call)?, &out) }
}

/// Blocks in the type of `out`, whose sizes they have.
fn decoded(call: &Call, out: &Array) -> Result<(), String> {
    let [_, _, n2, _] = call.ty(0).shape.sizes();
    for (number, matrix) in call.matrices(0)?.iter().enumerate() {
        let place = out.clone().part(0, (number / n2) as i64, 1).part(1, (number % n2) as i64, 1);
        decode(call, matrix, &place.ordered(&[2, 3]))?;
    }
    Ok(())
}

/// The input in f32, without gaps.
fn in_f32(call: &Call) -> Result<super::Seen, String> {
    if Split::of(call.ty(0)).is_none() {
        return call.gathered(&call.input(0)?, Type::F32);
    }
    let sizes: Vec<i64> = call.ty(0).shape.sizes().iter().rev().map(|size| *size as i64).collect();
    let room = call.room(Type::F32, &sizes)?;
    decoded(call, &room)?;
    Ok(super::Seen::There(room))
}

/// Blocks of the same type.
fn moved(call: &Call, targets: &[Matrix]) -> Result<(), String> {
    let queue = &call.engine.queue;
    for (source, target) in call.matrices(0)?.iter().zip(targets) {
        queue.copy_to(&target.code_bytes(), &source.code_bytes())?;
        queue.copy_to(&target.scales, &source.scales)?;
    }
    Ok(())
}

/// Numbers in f16: infinite beyond its range, where the chip's operators give the largest number. So infinities are
/// written as bytes.
fn halves(call: &Call, x: &Array, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    queue.copy_to(out, x)?;
    let bytes = |place: i64| {
        let steps = out.steps.iter().map(|step| 2 * step).collect();
        Array { ty: Type::I8, offset: 2 * out.offset + place, steps, ..out.clone() }
    };
    for (mask, infinity) in beyond(call, x, F16_END.next_down())?.iter().zip([f16::INFINITY, f16::NEG_INFINITY]) {
        for (place, byte) in (0..).zip(infinity.to_le_bytes()) {
            queue.fill_where(&bytes(place), mask, Scalar::I64(i64::from(byte.cast_signed())))?;
        }
    }
    Ok(())
}

/// Numbers cut to integers; beyond the range of `out` its first and its last, and 0 for what is no number.
fn whole(call: &Call, x: &Array, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    let (end, last) =
        if out.ty == Type::I64 { (2f32.powi(63), i64::MAX) } else { (2f32.powi(31), i64::from(i32::MAX)) };
    let numbers = cut(call, x)?;
    let [above, below] = beyond(call, &numbers, end.next_down())?;
    queue.fill_where(&numbers, &above, Scalar::F32(0.0))?;
    queue.fill_where(&numbers, &below, Scalar::F32(-end))?;
    let (integers, most) = (call.room(out.ty, &x.sizes)?, call.room(out.ty, &x.sizes)?);
    queue.cast(&numbers, out.ty, &integers)?;
    queue.fill(&most, Scalar::I64(last))?;
    queue.choose(&above, &most, &integers, out)
}

/// Which numbers are above a limit, and which are below minus the limit.
fn beyond(call: &Call, x: &Array, limit: f32) -> Result<[Room; 2], String> {
    let queue = &call.engine.queue;
    let opposite = call.room(Type::F32, &x.sizes)?;
    let [above, below] = [call.room(Type::Bool, &x.sizes)?, call.room(Type::Bool, &x.sizes)?];
    queue.greater(x, Scalar::F32(limit), &above)?;
    queue.neg(x, &opposite)?;
    queue.greater(&opposite, Scalar::F32(limit), &below)?;
    Ok([above, below])
}
