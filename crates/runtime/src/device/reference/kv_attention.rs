//! `y[d, h, t] = sum_j V[d, g, j] softmax(scale K[g, j] . q[h, t] + slope mask)_j` over the cached head `g` of `h` and
//! the sequence of token `t`.
//!
//! A position of weight 0 is not read: it may hold anything, and 0 times infinity is NaN.

use super::place;
use super::soft_max::{Mask, slope, soft_max_row};
use crate::host_tensor::HostTensor;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::KvAttention;

pub(super) fn evaluate(op: &KvAttention, inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let (q, keys, values, mask) = (inputs[0], inputs[1], inputs[2], Mask::new(inputs[4]));
    let [size, heads, ..] = q.ty().shape.sizes();
    let [key_width, context, sequences, _] = keys.ty().shape.sizes();
    let kv_heads = key_width / size;
    let (value_width, width) = (values.ty().shape[0], values.ty().shape[0] / kv_heads);
    let places: Vec<usize> = inputs[3]
        .to_indices()
        .iter()
        .map(|sequence| place("sequence", *sequence, sequences))
        .collect::<Result<_, _>>()?;
    let mut y = vec![0.0; output.shape.elements()];
    y.par_chunks_exact_mut(width.max(1)).enumerate().for_each(|(index, y)| {
        let (h, t) = (index % heads, index / heads);
        let (kv_head, first) = (h / (heads / kv_heads), context * places[t]);
        let mask = mask.row(t, h, 0);
        let (mut query, mut key, mut value) = (vec![0.0; size], vec![0.0; size], vec![0.0; width]);
        q.read(size * index, &mut query);
        let mut shares: Vec<f64> = (0..mask.len())
            .map(|j| {
                keys.read(size * kv_head + key_width * (first + j), &mut key);
                key.iter().zip(&query).fold(0.0, |sum, (key, query)| sum + key * query) * f64::from(op.scale)
            })
            .collect();
        soft_max_row(&mut shares, Some(mask), slope(op.max_bias, h, heads));
        for (j, share) in shares.iter().enumerate().filter(|(_, share)| **share != 0.0) {
            values.read(width * kv_head + value_width * (first + j), &mut value);
            y.iter_mut().zip(&value).for_each(|(y, value)| *y += value * share);
        }
    });
    Ok(y)
}
