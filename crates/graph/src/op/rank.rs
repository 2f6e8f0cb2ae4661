use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Indices of elements by rank in each innermost row, i32:
///
/// ```text
///  argmax    [n, n1, n2, n3] -> [n1, n2, n3]      the largest
///  argsort   [n, rows ...]   -> [n, rows ...]     all, in order
///  top_k     [n, rows ...]   -> [k, rows ...]     the k largest, the largest first
/// ```
///
/// Input: `x`, an activation. Any of several equal elements may be chosen, in any order; `ref` and `cpu` keep their
/// order in the row. NaN counts as larger than all numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rank {
    /// Which ranks are wanted.
    pub rule: RankRule,
}

/// Which indices a [`Rank`] gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankRule {
    /// That of the largest element.
    ArgMax,
    /// Those of all elements, the smallest first.
    Ascending,
    /// Those of all elements, the largest first.
    Descending,
    /// Those of the largest elements, the largest first.
    TopK {
        /// How many; from 1 to the length of a row.
        k: usize,
    },
}

impl Rule for Rank {
    const NAMES: &'static [&'static str] = &["argmax", "argsort", "top_k"];

    fn name(&self) -> &'static str {
        match self.rule {
            RankRule::ArgMax => "argmax",
            RankRule::Ascending | RankRule::Descending => "argsort",
            RankRule::TopK { .. } => "top_k",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let [len, n1, n2, n3] = x.shape.sizes();
        expect(i32::try_from(len).is_ok(), || format!("rows of {x} are too long for indices of 32 bits"))?;
        let shape = match self.rule {
            RankRule::ArgMax => {
                expect(len > 0, || format!("rows of {x} have no maximum: they are empty"))?;
                Shape::new(&[n1, n2, n3])
            }
            RankRule::Ascending | RankRule::Descending => x.shape,
            RankRule::TopK { k } => {
                expect(k > 0 && k <= len, || format!("k must be from 1 to the {len} elements of a row, not {k}"))?;
                Shape::new(&[k, n1, n2, n3])
            }
        };
        Ok(TensorType { dtype: DType::I32, shape })
    }

    fn cases() -> Vec<Case> {
        let shapes: [&[usize]; 10] = [
            &[1],
            &[1, 4],
            &[2, 9],
            &[31, 3],
            &[33, 2, 5],
            &[257, 3],
            &[64, 2, 3, 2],
            &[8, 0],
            &[1025, 7],
            &[32001, 4],
        ];
        // The second has many ties, the third nothing else.
        let fills = [Fill::Normal(1.0), Fill::Integers(-3, 3), Fill::Constant(0.5)];
        let mut cases = Vec::new();
        for shape in shapes {
            for fill in fills {
                let x = (TensorType::new(DType::F32, shape), fill);
                for rule in [RankRule::ArgMax, RankRule::Ascending, RankRule::Descending] {
                    cases.push(Case::new(Rank { rule }, &[x]));
                }
                let mut counts = vec![1, 2, 8, 40, shape[0]];
                counts.retain(|k| *k <= shape[0]);
                counts.dedup();
                cases.extend(counts.into_iter().map(|k| Case::new(Rank { rule: RankRule::TopK { k } }, &[x])));
            }
        }
        cases
    }
}
