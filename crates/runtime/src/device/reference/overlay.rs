//! `a` with `b` in it or added to it.

use super::{element, indices};
use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::{Overlay, Overlaying};

pub(super) fn evaluate(overlay: &Overlay, inputs: &[&HostTensor], output: &TensorType) -> HostTensor {
    let b = inputs[1].ty().shape;
    let under = |place: usize| {
        let i = indices(&output.shape, place);
        let inside = (0..4).all(|d| i[d] >= overlay.start[d] && i[d] - overlay.start[d] < b[d]);
        inside.then(|| element(&b, std::array::from_fn(|d| i[d] - overlay.start[d])))
    };
    match overlay.how {
        Overlaying::Set => HostTensor::gathered(*output, inputs, 0.0, |place| {
            Some(under(place).map_or((0, place), |under| (1, under)))
        }),
        Overlaying::Acc => {
            let (mut y, b) = (inputs[0].values().into_owned(), inputs[1].values());
            for (place, y) in y.iter_mut().enumerate() {
                *y += under(place).map_or(0.0, |under| b[under]);
            }
            HostTensor::real(*output, y)
        }
    }
}
