//! Elements repeated along every dimension.

use super::{Call, ELEMENTWISE, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::Upscale;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn compute(op: &Upscale, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let [len, x1, x2, _] = call.inputs[0].ty.shape.sizes();
    let y = Call::output_floats(call.output)?;
    let [y_len, y1, y2, _] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let [f0, f1, f2, f3] = op.factors;
    let rows = y.chunks_mut(y_len).enumerate();
    call.team.each(rows, pieces_min(y_len), |(row, y)| {
        let source = row % y1 / f1 + x1 * (row / y1 % y2 / f2 + x2 * (row / (y1 * y2) / f3));
        for (y, x) in y.chunks_exact_mut(f0).zip(&x[source * len..][..len]) {
            y.fill(*x);
        }
    });
    Ok(())
}
