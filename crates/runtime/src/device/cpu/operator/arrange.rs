//! Elements to other places.

use super::{Call, moved};
use crate::device::cpu::gather::Places;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Arrange;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("x", &inputs[0])
}

pub fn compute(arrange: &Arrange, mut call: Call) -> Result<(), String> {
    let x = call.inputs[0];
    let sizes = x.ty.shape.sizes();
    let strides = moved::strides(sizes);
    let places = Places::new(call.output_type.shape.sizes(), |d, i| match arrange {
        // Views, which lie where their source lies.
        Arrange::Permute { .. } | Arrange::Transpose | Arrange::View { .. } => None,
        Arrange::Repeat { .. } => Some(i % sizes[d] * strides[d]),
        Arrange::RepeatInterleave { dimension, times } => {
            Some(if d == *dimension { i / times } else { i } * strides[d])
        }
        Arrange::Pad { before, .. } => i.checked_sub(before[d]).filter(|i| *i < sizes[d]).map(|i| i * strides[d]),
        Arrange::Roll { shifts } => {
            let size = sizes[d] as i64;
            Some((i as i64 - shifts[d].rem_euclid(size)).rem_euclid(size) as usize * strides[d])
        }
    });
    if matches!(arrange, Arrange::Pad { .. }) {
        moved::zero(&mut call.output);
    }
    moved::gather(call.team, x.view, &places, &mut call.output)
}
