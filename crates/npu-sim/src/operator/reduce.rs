//! Sums, means, extremes along axes.
//!
//! Floats of 32 bits and less add in f32, in the launch's order; f64 in f64; integers in i64. Results are rounded once.

use super::{
    Work,
    argument::{Ints, Tensor},
    call::Call,
    norm::{axes_last, reduced},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{
    element::{Form, Type},
    memory::Fault,
    status::Refusal,
};

const NUMBERS: &str = "f16,f32,i8,i16,i32,i64,u8,b,f64,bf16";

/// What is made of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Sum,
    Mean,
    Largest,
}

/// The axes that a list means: all when it is empty.
fn axes_or_all(call: &Call, x: &Tensor, dims: &[i64]) -> Result<Vec<usize>, Refusal> {
    let axes = call.axes(x, dims, "dim")?;
    Ok(if axes.is_empty() || x.rank() == 0 { (0..x.rank()).collect() } else { axes })
}

/// The largest; NaN wins.
fn largest<T: PartialOrd + Copy>(row: &[T]) -> Option<T> {
    row.iter().copied().reduce(|best, x| if best.partial_cmp(&best).is_none() || best >= x { best } else { x })
}

fn rows_in_f32(stage: &Stage, values: &[f32], length: usize, rule: Rule) -> Vec<f32> {
    let of_row = |row: &[f32]| match rule {
        Rule::Sum => stage.sum(row),
        Rule::Mean => stage.sum(row) / row.len() as f32,
        Rule::Largest => largest(row).unwrap_or(f32::NEG_INFINITY),
    };
    values.chunks(length).map(of_row).collect()
}

fn run(stage: &Stage, x: Slot, out: Slot, axes: &[usize], rule: Rule, form: Form) -> Result<(), Fault> {
    let view = axes_last(stage.view(x), axes);
    let length = axes.iter().map(|&axis| stage.view(x).shape[axis]).product::<u64>() as usize;
    let count = stage.view(out).count() as usize;
    if length == 0 {
        return stage.write(out, &vec![if rule == Rule::Mean { f64::NAN } else { 0.0 }; count]);
    }
    match form {
        Form::Single => stage.write(out, &rows_in_f32(stage, &stage.read_view::<f32>(&view)?, length, rule)),
        Form::Double => {
            let of_row = |row: &[f64]| match rule {
                Rule::Sum => row.iter().sum(),
                Rule::Mean => row.iter().sum::<f64>() / length as f64,
                Rule::Largest => largest(row).unwrap_or(f64::NEG_INFINITY),
            };
            stage.write(out, &stage.read_view::<f64>(&view)?.chunks(length).map(of_row).collect::<Vec<_>>())
        }
        Form::Whole => {
            let of_row = |row: &[i64]| match rule {
                Rule::Sum | Rule::Mean => row.iter().fold(0i64, |sum, x| sum.wrapping_add(*x)),
                Rule::Largest => largest(row).unwrap_or(i64::MIN),
            };
            stage.write(out, &stage.read_view::<i64>(&view)?.chunks(length).map(of_row).collect::<Vec<_>>())
        }
    }
}

fn along(
    call: &mut Call,
    x: &Tensor,
    axes: Vec<usize>,
    keep: bool,
    rule: Rule,
    ty: Type,
    out: &Tensor,
) -> Result<Work, Refusal> {
    call.type_is(out, ty)?;
    call.shape(out, &reduced(x.shape(), &axes, keep))?;
    call.keep_apart();
    call.asks(2048);
    let form = ty.form();
    let (x, out) = (call.input(x), call.output(out));
    work(move |stage| run(stage, x, out, &axes, rule, form))
}

fn sum(call: &mut Call, x: Tensor, dims: Ints, keep: bool, ty: i32, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ReduceSum", NUMBERS)?;
    let ty = call.type_of_code(ty, "dtype")?;
    let axes = axes_or_all(call, &x, &dims)?;
    let loses = x.ty().is_float() && !ty.is_float();
    call.require(!loses && ty != Type::Bool && ty != Type::I4, "dtype", || format!("is {ty} for {}", x.ty()))?;
    along(call, &x, axes, keep, Rule::Sum, ty, &out)
}

fn mean(call: &mut Call, x: Tensor, dims: Ints, keep: bool, ty: i32, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ReduceMean", "f32,f16,bf16,f64,i32,i64,i16,i8,u8")?;
    let ty = call.type_of_code(ty, "dtype")?;
    call.require(ty.is_float(), "dtype", || format!("is {ty}, a float is expected"))?;
    let axes = axes_or_all(call, &x, &dims)?;
    along(call, &x, axes, keep, Rule::Mean, ty, &out)
}

fn max(call: &mut Call, x: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ReduceMax", NUMBERS)?;
    call.require(x.view.count() > 0, "self", || "is empty".to_owned())?;
    along(call, &x, (0..x.rank()).collect(), false, Rule::Largest, x.ty(), &out)
}

fn max_along(call: &mut Call, x: Tensor, dims: Ints, keep: bool, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ReduceMax", NUMBERS)?;
    let axes = axes_or_all(call, &x, &dims)?;
    call.require(axes.iter().all(|&axis| x.shape()[axis] > 0), "self", || "is empty along a reduced axis".to_owned())?;
    along(call, &x, axes, keep, Rule::Largest, x.ty(), &out)
}

fn cumulative(call: &mut Call, x: Tensor, dim: i64, ty: i32, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Cumsum", "f32,f16,i32,f64,u8,i8,i16,i64,bf16")?;
    let ty = call.type_of_code(ty, "dtype")?;
    call.type_is(&out, ty)?;
    call.require(!x.ty().is_float() || ty.is_float(), "dtype", || format!("is {ty} for {}", x.ty()))?;
    call.shape(&out, x.shape())?;
    let axis = call.axis(&x, dim, "dim")?;
    call.asks(2048);
    let axes: Vec<usize> = if x.rank() == 0 { Vec::new() } else { vec![axis] };
    let length = axes.first().map_or(1, |&axis| x.shape()[axis]).max(1) as usize;
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let (source, target) = (axes_last(stage.view(x), &axes), axes_last(stage.view(out), &axes));
        if ty.form() == Form::Single {
            let mut values: Vec<f32> = stage.read_view(&source)?;
            values.chunks_mut(length).for_each(|row| running(row, |sum, x| sum + x));
            return stage.write_view(&target, &values);
        }
        if ty.form() == Form::Whole {
            let mut values: Vec<i64> = stage.read_view(&source)?;
            values.chunks_mut(length).for_each(|row| running(row, i64::wrapping_add));
            return stage.write_view(&target, &values);
        }
        let mut values: Vec<f64> = stage.read_view(&source)?;
        values.chunks_mut(length).for_each(|row| running(row, |sum, x| sum + x));
        stage.write_view(&target, &values)
    })
}

fn running<T: Copy>(row: &mut [T], add: impl Fn(T, T) -> T) {
    for index in 1..row.len() {
        row[index] = add(row[index - 1], row[index]);
    }
}

operators! {
    "ReduceSum"(self_: Tensor, dims: Ints, keepDims: bool, dtype: i32, out: Tensor) => sum;
    "Mean"(self_: Tensor, dim: Ints, keepDim: bool, dtype: i32, out: Tensor) => mean;
    "Cumsum"(self_: Tensor, dim: i64, dtype: i32, out: Tensor) => cumulative;
    "Max"(self_: Tensor, out: Tensor) => max;
    "Amax"(self_: Tensor, dim: Ints, keepDim: bool, out: Tensor) => max_along;
}
