//! Attention in one operator: the plain kernel, a block of threads for each row of the result, some positions at a
//! time; and how its inputs look to the fast ones.

use super::attention::{self, Attention, Way};
use super::kv_attention::{grid, shared_bytes};
use super::matrix::expect_multiplied;
use super::soft_max;
use super::{Argument, Call, Means, Needed, Operand, View, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::FlashAttn;

pub fn profile(op: &FlashAttn, inputs: &[TensorType], means: &Means) -> Result<Profile, String> {
    for (what, ty) in ["q", "k", "v"].into_iter().zip(inputs) {
        expect_multiplied(what, ty)?;
    }
    let operands: Vec<Operand> = inputs.iter().map(Operand::unplaced).collect();
    let (attention, way) = arranged(op, &operands, means);
    if way == Way::Plain {
        shared_bytes([inputs[0].shape[0], inputs[2].shape[0]], means)?;
    }
    // The hyperbolic tangent of the cap is as exact as the exponential.
    Ok(attention.profile(way))
}

pub fn needed(op: &FlashAttn, inputs: &[Operand], means: &Means) -> Needed {
    let (attention, way) = arranged(op, inputs, means);
    attention.needed(way, means)
}

pub fn launch(op: &FlashAttn, call: &mut Call) -> Result<(), String> {
    let (attention, way) = arranged(op, &call.inputs, call.means);
    if way == Way::Plain {
        return launch_plain(op, call);
    }
    let View { data, sizes: [n0, n1, n2, n3], steps: [s0, s1, s2, s3] } = call.output.view;
    attention::launch(&attention, way, View { data, sizes: [n0, n2, n1, n3], steps: [s0, s2, s1, s3] }, 0, call)
}

fn launch_plain(op: &FlashAttn, call: &Call) -> Result<(), String> {
    let (q, k, v, y) = (call.inputs[0], call.inputs[1], call.inputs[2], call.output);
    let [mask, mask_type] = soft_max::mask(call.inputs.get(3), &q);
    let types = [q, k, v].map(|operand| suffix(operand.ty.dtype));
    let kernel = format!("flash_attn_{}", types.join("_"));
    let grid = grid(y.ty.shape.rows(), [q.ty.shape[0], v.ty.shape[0]], call.means)?;
    let [q, k, v] = [q, k, v].map(|operand| Argument::View(operand.view));
    let numbers = [op.scale, op.max_bias, op.softcap].map(Argument::Float);
    let arguments = [&[q, k, v, mask, mask_type, Argument::View(y.view)][..], &numbers].concat();
    call.launch(&kernel, grid, &arguments)
}

/// The inputs, which lie as the fast kernels take them, and the way: the plain one where scores have a cap.
fn arranged(op: &FlashAttn, inputs: &[Operand], means: &Means) -> (Attention, Way) {
    let attention = Attention {
        q: inputs[0],
        k: inputs[1],
        v: inputs[2],
        mask: inputs.get(3).copied(),
        sequences: None,
        scale: op.scale,
        max_bias: op.max_bias,
    };
    let way = if op.softcap == 0.0 { attention.way(means) } else { Way::Plain };
    (attention, way)
}
