//! Moving elements: copies, casts, permutations, joins, repeats, slices, padding. Bits stay as they are, except where a
//! type changes.
//!
//! The result never lies on an operand: a kernel that reads while another core writes would mix them.

use super::{
    Work,
    argument::{Ints, Scalar, Tensor, Tensors},
    call::{Call, broadcast, sizes},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{
    element::{Form, Type, encode},
    memory::Fault,
    object::ScalarObject,
    status::Refusal,
    view::View,
};

const MOVED: &str = "f32,f16,f64,u64,i64,u32,i32,u16,i16,u8,i8,b,bf16";

/// Copies elements between views of one type and of one count.
pub fn move_view(stage: &Stage, source: &View, target: &View) -> Result<(), Fault> {
    target.write_bytes(stage.memory, &source.read_bytes(stage.memory)?)
}

/// Copies elements between views whose types may differ.
fn convert(stage: &Stage, source: &View, target: &View) -> Result<(), Fault> {
    if source.ty == target.ty && source.ty != Type::I4 {
        return move_view(stage, source, target);
    }
    match (source.ty.form(), target.ty.form()) {
        (Form::Whole, _) => stage.write_view(target, &stage.read_view::<i64>(source)?),
        (Form::Double, _) => stage.write_view(target, &stage.read_view::<f64>(source)?),
        (Form::Single, _) => stage.write_view(target, &stage.read_view::<f32>(source)?),
    }
}

fn copy(call: &mut Call, target: Tensor, source: Tensor) -> Result<Work, Refusal> {
    call.kernel(&target, "ViewCopy", MOVED)?;
    call.typed(&source, MOVED)?;
    let stretches = broadcast(target.shape(), source.shape()).is_some_and(|shape| shape == target.shape());
    call.require(stretches, "src", || {
        format!("has the shape {}, which cannot be broadcast to {}", sizes(source.shape()), sizes(target.shape()))
    })?;
    let shape = target.shape().to_vec();
    let (target, source) = (call.output(&target), call.input(&source));
    work(move |stage| {
        let source = stage.view(source).broadcast(&shape);
        source.map_or(Ok(()), |source| convert(stage, &source, stage.view(target)))
    })
}

fn cast(call: &mut Call, x: Tensor, ty: i32, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Cast", "f16,f32,f64,i8,u8,i16,u16,i32,u32,i64,u64,b,bf16")?;
    let ty = call.type_of_code(ty, "dtype")?;
    call.type_is(&out, ty)?;
    call.typed(&out, "f16,f32,f64,i8,u8,i16,u16,i32,u32,i64,u64,b,bf16")?;
    call.shape(&out, x.shape())?;
    call.require(x.ty() != Type::Bool || x.view.is_packed(), "self", || "is a strided bool".to_owned())?;
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| convert(stage, stage.view(x), stage.view(out)))
}

fn permute(call: &mut Call, x: Tensor, dims: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Transpose", MOVED)?;
    call.require(dims.len() == x.rank(), "dims", || format!("refers to {} axes of {}", dims.len(), x.rank()))?;
    call.axes(&x, &dims, "dims")?;
    let order = dims.iter().map(|&dim| call.axis(&x, dim, "dims")).collect::<Result<Vec<_>, _>>()?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &order.iter().map(|&axis| x.shape()[axis]).collect::<Vec<_>>())?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| move_view(stage, &stage.view(x).permuted(&order), stage.view(out)))
}

/// The type that tensors of a list meet in.
fn meeting(call: &Call, tensors: &[Tensor]) -> Result<Type, Refusal> {
    let first = tensors.first().ok_or_else(|| call.refusal("tensors", "is an empty list"))?;
    tensors.iter().try_fold(first.ty(), |meeting, tensor| {
        call.typed(tensor, MOVED)?;
        meeting.promoted(tensor.ty()).ok_or_else(|| {
            call.refusal("tensors", format!("contains {} and {meeting}, which have no common type", tensor.ty()))
        })
    })
}

fn cat(call: &mut Call, tensors: Tensors, dim: i64, out: Tensor) -> Result<Work, Refusal> {
    let ty = meeting(call, &tensors)?;
    call.kernel(&tensors[0], "ConcatD", MOVED)?;
    let axis = call.axis(&tensors[0], dim, "dim")?;
    call.rank(&tensors[0], 1..=8)?;
    let mut shape = tensors[0].shape().to_vec();
    shape[axis] = 0;
    for tensor in &tensors {
        let mut other = tensor.shape().to_vec();
        call.require(other.len() == shape.len(), "tensors", || "contains tensors of different ranks".to_owned())?;
        shape[axis] += std::mem::take(&mut other[axis]);
        let fits = other.iter().enumerate().all(|(index, &size)| index == axis || size == shape[index]);
        call.require(fits, "tensors", || {
            format!("contains {}, which cannot be concatenated along axis {axis}", sizes(tensor.shape()))
        })?;
    }
    call.type_is(&out, ty)?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (sources, out) = (call.inputs(&tensors), call.output(&out));
    work(move |stage| {
        let mut start = 0;
        for &source in &sources {
            let (source, target) = (stage.view(source), stage.view(out));
            let count = source.shape[axis];
            convert(stage, source, &target.part(axis, start, count, 1))?;
            start += count;
        }
        Ok(())
    })
}

fn stack(call: &mut Call, tensors: Tensors, dim: i64, out: Tensor) -> Result<Work, Refusal> {
    let ty = meeting(call, &tensors)?;
    let axis = call.axis(&out, dim, "dim")?;
    let mut shape = tensors[0].shape().to_vec();
    for tensor in &tensors {
        call.shape(tensor, &shape)?;
    }
    call.require(axis <= shape.len() && shape.len() < 8, "dim", || {
        format!("is {dim} for tensors of {} axes", shape.len())
    })?;
    shape.insert(axis, tensors.len() as u64);
    call.type_is(&out, ty)?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (sources, out) = (call.inputs(&tensors), call.output(&out));
    work(move |stage| {
        let each = sources.iter().enumerate();
        each.into_iter().try_for_each(|(index, &source)| {
            convert(stage, stage.view(source), &stage.view(out).at_index(axis, index as u64))
        })
    })
}

fn split(call: &mut Call, x: Tensor, section: u64, dim: i64, out: Tensors) -> Result<Work, Refusal> {
    call.kernel(&x, "SplitD", MOVED)?;
    call.rank(&x, 1..=8)?;
    let axis = call.axis(&x, dim, "dim")?;
    let size = x.shape()[axis];
    call.require(section > 0, "splitSections", || "is 0".to_owned())?;
    call.require(out.len() as u64 == size.div_ceil(section), "out", || {
        format!("contains {} tensors, {} are expected", out.len(), size.div_ceil(section))
    })?;
    for (index, part) in out.iter().enumerate() {
        let mut shape = x.shape().to_vec();
        shape[axis] = section.min(size - index as u64 * section);
        call.type_is(part, x.ty())?;
        call.shape(part, &shape)?;
    }
    call.keep_apart();
    let (x, out) = (call.input(&x), call.outputs(&out));
    work(move |stage| {
        out.iter().enumerate().try_for_each(|(index, &part)| {
            let target = stage.view(part);
            move_view(stage, &stage.view(x).part(axis, index as u64 * section, target.shape[axis], 1), target)
        })
    })
}

/// Repeats at most this often in all: more is no tensor.
const REPEATS_MAX: i64 = 1 << 32;

fn repeat(call: &mut Call, x: Tensor, repeats: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Tile", MOVED)?;
    let rank = repeats.len();
    call.require(rank <= 8 && rank >= x.rank(), "repeats", || format!("has {rank} numbers for {} axes", x.rank()))?;
    call.require(repeats.iter().all(|count| (0..REPEATS_MAX).contains(count)), "repeats", || {
        format!("is {repeats:?}")
    })?;
    let mut source = x.clone();
    while source.rank() < rank {
        source.view.shape.insert(0, 1);
        source.view.strides.insert(0, 0);
    }
    let repeated = repeats.iter().filter(|&&count| count != 1).count();
    let first = repeats.first().is_some_and(|&count| count != 1);
    call.require(!first || repeated <= 4, "repeats", || {
        format!("is {repeats:?}: the first axis and more than three others repeat")
    })?;
    call.require(rank + repeated <= 8, "repeats", || {
        format!("is {repeats:?}: {rank} axes and {repeated} repeated ones are more than 8")
    })?;
    let shape: Vec<u64> =
        source.shape().iter().zip(&repeats).map(|(size, &count)| size.saturating_mul(count as u64)).collect();
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (x, out) = (call.input(&source), call.output(&out));
    work(move |stage| {
        let source = stage.view(x);
        let mut doubled = View { shape: Vec::new(), strides: Vec::new(), ..source.clone() };
        for ((&size, &stride), &count) in source.shape.iter().zip(&source.strides).zip(&repeats) {
            doubled.shape.extend([count as u64, size]);
            doubled.strides.extend([0, stride]);
        }
        move_view(stage, &doubled, stage.view(out))
    })
}

fn interleave(
    call: &mut Call,
    x: Tensor,
    repeats: i64,
    dim: i64,
    output_size: i64,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "RepeatInterleave", "u8,i8,i16,i32,i64,b,f16,bf16,f32")?;
    call.rank(&x, 1..=8)?;
    let axis = call.axis(&x, dim, "dim")?;
    let size = x.shape()[axis];
    let fits = repeats >= 0 && i128::from(repeats) * i128::from(size) == i128::from(output_size);
    call.require(fits, "outputSize", || format!("is {output_size}, {repeats} times {size} are expected"))?;
    let mut shape = x.shape().to_vec();
    shape[axis] = output_size as u64;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let mut source = stage.view(x).clone();
        source.shape.insert(axis + 1, repeats as u64);
        source.strides.insert(axis + 1, 0);
        move_view(stage, &source, stage.view(out))
    })
}

fn interleave_by_tensor(
    call: &mut Call,
    x: Tensor,
    repeats: Tensor,
    output_size: i64,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "RepeatInterleave", "u8,i8,i16,i32,i64,b,f16,bf16,f32")?;
    call.on_chip(call.chip.is_c220())?;
    call.typed(&repeats, "i32,i64")?;
    call.require(repeats.rank() <= 1, "repeats", || format!("has {} axes", repeats.rank()))?;
    let count = x.view.count();
    let fits = repeats.view.count() == count || repeats.view.count() == 1;
    call.require(fits, "repeats", || format!("has {} numbers for {count} elements", repeats.view.count()))?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &[u64::try_from(output_size).unwrap_or(u64::MAX)])?;
    call.keep_apart();
    let (x, repeats, out) = (call.input(&x), call.trapped(&repeats), call.output(&out));
    work(move |stage| {
        let counts: Vec<i64> = stage.read_as(repeats, &[count])?;
        let bytes = stage.view(x).read_bytes(stage.memory)?;
        let size = (stage.view(x).ty.bits() / 8) as usize;
        let valid = counts.iter().all(|&count| count >= 0) && counts.iter().sum::<i64>() == output_size;
        if !valid {
            return Err(stage.trap(repeats, format!("contains counts that do not add up to outputSize, {output_size}")));
        }
        let elements = bytes.chunks_exact(size).zip(counts);
        let repeated: Vec<u8> = elements.flat_map(|(element, count)| element.repeat(count as usize)).collect();
        stage.view(out).write_bytes(stage.memory, &repeated)
    })
}

fn roll(call: &mut Call, x: Tensor, shifts: Ints, dims: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Roll", "bf16,f16,f32,i8,u8,i32,i64,u32,b,i16")?;
    let flat = dims.is_empty() && shifts.len() == 1;
    call.require(flat || (dims.len() == shifts.len() && !dims.is_empty()), "dims", || {
        format!("has {} numbers, shifts has {}", dims.len(), shifts.len())
    })?;
    let axes = dims.iter().map(|&dim| call.axis(&x, dim, "dims")).collect::<Result<Vec<_>, _>>()?;
    call.require(x.rank() > 0 || flat, "dims", || "name an axis of a number".to_owned())?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    call.keep_apart();
    let ty = x.ty();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let source = stage.view(x);
        let mut bytes = source.read_bytes(stage.memory)?;
        let size = (ty.bits() / 8) as usize;
        if flat {
            let count = bytes.len() / size;
            rotate(&mut bytes, size, count, shifts[0]);
        }
        for (&axis, &shift) in axes.iter().zip(&shifts) {
            let inner: u64 = source.shape[axis + 1..].iter().product();
            rotate(&mut bytes, size * inner as usize, source.shape[axis] as usize, shift);
        }
        stage.view(out).write_bytes(stage.memory, &bytes)
    })
}

/// Rolls `count` pieces of `piece` bytes within each line of them.
fn rotate(bytes: &mut [u8], piece: usize, count: usize, shift: i64) {
    if count == 0 || piece == 0 {
        return;
    }
    let by = shift.rem_euclid(count as i64) as usize;
    bytes.chunks_mut(piece * count).for_each(|line| line.rotate_right(by * piece));
}

fn flip(call: &mut Call, x: Tensor, dims: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ReverseV2", "f16,f32,i32,i16,i64,b,i8,u8,f64,bf16")?;
    call.rank(&x, 1..=8)?;
    let axes = call.axes(&x, &dims, "dims")?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let (mut bytes, source) = (stage.view(x).read_bytes(stage.memory)?, stage.view(x));
        let size = (source.ty.bits() / 8) as usize;
        for &axis in &axes {
            let piece = size * source.shape[axis + 1..].iter().product::<u64>() as usize;
            let line = piece * source.shape[axis] as usize;
            if line > 0 {
                let flipped = bytes.chunks(line).flat_map(|line| line.chunks(piece).rev().flatten());
                bytes = flipped.copied().collect();
            }
        }
        stage.view(out).write_bytes(stage.memory, &bytes)
    })
}

fn slice(call: &mut Call, x: Tensor, dim: i64, start: i64, end: i64, step: i64, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "StridedSlice", "f32,f16,bf16,i32,i64,i8,u8,b")?;
    call.rank(&x, 1..=8)?;
    let axis = call.axis(&x, dim, "dim")?;
    let size = x.shape()[axis] as i64;
    call.require(step > 0, "step", || format!("is {step}, more than 0 is expected"))?;
    let place = |index: i64| if index < 0 { index.saturating_add(size).clamp(0, size) } else { index.min(size) };
    let (start, end) = (place(start), place(end));
    let count = (end - start).max(0).unsigned_abs().div_ceil(step.unsigned_abs());
    let mut shape = x.shape().to_vec();
    shape[axis] = count;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        if count == 0 {
            Ok(())
        } else {
            move_view(stage, &stage.view(x).part(axis, start as u64, count, step as u64), stage.view(out))
        }
    })
}

/// The bytes of a number as one element.
fn element_bytes(ty: Type, value: ScalarObject) -> Vec<u8> {
    let mut bytes = vec![0; ty.bytes(1) as usize];
    match ty.form() {
        Form::Whole => encode(ty, &[value.whole], &mut bytes, false),
        _ => encode(ty, &[value.real], &mut bytes, false),
    }
    bytes
}

/// Pads in front of and behind each axis, from the last axis on in `pad`; gives the starts by axis.
fn padded(call: &Call, x: &Tensor, pad: &[i64]) -> Result<(Vec<u64>, Vec<u64>), Refusal> {
    let even = pad.len().is_multiple_of(2) && pad.len() <= 2 * x.rank();
    call.require(even, "pad", || format!("has {} numbers for {} axes", pad.len(), x.rank()))?;
    call.require(pad.iter().all(|&amount| (0..1 << 32).contains(&amount)), "pad", || {
        format!("is {pad:?}, amounts from 0 on are taken")
    })?;
    let (mut starts, mut shape) = (vec![0; x.rank()], x.shape().to_vec());
    for (pair, axis) in pad.chunks(2).zip((0..x.rank()).rev()) {
        starts[axis] = pair[0] as u64;
        shape[axis] += (pair[0] + pair[1]) as u64;
    }
    Ok((starts, shape))
}

fn pad_constant(call: &mut Call, x: Tensor, pad: Ints, value: Scalar, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "PadV3", MOVED)?;
    let (starts, shape) = padded(call, &x, &pad)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let (source, target) = (stage.view(x), stage.view(out));
        let filled = element_bytes(target.ty, value.value).repeat(target.count() as usize);
        target.write_bytes(stage.memory, &filled)?;
        let inside =
            (0..starts.len()).fold(target.clone(), |view, axis| view.part(axis, starts[axis], source.shape[axis], 1));
        if source.count() == 0 { Ok(()) } else { move_view(stage, source, &inside) }
    })
}

fn reflect(call: &mut Call, x: Tensor, padding: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "MirrorPad", MOVED)?;
    call.rank(&x, 2..=3)?;
    let last = x.view.last() as i64;
    let right = padding.len() == 2 && padding.iter().all(|&amount| (0..last).contains(&amount));
    call.require(right, "padding", || format!("is {padding:?}, two amounts below the last size {last} are expected"))?;
    let mut shape = x.shape().to_vec();
    *shape.last_mut().unwrap_or(&mut 0) += (padding[0] + padding[1]) as u64;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let source = stage.view(x);
        let bytes = source.read_bytes(stage.memory)?;
        let size = (source.ty.bits() / 8) as usize;
        let mirrored = |index: i64| {
            let inside = index.abs();
            if inside >= last { 2 * (last - 1) - inside } else { inside }
        };
        let of_line = |line: &[u8]| {
            let places = (-padding[0]..last + padding[1]).map(mirrored);
            places.flat_map(|place| line[place as usize * size..][..size].to_vec()).collect::<Vec<u8>>()
        };
        let reflected: Vec<u8> = bytes.chunks(last as usize * size).flat_map(of_line).collect();
        stage.view(out).write_bytes(stage.memory, &reflected)
    })
}

/// Which triangle stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Triangle {
    Lower,
    Upper,
}

fn triangle(
    call: &mut Call,
    which: Triangle,
    x: &Tensor,
    diagonal: i64,
    out: Option<&Tensor>,
) -> Result<Work, Refusal> {
    let kernel = if which == Triangle::Lower { "Tril" } else { "Triu" };
    call.kernel(x, kernel, MOVED)?;
    call.rank(x, 2..=8)?;
    if let Some(out) = out {
        call.type_is(out, x.ty())?;
        call.shape(out, x.shape())?;
    }
    let rank = x.rank();
    let (rows, columns) = (x.shape()[rank - 2], x.shape()[rank - 1]);
    let source = if out.is_some() { call.input(x) } else { call.in_place(x) };
    let target = out.map_or(source, |out| call.output(out));
    work(move |stage| keep_triangle(stage, source, target, which, (rows, columns, diagonal)))
}

fn keep_triangle(
    stage: &Stage,
    source: Slot,
    target: Slot,
    which: Triangle,
    (rows, columns, diagonal): (u64, u64, i64),
) -> Result<(), Fault> {
    let source = stage.view(source);
    let mut bytes = source.read_bytes(stage.memory)?;
    let size = (source.ty.bits() / 8) as usize;
    for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
        let (row, column) = ((index as u64 / columns % rows) as i64, (index as u64 % columns) as i64);
        let edge = row.saturating_add(diagonal);
        let stays = if which == Triangle::Lower { column <= edge } else { column >= edge };
        if !stays {
            element.fill(0);
        }
    }
    stage.view(target).write_bytes(stage.memory, &bytes)
}

type C<'a> = &'a mut Call;

operators! {
    "InplaceCopy"(selfRef: Tensor, src: Tensor) => copy;
    "Cast"(self_: Tensor, dtype: i32, out: Tensor) => cast;
    "Permute"(self_: Tensor, dims: Ints, out: Tensor) => permute;
    "Cat"(tensors: Tensors, dim: i64, out: Tensor) => cat;
    "Stack"(tensors: Tensors, dim: i64, out: Tensor) => stack;
    "SplitTensor"(self_: Tensor, splitSections: u64, dim: i64, out: Tensors) => split;
    "Repeat"(self_: Tensor, repeats: Ints, out: Tensor) => repeat;
    "RepeatInterleave"(self_: Tensor, repeats: Tensor, outputSize: i64, out: Tensor) => interleave_by_tensor;
    "RepeatInterleaveIntWithDim"(self_: Tensor, repeats: i64, dim: i64, outputSize: i64, out: Tensor) => interleave;
    "Roll"(x: Tensor, shifts: Ints, dims: Ints, out: Tensor) => roll;
    "Flip"(self_: Tensor, dims: Ints, out: Tensor) => flip;
    "Slice"(self_: Tensor, dim: i64, start: i64, end: i64, step: i64, out: Tensor) => slice;
    "ConstantPadNd"(self_: Tensor, pad: Ints, value: Scalar, out: Tensor) => pad_constant;
    "ReflectionPad1d"(self_: Tensor, padding: Ints, out: Tensor) => reflect;
    "Tril"(self_: Tensor, diagonal: i64, out: Tensor) => |call: C, x: Tensor, diagonal, out: Tensor| triangle(call, Triangle::Lower, &x, diagonal, Some(&out));
    "InplaceTril"(selfRef: Tensor, diagonal: i64) => |call: C, x: Tensor, diagonal| triangle(call, Triangle::Lower, &x, diagonal, None);
    "Triu"(self_: Tensor, diagonal: i64, out: Tensor) => |call: C, x: Tensor, diagonal, out: Tensor| triangle(call, Triangle::Upper, &x, diagonal, Some(&out));
    "InplaceTriu"(selfRef: Tensor, diagonal: i64) => |call: C, x: Tensor, diagonal| triangle(call, Triangle::Upper, &x, diagonal, None);
}
