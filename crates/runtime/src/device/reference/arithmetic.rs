//! `y = a o b`, both repeated to the output's shape.

use crate::host_tensor::HostTensor;
use trueup_graph::op::Arithmetic;
use trueup_graph::{Shape, TensorType};

pub(super) fn evaluate(arithmetic: Arithmetic, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let (a, b) = (inputs[0].values(), inputs[1].values());
    let [n0, n1, n2, _] = output.shape.sizes();
    let element = |index: usize| {
        let place = [index % n0, index / n0 % n1, index / n0 / n1 % n2, index / n0 / n1 / n2];
        apply(arithmetic, a[repeated(place, &inputs[0].ty().shape)], b[repeated(place, &inputs[1].ty().shape)])
    };
    (0..output.shape.elements()).map(element).collect()
}

/// Where the element at `place` of the output lies in an input.
fn repeated([i0, i1, i2, i3]: [usize; 4], shape: &Shape) -> usize {
    let [n0, n1, n2, n3] = shape.sizes();
    i0 % n0 + n0 * (i1 % n1 + n1 * (i2 % n2 + n2 * (i3 % n3)))
}

fn apply(arithmetic: Arithmetic, a: f64, b: f64) -> f64 {
    match arithmetic {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div => a / b,
        Arithmetic::Pow => a.powf(b),
    }
}
