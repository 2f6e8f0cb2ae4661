//! `y[d, h, t] = sum_j v[d, j] softmax(cap(scale k[j] . q[t, h]) + slope mask)_j`.
//!
//! A position of weight 0 is not read: 0 times infinity is NaN.

use super::soft_max::{Mask, slope, soft_max_row};
use crate::host_tensor::HostTensor;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::FlashAttn;

pub(super) fn evaluate(attention: &FlashAttn, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    let masks = inputs.get(3).map(|mask| Mask::new(mask));
    let [len, tokens, heads, _] = q.ty().shape.sizes();
    let [_, positions, kv_heads, _] = k.ty().shape.sizes();
    let width = output.shape[0];
    let mut y = vec![0.0; output.shape.elements()];
    y.par_chunks_exact_mut(width.max(1)).enumerate().for_each(|(row, y)| {
        let (h, t, b) = (row % heads, row / heads % tokens, row / heads / tokens);
        let first = positions * (h / (heads / kv_heads) + kv_heads * b);
        let (mut query, mut key, mut value) = (vec![0.0; len], vec![0.0; len], vec![0.0; width]);
        q.read(len * (t + tokens * (h + heads * b)), &mut query);
        let mut shares: Vec<f64> = (0..positions)
            .map(|j| {
                k.read(len * (first + j), &mut key);
                let score = key.iter().zip(&query).fold(0.0, |sum, (key, query)| sum + key * query);
                capped(f64::from(attention.scale) * score, f64::from(attention.softcap))
            })
            .collect();
        let mask = masks.as_ref().map(|mask| mask.row(t, h, b));
        soft_max_row(&mut shares, mask, slope(attention.max_bias, h, heads));
        for (j, share) in shares.iter().enumerate().filter(|(_, share)| **share != 0.0) {
            v.read(width * (first + j), &mut value);
            y.iter_mut().zip(&value).for_each(|(y, value)| *y += share * value);
        }
    });
    y
}

fn capped(score: f64, softcap: f64) -> f64 {
    if softcap == 0.0 { score } else { softcap * (score / softcap).tanh() }
}
