//! Root mean square normalisation of each innermost row: a block of threads each, which reads by 16 bytes where rows
//! begin so.

use super::matrix::Form;
use super::{Argument, Call, Grid, Operand, View, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::RmsNorm;

pub fn profile(_op: &RmsNorm, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    expect_plain("w", &inputs[1])?;
    // Root and reciprocal are rounded once each. Of rows that are read by 16 bytes, four neighbours share a lane.
    Ok(Profile { lanes: 256, ..Profile::F32 })
}

pub fn launch(op: &RmsNorm, call: &mut Call) -> Result<(), String> {
    let (x, w) = (call.inputs[0], call.inputs[1]);
    let form = if call.means.repack && is_wide(&x, &w) { "_wide" } else { "" };
    let kernel = format!("rms_norm{form}_{}", suffix(w.ty.dtype));
    let [x, w, y] = [x, w, call.output].map(|operand| Argument::View(operand.view));
    call.launch(&kernel, Grid::rows(call.output.ty.shape.rows())?, &[x, w, y, Argument::Float(op.epsilon)])
}

/// Whether rows and weights can be read in fours.
pub fn is_wide(x: &Operand, w: &Operand) -> bool {
    x.ty.shape[0].is_multiple_of(4) && x.begins_at(16) && w.begins_at(4 * w.ty.dtype.block_bytes())
}

/// A norm of rows that another launch writes, which computes it behind them: as the wide kernels would.
#[derive(Clone, Copy, Debug)]
pub struct NormBehind {
    w: Operand,
    y: Operand,
    epsilon: f32,
    /// The weights of a product of its rows.
    product: Option<DType>,
}

impl NormBehind {
    /// The norm of a call, whose rows products of these weights may take; `None` where its rows cannot be read by 16
    /// bytes.
    pub fn of(op: &RmsNorm, call: &Call, product: Option<DType>) -> Option<NormBehind> {
        let (x, w, y) = (call.inputs[0], call.inputs[1], call.output);
        is_wide(&x, &w).then_some(NormBehind { w, y, epsilon: op.epsilon, product })
    }

    /// As kernels take it: weights, their type, the result, where its codes go, and a counter.
    pub fn arguments(&self, call: &Call) -> [Argument; 6] {
        let has_codes = self.product.is_some_and(|weights| call.means.takes_codes(weights));
        let codes = if has_codes && self.y.ty.shape[0].is_multiple_of(32) {
            call.taken(Form::Codes, &self.y, Form::Codes.bytes(&self.y.ty)).0
        } else {
            0
        };
        norm_arguments([self.w.view, self.y.view], number_of(self.w.ty.dtype), self.epsilon, [codes, call.counters(1)])
    }

    /// That there is no norm behind a launch; any view stands in its place.
    pub fn none(any: View) -> [Argument; 6] {
        norm_arguments([any; 2], 0, 0.0, [0; 2])
    }
}

/// How kernels that take weights of any plain type are told which.
pub fn number_of(weights: DType) -> i32 {
    match weights {
        DType::F16 => 1,
        DType::Bf16 => 2,
        _ => 0,
    }
}

fn norm_arguments([w, y]: [View; 2], w_type: i32, epsilon: f32, [codes, counter]: [u64; 2]) -> [Argument; 6] {
    let [w, y] = [w, y].map(Argument::View);
    let [codes, counter] = [codes, counter].map(Argument::Address);
    [w, Argument::Int(w_type), y, Argument::Float(epsilon), codes, counter]
}

/// As [`launch`], and brings the rows into the 8-bit blocks that products with weights of this type take; whether it
/// did: not where these take others, where rows are not whole blocks or cannot be read by 16 bytes.
pub fn launch_for_products(op: &RmsNorm, call: &mut Call, weights: DType) -> Result<bool, String> {
    let (x, w, y) = (call.inputs[0], call.inputs[1], call.output);
    if !call.means.takes_codes(weights) || !is_wide(&x, &w) || !x.ty.shape[0].is_multiple_of(32) {
        return Ok(false);
    }
    let (codes, _) = call.taken(Form::Codes, &y, Form::Codes.bytes(&y.ty));
    let kernel = format!("rms_norm_codes_{}", suffix(w.ty.dtype));
    let [x, w, y_view] = [x, w, y].map(|operand| Argument::View(operand.view));
    let arguments = [x, w, y_view, Argument::Float(op.epsilon), Argument::Address(codes)];
    call.launch(&kernel, Grid::rows(y.ty.shape.rows())?, &arguments).map(|()| true)
}
