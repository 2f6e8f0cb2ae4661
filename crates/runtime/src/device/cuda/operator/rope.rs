//! Rotation of pairs by an angle that grows with the position. Angles are sums of two f32, less whole turns; sines and
//! the rotation itself in f32.

use super::{Argument, Call, Grid, Rotation, expect_f32, expect_plain, suffix};
use crate::profile::Profile;
use std::f64::consts::PI;
use trueup_graph::TensorType;
use trueup_graph::op::{Rope, RopePairs, RopeScaling};

pub fn profile(_: &Rope, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    if let Some(factors) = inputs.get(2) {
        expect_plain("factors", factors)?;
    }
    // Sine and cosine are within 2 units in the last place.
    Ok(Profile { function_ulp: 2.0, ..Profile::F32 })
}

pub fn launch(op: &Rope, call: &mut Call) -> Result<(), String> {
    let (x, positions, y) = (call.inputs[0], call.inputs[1], call.output);
    let factors = call.inputs.get(2).copied();
    let kernel = format!("rope_f32_{}", factors.map_or("f32", |factors| suffix(factors.ty.dtype)));
    let [head_size, _, tokens, batches] = x.ty.shape.sizes();
    let together = head_size - op.dimensions / 2 * positions.ty.shape[1];
    let arguments = [
        &[x, positions, factors.unwrap_or(x)].map(|operand| Argument::View(operand.view))[..],
        &[Argument::Int(factors.is_some().into()), Argument::View(y.view)],
        &arguments(op)?,
    ];
    call.launch(&kernel, Grid::elements(together * tokens * batches)?, &arguments.concat())
}

/// Two rotations by the same angles in one launch: queries and keys of the same tokens.
pub fn launch_pair(op: &Rope, call: &Call, other: &Call) -> Result<(), String> {
    let (positions, factors) = (call.inputs[1], call.inputs.get(2).copied());
    let kernel = format!("rope_pair_f32_{}", factors.map_or("f32", |factors| suffix(factors.ty.dtype)));
    let threads = |x: &TensorType| {
        let [head_size, heads, tokens, batches] = x.shape.sizes();
        (head_size - op.dimensions / 2 * positions.ty.shape[1]) * heads.div_ceil(HEADS_EACH) * tokens * batches
    };
    let [q, k] = [call.inputs[0], other.inputs[0]];
    let arguments = [
        &[q, k, positions, factors.unwrap_or(q)].map(|operand| Argument::View(operand.view))[..],
        &[Argument::Int(factors.is_some().into()), Argument::View(call.output.view), Argument::View(other.output.view)],
        &arguments(op)?,
    ];
    call.launch(&kernel, Grid::elements(threads(&q.ty) + threads(&k.ty))?, &arguments.concat())
}

/// Heads of a thread of the kernels for queries and keys together, as `kernels/cuda/rope.cu` has them.
const HEADS_EACH: usize = 4;

/// What the operator says of all tokens.
pub fn rotation(op: &Rope) -> Result<Rotation, String> {
    let Ramp { factor, low, high } = Ramp::of(op);
    let dimensions = i32::try_from(op.dimensions).map_err(|_| format!("{} elements are rotated", op.dimensions))?;
    let exact = f64::from(op.base).powf(-2.0 / f64::from(dimensions));
    let ratio = exact as f32;
    let (halves, magnitude) = ((op.pairs == RopePairs::Halves).into(), magnitude(op.scaling));
    Ok(Rotation {
        dimensions,
        halves,
        ratio,
        ratio_rest: (exact - f64::from(ratio)) as f32,
        factor,
        low,
        high,
        magnitude,
    })
}

/// The same, as kernels for rotation alone take it.
fn arguments(op: &Rope) -> Result<[Argument; 8], String> {
    let Rotation { dimensions, halves, ratio, ratio_rest, factor, low, high, magnitude } = rotation(op)?;
    let numbers = [ratio, ratio_rest, factor, low, high, magnitude];
    let [ratio, rest, factor, low, high, magnitude] = numbers.map(Argument::Float);
    Ok([Argument::Int(dimensions), Argument::Int(halves), ratio, rest, factor, low, high, magnitude])
}

/// Which pairs' frequencies are divided by the factor: none before `low`, all from `high` on.
struct Ramp {
    factor: f32,
    low: f32,
    high: f32,
}

impl Ramp {
    /// Formulas at [`RopeScaling`].
    fn of(op: &Rope) -> Ramp {
        // Ends before the first pair.
        let all = |factor| Ramp { factor, low: -2.0, high: -1.0 };
        match op.scaling {
            RopeScaling::None | RopeScaling::Long { .. } => all(1.0),
            RopeScaling::Linear { factor } => all(factor),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
                let (dimensions, base) = (op.dimensions as f64, f64::from(op.base));
                let context = f64::from(original_context);
                let corner = |beta: f32| dimensions * (context / (2.0 * PI * f64::from(beta))).ln() / (2.0 * base.ln());
                let low = corner(beta_fast).floor().max(0.0);
                let high = corner(beta_slow).ceil().min(dimensions - 1.0);
                Ramp { factor, low: low as f32, high: high as f32 }
            }
        }
    }
}

/// What sine and cosine are multiplied by.
fn magnitude(scaling: RopeScaling) -> f32 {
    match scaling {
        RopeScaling::None | RopeScaling::Linear { .. } => 1.0,
        RopeScaling::Yarn { magnitude, .. } | RopeScaling::Long { magnitude } => magnitude,
    }
}
