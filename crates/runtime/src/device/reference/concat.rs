//! `b` behind `a` along one dimension.

use super::{element, indices};
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::Concat;

pub(super) fn evaluate(concat: &Concat, inputs: &[&HostTensor], output: &TensorType) -> HostTensor {
    let (a, b) = (inputs[0].ty().shape, inputs[1].ty().shape);
    let border = a[concat.dimension];
    HostTensor::gathered(*output, inputs, 0.0, |place| {
        let mut i = indices(&output.shape, place);
        if i[concat.dimension] < border {
            return Some((0, element(&a, i)));
        }
        i[concat.dimension] -= border;
        Some((1, element(&b, i)))
    })
}
