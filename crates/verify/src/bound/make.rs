//! Tensors from parameters, element by element.
//!
//! ```text
//!  arange               u (|i step| + |y|)                             one product and one sum
//!  fill                 bit for bit
//!  timestep_embedding   u |angle| (units of the frequency + 1) + f     absolute; the frequency by the declared method, as in rope
//!  alibi_slopes         |y| (steps (f + u) + f)                        a power of a rounded root
//!                       f: twice the declared error of functions, and u
//! ```

use super::{Case, arithmetic, function_error, in_strips, within};
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics};
use trueup_graph::op::{Make, Making};
use trueup_runtime::profile::Angles;

pub(super) fn judge(make: &Make, case: &Case) -> Statistics {
    let precision = arithmetic(case.profile);
    let function = function_error(case.profile) * Precision::F32.unit + 2.0 * precision.unit;
    let len = case.output.ty.shape.elements();
    match make.rule {
        Making::Arange { start, step, .. } => in_strips(case, len, |i, tally| {
            let product = i as f64 * f64::from(step);
            let exact = f64::from(start) + product;
            tally.add(i, &within(case, exact, precision.unit * (product.abs() + exact.abs())));
        }),
        Making::Fill { value, .. } => in_strips(case, len, |i, tally| {
            tally.add(i, &Expected::same(f64::from(value), f64::from(value)));
        }),
        Making::TimestepEmbedding { dimensions, period_max } => {
            let steps = case.inputs.first().map(|steps| steps.all()).unwrap_or_default();
            in_strips(case, steps.len(), |column, tally| {
                let row = embedded(case, steps[column], dimensions, f64::from(period_max), function);
                for (j, expected) in row.iter().enumerate() {
                    tally.add(column * dimensions + j, expected);
                }
            })
        }
        Making::AlibiSlopes { heads, bias_max } => in_strips(case, len, |h, tally| {
            let whole = 1usize << heads.ilog2();
            let (steps, of) = if h < whole { (h + 1, whole) } else { (2 * (h - whole) + 1, 2 * whole) };
            let exact = (-f64::from(bias_max) * steps as f64 / of as f64).exp2();
            let relative = steps as f64 * (function + precision.unit) + function;
            tally.add(h, &within(case, exact, relative * exact + precision.normal_min));
        }),
    }
}

/// One step's cosines and sines.
fn embedded(case: &Case, step: f64, dimensions: usize, period_max: f64, function: f64) -> Vec<Expected> {
    let precision = arithmetic(case.profile);
    let half = dimensions / 2;
    let wave = |place: usize| {
        let (j, sine) = (place % half, place >= half);
        let share = j as f64 / half as f64;
        let angle = step * period_max.powf(-share);
        let units = match case.profile.angles {
            Angles::Iterated => 3.0 * j as f64 + 1.0,
            Angles::Pow => period_max.ln().abs() * share + 3.0,
            Angles::F64 => 1.0,
        };
        // The verifier's own angle is as exact as one of f64.
        let own = Precision::F64.unit * (period_max.ln().abs() * share + 4.0) * angle.abs();
        let error = precision.unit * (units + 1.0) * angle.abs() + function + own + precision.normal_min;
        let exact = if sine { angle.sin() } else { angle.cos() };
        let expected = within(case, exact, error);
        Expected { coarse: expected.coarse + 2.0 * Precision::BF16.unit, ..expected }
    };
    let mut row: Vec<Expected> = (0..2 * half).map(wave).collect();
    row.resize(dimensions, Expected::same(0.0, 0.0));
    row
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::Op;
    use trueup_graph::op::{Make, Making};
    use trueup_runtime::profile::{Angles, Profile};

    fn op(rule: Making) -> Op {
        Op::Make(Make { rule, output: DType::F32 })
    }

    #[test]
    fn f32_ranges_pass_and_another_step_does_not() {
        let range = op(Making::Arange { start: 0.5, stop: 20.0, step: 0.1 });
        let made = |step: f32| (0..195).map(|i| f64::from(0.5f32 + i as f32 * step)).collect::<Vec<f64>>();
        assert!(passes(&range, &[], &Profile::F32, &made(0.1)));
        assert!(!passes(&range, &[], &Profile::F32, &made(0.10001)));
    }

    #[test]
    fn f32_waves_pass_and_sines_first_do_not() {
        let steps = [0.0, 3.0, 999.0];
        let inputs = [Operand::numbers(f32_type(&[3]), &steps)];
        let embedding = op(Making::TimestepEmbedding { dimensions: 17, period_max: 10000.0 });
        let profile = Profile { function_ulp: 1.0, angles: Angles::Pow, ..Profile::F32 };
        let made = |sine_first: bool| -> Vec<f64> {
            let mut all = Vec::new();
            for step in steps {
                let angle = |j: usize| step as f32 * (-(10000f32.ln()) * (j % 8) as f32 / 8.0).exp();
                let wave = |j: usize| if (j < 8) == sine_first { angle(j).sin() } else { angle(j).cos() };
                all.extend((0..16).map(|j| f64::from(wave(j))));
                all.push(0.0);
            }
            all
        };
        assert!(passes(&embedding, &inputs, &profile, &made(false)));
        assert!(!passes(&embedding, &inputs, &profile, &made(true)));
    }

    #[test]
    fn f32_slopes_pass_and_a_geometric_series_of_all_heads_does_not() {
        let slopes = op(Making::AlibiSlopes { heads: 12, bias_max: 8.0 });
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        let (whole, between) = ((-1f32).exp2(), (-0.5f32).exp2());
        let power = |h: i32| if h < 8 { whole.powi(h + 1) } else { between.powi(2 * (h - 8) + 1) };
        let made: Vec<f64> = (0..12).map(|h| f64::from(power(h))).collect();
        assert!(passes(&slopes, &[], &profile, &made));
        let series: Vec<f64> = (0..12).map(|h| f64::from((-8.0 * (h + 1) as f32 / 12.0).exp2())).collect();
        assert!(!passes(&slopes, &[], &profile, &series));
    }
}
