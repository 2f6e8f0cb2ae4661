//! What a window sees at each place, as a column.

use super::{Call, ELEMENTWISE, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Im2Col, Window};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn compute(op: &Im2Col, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let [width, n1, n2, _] = call.inputs[0].ty.shape.sizes();
    let (height, channels) = if op.lines { (1, n1) } else { (n1, n2) };
    let y = Call::output_floats(call.output)?;
    let [len, across, n2, _] = call.output_type.shape.sizes();
    let down = if op.lines { 1 } else { n2 };
    if y.is_empty() {
        return Ok(());
    }
    let plane = width * height;
    let columns = y.chunks_mut(len).enumerate();
    call.team.each(columns, pieces_min(4 * len), |(place, y)| {
        let image = &x[place / (across * down) * channels * plane..][..channels * plane];
        let corner = [place % across, place / across % down];
        let taps = op.window.size[0] * op.window.size[1];
        for (channel, y) in y.chunks_exact_mut(taps).enumerate() {
            see(&op.window, &image[channel * plane..][..plane], [width, height], corner, y);
        }
    });
    Ok(())
}

/// What the window sees of one plane.
fn see(window: &Window, plane: &[f32], [width, height]: [usize; 2], corner: [usize; 2], y: &mut [f32]) {
    for (j, y) in y.chunks_exact_mut(window.size[0]).enumerate() {
        let row = corner[1] * window.stride[1] + j * window.dilation[1];
        let row = row.checked_sub(window.padding[1]).filter(|row| *row < height);
        let row = row.map_or(&[][..], |row| &plane[row * width..][..width]);
        for (i, y) in y.iter_mut().enumerate() {
            let column = (corner[0] * window.stride[0] + i * window.dilation[0]).checked_sub(window.padding[0]);
            *y = column.and_then(|column| row.get(column)).copied().unwrap_or(0.0);
        }
    }
}
