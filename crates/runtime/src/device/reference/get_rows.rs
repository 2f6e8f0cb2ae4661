//! `y[:, i] = table[:, index[i]]`.

use super::place;
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let [width, rows, ..] = inputs[0].ty().shape.sizes();
    let mut y = vec![0.0; output.shape.elements()];
    for (y, index) in y.chunks_exact_mut(width.max(1)).zip(inputs[1].to_indices()) {
        inputs[0].read(place("row", index, rows)? * width, y);
    }
    Ok(y)
}
