//! `y[i, j, c, b] = x[i / f_0, j / f_1, c / f_2, b / f_3]`.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::Upscale;

pub(super) fn evaluate(upscale: &Upscale, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let x = inputs[0].values();
    let sizes = inputs[0].ty().shape.sizes();
    let source = |index: usize| {
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for (axis, len) in sizes.iter().enumerate() {
            let size = output.shape[axis];
            place += rest % size / upscale.factors[axis] * stride;
            rest /= size;
            stride *= len;
        }
        place
    };
    (0..output.shape.elements()).map(|index| x[source(index)]).collect()
}
