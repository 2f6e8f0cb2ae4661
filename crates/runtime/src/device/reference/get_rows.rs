//! `y[:, i, t] = table[:, index[i, t], t]`.

use super::place;
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let [width, rows, ..] = inputs[0].ty().shape.sizes();
    let count = output.shape[1].max(1);
    let mut y = vec![0.0; output.shape.elements()];
    for (place_in_index, (y, index)) in y.chunks_exact_mut(width.max(1)).zip(inputs[1].to_indices()).enumerate() {
        let row = place_in_index / count * rows + place("row", index, rows)?;
        inputs[0].read(row * width, y);
    }
    Ok(y)
}
