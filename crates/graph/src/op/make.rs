use super::{Rule, exactly, expect, expect_activation, is_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Tensors made from parameters:
///
/// ```text
///  arange               () -> [ceil((stop - start) / step)]   y[i] = start + i step
///  fill                 () -> shape                           y = value
///  timestep_embedding   t [n] -> [dimensions, n]              y[j, i] = cos(t[i] f_j), y[j + half, i] = sin(t[i] f_j),
///                                                             f_j = period_max^(-j / half), half = dimensions / 2;
///                                                             the last of an odd number of dimensions is 0
///  alibi_slopes         () -> [heads]                         y[h] = 2^(-bias_max (h + 1) / p)            h < p
///                                                             y[h] = 2^(-bias_max (2 (h - p) + 1) / 2 p)  else
///                                                             p the largest power of two that is not above heads
/// ```
///
/// Sources: Ho et al. 2020 with the code of their U-Net (the cosines first); Press et al. 2022, section 3 and its code.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Make {
    /// What is made.
    pub rule: Making,
    /// The type of activations in this graph.
    pub output: DType,
}

/// What a [`Make`] makes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Making {
    /// Numbers at equal distances.
    Arange {
        /// The first.
        start: f32,
        /// Not reached.
        stop: f32,
        /// From one to the next; not 0.
        step: f32,
    },
    /// The same number everywhere.
    Fill {
        /// The shape.
        shape: Shape,
        /// The number; may be infinite.
        #[serde(with = "crate::infinite")]
        value: f32,
    },
    /// Waves of the steps of a diffusion model.
    TimestepEmbedding {
        /// Elements for each step.
        dimensions: usize,
        /// The longest wave is about `2 pi` times as long.
        period_max: f32,
    },
    /// How steeply each head's attention falls with distance.
    AlibiSlopes {
        /// Heads of attention.
        heads: usize,
        /// The sum of all halvings: 8 in the paper.
        bias_max: f32,
    },
}

/// Most elements of an arange and most dimensions or heads: up to here indices are exact in f32.
const LEN_MAX: usize = 1 << 24;

fn expect_len(what: &str, len: usize) -> Result<(), String> {
    expect(len <= LEN_MAX, || format!("{what} must be at most {LEN_MAX}, not {len}"))
}

/// Elements of an arange.
fn arange_len(start: f32, stop: f32, step: f32) -> Result<usize, String> {
    let finite = start.is_finite() && stop.is_finite() && step.is_finite() && step != 0.0;
    expect(finite, || format!("start {start}, stop {stop} and step {step} must be finite and the step not 0"))?;
    let len = ((f64::from(stop) - f64::from(start)) / f64::from(step)).ceil().max(0.0);
    expect(len <= LEN_MAX as f64, || format!("an arange must have at most {LEN_MAX} elements, not {len}"))?;
    Ok(len as usize)
}

impl Making {
    fn shape(&self, inputs: &[TensorType]) -> Result<Shape, String> {
        match *self {
            Making::Arange { start, stop, step } => {
                let [] = exactly(inputs)?;
                Ok(Shape::new(&[arange_len(start, stop, step)?]))
            }
            Making::Fill { shape, .. } => {
                let [] = exactly(inputs)?;
                let elements = shape.sizes().into_iter().try_fold(1usize, usize::checked_mul);
                expect(elements.is_some_and(|elements| elements <= isize::MAX as usize / 8), || {
                    format!("the number of elements of shape {shape} overflows")
                })?;
                Ok(shape.dense())
            }
            Making::TimestepEmbedding { dimensions, period_max } => {
                let [steps] = exactly(inputs)?;
                expect_activation("the steps", &steps)?;
                expect(steps.shape.rows() == 1, || format!("the steps must be [n], not {steps}"))?;
                expect_len("dimensions", dimensions)?;
                expect(period_max.is_finite() && period_max > 0.0, || {
                    format!("period_max must be positive and finite, not {period_max}")
                })?;
                Ok(Shape::new(&[dimensions, steps.shape[0]]))
            }
            Making::AlibiSlopes { heads, bias_max } => {
                let [] = exactly(inputs)?;
                expect_len("heads", heads)?;
                expect(bias_max.is_finite() && bias_max >= 0.0, || {
                    format!("bias_max must be finite and not negative, not {bias_max}")
                })?;
                Ok(Shape::new(&[heads]))
            }
        }
    }
}

impl Rule for Make {
    const NAMES: &'static [&'static str] = &["arange", "fill", "timestep_embedding", "alibi_slopes"];

    fn name(&self) -> &'static str {
        match self.rule {
            Making::Arange { .. } => "arange",
            Making::Fill { .. } => "fill",
            Making::TimestepEmbedding { .. } => "timestep_embedding",
            Making::AlibiSlopes { .. } => "alibi_slopes",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let output = TensorType { dtype: self.output, shape: self.rule.shape(inputs)? };
        expect(is_activation(&output), || format!("the output must be f32 or f64, not {}", self.output))?;
        Ok(output)
    }

    fn cases() -> Vec<Case> {
        let make = |rule| Make { rule, output: DType::F32 };
        let mut cases = Vec::new();
        for (start, stop, step) in [(0.0, 1.0, 1.0), (0.0, 257.0, 1.0), (-5.0, 6.0, 1.0), (33.0, 0.0, -2.0)] {
            cases.push(Case::probe(make(Making::Arange { start, stop, step }), &[]));
        }
        for (start, stop, step) in [
            (0.0, 10.0, 0.1),
            (1.5, -20.0, -0.7),
            (3.0, 3.0, 1.0),
            (5.0, 1.0, 1.0),
            (1e-3, 1e4, 0.3),
            (-1e6, 1e6, 977.0),
        ] {
            cases.push(Case::new(make(Making::Arange { start, stop, step }), &[]));
        }
        let shapes: [&[usize]; 5] = [&[1], &[31, 3], &[257, 2, 3, 2], &[0, 4], &[2048, 64]];
        for shape in shapes {
            for value in [0.0, 1.0, -0.1, 1e-40, f32::MAX, f32::NEG_INFINITY] {
                cases.push(Case::probe(make(Making::Fill { shape: Shape::new(shape), value }), &[]));
            }
        }
        for dimensions in [0, 1, 2, 15, 32, 33, 320] {
            for (steps, fill) in [(1, Fill::Constant(999.0)), (31, Fill::Counting(0)), (7, Fill::Uniform(0.0, 1.0))] {
                for period_max in [10000.0, 100.0] {
                    let steps = (TensorType::new(DType::F32, &[steps]), fill);
                    cases.push(Case::new(make(Making::TimestepEmbedding { dimensions, period_max }), &[steps]));
                }
            }
        }
        for heads in [1, 2, 3, 8, 12, 31, 32, 33, 64, 112] {
            // Powers of two of whole numbers are exact.
            let whole = heads == 1 || heads == 2 || heads == 8;
            cases.push(Case { probe: whole, ..Case::new(make(Making::AlibiSlopes { heads, bias_max: 8.0 }), &[]) });
            cases.push(Case::new(make(Making::AlibiSlopes { heads, bias_max: 10.0 }), &[]));
        }
        cases
    }
}
