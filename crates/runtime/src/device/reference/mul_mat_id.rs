//! `y[m, u, t] = sum_k w[k, m, ids[u, t]] x[k, u, t]`.

use super::mul_mat::product;
use super::place;
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> Result<Vec<f64>, String> {
    let (w, x, ids) = (inputs[0], inputs[1].values(), inputs[2].to_indices());
    let [_, rows, experts, _] = w.ty().shape.sizes();
    let [len, seen, ..] = inputs[1].ty().shape.sizes();
    let used = output.shape[1];
    let mut y = Vec::with_capacity(output.shape.elements());
    for (pair, id) in ids.into_iter().enumerate() {
        let expert = place("expert", id, experts)?;
        let column = pair % used % seen + seen * (pair / used);
        y.extend(product(w, expert * rows..(expert + 1) * rows, &x[len * column..len * (column + 1)], 1));
    }
    Ok(y)
}
