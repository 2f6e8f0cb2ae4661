//! Floating point as blocks of 32 codes and a scale, by the reference rule of each type: every step of it is one of the
//! vendor's operators, which rounds as the rule does.
//!
//! ```text
//!  q8_0   d = largest |w| / 127           code = w / d, halves away from zero
//!  q4_0   d = w of largest |w| / -8       code = w / d + 8.5, cut, at most 15; less 8
//! ```

use super::{Call, ONE};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::pool::Room;
use crate::device::ascend::split::{LEN, Matrix};

/// The largest f32 below one half: with it added and the point cut off, halves go away from zero, and nothing below
/// them does.
const PULL: f32 = 0.5 - f32::EPSILON / 4.0;

/// From here to its double, f32 are the integers.
const WHOLE: f32 = 8_388_608.0;

/// Rows `x` of f32 without gaps as blocks of matrices that take them one behind the other, all of one type.
pub fn encode(call: &Call, x: &Array, targets: &[Matrix]) -> Result<(), String> {
    let Some(first) = targets.first().filter(|_| x.elements() > 0) else { return Ok(()) };
    let x = x.clone().under(&[x.elements() / LEN as i64, LEN as i64]);
    let (codes, scales) = if first.codes.ty == Type::I4 { q4_0(call, &x) } else { q8_0(call, &x) }?;
    let columns = first.codes.sizes[1];
    let rows = x.elements() / columns;
    let [codes, scales] = [(codes, columns), (scales, columns / LEN as i64)]
        .map(|(room, columns)| (room.clone().under(&[rows, columns]), room));
    let mut row = 0;
    for target in targets {
        let count = target.codes.sizes[0];
        let part = |array: &Array| array.clone().part(0, row, count);
        write(call, &part(&codes.0), target)?;
        call.engine.queue.cast(&part(&scales.0), Type::F16, &target.scales)?;
        row += count;
    }
    Ok(())
}

/// Integers in f32 as codes. Two of 4 bits are a byte, the first one its lower half: `16 b + a`, and 16 more where `a`
/// is negative. The vendor's operator that packs them does so on the host, when it is asked what it needs: it would see
/// what the card has not computed yet.
fn write(call: &Call, codes: &Array, target: &Matrix) -> Result<(), String> {
    let queue = &call.engine.queue;
    if target.codes.ty != Type::I4 {
        return queue.cast(codes, target.codes.ty, &target.codes);
    }
    let pairs = codes.clone().split(1, codes.sizes[1] / 2);
    let half = |place: i64| {
        let half = call.room(Type::F32, &[codes.sizes[0], codes.sizes[1] / 2, 1])?;
        queue.copy_to(&half, &pairs.clone().part(2, place, 1)).map(|()| half)
    };
    let (lower, upper) = (half(0)?, half(1)?);
    let (below, is_below) = (call.room(Type::F32, &lower.sizes)?, call.room(Type::Bool, &lower.sizes)?);
    queue.muls(&lower, Scalar::F32(-1.0), &below)?;
    queue.greater(&below, Scalar::F32(0.0), &is_below)?;
    queue.copy_to(&below, &is_below)?;
    queue.muls(&upper, Scalar::F32(16.0), &upper)?;
    queue.sub(&upper, &lower, Scalar::F32(-1.0), &upper)?;
    queue.sub(&upper, &below, Scalar::F32(-16.0), &upper)?;
    let bytes = target.code_bytes();
    queue.cast(&upper.clone().under(&bytes.sizes), Type::I8, &bytes)
}

/// Codes and scales of blocks `[blocks, 32]`.
fn q8_0(call: &Call, x: &Array) -> Result<(Room, Room), String> {
    let queue = &call.engine.queue;
    let (codes, scales) = (call.room(Type::F32, &x.sizes)?, call.room(Type::F32, &[x.sizes[0], 1])?);
    queue.abs(x, &codes)?;
    queue.largest(&codes, &[1], true, &scales)?;
    queue.divs(&scales, Scalar::F32(127.0), &scales)?;
    queue.mul(x, &*reciprocal(call, &scales)?, &codes)?;
    // What is below a half has the code 0, whatever sign.
    let sign = call.room(Type::F32, &x.sizes)?;
    queue.muls(&codes, Scalar::F32(2.0), &sign)?;
    queue.clamp(&sign, Scalar::F32(-1.0), ONE, &sign)?;
    queue.abs(&codes, &codes)?;
    queue.adds(&codes, Scalar::F32(PULL), ONE, &codes)?;
    let codes = floor(call, &codes)?;
    queue.mul_by(&codes, &sign)?;
    Ok((codes, scales))
}

/// As above; the first of several largest gives the sign.
fn q4_0(call: &Call, x: &Array) -> Result<(Room, Room), String> {
    let queue = &call.engine.queue;
    let codes = call.room(Type::F32, &x.sizes)?;
    let each = |ty| call.room(ty, &[x.sizes[0], 1]);
    queue.abs(x, &codes)?;
    let (place, number) = (each(Type::I32)?, each(Type::F32)?);
    queue.argmax(&codes, 1, true, &place)?;
    queue.cast(&place, Type::F32, &number)?;
    let numbers = call.room(Type::F32, &[LEN as i64])?;
    queue.arange(Scalar::F32(0.0), Scalar::F32(LEN as f32), ONE, &numbers)?;
    queue.sub(&numbers, &number, ONE, &codes)?;
    queue.abs(&codes, &codes)?;
    let others = call.room(Type::Bool, &x.sizes)?;
    queue.greater(&codes, Scalar::F32(0.0), &others)?;
    queue.copy_to(&codes, x)?;
    queue.fill_where(&codes, &others, Scalar::F32(0.0))?;
    let scales = each(Type::F32)?;
    queue.sum(&codes, &[1], true, Type::F32, &scales)?;
    queue.muls(&scales, Scalar::F32(-0.125), &scales)?;
    queue.mul(x, &*reciprocal(call, &scales)?, &codes)?;
    queue.adds(&codes, Scalar::F32(8.5), ONE, &codes)?;
    let codes = floor(call, &codes)?;
    queue.clamp(&codes, Scalar::F32(0.0), Scalar::F32(15.0), &codes)?;
    queue.adds(&codes, Scalar::F32(-8.0), ONE, &codes)?;
    Ok((codes, scales))
}

/// `1 / x`, and 0 where that is infinite: blocks of zeros have the scale 0.
fn reciprocal(call: &Call, x: &Array) -> Result<Room, String> {
    let queue = &call.engine.queue;
    let (inverse, size) = (call.room(Type::F32, &x.sizes)?, call.room(Type::F32, &x.sizes)?);
    let one = call.room(Type::F32, &[1])?;
    queue.fill(&one, ONE)?;
    queue.div(&one, x, &inverse)?;
    queue.abs(&inverse, &size)?;
    let endless = call.room(Type::Bool, &x.sizes)?;
    queue.greater(&size, Scalar::F32(f32::MAX), &endless)?;
    queue.fill_where(&inverse, &endless, Scalar::F32(0.0))?;
    Ok(inverse)
}

/// Numbers from 0 to 2^23 with what is behind the point cut off: how the vendor's cast to integers rounds no page says,
/// but 2^23 more are an integer, rounded to nearest, and where that is too many it is by one.
pub fn floor(call: &Call, x: &Array) -> Result<Room, String> {
    let queue = &call.engine.queue;
    let (whole, above) = (call.room(Type::F32, &x.sizes)?, call.room(Type::F32, &x.sizes)?);
    queue.adds(x, Scalar::F32(WHOLE), ONE, &whole)?;
    queue.adds(&whole, Scalar::F32(-WHOLE), ONE, &whole)?;
    queue.sub(&whole, x, ONE, &above)?;
    let is_above = call.room(Type::Bool, &x.sizes)?;
    queue.greater(&above, Scalar::F32(0.0), &is_above)?;
    queue.copy_to(&above, &is_above)?;
    queue.sub(&whole, &above, ONE, &whole)?;
    Ok(whole)
}

/// Numbers with what is behind the point cut off; from 2^23 on there is nothing.
pub fn cut(call: &Call, x: &Array) -> Result<Room, String> {
    let queue = &call.engine.queue;
    let (size, below) = (call.room(Type::F32, &x.sizes)?, call.room(Type::F32, &x.sizes)?);
    queue.abs(x, &size)?;
    queue.clamp(&size, Scalar::F32(0.0), Scalar::F32(WHOLE), &below)?;
    queue.sub(&below, &*floor(call, &below)?, ONE, &below)?;
    queue.sub(&size, &below, ONE, &size)?;
    // What is below one became 0, whatever sign.
    queue.clamp(x, Scalar::F32(-1.0), ONE, &below)?;
    queue.mul_by(&size, &below)?;
    Ok(size)
}
