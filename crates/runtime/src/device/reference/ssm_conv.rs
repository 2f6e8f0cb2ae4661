//! `y[c, t, s] = sum_k x[t + k, c, s] w[k, c]`.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (x, w) = (inputs[0].values(), inputs[1].values());
    let (len, taps) = (inputs[0].ty().shape[0], inputs[1].ty().shape[0]);
    let [channels, tokens, sequences, _] = output.shape.sizes();
    let mut y = Vec::with_capacity(output.shape.elements());
    for s in 0..sequences {
        for t in 0..tokens {
            for c in 0..channels {
                let seen = &x[(s * channels + c) * len + t..][..taps];
                y.push(seen.iter().zip(&w[c * taps..][..taps]).fold(0.0, |sum, (x, w)| sum + x * w));
            }
        }
    }
    y
}
