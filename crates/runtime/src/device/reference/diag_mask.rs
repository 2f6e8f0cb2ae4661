//! `y[j, i] = value` on one side of the diagonal `j = past + i`, elsewhere `x[j, i]`.

use crate::host_tensor::HostTensor;
use trueup_graph::op::{DiagMask, Triangle};

pub(super) fn evaluate(mask: &DiagMask, inputs: &[&HostTensor]) -> Vec<f64> {
    let mut y = inputs[0].values().into_owned();
    let [positions, tokens, ..] = inputs[0].ty().shape.sizes();
    for (index, y) in y.iter_mut().enumerate() {
        let (j, diagonal) = (index % positions, mask.past.saturating_add(index / positions % tokens));
        let hidden = match mask.triangle {
            Triangle::Upper => j > diagonal,
            Triangle::Lower => j < diagonal,
        };
        if hidden {
            *y = f64::from(mask.value);
        }
    }
    y
}
