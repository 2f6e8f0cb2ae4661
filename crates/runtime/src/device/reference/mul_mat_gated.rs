//! `y = f(g x) (u x)`: both products in f64, none of them rounded.

use super::unary::function;
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::MulMatGated;

pub(super) fn evaluate(op: &MulMatGated, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let product = |weights| super::mul_mat::evaluate(&[weights, inputs[2]], output);
    let (gates, ups) = (product(inputs[0]), product(inputs[1]));
    gates.iter().zip(&ups).map(|(gate, up)| function(&op.gated.function(), *gate) * up).collect()
}
