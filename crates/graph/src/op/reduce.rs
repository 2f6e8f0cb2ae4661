use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// Sums along the innermost dimension, or over everything:
///
/// ```text
///  sum        [n, rows ...] -> [1]             all elements
///  sum_rows   [n, rows ...] -> [1, rows ...]   y[r] = sum_i x[i, r]
///  mean       [n, rows ...] -> [1, rows ...]   y[r] = sum_i x[i, r] / n
///  cumsum     [n, rows ...] -> [n, rows ...]   y[j, r] = sum_{i <= j} x[i, r]
/// ```
///
/// Input: `x`, an activation. Output: an activation of its type. A sum of nothing is 0; a mean of nothing is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reduce {
    /// What is summed.
    pub rule: Reduction,
}

/// What a [`Reduce`] sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Everything.
    Sum,
    /// Each innermost row.
    SumRows,
    /// Each innermost row, divided by its length.
    Mean,
    /// Each innermost row up to and with each of its elements.
    CumSum,
}

impl Reduction {
    const ALL: [Reduction; 4] = [Reduction::Sum, Reduction::SumRows, Reduction::Mean, Reduction::CumSum];
}

impl Rule for Reduce {
    const NAMES: &'static [&'static str] = &["sum", "sum_rows", "mean", "cumsum"];

    fn name(&self) -> &'static str {
        match self.rule {
            Reduction::Sum => "sum",
            Reduction::SumRows => "sum_rows",
            Reduction::Mean => "mean",
            Reduction::CumSum => "cumsum",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        let [len, n1, n2, n3] = x.shape.sizes();
        let rows = Shape::new(&[1, n1, n2, n3]);
        let shape = match self.rule {
            Reduction::Sum => Shape::new(&[1]),
            Reduction::SumRows => rows,
            Reduction::Mean => {
                expect(len > 0, || format!("rows of {x} have no mean: they are empty"))?;
                rows
            }
            Reduction::CumSum => x.shape,
        };
        Ok(TensorType { shape, ..x })
    }

    fn cases() -> Vec<Case> {
        let shapes: [&[usize]; 11] = [
            &[1],
            &[2, 7],
            &[31],
            &[33, 5],
            &[257, 2, 3],
            &[64, 3, 2, 4],
            &[1, 5, 1, 3],
            &[9, 0],
            &[4097],
            &[1023, 31],
            &[2048, 64],
        ];
        let fills = [(Fill::Normal(1.0), false), (Fill::Uniform(0.5, 2.0), false), (Fill::Integers(-100, 100), true)];
        let mut cases = Vec::new();
        for rule in Reduction::ALL {
            for shape in shapes {
                for (fill, integers) in fills {
                    let x = (TensorType::new(DType::F32, shape), fill);
                    // A mean of integers is rounded unless their number is a power of two.
                    let exact = integers && (rule != Reduction::Mean || shape[0].is_power_of_two());
                    cases.push(Case { probe: exact, ..Case::new(Reduce { rule }, &[x]) });
                }
            }
            if rule != Reduction::Mean {
                let empty = (TensorType::new(DType::F32, &[0, 5]), Fill::Normal(1.0));
                cases.push(Case::probe(Reduce { rule }, &[empty]));
            }
        }
        cases
    }
}
