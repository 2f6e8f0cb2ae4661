use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Normalizes each innermost row, or each group of channels, without weights:
///
/// ```text
///  norm         y = (x - mean x) / sqrt(mean (x - mean x)^2 + epsilon)      each innermost row
///  group_norm   the same                                                   each group of channels of [width, height, channels, batch]
///  l2_norm      y = x / max(sqrt(sum x^2), epsilon)                         each innermost row
/// ```
///
/// Input: `x`, an activation. Output: its type. Sources: Ba et al. 2016, equation 3; Wu and He 2018, equations 1 and 7;
/// PyTorch's `normalize`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Norm {
    /// What is normalized together, and how.
    pub rule: NormRule,
    /// Keeps the divisor away from zero; positive.
    pub epsilon: f32,
}

/// What a [`Norm`] normalizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormRule {
    /// Mean and variance of each innermost row.
    Layer,
    /// Mean and variance of each of this many groups of channels, over width and height too.
    Group {
        /// Divides the number of channels.
        groups: usize,
    },
    /// The Euclidean length of each innermost row.
    L2,
}

impl Norm {
    /// Elements that are normalized together.
    pub fn run(&self, shape: &Shape) -> usize {
        match self.rule {
            NormRule::Layer | NormRule::L2 => shape[0],
            NormRule::Group { groups } => shape[0] * shape[1] * shape[2] / groups.max(1),
        }
    }
}

impl Rule for Norm {
    const NAMES: &'static [&'static str] = &["norm", "group_norm", "l2_norm"];

    fn name(&self) -> &'static str {
        match self.rule {
            NormRule::Layer => "norm",
            NormRule::Group { .. } => "group_norm",
            NormRule::L2 => "l2_norm",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(self.epsilon > 0.0 && self.epsilon.is_finite(), || {
            format!("epsilon must be positive and finite, not {}", self.epsilon)
        })?;
        if let NormRule::Group { groups } = self.rule {
            expect(groups > 0 && x.shape[2].is_multiple_of(groups), || {
                format!("groups {groups} must divide the {} channels of {x}", x.shape[2])
            })?;
        }
        Ok(x)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let rows: [&[usize]; 10] =
            [&[1], &[2, 3], &[31], &[33, 5], &[257, 2, 3], &[64, 4, 2, 3], &[0, 3], &[7, 0], &[1025, 3], &[2048, 64]];
        for rule in [NormRule::Layer, NormRule::L2] {
            for shape in rows {
                let x = TensorType::new(DType::F32, shape);
                for (epsilon, fill) in
                    [(1e-5, Fill::Normal(1.0)), (1e-6, Fill::Uniform(3.0, 5.0)), (0.1, Fill::Normal(0.01))]
                {
                    cases.push(Case::new(Norm { rule, epsilon }, &[(x, fill)]));
                }
            }
            let zeros = (TensorType::new(DType::F32, &[33, 2]), Fill::Constant(0.0));
            cases.push(Case::new(Norm { rule, epsilon: 1e-5 }, &[zeros]));
        }
        let images: [(&[usize], &[usize]); 5] = [
            (&[7, 5, 12, 2], &[1, 3, 12]),
            (&[1, 1, 32], &[1, 4, 32]),
            (&[31, 1, 6, 3], &[2, 6]),
            (&[16, 16, 320], &[32]),
            (&[3, 0, 4], &[2]),
        ];
        for (shape, all_groups) in images {
            for groups in all_groups {
                for (epsilon, fill) in [(1e-6, Fill::Normal(2.0)), (1e-2, Fill::Uniform(-1.0, 3.0))] {
                    let rule = NormRule::Group { groups: *groups };
                    cases.push(Case::new(Norm { rule, epsilon }, &[(TensorType::new(DType::F32, shape), fill)]));
                }
            }
        }
        cases
    }
}
