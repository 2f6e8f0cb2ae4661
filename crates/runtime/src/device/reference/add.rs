//! `y = a + b`, `b` repeated.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (mut y, b) = (inputs[0].values().into_owned(), inputs[1].values());
    let [a0, a1, a2, _] = output.shape.sizes();
    let [b0, b1, b2, b3] = inputs[1].ty().shape.sizes();
    for (index, y) in y.iter_mut().enumerate() {
        let (i0, i1, i2, i3) = (index % a0, index / a0 % a1, index / a0 / a1 % a2, index / a0 / a1 / a2);
        *y += b[i0 % b0 + b0 * (i1 % b1 + b1 * (i2 % b2 + b2 * (i3 % b3)))];
    }
    y
}
