//! `y[j] = exp(s_j - max s) / sum_k exp(s_k - max s)` with `s = scale x + mask`; exactly 0 where the mask is -inf.

use crate::host_tensor::HostTensor;
use trueup_graph::op::SoftMax;

pub(super) fn evaluate(soft_max: &SoftMax, inputs: &[&HostTensor]) -> Vec<f64> {
    let (mut y, mask) = (inputs[0].values().into_owned(), inputs[1].values());
    let [capacity, tokens, ..] = inputs[0].ty().shape.sizes();
    for (row, y) in y.chunks_exact_mut(capacity.max(1)).enumerate() {
        let mask = &mask[capacity * (row % tokens)..capacity * (row % tokens + 1)];
        soft_max_row(f64::from(soft_max.scale), y, mask);
    }
    y
}

fn soft_max_row(scale: f64, row: &mut [f64], mask: &[f64]) {
    let seen = |mask: &f64| *mask != f64::NEG_INFINITY;
    for (x, mask) in row.iter_mut().zip(mask) {
        *x = if seen(mask) { scale * *x + mask } else { f64::NEG_INFINITY };
    }
    let max = row.iter().fold(f64::NEG_INFINITY, |max, x| max.max(*x));
    for (x, mask) in row.iter_mut().zip(mask) {
        *x = if seen(mask) { (*x - max).exp() } else { 0.0 };
    }
    let sum = row.iter().fold(0.0, |sum, x| sum + x);
    for (x, _) in row.iter_mut().zip(mask).filter(|(_, mask)| seen(mask)) {
        *x /= sum;
    }
}
