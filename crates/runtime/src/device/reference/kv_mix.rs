//! `y[d + head size * h, t] = sum_j V[d, kv head of h, j] p[j, t, h]` over the sequence of token `t`.
//!
//! Where `p` is 0 the cache is not read: a position that is not seen may hold anything, and 0 times infinity is NaN.

use super::place;
use crate::host_tensor::HostTensor;
use rayon::prelude::*;
use trueup_graph::TensorType;
use trueup_graph::op::KvMix;

pub(super) fn evaluate(mix: &KvMix, inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let (p, cache, sequences) = (inputs[0], inputs[1], inputs[2].to_indices());
    let [capacity, tokens, heads, _] = p.ty().shape.sizes();
    let [width, context, sequences_len, _] = cache.ty().shape.sizes();
    let head_size = width / mix.kv_heads;
    let places: Vec<usize> =
        sequences.iter().map(|sequence| place("sequence", *sequence, sequences_len)).collect::<Result<_, _>>()?;
    let mut y = vec![0.0; output.shape.elements()];
    y.par_chunks_exact_mut(head_size).enumerate().for_each(|(index, y)| {
        let (h, t) = (index % heads, index / heads);
        let kv_head = h / (heads / mix.kv_heads);
        let (mut weights, mut value) = (vec![0.0; capacity], vec![0.0; head_size]);
        p.read(capacity * (t + tokens * h), &mut weights);
        for (j, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            cache.read(head_size * kv_head + width * (j + context * places[t]), &mut value);
            for (y, value) in y.iter_mut().zip(&value) {
                *y += value * weight;
            }
        }
    });
    Ok(y)
}
