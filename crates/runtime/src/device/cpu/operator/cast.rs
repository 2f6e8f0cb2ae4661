//! The same elements in another type.
//!
//! ```text
//!   f32, f16, bf16, blocks ──row by row──▶ f32 ──▶ any type          every one of them is an f32
//!   i32, i64 ──▶ i64 ──rounded to odd──▶ f32 ──▶ bf16, f16           to f32, and by it to blocks: to nearest
//! ```

use super::{Call, Operand, moved, pieces_min};
use crate::device::cpu::memory::{Target, View};
use crate::device::cpu::team::Team;
use crate::profile::Profile;
use half::{bf16, f16};
use trueup_blocks::{Codec, DType};
use trueup_graph::TensorType;
use trueup_graph::op::Cast;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    if inputs[0].dtype == DType::F64 { Err("x must not be f64".to_owned()) } else { Ok(super::ELEMENTWISE) }
}

pub fn compute(cast: &Cast, mut call: Call) -> Result<(), String> {
    let (x, to) = (call.inputs[0], cast.to);
    if x.ty.dtype == to {
        return moved::copy(call.team, x.view, &mut call.output);
    }
    let (len, team) = (x.ty.shape[0], call.team);
    match call.output {
        Target::F32(cells) if to == DType::I32 => rows(team, &x, cells, len, |row, cells| {
            let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
            let word = |integer: i64| (integer.clamp(*range.start(), *range.end()) as i32).cast_unsigned();
            cells.iter_mut().zip(row.integers()).for_each(|(cell, integer)| *cell = f32::from_bits(word(integer)));
        }),
        Target::F32(cells) => rows(team, &x, cells, len, |row, cells| cells.copy_from_slice(&row.floats())),
        Target::F16(cells) => rows(team, &x, cells, len, |row, cells| {
            cells.iter_mut().zip(row.floats_odd()).for_each(|(cell, float)| *cell = f16::from_f32(float));
        }),
        Target::Bf16(cells) => rows(team, &x, cells, len, |row, cells| {
            cells.iter_mut().zip(row.floats_odd()).for_each(|(cell, float)| *cell = bf16::from_f32(float));
        }),
        Target::Blocks(bytes) if to == DType::I64 => rows(team, &x, bytes.as_chunks_mut().0, len, |row, cells| {
            cells.iter_mut().zip(row.integers()).for_each(|(cell, integer)| *cell = integer.to_le_bytes());
        }),
        Target::Blocks(bytes) => {
            let codec = codec(to)?;
            let row_bytes = x.ty.shape[0] / to.block_len() * to.block_bytes();
            rows(team, &x, bytes, row_bytes, |row, bytes| (codec.encode)(&row.floats(), bytes))
        }
    }
}

/// Writes each row of `x` to `len` cells.
fn rows<T: Send>(
    team: &Team,
    x: &Operand,
    cells: &mut [T],
    len: usize,
    write: impl Fn(Row, &mut [T]) + Sync,
) -> Result<(), String> {
    let targets = cells.chunks_mut(len.max(1)).enumerate();
    team.try_each(targets, pieces_min(len), |(row, cells)| {
        write(Row::read(x, row)?, cells);
        Ok(())
    })
}

/// One row of the input.
enum Row {
    /// Each exactly what is stored, or for blocks rounded once.
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl Row {
    fn read(x: &Operand, row: usize) -> Result<Row, String> {
        let (dtype, len) = (x.ty.dtype, x.ty.shape[0]);
        let cells = row * len..(row + 1) * len;
        Ok(match x.view {
            View::F32(words) if dtype == DType::I32 => {
                Row::Integers(words[cells].iter().map(|word| i64::from(word.to_bits().cast_signed())).collect())
            }
            View::F32(floats) => Row::Floats(floats[cells].to_vec()),
            View::F16(floats) => Row::Floats(floats[cells].iter().map(|float| float.to_f32()).collect()),
            View::Bf16(floats) => Row::Floats(floats[cells].iter().map(|float| float.to_f32()).collect()),
            View::Blocks(bytes) if dtype == DType::I64 => {
                Row::Integers(bytes.as_chunks().0[cells].iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
            }
            View::Blocks(bytes) => {
                let row_bytes = len / dtype.block_len() * dtype.block_bytes();
                Row::decoded(codec(dtype)?, &bytes[row * row_bytes..][..row_bytes], len)
            }
            View::Packed(packed) => {
                let mut bytes = vec![0; packed.row_bytes()];
                packed.unpack_row(row, &mut bytes);
                Row::decoded(codec(dtype)?, &bytes, len)
            }
        })
    }

    fn decoded(codec: &Codec, bytes: &[u8], len: usize) -> Row {
        let mut exact = vec![0.0; len];
        (codec.decode_exact)(bytes, &mut exact);
        Row::Floats(exact.into_iter().map(|exact| exact as f32).collect())
    }

    /// Rounded to nearest.
    fn floats(self) -> Vec<f32> {
        match self {
            Row::Floats(floats) => floats,
            Row::Integers(integers) => integers.into_iter().map(|integer| integer as f32).collect(),
        }
    }

    /// Rounded so that a second rounding, to a narrower type, gives what one would have.
    fn floats_odd(self) -> Vec<f32> {
        match self {
            Row::Floats(floats) => floats,
            Row::Integers(integers) => integers.into_iter().map(to_f32_odd).collect(),
        }
    }

    /// Cut toward zero.
    fn integers(self) -> Vec<i64> {
        match self {
            Row::Floats(floats) => floats.into_iter().map(|float| float as i64).collect(),
            Row::Integers(integers) => integers,
        }
    }
}

/// The 24 bits that an f32 holds, the last of them set where one behind it was cut off ("round to odd", Boldo and
/// Melquiond 2008).
fn to_f32_odd(integer: i64) -> f32 {
    let magnitude = integer.unsigned_abs();
    let bits = u64::BITS - magnitude.leading_zeros();
    let lost = bits.saturating_sub(f32::MANTISSA_DIGITS);
    let kept = magnitude >> lost;
    let sticky = u64::from(kept << lost != magnitude);
    ((kept | sticky) << lost) as f32 * if integer < 0 { -1.0 } else { 1.0 }
}

fn codec(dtype: DType) -> Result<&'static Codec, String> {
    dtype.codec().ok_or_else(|| format!("{dtype} has no codec"))
}
