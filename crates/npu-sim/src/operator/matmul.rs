//! Dense matrix products, and weights in FRACTAL_NZ.
//!
//! ```text
//!   FRACTAL_NZ of a row-major matrix (R, C): [C/C0][R/16][16][C0], padded with zeros; element (r, c) at [c / C0][r / 16][r % 16][c % C0];
//!   C0 is 16 for two bytes, 32 for one
//! ```
//!
//! Inputs become what `cubeMathType` says (ABI 4.4), sums are f32, the result is rounded once to its type; where a cube
//! that takes f32 is told to take f16, it is rounded to f16 before (SetMmSupportDType in the vendor's published
//! matmul_util.cpp). A view with format NZ that is a swapped view of (n, k) stands for the NZ form of (n, k).

use super::{
    Work,
    argument::{Scalar, Tensor},
    call::{Call, broadcast, sizes},
    operators,
    product::{Cube, Right, Sizes, ask, product, rounded, transposed},
    stage::{Slot, Stage},
    work,
};
use crate::{
    chip::{Chip, Family},
    element::{Type, through_f16},
    memory::Fault,
    object::{self, FRACTAL_NZ, Handle, Object},
    status::{self, OPERATOR_RUNTIME, PARAMETER_INVALID, PARAMETER_NULL, Refusal},
    view::{View, packed_strides},
    world,
};

const FLOATS: &str = "f16,f32,bf16";
const EDGE: u64 = 16;

/// Elements of a padded row of a fractal.
fn fractal_columns(ty: Type) -> u64 {
    256 / ty.bits().max(8)
}

/// How a second operand lies.
#[derive(Debug, Clone)]
enum Lies {
    /// By its strides.
    Plain,
    /// As NZ of the matrix (rows, columns); `swapped` says that the view is its transposition.
    Fractal { rows: u64, columns: u64, swapped: bool },
}

impl Lies {
    fn of(tensor: &Tensor) -> Self {
        let view = &tensor.view;
        let rank = view.rank();
        if !tensor.is_nz() {
            return Self::Plain;
        }
        let (k, n) = (view.shape[rank - 2], view.shape[rank - 1]);
        let swapped = view.strides[rank - 1] != 1 && view.strides[rank - 2] == 1;
        if swapped {
            Self::Fractal { rows: n, columns: k, swapped }
        } else {
            Self::Fractal { rows: k, columns: n, swapped }
        }
    }
}

/// Elements of the NZ form of a matrix.
fn fractal_count(rows: u64, columns: u64, ty: Type) -> u64 {
    rows.next_multiple_of(EDGE) * columns.next_multiple_of(fractal_columns(ty))
}

/// Where element (row, column) lies in the NZ form.
fn fractal_place(row: u64, column: u64, rows: u64, ty: Type) -> u64 {
    let width = fractal_columns(ty);
    let tile = column / width * rows.div_ceil(EDGE) + row / EDGE;
    (tile * EDGE + row % EDGE) * width + column % width
}

/// A product of stacks of matrices: shapes (batches.., m, k) and (batches.., k, n).
#[derive(Clone)]
struct Stack {
    left: Slot,
    right: Slot,
    right_lies: Lies,
    batches: Vec<u64>,
    left_shape: Vec<u64>,
    right_shape: Vec<u64>,
    cube: Cube,
    /// Whether the cube writes f16 that become the result's type.
    writes_f16: bool,
}

impl Stack {
    fn sizes(&self) -> Sizes {
        let rank = self.left_shape.len();
        Sizes {
            m: self.left_shape[rank - 2] as usize,
            k: self.left_shape[rank - 1] as usize,
            n: self.right_shape[self.right_shape.len() - 1] as usize,
        }
    }

    /// Matrix `batch` of an operand given as a view over (own batches.., rows, columns).
    fn matrix(&self, view: &View, batch: u64) -> View {
        let rank = view.rank();
        let target = [&self.batches[..], &view.shape[rank - 2..]].concat();
        let mut stretched = view.broadcast(&target).unwrap_or_else(|| view.clone());
        let mut rest = batch;
        for axis in (0..self.batches.len()).rev() {
            let size = self.batches[axis].max(1);
            stretched = stretched.at_index(axis, rest % size);
            rest /= size;
        }
        stretched
    }

    /// The rows (n, k) of the right matrix.
    fn right<'a>(&self, stage: &'a Stage, batch: u64) -> Result<Right<'a>, Fault> {
        let view = stage.view(self.right);
        match self.right_lies {
            Lies::Plain => Right::of(stage, &self.matrix(view, batch).transposed()),
            Lies::Fractal { rows, columns, swapped } => {
                let count = fractal_count(rows, columns, view.ty);
                let stored: Vec<f32> = stage.read_view(stage.view(self.right))?;
                let own = self.matrix(&numbered(&self.right_shape), batch).offset / (rows * columns).max(1);
                let stored = &stored[(own * count) as usize..];
                let at = |row, column| stored[fractal_place(row, column, rows, view.ty) as usize];
                let packed: Vec<f32> =
                    (0..rows).flat_map(|row| (0..columns).map(move |column| at(row, column))).collect();
                let packed = if swapped { packed } else { transposed(&packed, rows as usize, columns as usize) };
                Ok(Right::Values(packed))
            }
        }
    }

    /// All matrices of the result, packed.
    fn run(&self, stage: &Stage) -> Result<Vec<f32>, Fault> {
        let count: u64 = self.batches.iter().product();
        let sizes = self.sizes();
        let left = stage.view(self.left);
        let mut out = Vec::with_capacity(count as usize * sizes.m * sizes.n);
        for batch in 0..count {
            let left = rounded(stage, &self.matrix(left, batch), self.cube)?;
            let right = self.right(stage, batch)?;
            out.extend(product(stage, sizes, self.cube, left, |index, row| right.row(index, row)));
        }
        if self.writes_f16 {
            through_f16(&mut out, stage.chip.f16_saturates);
        }
        Ok(out)
    }
}

/// A packed view at address 0: its offsets are places.
fn numbered(shape: &[u64]) -> View {
    View { at: 0, offset: 0, ty: Type::F32, shape: shape.to_vec(), strides: packed_strides(shape) }
}

/// A vector as a matrix: (k) as (1, k) on the left, as (k, 1) on the right.
fn as_matrix(tensor: &Tensor, left: bool) -> Tensor {
    let mut tensor = tensor.clone();
    if tensor.rank() == 1 {
        let place = if left { 0 } else { 1 };
        tensor.view.shape.insert(place, 1);
        tensor.view.strides.insert(place, 0);
    }
    tensor
}

/// Judges two operands and gives their product and its shape.
fn stack(call: &mut Call, a: &Tensor, b: &Tensor, math: i8) -> Result<(Stack, Vec<u64>, Type), Refusal> {
    call.kernel(a, "MatMulV2", FLOATS)?;
    let plain_b = Tensor { format: 2, ..b.clone() };
    call.typed(&plain_b, FLOATS)?;
    let meeting = call.promoted(a, b)?;
    let cube = Cube::of(call, math, meeting)?;
    let (left, right) = (as_matrix(a, true), as_matrix(b, false));
    let (l, r) = (left.shape(), right.shape());
    let fits = l[l.len() - 1] == r[r.len() - 2];
    call.require(fits, b.argument, || {
        format!("has the shape {}, which does not follow {} of {}", sizes(b.shape()), sizes(a.shape()), a.argument)
    })?;
    let batches = broadcast(&l[..l.len() - 2], &r[..r.len() - 2]).ok_or_else(|| {
        call.refusal(b.argument, format!("has batches {}, which cannot be broadcast with {}", sizes(r), sizes(l)))
    })?;
    let shape = [&batches[..], &l[l.len() - 2..l.len() - 1], &r[r.len() - 1..]].concat();
    let right_lies = Lies::of(&right);
    let mut stored = right.clone();
    if let Lies::Fractal { rows, columns, .. } = right_lies {
        call.require(b.rank() >= 2 && b.ty() != Type::F32, b.argument, || {
            "is FRACTAL_NZ of f32, or no matrix".to_owned()
        })?;
        let matrices: u64 = r[..r.len() - 2].iter().product();
        stored.view.shape = vec![matrices * fractal_count(rows, columns, b.ty())];
        stored.view.strides = vec![1];
    }
    let (left_shape, right_shape) = (l.to_vec(), r.to_vec());
    let stack = Stack {
        left: call.input(&left),
        right: call.input(&stored),
        right_lies,
        batches,
        left_shape,
        right_shape,
        cube,
        writes_f16: call.chip.cube_f32 && math == 2 && meeting == Type::F32,
    };
    call.keep_apart();
    Ok((stack, shape, meeting))
}

/// A product whose result has `shape` without the axes that vectors were given.
fn multiply(call: &mut Call, a: &Tensor, b: &Tensor, out: &Tensor, math: i8) -> Result<Work, Refusal> {
    let (stack, mut shape, meeting) = stack(call, a, b, math)?;
    if b.rank() == 1 {
        shape.pop();
    }
    if a.rank() == 1 {
        shape.remove(shape.len() - 1 - usize::from(b.rank() > 1));
    }
    call.shape(out, &shape)?;
    call.type_is(out, meeting)?;
    ask(call, out);
    let out = call.output(out);
    work(move |stage| stage.write(out, &stack.run(stage)?))
}

fn of_ranks(
    call: &mut Call,
    ranks: std::ops::RangeInclusive<usize>,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    math: i8,
) -> Result<Work, Refusal> {
    call.rank(&a, ranks.clone())?;
    call.rank(&b, ranks)?;
    multiply(call, &a, &b, &out, math)
}

fn mv(call: &mut Call, a: Tensor, vector: Tensor, out: Tensor, math: i8) -> Result<Work, Refusal> {
    call.rank(&a, 2..=2)?;
    call.rank(&vector, 1..=1)?;
    multiply(call, &a, &vector, &out, math)
}

#[allow(clippy::too_many_arguments)]
fn addmm(
    call: &mut Call,
    input: Tensor,
    a: Tensor,
    b: Tensor,
    beta: Scalar,
    alpha: Scalar,
    out: Tensor,
    math: i8,
) -> Result<Work, Refusal> {
    call.rank(&a, 2..=2)?;
    call.rank(&b, 2..=2)?;
    call.typed(&input, FLOATS)?;
    let (stack, shape, meeting) = stack(call, &a, &b, math)?;
    let fits = broadcast(input.shape(), &shape).is_some_and(|stretched| stretched == shape);
    call.require(fits, input.argument, || {
        format!("has the shape {}, which cannot be broadcast to {}", sizes(input.shape()), sizes(&shape))
    })?;
    call.shape(&out, &shape)?;
    call.type_is(&out, meeting)?;
    ask(call, &out);
    let (beta, alpha) = (beta.value.real as f32, alpha.value.real as f32);
    let (input, out) = (call.input(&input), call.output(&out));
    work(move |stage| {
        let mut values = stack.run(stage)?;
        let added: Vec<f32> = if beta == 0.0 { vec![0.0; values.len()] } else { stage.read_as(input, &shape)? };
        values.iter_mut().zip(added).for_each(|(value, added)| *value = alpha * *value + beta * added);
        stage.write(out, &values)
    })
}

/// Chips that have the NZ form of weights at all.
fn has_fractals(chip: &Chip) -> bool {
    chip.is_c220() || chip.family == Family::Ascend310p
}

fn trans_weight(call: &mut Call, weight: Tensor) -> Result<Work, Refusal> {
    call.on_chip(has_fractals(call.chip))?;
    call.typed(&weight, "f16,bf16,i8")?;
    let edge = call.chip.family == Family::Ascend310p && weight.ty() == Type::F16;
    call.rank(&weight, 2..=if edge { 2 } else { 6 })?;
    call.require(weight.view.count() > 0, weight.argument, || "is empty".to_owned())?;
    let rank = weight.rank();
    let (rows, columns) = (weight.shape()[rank - 2], weight.shape()[rank - 1]);
    let matrices: u64 = weight.shape()[..rank - 2].iter().product();
    let ty = weight.ty();
    let count = matrices * fractal_count(rows, columns, ty);
    let mut stored = weight.clone();
    stored.view = View { offset: weight.view.offset, shape: vec![count], strides: vec![1], ..weight.view.clone() };
    // What was a strided view lies packed from here on, and the handle says so.
    let strides = packed_strides(weight.shape());
    object::with(weight.handle as Handle, call.name, "aclTensor", |object| {
        let Object::Tensor(tensor) = object else { return None };
        tensor.format = FRACTAL_NZ;
        tensor.strides = strides.iter().map(|&stride| stride as i64).collect();
        Some(())
    })?;
    let target = call.in_place(&stored);
    call.operands[target.0].reads = false;
    let view = weight.view;
    work(move |stage| {
        let view = View { at: stage.view(target).at, ..view.clone() };
        let packed = view.read_bytes(stage.memory)?;
        let size = (ty.bits() / 8) as usize;
        let mut fractal = vec![0; count as usize * size];
        let elements = (rows * columns) as usize;
        for (index, element) in packed.chunks_exact(size).enumerate() {
            let (matrix, place) = ((index / elements) as u64, (index % elements) as u64);
            let at = matrix * (count / matrices) + fractal_place(place / columns, place % columns, rows, ty);
            fractal[at as usize * size..][..size].copy_from_slice(element);
        }
        stage.view(target).write_bytes(stage.memory, &fractal)
    })
}

/// The size of the NZ form in elements; 361001 on chips without it.
fn weight_size(name: &'static str, shape: Handle, ty: i32, size: *mut u64) -> i32 {
    status::answer(name, || {
        let shape = object::ints(shape, &format!("{name}: tensorShape"))?;
        if size.is_null() {
            return Err(Refusal::new(PARAMETER_NULL, format!("{name}: weightTensorSize is a null pointer")));
        }
        let chip = world::current()?.chip();
        if !has_fractals(chip) {
            return Err(Refusal::new(OPERATOR_RUNTIME, format!("{name}: support for {} is not implemented", chip.soc)));
        }
        let refuse = |what: String| Err(Refusal::new(PARAMETER_INVALID, format!("{name}: {what}")));
        let Some(ty @ (Type::F16 | Type::Bf16 | Type::I8)) = Type::of(ty) else {
            return refuse(format!("dataType {ty} is none of f16, bf16, i8"));
        };
        let rank = shape.len();
        if !(2..=6).contains(&rank) || shape.iter().any(|&size| !(1..=1 << 31).contains(&size)) {
            return refuse(format!("tensorShape {shape:?} has no 2 to 6 positive sizes"));
        }
        let matrix = fractal_count(shape[rank - 2] as u64, shape[rank - 1] as u64, ty);
        let count = shape[..rank - 2].iter().try_fold(matrix, |count, &size| count.checked_mul(size as u64));
        let Some(count) = count else { return refuse("tensorShape is larger than any card".to_owned()) };
        object::put(size, count);
        Ok(())
    })
}

#[allow(unsafe_code)]
#[unsafe(export_name = "aclnnCalculateMatmulWeightSize")]
extern "C" fn calculate_size(shape: Handle, size: *mut u64) -> i32 {
    weight_size("aclnnCalculateMatmulWeightSize", shape, Type::F16.code(), size)
}

#[allow(unsafe_code)]
#[unsafe(export_name = "aclnnCalculateMatmulWeightSizeV2")]
extern "C" fn calculate_size_of_type(shape: Handle, ty: i32, size: *mut u64) -> i32 {
    weight_size("aclnnCalculateMatmulWeightSizeV2", shape, ty, size)
}

#[allow(clippy::too_many_arguments)]
fn triangular_solve(
    call: &mut Call,
    b: Tensor,
    a: Tensor,
    upper: bool,
    transpose: bool,
    unit: bool,
    x_out: Tensor,
    m_out: Tensor,
) -> Result<Work, Refusal> {
    call.on_chip(call.chip.family != Family::Ascend310p && call.chip.family != Family::Ascend310b)?;
    call.typed(&b, "f32,f64")?;
    call.type_is(&a, b.ty())?;
    call.rank(&b, 2..=8)?;
    call.rank(&a, 2..=8)?;
    let (rank_a, rank_b) = (a.rank(), b.rank());
    let (n, columns) = (b.shape()[rank_b - 2], b.shape()[rank_b - 1]);
    let square = a.shape()[rank_a - 2..] == [n, n] && a.shape()[..rank_a - 2] == b.shape()[..rank_b - 2];
    call.require(square, "A", || {
        format!("has the shape {}, which does not match {}", sizes(a.shape()), sizes(b.shape()))
    })?;
    for (target, like) in [(&x_out, &b), (&m_out, &a)] {
        call.type_is(target, b.ty())?;
        call.shape(target, like.shape())?;
    }
    call.keep_apart();
    call.asks(1024);
    let (b, a, x_out, m_out) = (call.input(&b), call.input(&a), call.output(&x_out), call.output(&m_out));
    let (n, columns) = (n as usize, columns as usize);
    work(move |stage| {
        let (a, mut b): (Vec<f64>, Vec<f64>) = (stage.read(a)?, stage.read(b)?);
        stage.write(m_out, &a)?;
        if n * columns > 0 {
            for (a, b) in a.chunks(n * n).zip(b.chunks_mut(n * columns)) {
                solve(a, b, n, columns, (upper, transpose, unit));
            }
        }
        stage.write(x_out, &b)
    })
}

/// Solves A X = B in place of B by substitution.
fn solve(a: &[f64], b: &mut [f64], n: usize, columns: usize, (upper, transpose, unit): (bool, bool, bool)) {
    let at = |row: usize, column: usize| if transpose { a[column * n + row] } else { a[row * n + column] };
    let from_below = upper != transpose;
    for step in 0..n {
        let row = if from_below { n - 1 - step } else { step };
        let known = if from_below { row + 1..n } else { 0..row };
        for column in 0..columns {
            let sum: f64 = known.clone().map(|other| at(row, other) * b[other * columns + column]).sum();
            let rest = b[row * columns + column] - sum;
            b[row * columns + column] = if unit { rest } else { rest / at(row, row) };
        }
    }
}

type C<'a> = &'a mut Call;

operators! {
    "Mm"(self_: Tensor, mat2: Tensor, out: Tensor, cubeMathType: i8) => |call: C, a, b, out, math| of_ranks(call, 2..=2, a, b, out, math);
    "BatchMatMul"(self_: Tensor, mat2: Tensor, out: Tensor, cubeMathType: i8) => |call: C, a, b, out, math| of_ranks(call, 3..=3, a, b, out, math);
    "Matmul"(self_: Tensor, mat2: Tensor, out: Tensor, cubeMathType: i8) => |call: C, a, b, out, math| of_ranks(call, 1..=6, a, b, out, math);
    "Mv"(self_: Tensor, vec: Tensor, out: Tensor, cubeMathType: i8) => mv;
    "Addmm"(self_: Tensor, mat1: Tensor, mat2: Tensor, beta: Scalar, alpha: Scalar, out: Tensor, cubeMathType: i8) => addmm;
    "TriangularSolve"(self_: Tensor, A: Tensor, upper: bool, transpose: bool, unitriangular: bool, xOut: Tensor, mOut: Tensor) => triangular_solve;
    "TransMatmulWeight"(mmWeightRef: Tensor) => trans_weight;
}
