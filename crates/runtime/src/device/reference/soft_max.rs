//! `y[j] = exp(s_j - max s) / sum_k exp(s_k - max s)` with `s = scale x + slope mask`; exactly 0 where the mask is
//! -inf.

use crate::host_tensor::HostTensor;
use trueup_graph::op::SoftMax;

pub(super) fn evaluate(soft_max: &SoftMax, inputs: &[&HostTensor]) -> Vec<f64> {
    let mut y = inputs[0].values().into_owned();
    let [capacity, tokens, heads, _] = inputs[0].ty().shape.sizes();
    let masks = inputs.get(1).map(|mask| Mask::new(mask));
    for (row, y) in y.chunks_exact_mut(capacity.max(1)).enumerate() {
        let (t, h, b) = (row % tokens, row / tokens % heads, row / tokens / heads);
        let slope = slope(soft_max.max_bias, h, heads);
        y.iter_mut().for_each(|x| *x *= f64::from(soft_max.scale));
        soft_max_row(y, masks.as_ref().map(|mask| mask.row(t, h, b)), slope);
    }
    y
}

/// What is added to scores, `[capacity, tokens, heads, batch]`; repeated along the outer two.
pub(super) struct Mask<'a> {
    values: std::borrow::Cow<'a, [f64]>,
    sizes: [usize; 4],
}

impl<'a> Mask<'a> {
    pub(super) fn new(mask: &'a HostTensor) -> Mask<'a> {
        Mask { values: mask.values(), sizes: mask.ty().shape.sizes() }
    }

    /// The row of one token, head and batch.
    pub(super) fn row(&self, token: usize, head: usize, batch: usize) -> &[f64] {
        let [capacity, tokens, heads, batches] = self.sizes;
        &self.values[capacity * (token + tokens * (head % heads + heads * (batch % batches)))..][..capacity]
    }
}

/// ALiBi's slope of a head.
pub(super) fn slope(max_bias: f32, head: usize, heads: usize) -> f64 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let mut n = 1;
    while 2 * n <= heads {
        n *= 2;
    }
    let exponent = if head < n { (head + 1) as f64 } else { (head - n) as f64 + 0.5 };
    (-f64::from(max_bias) * exponent / n as f64).exp2()
}

/// Scaled scores become shares.
pub(super) fn soft_max_row(row: &mut [f64], mask: Option<&[f64]>, slope: f64) {
    let mask = |j: usize| mask.map_or(0.0, |mask| mask[j]);
    let seen = |j: usize| mask(j) != f64::NEG_INFINITY;
    for (j, x) in row.iter_mut().enumerate() {
        *x = if seen(j) { *x + slope * mask(j) } else { f64::NEG_INFINITY };
    }
    let max = row.iter().fold(f64::NEG_INFINITY, |max, x| max.max(*x));
    for (j, x) in row.iter_mut().enumerate() {
        *x = if seen(j) { (*x - max).exp() } else { 0.0 };
    }
    let sum = row.iter().fold(0.0, |sum, x| sum + x);
    for (_, x) in row.iter_mut().enumerate().filter(|(j, _)| seen(*j)) {
        *x /= sum;
    }
}
