//! The largest element that a window sees, or the sum divided by its area.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::{Pool2d, Pooling};

pub(super) fn evaluate(pool: &Pool2d, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let x = inputs[0].values();
    let [width, height, ..] = inputs[0].ty().shape.sizes();
    let [across, down, ..] = output.shape.sizes();
    let mut y = Vec::with_capacity(output.shape.elements());
    for plane in x.chunks(width * height) {
        for q in 0..down {
            for p in 0..across {
                y.push(pooled(pool, plane, [width, height], [p, q]));
            }
        }
    }
    y
}

fn pooled(pool: &Pool2d, plane: &[f64], [width, height]: [usize; 2], place: [usize; 2]) -> f64 {
    let window = &pool.window;
    let range = |axis: usize, len: usize| {
        let start = place[axis] * window.stride[axis];
        let inside = move |padded: usize| padded.checked_sub(window.padding[axis]).filter(|place| *place < len);
        (start..start + window.size[axis]).filter_map(inside)
    };
    let seen = range(1, height).flat_map(|row| range(0, width).map(move |column| plane[row * width + column]));
    match pool.rule {
        Pooling::Average => seen.fold(0.0, |sum, x| sum + x) / (window.size[0] * window.size[1]) as f64,
        Pooling::Max => seen.fold(f64::NEG_INFINITY, |max, x| if x > max || x.is_nan() { x } else { max }),
    }
}
