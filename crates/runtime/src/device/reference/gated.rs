//! `y[i] = f(gate[i]) up[i]`.

use super::unary::function;
use crate::host_tensor::HostTensor;
use trueup_graph::op::Gated;

pub(super) fn evaluate(gated: Gated, inputs: &[&HostTensor]) -> Vec<f64> {
    let (gate, up) = (inputs[0].values(), inputs[1].values());
    gate.iter().zip(up.iter()).map(|(gate, up)| function(&gated.function(), *gate) * up).collect()
}
