//! `y[j, t, h] = sum_d K[d, kv head of h, j] q[d, h, t]` over the sequence of token `t`.

use super::place;
use crate::host_tensor::HostTensor;
use rayon::prelude::*;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let (q, cache, sequences) = (inputs[0], inputs[1], inputs[2].to_indices());
    let [head_size, heads, tokens, _] = q.ty().shape.sizes();
    let [width, context, sequences_len, _] = cache.ty().shape.sizes();
    let capacity = output.shape[0];
    let shared_by = heads / (width / head_size);
    let places: Vec<usize> =
        sequences.iter().map(|sequence| place("sequence", *sequence, sequences_len)).collect::<Result<_, _>>()?;
    let mut y = vec![0.0; output.shape.elements()];
    y.par_chunks_exact_mut(capacity).enumerate().for_each(|(index, y)| {
        let (t, h) = (index % tokens, index / tokens);
        let (mut query, mut key) = (vec![0.0; head_size], vec![0.0; head_size]);
        q.read(head_size * (h + heads * t), &mut query);
        for (j, y) in y.iter_mut().enumerate() {
            cache.read(head_size * (h / shared_by) + width * (j + context * places[t]), &mut key);
            *y = key.iter().zip(&query).fold(0.0, |sum, (key, query)| sum + key * query);
        }
    });
    Ok(y)
}
