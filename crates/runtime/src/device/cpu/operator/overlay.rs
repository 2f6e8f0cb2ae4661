//! One tensor with another in it or added to it.

use super::{Call, moved};
use crate::device::cpu::gather::Places;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Overlay, Overlaying};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    moved::profile("a", &inputs[0])
}

pub fn compute(overlay: &Overlay, mut call: Call) -> Result<(), String> {
    let (a, b) = (call.inputs[0], call.inputs[1]);
    moved::copy(call.team, a.view, &mut call.output)?;
    match overlay.how {
        Overlaying::Set => {
            let sizes = b.ty.shape.sizes();
            let strides = moved::strides(sizes);
            let places = Places::new(call.output_type.shape.sizes(), |d, i| {
                i.checked_sub(overlay.start[d]).filter(|i| *i < sizes[d]).map(|i| i * strides[d])
            });
            moved::gather(call.team, b.view, &places, &mut call.output)
        }
        Overlaying::Acc => {
            let (b_cells, y) = (b.floats()?, Call::output_floats(call.output)?);
            let [n0, n1, n2, _] = a.ty.shape.sizes();
            let ([len, b1, b2, b3], [start, s1, s2, s3]) = (b.ty.shape.sizes(), overlay.start);
            if b_cells.is_empty() {
                return Ok(());
            }
            call.team.each(y.chunks_mut(n0).enumerate(), super::pieces_min(n0), |(row, y)| {
                let inside = |i: usize, start: usize, size: usize| i.checked_sub(start).filter(|i| *i < size);
                let i = inside(row % n1, s1, b1).zip(inside(row / n1 % n2, s2, b2));
                let Some(((i, j), k)) = i.zip(inside(row / n1 / n2, s3, b3)) else { return };
                let b = &b_cells[(i + b1 * (j + b2 * k)) * len..][..len];
                y[start..start + len].iter_mut().zip(b).for_each(|(y, b)| *y += b);
            });
            Ok(())
        }
    }
}
