//! `x` with one number at the given places of one dimension.

use super::{indices, place};
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::IndexFill;

pub(super) fn evaluate(fill: &IndexFill, inputs: &[&HostTensor], output: &TensorType) -> Result<HostTensor, String> {
    let size = output.shape[fill.dimension];
    let mut filled = vec![false; size];
    for index in inputs[1].to_indices() {
        filled[place("index", index, size)?] = true;
    }
    Ok(HostTensor::gathered(*output, &inputs[..1], f64::from(fill.value), |element| {
        (!filled[indices(&output.shape, element)[fill.dimension]]).then_some((0, element))
    }))
}
