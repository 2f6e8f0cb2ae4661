//! `y[i] = gate[i] / (1 + exp(-gate[i])) * up[i]`.

use crate::host_tensor::HostTensor;

pub(super) fn evaluate(inputs: &[&HostTensor]) -> Vec<f64> {
    let (gate, up) = (inputs[0].values(), inputs[1].values());
    gate.iter().zip(up.iter()).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}
