//! The product that all matrix operators stand on: inputs rounded as the cube takes them, sums in f32.
//!
//! ```text
//!   left  (m, k)   packed f32, rounded            out[i][j] = sum over t of left[i][t] * right[j][t]
//!   right (n, k)   one row at a time, rounded     lane l adds the terms with t mod 16 = l in rising order; then the lanes are added in rising order
//! ```
//!
//! A product of two f16 (or of two HF32) is exact in f32. The hardware's order of sums is unknown: with `sums:
//! permuted` the terms are taken in a drawn order.

use super::{argument::Tensor, call::Call, stage::Stage};
use crate::{
    chip::Chip,
    element::{Number, Type, decode, through_bf16, through_f16, through_hf32},
    memory::Fault,
    settings::FaultKind,
    status::Refusal,
    view::View,
};
use multiversion::multiversion;
use rayon::prelude::*;

/// As what the cube takes its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cube {
    /// As they are.
    Single,
    /// Rounded to 11 significand bits.
    Hf32,
    /// Rounded to f16.
    F16,
    /// Rounded to bf16.
    Bf16,
}

impl Cube {
    /// The way of a `cubeMathType` for inputs that meet in a type (ABI 4.4).
    ///
    /// # Errors
    /// 161002: a number that is no way, or none of this chip.
    pub fn of(call: &Call, math: i8, meeting: Type) -> Result<Self, Refusal> {
        let refuse = |what: &str| Err(call.refusal("cubeMathType", format!("is {math}: {what}")));
        let kept = match meeting {
            Type::F16 => Self::F16,
            Type::Bf16 => Self::Bf16,
            _ => Self::Single,
        };
        let single = kept == Self::Single;
        match (math, call.chip.cube_f32) {
            (0, false) if single => refuse("this chip's cube unit does not support f32"),
            (0, _) => Ok(kept),
            (1, true) if single => Ok(Self::Hf32),
            (1, false) | (4, false) => Ok(Self::F16),
            (1, true) | (4, true) => Ok(kept),
            (2, _) if meeting == Type::Bf16 => refuse("bf16 does not become f16"),
            (2, _) => Ok(Self::F16),
            (3, true) if single => Ok(Self::Hf32),
            (3, _) => refuse("HF32 is for f32 on 910B and A3"),
            _ => refuse("0 to 4 are expected"),
        }
    }

    /// Rounds inputs.
    pub fn round(self, values: &mut [f32], chip: &Chip) {
        match self {
            Self::Single => {}
            Self::Hf32 => through_hf32(values),
            Self::F16 => through_f16(values, chip.f16_saturates),
            Self::Bf16 => through_bf16(values),
        }
    }
}

/// Rows of the right operand, (n, k).
pub enum Right<'a> {
    /// Elements as they lie: row j at `j * stride`.
    Lying {
        /// From the first element on.
        bytes: &'a [u8],
        /// Their type.
        ty: Type,
        /// Elements from row to row.
        stride: usize,
    },
    /// Decoded, packed.
    Values(Vec<f32>),
}

impl<'a> Right<'a> {
    /// The rows of a view (n, k).
    pub fn of(stage: &'a Stage, view: &View) -> Result<Self, Fault> {
        let rows_lie_packed = view.strides[1] == 1 || view.shape[1] == 1;
        if !rows_lie_packed || view.ty == Type::I4 || view.count() == 0 || stage.drawn.has(FaultKind::ThroughF16) {
            return Ok(Self::Values(stage.read_view(view)?));
        }
        let size = view.ty.bits() / 8;
        let bytes = stage.memory.bytes(view.at + view.offset * size, (view.end() - view.offset) * size)?;
        Ok(Self::Lying { bytes, ty: view.ty, stride: view.strides[0] as usize })
    }

    /// Row `index` into a slice of k numbers.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        match self {
            Self::Values(values) => row.copy_from_slice(&values[index * row.len()..][..row.len()]),
            Self::Lying { bytes, ty, stride } => {
                let size = ty.bits() as usize / 8;
                decode(*ty, &bytes[index * stride * size..][..row.len() * size], row);
            }
        }
    }
}

/// Sizes of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
}

const LANES: usize = 16;

/// The sum of products in f32: lane by lane, then over the lanes.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2", "aarch64+neon"))]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (a_parts, a_rest) = a.as_chunks::<LANES>();
    let (b_parts, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_parts.iter().zip(b_parts) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    lanes.iter().sum()
}

/// Multiplications from which on threads are worth it.
const THREADED: usize = 1 << 18;

/// The product as packed f32 (m, n). `row` gives row j of the right operand, not yet rounded; `left` is packed and
/// rounded.
pub fn product(
    stage: &Stage,
    sizes: Sizes,
    cube: Cube,
    mut left: Vec<f32>,
    row: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    let Sizes { m, n, k } = sizes;
    let order = stage.drawn.order(k);
    let mut spare = Vec::new();
    if k > 0 {
        left.chunks_mut(k).for_each(|left| drop_group(stage, left));
        left.chunks_mut(k).for_each(|left| order.apply(left, &mut spare));
    }
    let column = |j: usize, sums: &mut [f32], right: &mut Vec<f32>, spare: &mut Vec<f32>| {
        right.resize(k, 0.0);
        row(j, right);
        cube.round(right, stage.chip);
        order.apply(right, spare);
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = dot(&left[i * k..][..k], right);
        }
    };
    let mut columns = vec![0f32; m * n];
    if m == 0 {
        return columns;
    }
    if m * n * k < THREADED {
        let mut right = Vec::new();
        columns.chunks_mut(m).enumerate().for_each(|(j, sums)| column(j, sums, &mut right, &mut spare));
    } else {
        let make = || (Vec::new(), Vec::new());
        columns
            .par_chunks_mut(m)
            .enumerate()
            .for_each_init(make, |(right, spare), (j, sums)| column(j, sums, right, spare));
    }
    let mut out = transposed(&columns, n, m);
    spoil_tile(stage, &mut out, m, n);
    out
}

/// A packed matrix (rows, columns) turned.
pub fn transposed(matrix: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    if rows == 1 || columns == 1 {
        return matrix.to_vec();
    }
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}

/// Terms in a group that the fault leaves out.
const GROUP: usize = 32;

/// Leaves a group of one side's factors out of a sum, where that fault was drawn.
pub fn drop_group<T: Number>(stage: &Stage, factors: &mut [T]) {
    if stage.drawn.has(FaultKind::DroppedGroup) && !factors.is_empty() {
        let group = stage.drawn.number(3) as usize % factors.len().div_ceil(GROUP);
        factors.iter_mut().skip(group * GROUP).take(GROUP).for_each(|value| *value = T::default());
    }
}

/// Edge of the cube's tile.
const TILE: usize = 16;

/// Makes a tile of a packed result (m, n) wrong, where that fault was drawn.
pub fn spoil_tile<T: Number>(stage: &Stage, out: &mut [T], m: usize, n: usize) {
    if !stage.drawn.has(FaultKind::WrongTile) || out.is_empty() {
        return;
    }
    let top = stage.drawn.number(4) as usize % m.div_ceil(TILE) * TILE;
    let left = stage.drawn.number(5) as usize % n.div_ceil(TILE) * TILE;
    for row in out.chunks_mut(n).skip(top).take(TILE) {
        row.iter_mut().skip(left).take(TILE).for_each(|value| *value = T::of_f64(1.0 - 0.5 * value.f64()));
    }
}

/// The left operand (m, k) as packed numbers, rounded.
pub fn rounded(stage: &Stage, view: &View, cube: Cube) -> Result<Vec<f32>, Fault> {
    let mut values: Vec<f32> = stage.read_view(view)?;
    cube.round(&mut values, stage.chip);
    Ok(values)
}

/// Workspace that a product asks for: tiles and a result.
pub fn ask(call: &mut Call, out: &Tensor) {
    call.asks(32 * 1024 + out.view.ty.bytes(out.view.count()).min(1 << 20));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_is_its_lanes_in_order() {
        for count in [0usize, 1, 15, 16, 17, 100, 257] {
            let a: Vec<f32> = (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let b: Vec<f32> = (0..count).map(|i| ((i * 53 % 97) as f32 - 48.0) / 3.0).collect();
            let lane = |lane: usize| (lane..count).step_by(16).fold(0f32, |sum, i| sum + a[i] * b[i]);
            let expected = (0..16).fold(0f32, |sum, index| sum + lane(index));
            assert_eq!(dot(&a, &b).to_bits(), (expected + 0.0).to_bits(), "{count} terms");
        }
    }
}
