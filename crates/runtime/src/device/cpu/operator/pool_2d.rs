//! The largest element that a window sees, or the mean, summed in f64.

use super::{Call, IN_F64, expect_f32, pieces_min};
use crate::profile::Profile;
use std::ops::Range;
use trueup_graph::TensorType;
use trueup_graph::op::{Pool2d, Pooling};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: 1, ..IN_F64 })
}

pub fn compute(op: &Pool2d, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let [width, height, ..] = call.inputs[0].ty.shape.sizes();
    let y = Call::output_floats(call.output)?;
    let [across, down, ..] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let area = (op.window.size[0] * op.window.size[1]) as f64;
    let lines = y.chunks_mut(across).enumerate();
    call.team.each(lines, pieces_min(across * area as usize), |(line, y)| {
        let plane = &x[line / down * width * height..][..width * height];
        let rows = seen(op, 1, line % down, height);
        for (place, y) in y.iter_mut().enumerate() {
            let columns = seen(op, 0, place, width);
            let seen = rows.clone().flat_map(|row| &plane[row * width..][columns.clone()]);
            *y = match op.rule {
                Pooling::Average => (seen.fold(0.0, |sum, x| sum + f64::from(*x)) / area) as f32,
                Pooling::Max => seen.fold(f32::NEG_INFINITY, |max, x| if max < *x || x.is_nan() { *x } else { max }),
            };
        }
    });
    Ok(())
}

/// What the window sees on one axis: never nothing, as padding is at most half its size.
fn seen(op: &Pool2d, axis: usize, place: usize, len: usize) -> Range<usize> {
    let (start, padding) = (place * op.window.stride[axis], op.window.padding[axis]);
    start.saturating_sub(padding)..(start + op.window.size[axis] - padding).min(len)
}
