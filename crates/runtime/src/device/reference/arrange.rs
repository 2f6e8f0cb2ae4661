//! Elements at other places: for each of the output, which one of the input it is.

use super::{element, indices};
use crate::host_tensor::HostTensor;
use trueup_graph::op::Arrange;
use trueup_graph::{Shape, TensorType};

pub(super) fn evaluate(arrange: &Arrange, inputs: &[&HostTensor], output: &TensorType) -> HostTensor {
    let shape = inputs[0].ty().shape;
    HostTensor::gathered(*output, inputs, 0.0, |place| {
        Some((0, element(&shape, source(arrange, &shape, indices(&output.shape, place))?)))
    })
}

/// The indices of the element of an input of this shape that is element `i` of the output; none for a zero around it.
fn source(arrange: &Arrange, shape: &Shape, i: [usize; 4]) -> Option<[usize; 4]> {
    let sizes = shape.sizes();
    match arrange {
        Arrange::Permute { to } => Some(to.map(|target| i[target])),
        Arrange::Transpose => Some([i[1], i[0], i[2], i[3]]),
        Arrange::View { offset, strides, .. } => {
            Some(indices(shape, offset + i.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>()))
        }
        Arrange::Repeat { .. } => Some(std::array::from_fn(|d| i[d] % sizes[d])),
        Arrange::RepeatInterleave { dimension, times } => {
            Some(std::array::from_fn(|d| if d == *dimension { i[d] / times } else { i[d] }))
        }
        Arrange::Pad { before, .. } => {
            let inside = (0..4).all(|d| i[d] >= before[d] && i[d] - before[d] < sizes[d]);
            inside.then(|| std::array::from_fn(|d| i[d] - before[d]))
        }
        Arrange::Roll { shifts } => {
            let rolled = |d: usize| (i[d] as i128 - i128::from(shifts[d])).rem_euclid(sizes[d] as i128) as usize;
            Some(std::array::from_fn(rolled))
        }
    }
}
