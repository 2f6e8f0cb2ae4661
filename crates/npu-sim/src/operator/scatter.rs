//! Writing elements by index. An index out of range ends the launch in 507015; the order of equal indices is not kept
//! by the hardware, here the last one stays.
//!
//! Integers are computed in i64, and what is beyond their type loses its high bits; floats in f64.
//!
//! The whole target counts as written, since which of it is written stands on the device.

use super::{
    Work,
    argument::{Ints, Scalar, Tensor, Tensors},
    call::{Call, broadcast, sizes},
    elementwise::Arithmetic,
    gather::{MOVED, indices},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{element::Form, memory::Fault, status::Refusal, view::View};

/// Writes piece `place` of the source's axis to index `indices[place]` of the target's.
fn put_pieces(stage: &Stage, target: &View, source: &View, axis: usize, indices: &[u64]) -> Result<(), Fault> {
    indices.iter().enumerate().try_for_each(|(place, &index)| {
        super::shape::move_view(stage, &source.at_index(axis, place as u64), &target.at_index(axis, index))
    })
}

fn index_copy(call: &mut Call, target: Tensor, dim: i64, index: Tensor, source: Tensor) -> Result<Work, Refusal> {
    call.kernel(&target, "ScatterUpdate", MOVED)?;
    call.rank(&target, 1..=8)?;
    let axis = call.axis(&target, dim, "dim")?;
    call.typed(&index, "i32,i64")?;
    call.rank(&index, 0..=1)?;
    call.type_is(&source, target.ty())?;
    let mut shape = target.shape().to_vec();
    shape[axis] = index.view.count();
    call.shape(&source, &shape)?;
    call.keep_apart();
    let (target, index, source) = (call.output(&target), call.trapped(&index), call.input(&source));
    work(move |stage| {
        let target = stage.view(target);
        let indices = indices(stage, index, target.shape[axis])?;
        put_pieces(stage, target, stage.view(source), axis, &indices)
    })
}

/// Fills whole indices of an axis with a number; the indices are the host's.
fn index_fill(
    call: &mut Call,
    x: &Tensor,
    dim: i64,
    index: Ints,
    value: Scalar,
    out: Option<&Tensor>,
) -> Result<Work, Refusal> {
    call.kernel(x, "IndexFillD", "f16,f32,i32,i64,b,bf16")?;
    let axis = call.axis(x, dim, "dim")?;
    call.rank(x, 1..=8)?;
    let size = x.shape()[axis] as i64;
    let places = index.iter().map(|&index| if index < 0 { index + size } else { index }).collect::<Vec<_>>();
    call.require(places.iter().all(|index| (0..size).contains(index)), "index", || {
        format!("is {index:?}, the axis has {size}")
    })?;
    if let Some(out) = out {
        call.type_is(out, x.ty())?;
        call.shape(out, x.shape())?;
        call.keep_apart();
    }
    let source = if out.is_some() { call.input(x) } else { call.in_place(x) };
    let out = out.map_or(source, |out| call.output(out));
    work(move |stage| {
        let target = stage.view(out);
        if out != source {
            super::shape::move_view(stage, stage.view(source), target)?;
        }
        places.iter().try_for_each(|&place| {
            let piece = target.at_index(axis, place as u64);
            let count = piece.count() as usize;
            if piece.ty.form() == Form::Whole {
                stage.write_view(&piece, &vec![value.value.whole; count])
            } else {
                stage.write_view(&piece, &vec![value.value.real; count])
            }
        })
    })
}

fn scatter_nd(call: &mut Call, target: Tensor, index: Tensor, updates: Tensor) -> Result<Work, Refusal> {
    call.kernel(&target, "ScatterNdUpdate", "f16,bf16,f32,i64,b,i8")?;
    call.rank(&target, 1..=8)?;
    call.rank(&index, 1..=8)?;
    call.typed(&index, "i32,i64")?;
    call.type_is(&updates, target.ty())?;
    let depth = index.view.last() as usize;
    call.require((1..=7.min(target.rank())).contains(&depth), "indices", || {
        format!("has a last size of {depth} for {} axes", target.rank())
    })?;
    let shape = [&index.shape()[..index.rank() - 1], &target.shape()[depth..]].concat();
    call.shape(&updates, &shape)?;
    call.keep_apart();
    let (target, slot, updates) = (call.output(&target), call.trapped(&index), call.input(&updates));
    work(move |stage| {
        let (target, updates) = (stage.view(target), stage.view(updates));
        let places: Vec<i64> = stage.read(slot)?;
        let pieces = updates.read_bytes(stage.memory)?;
        let piece_bytes = (target.shape[depth..].iter().product::<u64>() * target.ty.bits() / 8) as usize;
        places.chunks(depth).enumerate().try_for_each(|(number, place)| {
            let mut view = target.clone();
            for &index in place {
                if !(0..view.shape[0] as i64).contains(&index) {
                    let what =
                        format!("contains index {index} at place {number}, which is out of 0..{}", view.shape[0]);
                    return Err(stage.trap(slot, what));
                }
                view = view.at_index(0, index as u64);
            }
            view.write_bytes(
                stage.memory,
                pieces.get(number * piece_bytes..(number + 1) * piece_bytes).unwrap_or_default(),
            )
        })
    })
}

fn scatter_update(call: &mut Call, data: Tensor, index: Tensor, updates: Tensor, axis: i64) -> Result<Work, Refusal> {
    call.kernel(&data, "ScatterUpdate", "i8,u8,f16,f32,i32,bf16")?;
    call.rank(&data, 2..=8)?;
    let along = call.axis(&data, axis, "axis")?;
    call.require(along != 0, "axis", || "is 0".to_owned())?;
    call.typed(&index, "i32,i64")?;
    call.rank(&index, 1..=1)?;
    call.type_is(&updates, data.ty())?;
    let (d, u) = (data.shape(), updates.shape());
    let fits = d.len() == u.len()
        && u[0] == index.view.count()
        && u[0] <= d[0]
        && (1..d.len()).all(|at| if at == along { u[at] <= d[at] } else { u[at] == d[at] });
    call.require(fits, "updates", || format!("has the shape {} for data of {}", sizes(u), sizes(d)))?;
    call.keep_apart();
    let (data, index, updates) = (call.output(&data), call.trapped(&index), call.input(&updates));
    work(move |stage| {
        let (data, updates) = (stage.view(data), stage.view(updates));
        let length = updates.shape[along];
        let starts = indices(stage, index, (data.shape[along] + 1).saturating_sub(length))?;
        starts.iter().enumerate().try_for_each(|(batch, &start)| {
            let target = data.at_index(0, batch as u64).part(along - 1, start, length, 1);
            super::shape::move_view(stage, &updates.at_index(0, batch as u64), &target)
        })
    })
}

/// What `reduce` does with the old number and the new one.
fn combine<T: Arithmetic>(reduce: i64, old: T, new: T) -> T {
    match reduce {
        1 => old.add(new),
        2 => old.multiply(new),
        _ => new,
    }
}

/// Combines numbers with those at the places of an operand; the result goes to another one.
fn combine_at<T: Arithmetic>(
    stage: &Stage,
    reduce: i64,
    [x, out]: [Slot; 2],
    places: &[u64],
    new: &View,
) -> Result<(), Fault> {
    let mut values: Vec<T> = stage.read(x)?;
    for (&place, new) in places.iter().zip(stage.read_view(new)?) {
        let value = &mut values[place as usize];
        *value = combine(reduce, *value, new);
    }
    stage.write(out, &values)
}

fn scatter(
    call: &mut Call,
    x: Tensor,
    dim: i64,
    index: Tensor,
    source: Tensor,
    reduce: i64,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "ScatterElementsV2", "u8,i8,i32,f16,f32,bf16")?;
    call.require((0..=2).contains(&reduce), "reduce", || {
        format!("is {reduce}, 0 (replace), 1 (add) or 2 (multiply) is expected")
    })?;
    let axis = call.axis(&x, dim, "dim")?;
    call.typed(&index, "i32,i64")?;
    call.type_is(&source, x.ty())?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    let i = index.shape();
    let within = |of: &[u64], but: Option<usize>| {
        of.len() == i.len() && (0..i.len()).all(|at| Some(at) == but || i[at] <= of[at])
    };
    call.require(x.rank() > 0 && within(source.shape(), None) && within(x.shape(), Some(axis)), "index", || {
        "is not within src and self".to_owned()
    })?;
    call.keep_apart();
    let shape = i.to_vec();
    let (x, index, source, out) = (call.input(&x), call.trapped(&index), call.input(&source), call.output(&out));
    work(move |stage| {
        let target = stage.view(x).shape.clone();
        let mut places = indices(stage, index, target[axis])?;
        let part = (0..shape.len()).fold(stage.view(source).clone(), |view, at| view.part(at, 0, shape[at], 1));
        let strides = crate::view::packed_strides(&target);
        for (number, place) in places.iter_mut().enumerate() {
            let mut rest = number as u64;
            *place *= strides[axis];
            for axis_of in (0..shape.len()).rev() {
                *place += if axis_of == axis { 0 } else { rest % shape[axis_of] * strides[axis_of] };
                rest /= shape[axis_of];
            }
        }
        match part.ty.form() {
            Form::Whole => combine_at::<i64>(stage, reduce, [x, out], &places, &part),
            Form::Single | Form::Double => combine_at::<f64>(stage, reduce, [x, out], &places, &part),
        }
    })
}

/// Writes the rows of an operand, stretched to a shape, each to its piece of the target, or adds it there.
fn put_rows<T: Arithmetic>(
    stage: &Stage,
    pieces: &[View],
    rows: (Slot, &[u64]),
    accumulate: bool,
) -> Result<(), Fault> {
    let mut new: Vec<T> = stage.read_as(rows.0, rows.1)?;
    let length = pieces.first().map_or(1, |piece| piece.count().max(1)) as usize;
    for (piece, new) in pieces.iter().zip(new.chunks_mut(length)) {
        if accumulate {
            let old: Vec<T> = stage.read_view(piece)?;
            new.iter_mut().zip(old).for_each(|(new, old)| *new = old.add(*new));
        }
        stage.write_view(piece, new)?;
    }
    Ok(())
}

fn index_put(
    call: &mut Call,
    target: Tensor,
    index: Tensors,
    values: Tensor,
    accumulate: bool,
    _unsafe_mode: bool,
) -> Result<Work, Refusal> {
    call.kernel(&target, "IndexPutV2", "f32,f16,i32,i64,i8,u8,b,bf16")?;
    call.rank(&target, 1..=8)?;
    call.type_is(&values, target.ty())?;
    call.require(!index.is_empty() && index.len() <= target.rank(), "indices", || {
        format!("contains {} tensors", index.len())
    })?;
    for one in &index {
        call.typed(one, "i32,i64")?;
        call.shape(one, index[0].shape())?;
    }
    let depth = index.len();
    let shape = [index[0].shape(), &target.shape()[depth..]].concat();
    let stretches = broadcast(values.shape(), &shape).is_some_and(|stretched| stretched == shape);
    call.require(stretches, "values", || {
        format!("has the shape {}, which cannot be broadcast to {}", sizes(values.shape()), sizes(&shape))
    })?;
    call.keep_apart();
    call.traps = true;
    // What is only put is not read.
    let target = if accumulate { call.in_place(&target) } else { call.output(&target) };
    let (index, values) = (call.inputs(&index), call.input(&values));
    work(move |stage| {
        let target = stage.view(target);
        let lists = index
            .iter()
            .enumerate()
            .map(|(axis, &slot)| indices(stage, slot, target.shape[axis]))
            .collect::<Result<Vec<_>, _>>()?;
        let piece = |number| lists.iter().fold(target.clone(), |view, list| view.at_index(0, list[number]));
        let pieces: Vec<View> = (0..lists[0].len()).map(piece).collect();
        match target.ty.form() {
            Form::Whole => put_rows::<i64>(stage, &pieces, (values, &shape), accumulate),
            Form::Single | Form::Double => put_rows::<f64>(stage, &pieces, (values, &shape), accumulate),
        }
    })
}

operators! {
    "InplaceIndexCopy"(selfRef: Tensor, dim: i64, index: Tensor, source: Tensor) => index_copy;
    "IndexFillTensor"(self_: Tensor, dim: i64, index: Ints, value: Scalar, out: Tensor) => |call: &mut Call, x: Tensor, dim, index, value, out: Tensor| index_fill(call, &x, dim, index, value, Some(&out));
    "InplaceIndexFillTensor"(selfRef: Tensor, dim: i64, index: Ints, value: Scalar) => |call: &mut Call, x: Tensor, dim, index, value| index_fill(call, &x, dim, index, value, None);
    "ScatterNdUpdate"(varRef: Tensor, indices: Tensor, updates: Tensor) => scatter_nd;
    "InplaceScatterUpdate"(data: Tensor, indices: Tensor, updates: Tensor, axis: i64) => scatter_update;
    "Scatter"(self_: Tensor, dim: i64, index: Tensor, src: Tensor, reduce: i64, out: Tensor) => scatter;
    "IndexPutImpl"(selfRef: Tensor, indices: Tensors, values: Tensor, accumulate: bool, unsafe_: bool) => index_put;
}
