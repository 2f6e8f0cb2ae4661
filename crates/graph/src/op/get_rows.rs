use super::mul_mat::{RANDOM_BLOCKS, WEIGHTS};
use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[:, i, t] = table[:, index[i, t], t]`, decoded: the embedding of tokens, or a choice among activations.
///
/// Inputs: `table` `[width, rows, tables]` of any stored type, `index` i32 `[n, tables]`. Output: `[width, n, tables]`
/// of type `output`. No rounding but that of decoding.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct GetRows {
    /// The type of activations in this graph.
    pub output: DType,
}

impl Rule for GetRows {
    const NAMES: &'static [&'static str] = &["get_rows"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [table, index] = exactly(inputs)?;
        expect(table.shape[3] == 1, || format!("table must be a matrix or a stack of matrices, not {table}"))?;
        let [count, tables] = [index.shape[0], table.shape[2]];
        expect(index.dtype == DType::I32 && index.shape.dense() == Shape::new(&[count, tables]), || match tables {
            1 => format!("index must be i32[n], not {index}"),
            _ => format!("index must be i32[n, {tables}], not {index}"),
        })?;
        Ok(TensorType::new(self.output, &[table.shape[0], count, tables]))
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (dtype, _) in WEIGHTS {
            for [width, rows, count] in
                [[32, 1, 1], [64, 31, 33], [256, 257, 9], [288, 33, 40], [96, 7, 0], [2048, 1000, 8]]
            {
                cases.push(case(dtype, [width, rows, count]));
            }
        }
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            cases.extend([[1, 1, 3], [31, 33, 5], [257, 31, 100], [0, 3, 2]].map(|sizes| case(dtype, sizes)));
        }
        for dtype in RANDOM_BLOCKS {
            for [width, rows, count] in [[256, 1, 1], [512, 33, 9], [2048, 257, 31], [256, 7, 0]] {
                let table = (TensorType::new(dtype, &[width, rows]), Fill::Blocks(1.0));
                cases.push(of_table(table, rows, count));
            }
        }
        cases.extend(STACKS.into_iter().flat_map(stacked));
        cases
    }
}

/// Width, rows, indices for each table, and tables: weights of chosen experts, and odd shapes.
const STACKS: [[usize; 4]; 7] =
    [[1, 4, 2, 3], [1, 257, 8, 33], [1, 31, 31, 1], [33, 5, 3, 7], [32, 1, 2, 4], [64, 7, 0, 3], [1, 8, 2, 0]];

fn stacked([width, rows, count, tables]: [usize; 4]) -> [Case; 2] {
    [DType::F32, DType::F16].map(|dtype| {
        let table = (TensorType::new(dtype, &[width, rows, tables]), Fill::Normal(1.0));
        let index = (TensorType::new(DType::I32, &[count, tables]), Fill::Integers(0, rows as i32 - 1));
        Case::new(GetRows { output: DType::F32 }, &[table, index])
    })
}

fn case(dtype: DType, [width, rows, count]: [usize; 3]) -> Case {
    of_table((TensorType::new(dtype, &[width, rows]), Fill::Normal(1.0)), rows, count)
}

fn of_table(table: (TensorType, Fill), rows: usize, count: usize) -> Case {
    let index = (TensorType::new(DType::I32, &[count]), Fill::Integers(0, rows as i32 - 1));
    Case::new(GetRows { output: DType::F32 }, &[table, index])
}
