//! What a window sees at each of its places: a view of the padded image, in which neighbouring windows share elements.

use super::{Call, ELEMENTWISE, expect_f32};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::device::ascend::pool::Room;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Im2Col, Pool2d, Pooling, Window};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0]).map(|()| ELEMENTWISE)
}

/// An image `[batch, channels, height, width]` within a border.
fn padded(call: &Call, x: &Array, window: &Window, border: f32) -> Result<Room, String> {
    let [across, down] = window.padding.map(|padding| padding as i64);
    let room = call.room(Type::F32, &[x.sizes[0], x.sizes[1], x.sizes[2] + 2 * down, x.sizes[3] + 2 * across])?;
    let queue = &call.engine.queue;
    queue.fill(&room, Scalar::F32(border))?;
    queue.copy_to(&room.clone().part(2, down, x.sizes[2]).part(3, across, x.sizes[3]), x)?;
    Ok(room)
}

/// All windows on an image: `[batch, channels, places down, places across, window height, window width]`.
fn windows(image: &Array, window: &Window, [across, down]: [i64; 2]) -> Array {
    let (mut all, steps) = (image.clone(), [image.steps[2], image.steps[3]]);
    let number = |pair: [usize; 2]| [pair[1] as i64, pair[0] as i64];
    let (size, stride, dilation) = (number(window.size), number(window.stride), number(window.dilation));
    all.sizes.splice(2..4, [down, across, size[0], size[1]]);
    all.steps
        .splice(2..4, [stride[0] * steps[0], stride[1] * steps[1], dilation[0] * steps[0], dilation[1] * steps[1]]);
    all
}

pub fn im2col(op: &Im2Col, call: &Call) -> Result<(), String> {
    let (x, out) = (call.input(0)?, call.output()?);
    // Lines are images of one row.
    let x = if op.lines { x.ordered(&[1, 2, 3]).inserted(2) } else { x };
    let [down, across] = if op.lines { [1, out.sizes[2]] } else { [out.sizes[1], out.sizes[2]] };
    let image = padded(call, &x, &op.window, 0.0)?;
    let seen = windows(&image, &op.window, [across, down]);
    let sizes = [x.sizes[0], down, across, x.sizes[1], seen.sizes[4], seen.sizes[5]];
    call.engine.queue.copy_to(&out.under(&sizes), &seen.ordered(&[0, 2, 3, 1, 4, 5]))
}

pub fn pool(op: &Pool2d, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    let border = if op.rule == Pooling::Max { f32::NEG_INFINITY } else { 0.0 };
    let image = padded(call, &x, &op.window, border)?;
    let seen = windows(&image, &op.window, [out.sizes[3], out.sizes[2]]);
    let seen = call.gathered(&seen, Type::F32)?;
    match op.rule {
        Pooling::Max => queue.largest(&seen, &[4, 5], false, &out),
        Pooling::Average => queue.mean(&seen, &[4, 5], false, Type::F32, &out),
    }
}
