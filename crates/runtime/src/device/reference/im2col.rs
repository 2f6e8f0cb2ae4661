//! What a window sees at each place, as a column; 0 outside the image.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::Im2Col;

pub(super) fn evaluate(im2col: &Im2Col, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let x = inputs[0].values();
    let [width, second, third, fourth] = inputs[0].ty().shape.sizes();
    let (height, channels, batch) = if im2col.lines { (1, second, third) } else { (second, third, fourth) };
    let [_, across, places, _] = output.shape.sizes();
    let down = if im2col.lines { 1 } else { places };
    let seen = |b: usize, c: usize, [row, column]: [Option<usize>; 2]| match (row, column) {
        (Some(row), Some(column)) => x[((b * channels + c) * height + row) * width + column],
        (None, _) | (_, None) => 0.0,
    };
    let mut y = Vec::with_capacity(output.shape.elements());
    for b in 0..batch {
        for q in 0..down {
            for p in 0..across {
                for c in 0..channels {
                    for j in 0..im2col.window.size[1] {
                        for i in 0..im2col.window.size[0] {
                            y.push(seen(b, c, [place(im2col, 1, q, j, height), place(im2col, 0, p, i, width)]));
                        }
                    }
                }
            }
        }
    }
    y
}

/// Where on one axis of the image a tap lies.
fn place(im2col: &Im2Col, axis: usize, output: usize, tap: usize, len: usize) -> Option<usize> {
    let window = &im2col.window;
    let padded = output * window.stride[axis] + tap * window.dilation[axis];
    padded.checked_sub(window.padding[axis]).filter(|place| *place < len)
}
