//! Elements at other places: copies between views. The ones that are views already are no work.

use super::{Call, ELEMENTWISE, broadcast, expect_known};
use crate::device::ascend::acl::Array;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Arrange, Concat, Upscale};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    inputs.iter().try_for_each(|ty| expect_known("x", ty))?;
    Ok(ELEMENTWISE)
}

pub fn compose(op: &Arrange, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    match op {
        Arrange::Permute { .. } | Arrange::Transpose | Arrange::View { .. } => Ok(()),
        Arrange::Repeat { .. } => {
            let [out, x] = broadcast([out, x])?;
            queue.copy_to(&out, &x)
        }
        Arrange::RepeatInterleave { dimension, .. } => {
            let d = 3 - dimension;
            let len = x.sizes[d];
            queue.copy_to(&out.split(d, len), &x.inserted(d + 1))
        }
        Arrange::Pad { before, .. } => {
            queue.zero(&out)?;
            let inside = (0..4).fold(out, |out, d| out.part(d, before[3 - d] as i64, x.sizes[d]));
            queue.copy_to(&inside, &x)
        }
        Arrange::Roll { shifts } => rolled(&x, &out, *shifts, &mut |out, x| queue.copy_to(out, x)),
    }
}

/// Each dimension's end comes in at its start: two pieces a dimension that is rolled, each copied to its place.
fn rolled(
    x: &Array,
    out: &Array,
    shifts: [i64; 4],
    copy: &mut dyn FnMut(&Array, &Array) -> Result<(), String>,
) -> Result<(), String> {
    fn piece(
        x: Array,
        out: Array,
        d: usize,
        shifts: [i64; 4],
        copy: &mut dyn FnMut(&Array, &Array) -> Result<(), String>,
    ) -> Result<(), String> {
        if d == 4 {
            return copy(&out, &x);
        }
        let size = x.sizes[d];
        let shift = shifts[3 - d].rem_euclid(size.max(1));
        if size > shift {
            piece(x.clone().part(d, 0, size - shift), out.clone().part(d, shift, size - shift), d + 1, shifts, copy)?;
        }
        if shift > 0 {
            piece(x.part(d, size - shift, shift), out.part(d, 0, shift), d + 1, shifts, copy)?;
        }
        Ok(())
    }
    piece(x.clone(), out.clone(), 0, shifts, copy)
}

/// One behind the other.
pub fn concat(op: &Concat, call: &Call) -> Result<(), String> {
    let (a, b, out) = (call.input(0)?, call.input(1)?, call.output()?);
    let d = 3 - op.dimension;
    let (first, second) = (a.sizes[d], b.sizes[d]);
    let places = [(out.clone().part(d, 0, first), a), (out.part(d, first, second), b)];
    places.iter().filter(|(_, x)| x.elements() > 0).try_for_each(|(place, x)| call.engine.queue.copy_to(place, x))
}

/// Each element several times in a row, along all dimensions.
pub fn upscale(_: &Upscale, call: &Call) -> Result<(), String> {
    let (mut x, mut out) = (call.input(0)?, call.output()?);
    for d in (0..4).rev() {
        out = out.split(d, x.sizes[d]);
        x = x.inserted(d + 1);
    }
    call.engine.queue.copy_to(&out, &x)
}
