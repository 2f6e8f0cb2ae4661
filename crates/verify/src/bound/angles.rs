//! The angles of rope in f64, and how exactly each can be computed by the declared method.
//!
//! ```text
//!   t_i = position base^(-2 i / dimensions) / factors[i]  ──scaling──▶  angle a_i, magnitude s
//!   error of a_i in units of u |a_i|:   iterated 3 i + 1     pow  ln(base) 2 i / dimensions + 3     f64  1
//!   scaling and dividing by a factor round in every method, which adds to that
//! ```

use trueup_graph::op::{Rope, RopeScaling};
use trueup_runtime::profile::Angles;

/// One pair's angle at one position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Angle {
    /// The angle, in radians.
    pub radians: f64,
    /// Largest error of the declared method, in units of `u |radians|`.
    pub units: f64,
    /// What cosine and sine are multiplied by.
    pub magnitude: f64,
}

/// What the angles of one rope have in common.
pub struct Frequencies<'a> {
    rope: &'a Rope,
    factors: Option<Vec<f64>>,
    method: Angles,
}

impl<'a> Frequencies<'a> {
    /// The frequencies of `rope`, divided by `factors` where the model has them.
    pub fn new(rope: &'a Rope, factors: Option<Vec<f64>>, method: Angles) -> Frequencies<'a> {
        Frequencies { rope, factors, method }
    }

    /// The angle of pair `pair` at `position`.
    pub fn angle(&self, pair: usize, position: i32) -> Angle {
        let share = 2.0 * pair as f64 / self.rope.dimensions as f64;
        let base = f64::from(self.rope.base);
        let factor = self.factors.as_ref().map_or(1.0, |factors| factors[pair]);
        let extrapolated = f64::from(position) * base.powf(-share) / factor;
        let (radians, magnitude, scaling) = match self.rope.scaling {
            RopeScaling::None => (extrapolated, 1.0, 0.0),
            RopeScaling::Linear { factor } => (extrapolated / f64::from(factor), 1.0, 1.0),
            RopeScaling::Long { magnitude } => (extrapolated, f64::from(magnitude), 0.0),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                let ramp = self.ramp(pair, f64::from(original_context), f64::from(beta_fast), f64::from(beta_slow));
                let share = (1.0 - ramp) / f64::from(factor) + ramp;
                (extrapolated * share, f64::from(magnitude), 4.0)
            }
        };
        let method = match self.method {
            Angles::Iterated => 3.0 * pair as f64 + 1.0,
            Angles::Pow => base.ln().abs() * share + 3.0,
            Angles::F64 => 1.0,
        };
        let divided = if self.factors.is_some() { 1.0 } else { 0.0 };
        Angle { radians, units: method + scaling + divided, magnitude }
    }

    /// How far pair `pair` keeps its frequency: 1 keeps it, 0 divides it by the factor.
    fn ramp(&self, pair: usize, original_context: f64, beta_fast: f64, beta_slow: f64) -> f64 {
        let dimensions = self.rope.dimensions as f64;
        let correction = |rotations: f64| {
            let wavelength = original_context / (rotations * 2.0 * std::f64::consts::PI);
            dimensions * wavelength.ln() / (2.0 * f64::from(self.rope.base).ln())
        };
        let low = correction(beta_fast).floor().max(0.0);
        let high = correction(beta_slow).ceil().min(dimensions - 1.0);
        1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}
