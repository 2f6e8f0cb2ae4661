//! Elements in another type. Blocks are decoded, and not made.

use super::get_rows::{decode, expect_readable};
use super::{Call, ELEMENTWISE, expect_known};
use crate::device::ascend::chip::Chip;
use crate::device::ascend::split::Split;
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

pub fn profile(op: &Op, inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    let Op::Cast(cast) = op else { return Err("it is no cast".to_owned()) };
    let is_integer = |dtype| matches!(dtype, DType::I32 | DType::I64);
    if is_integer(cast.to) != is_integer(inputs[0].dtype) {
        return Err("how numbers beyond the range of integers are rounded is not documented".to_owned());
    }
    expect_known("the output", &TensorType::new(cast.to, &[1]))?;
    expect_readable("x", &inputs[0], chip)?;
    Ok(ELEMENTWISE)
}

pub fn compose(call: &Call) -> Result<(), String> {
    let (queue, out) = (&call.engine.queue, call.output()?);
    if Split::of(call.ty(0)).is_none() {
        return queue.copy_to(&out, &call.input(0)?);
    }
    let [_, _, n2, _] = call.ty(0).shape.sizes();
    for (number, matrix) in call.matrices(0)?.iter().enumerate() {
        let place = out.clone().part(0, (number / n2) as i64, 1).part(1, (number % n2) as i64, 1);
        decode(call, matrix, &place.ordered(&[2, 3]))?;
    }
    Ok(())
}
