//! Sums of everything, of rows, of rows up to each element, and means: one addition after the other.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::{Reduce, Reduction};

pub(super) fn evaluate(reduce: &Reduce, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let x = inputs[0].values();
    let len = inputs[0].ty().shape[0];
    let mut y = vec![0.0; output.shape.elements()];
    match reduce.rule {
        Reduction::Sum => y[0] = x.iter().fold(0.0, |sum, x| sum + x),
        Reduction::SumRows | Reduction::Mean => {
            let divisor = if reduce.rule == Reduction::Mean { len as f64 } else { 1.0 };
            for (y, row) in y.iter_mut().zip(x.chunks(len.max(1))) {
                *y = row.iter().fold(0.0, |sum, x| sum + x) / divisor;
            }
        }
        Reduction::CumSum => {
            for (place, x) in x.iter().enumerate() {
                y[place] = if place % len == 0 { *x } else { y[place - 1] + x };
            }
        }
    }
    y
}
