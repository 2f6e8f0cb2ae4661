//! Taking elements by index. An index out of range is not looked for on the device: the hardware traps or reads what is
//! there, and the launch ends in 507015 here.

use super::{
    Work,
    argument::Tensor,
    call::Call,
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{memory::Fault, status::Refusal};

/// Types that are moved.
pub const MOVED: &str = "f32,f16,bf16,i64,i32,i16,i8,u8,u16,u32,u64,b,f64";

/// The indices of an operand, each in `0..size`.
pub fn indices(stage: &Stage, slot: Slot, size: u64) -> Result<Vec<u64>, Fault> {
    let indices: Vec<i64> = stage.read(slot)?;
    if let Some((place, index)) = indices.iter().enumerate().find(|(_, index)| !(0..size as i64).contains(*index)) {
        return Err(stage.trap(slot, format!("contains index {index} at place {place}, which is out of 0..{size}")));
    }
    Ok(indices.into_iter().map(|index| index as u64).collect())
}

/// Whole pieces behind an axis: copies piece `index` for each index, for each place before the axis.
fn take(call: &mut Call, x: Tensor, axis: usize, index: Tensor, out: Tensor, shape: &[u64]) -> Result<Work, Refusal> {
    call.typed(&index, "i32,i64")?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, shape)?;
    call.keep_apart();
    let (x, index, out) = (call.input(&x), call.trapped(&index), call.output(&out));
    work(move |stage| {
        let source = stage.view(x);
        let indices = indices(stage, index, source.shape[axis])?;
        if stage.view(out).count() == 0 {
            return Ok(());
        }
        let size = source.ty.bits() / 8;
        if axis == 0 {
            let pieces = indices.iter().map(|&index| source.at_index(0, index).read_bytes(stage.memory));
            let bytes: Vec<u8> = pieces.collect::<Result<Vec<_>, _>>()?.concat();
            return stage.view(out).write_bytes(stage.memory, &bytes);
        }
        let bytes = source.read_bytes(stage.memory)?;
        let piece = (source.shape[axis + 1..].iter().product::<u64>() * size) as usize;
        let line = piece * source.shape[axis] as usize;
        let of_line = |line: &[u8]| {
            indices.iter().flat_map(|&index| line[index as usize * piece..][..piece].to_vec()).collect::<Vec<u8>>()
        };
        let taken: Vec<u8> = bytes.chunks(line).flat_map(of_line).collect();
        stage.view(out).write_bytes(stage.memory, &taken)
    })
}

fn index_select(call: &mut Call, x: Tensor, dim: i64, index: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "GatherV2", MOVED)?;
    call.rank(&x, 1..=8)?;
    call.rank(&index, 0..=1)?;
    let axis = call.axis(&x, dim, "dim")?;
    let mut shape = x.shape().to_vec();
    shape[axis] = index.view.count();
    take(call, x, axis, index, out, &shape)
}

fn gather_slices(call: &mut Call, x: Tensor, dim: i64, index: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "GatherV2", MOVED)?;
    call.rank(&x, 1..=8)?;
    call.rank(&index, 1..=8)?;
    let axis = call.axis(&x, dim, "dim")?;
    let shape = [&x.shape()[..axis], index.shape(), &x.shape()[axis + 1..]].concat();
    take(call, x, axis, index, out, &shape)
}

fn gather_in_batches(
    call: &mut Call,
    x: Tensor,
    dim: i64,
    index: Tensor,
    batch_dims: i64,
    mode: i64,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "GatherV3", MOVED)?;
    call.require(batch_dims == 0, "batchDims", || format!("is {batch_dims}, and the simulator supports only 0"))?;
    call.require((0..=1).contains(&mode), "mode", || format!("is {mode}"))?;
    gather_slices(call, x, dim, index, out)
}

fn embedding(call: &mut Call, weight: Tensor, indices: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&weight, "GatherV2", "bf16,f32,f16,i64,i32,i16,i8,u8,b,f64")?;
    call.rank(&weight, 2..=2)?;
    let shape = [indices.shape(), &weight.shape()[1..]].concat();
    take(call, weight, 0, indices, out, &shape)
}

fn gather_elements(call: &mut Call, x: Tensor, dim: i64, index: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "GatherElementsV2", MOVED)?;
    call.on_chip(call.chip.is_c220())?;
    let axis = call.axis(&x, dim, "dim")?;
    call.typed(&index, "i32,i64")?;
    let fits = index.rank() == x.rank()
        && index.shape().iter().zip(x.shape()).enumerate().all(|(at, (a, b))| at == axis || a <= b);
    call.require(fits && x.rank() > 0, "index", || {
        "is not within self in the dimensions other than the axis".to_owned()
    })?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, index.shape())?;
    call.keep_apart();
    let (x, index, out) = (call.input(&x), call.trapped(&index), call.output(&out));
    work(move |stage| {
        let (source, shape) = (stage.view(x), stage.view(index).shape.clone());
        let taken = indices(stage, index, source.shape[axis])?;
        let within = (0..shape.len())
            .fold(source.clone(), |view, at| if at == axis { view } else { view.part(at, 0, shape[at], 1) });
        let bytes = within.read_bytes(stage.memory)?;
        let size = (source.ty.bits() / 8) as usize;
        let inner: u64 = shape[axis + 1..].iter().product();
        let place = |(at, &index): (usize, &u64)| {
            let (outer, rest) = (at as u64 / inner / shape[axis], at as u64 % inner);
            ((outer * source.shape[axis] + index) * inner + rest) as usize * size
        };
        let gathered: Vec<u8> =
            taken.iter().enumerate().map(place).flat_map(|at| bytes[at..at + size].to_vec()).collect();
        stage.view(out).write_bytes(stage.memory, &gathered)
    })
}

operators! {
    "IndexSelect"(self_: Tensor, dim: i64, index: Tensor, out: Tensor) => index_select;
    "GatherV2"(self_: Tensor, dim: i64, index: Tensor, out: Tensor) => gather_slices;
    "GatherV3"(self_: Tensor, dim: i64, index: Tensor, batchDims: i64, mode: i64, out: Tensor) => gather_in_batches;
    "Embedding"(weight: Tensor, indices: Tensor, out: Tensor) => embedding;
    "Gather"(self_: Tensor, dim: i64, index: Tensor, out: Tensor) => gather_elements;
}
