//! Arithmetic of two tensors, with repetition of either.

use super::{Call, ELEMENTWISE, expect_f32, expect_plain, pieces_min};
use crate::profile::{Accumulator, Profile};
use trueup_graph::op::Arithmetic;
use trueup_graph::{Shape, TensorType};

pub fn profile(op: &Arithmetic, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("a", &inputs[0])?;
    expect_plain("b", &inputs[1])?;
    Ok(match op {
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Div => ELEMENTWISE,
        // In f64, rounded once.
        Arithmetic::Pow => Profile { accumulator: Accumulator::F64, ..ELEMENTWISE },
    })
}

pub fn compute(op: &Arithmetic, call: Call) -> Result<(), String> {
    match op {
        Arithmetic::Add => rows(call, 1, |a, b| a + b),
        Arithmetic::Sub => rows(call, 1, |a, b| a - b),
        Arithmetic::Mul => rows(call, 1, |a, b| a * b),
        Arithmetic::Div => rows(call, 4, |a, b| a / b),
        Arithmetic::Pow => rows(call, 64, |a, b| f64::from(a).powf(f64::from(b)) as f32),
    }
}

/// All rows, of which an element costs as much as `work` multiplications.
fn rows(call: Call, work: usize, apply: impl Fn(f32, f32) -> f32 + Sync) -> Result<(), String> {
    let (a, b) = (call.inputs[0].floats()?, call.inputs[1].widened()?);
    let y = Call::output_floats(call.output)?;
    let (shape, a_shape, b_shape) = (call.output_type.shape, call.inputs[0].ty.shape, call.inputs[1].ty.shape);
    if y.is_empty() {
        return Ok(());
    }
    let rows = y.chunks_mut(shape[0]).enumerate();
    call.team.each(rows, pieces_min(work * shape[0]), |(row, y)| {
        let a = &a[repeated_row(row, &shape, &a_shape) * a_shape[0]..][..a_shape[0]];
        let b = &b[repeated_row(row, &shape, &b_shape) * b_shape[0]..][..b_shape[0]];
        if let (true, [b]) = (a.len() == y.len(), b) {
            y.iter_mut().zip(a).for_each(|(y, a)| *y = apply(*a, *b));
        } else if a.len() == y.len() {
            for (y, a) in y.chunks_exact_mut(b.len()).zip(a.chunks_exact(b.len())) {
                apply_row(a, b, y, &apply);
            }
        } else {
            for (y, b) in y.chunks_exact_mut(a.len()).zip(b.chunks_exact(a.len())) {
                apply_row(a, b, y, &apply);
            }
        }
    });
    Ok(())
}

fn apply_row(a: &[f32], b: &[f32], y: &mut [f32], apply: &impl Fn(f32, f32) -> f32) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = apply(*a, *b);
    }
}

/// Which row of an input row `row` of the output is computed from.
fn repeated_row(row: usize, output: &Shape, input: &Shape) -> usize {
    let ([_, n1, n2, _], [_, i1, i2, i3]) = (output.sizes(), input.sizes());
    row % n1 % i1 + i1 * (row / n1 % n2 % i2 + i2 * (row / (n1 * n2) % i3))
}
