use super::{Rule, expect, expect_activation, expect_indices};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};

/// Rotates pairs of elements of each head by an angle that grows with the position.
///
/// Inputs: `x` an activation `[head size, heads, tokens]`, `positions` i32 `[tokens]`, and, optional, `factors` f32
/// `[dimensions / 2]`, which divide the frequencies. Output: the type of `x`.
///
/// With `t_i = position * base^(-2 i / dimensions) / factors[i]` for pair `i` (Su et al. 2021, equation 34), the angle `a_i` and the
/// magnitude `s` follow from the scaling; then
///
/// ```text
/// y_1 = s (x_1 cos a_i - x_2 sin a_i)        y_2 = s (x_1 sin a_i + x_2 cos a_i)
/// ```
///
/// Elements from `dimensions` on stay as they are.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rope {
    /// Which two elements are a pair.
    pub pairs: RopePairs,
    /// How many elements of each head are rotated; even, at most the head size.
    pub dimensions: usize,
    /// The base of the frequencies ("theta"); positive.
    pub base: f32,
    /// How angles are changed for contexts longer than the trained one.
    pub scaling: RopeScaling,
}

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RopePairs {
    /// `(2 i, 2 i + 1)`: GGUF's "normal".
    Neighbours,
    /// `(i, i + dimensions / 2)`: GGUF's "neox".
    Halves,
}

/// How angles are changed for contexts longer than the trained one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum RopeScaling {
    /// `a_i = t_i`, `s = 1`.
    None,
    /// `a_i = t_i / factor`, `s = 1`.
    Linear {
        /// How much longer the context is.
        factor: f32,
    },
    /// Peng et al. 2023 ("YaRN"): `a_i = t_i ((1 - r_i) / factor + r_i)` with the ramp `r_i = 1 - clamp((i - low) / max(0.001, high - low), 0, 1)`,
    /// where `low = max(0, floor(c(beta_fast)))`, `high = min(dimensions - 1, ceil(c(beta_slow)))` and
    /// `c(b) = dimensions ln(original_context / (2 pi b)) / (2 ln base)`. `s = magnitude`.
    Yarn {
        /// How much longer the context is.
        factor: f32,
        /// The context the model was trained with.
        original_context: u32,
        /// Rotations above which a frequency stays.
        beta_fast: f32,
        /// Rotations below which a frequency is divided by `factor`.
        beta_slow: f32,
        /// What cosine and sine are multiplied by; `1 + 0.1 ln factor` in the paper.
        magnitude: f32,
    },
}

impl Rule for Rope {
    const NAMES: &'static [&'static str] = &["rope"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let (x, positions, factors) = match inputs {
            [x, positions] => (x, positions, None),
            [x, positions, factors] => (x, positions, Some(factors)),
            others => return Err(format!("takes 2 or 3 inputs, got {}", others.len())),
        };
        expect_activation("x", x)?;
        expect_indices("positions", positions, x.shape[2])?;
        expect(self.dimensions.is_multiple_of(2) && self.dimensions <= x.shape[0], || {
            format!("{} rotated elements must be even and at most the head size {}", self.dimensions, x.shape[0])
        })?;
        if let Some(factors) = factors {
            let fits = factors.dtype.is_float() && factors.shape == Shape::new(&[self.dimensions / 2]);
            expect(fits, || format!("factors must be [{}], not {factors}", self.dimensions / 2))?;
        }
        Ok(*x)
    }
}
