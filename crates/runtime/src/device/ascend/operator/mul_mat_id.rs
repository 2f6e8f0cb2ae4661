//! For each token the matrices of the experts that it uses.

use super::mul_mat::{apply, cube_math, multiply};
use super::{Call, mul_mat};
use crate::device::ascend::acl::Type;
use crate::device::ascend::chip::Chip;
use crate::profile::Profile;
use trueup_graph::TensorType;

pub fn profile(inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    mul_mat::profile(inputs, chip)
}

/// The host learns which experts are used, and asks for each one's product with the tokens that use it.
pub fn compose(call: &Call) -> Result<(), String> {
    let (w, out) = (call.ty(0), call.output()?);
    let experts = call.indices(2, w.shape[2])?;
    let [tokens, used, rows] = [out.sizes[1], out.sizes[2], out.sizes[3]];
    let is_split = call.is_in_blocks(0)?;
    let x = call.gathered(&call.input(1)?, if is_split { Type::F16 } else { Type::F32 })?;
    let (seen, columns) = (x.sizes[2], x.sizes[3]);
    let x = x.clone().under(&[tokens * seen, columns]);
    let out = out.under(&[tokens * used, rows]);
    let matrices = if is_split { call.matrices(0)? } else { Vec::new() };
    for (place, expert) in experts.iter().enumerate() {
        let place = place as i64;
        let row = place / used * seen + if seen == 1 { 0 } else { place % used };
        let (x, out) = (x.clone().part(0, row, 1), out.clone().part(0, place, 1));
        if is_split {
            apply(call, &matrices[*expert as usize], &x, &out)?;
        } else {
            let matrix = call.input(0)?.part(1, i64::from(*expert), 1).ordered(&[2, 3]);
            multiply(call, &x, &matrix, &out, cube_math(call.weight_type(0), call.engine.chip))?;
        }
    }
    Ok(())
}
