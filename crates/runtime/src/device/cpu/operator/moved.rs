//! Elements that are moved as they are, in every type that this device keeps.

use super::ELEMENTWISE;
use crate::device::cpu::gather::{self, Places};
use crate::device::cpu::memory::{Target, View};
use crate::device::cpu::team::Team;
use crate::profile::Profile;
use half::{bf16, f16};
use trueup_blocks::DType;
use trueup_graph::{Shape, Strides, TensorType};

/// Bytes of an i64.
const LONG: usize = DType::I64.block_bytes();

/// What is declared about moving elements of this type.
pub fn profile(what: &str, ty: &TensorType) -> Result<Profile, String> {
    let kept = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::I32 | DType::I64);
    if kept { Ok(ELEMENTWISE) } else { Err(format!("{what} must be f32, f16, bf16, i32 or i64, not {}", ty.dtype)) }
}

/// Distances of neighbours along each dimension, in elements, of a tensor without gaps.
pub fn strides([n0, n1, n2, _]: [usize; 4]) -> [usize; 4] {
    [1, n0, n0 * n1, n0 * n1 * n2]
}

/// Zero everywhere.
pub fn zero(target: &mut Target) {
    match target {
        Target::F32(cells) => cells.fill(0.0),
        Target::F16(cells) => cells.fill(f16::ZERO),
        Target::Bf16(cells) => cells.fill(bf16::ZERO),
        Target::Blocks(bytes) => bytes.fill(0),
    }
}

/// Elements to the places that they belong to; of blocks only i64.
pub fn gather(team: &Team, source: View, places: &Places, target: &mut Target) -> Result<(), String> {
    match (source, target) {
        (View::F32(x), Target::F32(y)) => gather::gather(team, x, places, y),
        (View::F16(x), Target::F16(y)) => gather::gather(team, x, places, y),
        (View::Bf16(x), Target::Bf16(y)) => gather::gather(team, x, places, y),
        (View::Blocks(x), Target::Blocks(y)) => {
            gather::gather(team, x.as_chunks::<LONG>().0, places, y.as_chunks_mut::<LONG>().0);
        }
        _ => return Err(MIXED.to_owned()),
    }
    Ok(())
}

/// What a view of this shape shows of its source.
pub fn show(team: &Team, source: View, shape: &Shape, target: &mut Target) -> Result<(), String> {
    let Strides { offset, steps } = shape.strides();
    let places = Places::new(shape.sizes(), |d, i| Some(i * steps[d] + if d == 0 { offset } else { 0 }));
    gather(team, source, &places, target)
}

/// All elements, in any type.
pub fn copy(team: &Team, source: View, target: &mut Target) -> Result<(), String> {
    match (source, target) {
        (View::F32(x), Target::F32(y)) => y.copy_from_slice(x),
        (View::F16(x), Target::F16(y)) => y.copy_from_slice(x),
        (View::Bf16(x), Target::Bf16(y)) => y.copy_from_slice(x),
        (View::Blocks(x), Target::Blocks(y)) => y.copy_from_slice(x),
        (View::Packed(x), Target::Blocks(y)) => x.unpack(team, y),
        _ => return Err(MIXED.to_owned()),
    }
    Ok(())
}

const MIXED: &str = "a tensor is in memory of a different type; allocate it with its type";
