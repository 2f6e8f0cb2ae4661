//! `y[i] = x[i] / sqrt(mean(x^2) + epsilon) * w[i]`.

use crate::host_tensor::HostTensor;
use trueup_graph::op::RmsNorm;

pub(super) fn evaluate(norm: &RmsNorm, inputs: &[&HostTensor]) -> Vec<f64> {
    let (mut y, w) = (inputs[0].values().into_owned(), inputs[1].values());
    for row in y.chunks_exact_mut(w.len().max(1)) {
        let squares = row.iter().fold(0.0, |sum, x| sum + x * x);
        let root = (squares / row.len() as f64 + f64::from(norm.epsilon)).sqrt();
        for (x, w) in row.iter_mut().zip(w.iter()) {
            *x = *x / root * w;
        }
    }
    y
}
