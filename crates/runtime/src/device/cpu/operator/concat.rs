//! One tensor behind another along one dimension.

use super::{Call, moved};
use crate::device::cpu::gather::Places;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Concat;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("a", &inputs[0])
}

pub fn compute(concat: &Concat, mut call: Call) -> Result<(), String> {
    let mut start = 0;
    for input in &call.inputs {
        let sizes = input.ty.shape.sizes();
        let strides = moved::strides(sizes);
        let places = Places::new(call.output_type.shape.sizes(), |d, i| {
            let first = if d == concat.dimension { start } else { 0 };
            i.checked_sub(first).filter(|i| *i < sizes[d]).map(|i| i * strides[d])
        });
        moved::gather(call.team, input.view, &places, &mut call.output)?;
        start += sizes[concat.dimension];
    }
    Ok(())
}
