use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[:, i] = table[:, index[i]]`, decoded: the embedding of tokens, or a choice among activations.
///
/// Inputs: `table` `[width, rows]` of any stored type, `index` i32 `[n]`. Output: `[width, n]` of type `output`. No rounding but that of
/// decoding.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct GetRows {
    /// The type of activations in this graph.
    pub output: DType,
}

impl Rule for GetRows {
    const NAMES: &'static [&'static str] = &["get_rows"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [table, index] = exactly(inputs)?;
        expect(index.dtype == DType::I32 && index.shape.rows() == 1, || format!("index must be i32[n], not {index}"))?;
        expect(table.shape.rows() == table.shape[1], || format!("table must be a matrix, not {table}"))?;
        Ok(TensorType::new(self.output, &[table.shape[0], index.shape[0]]))
    }

    fn cases() -> Vec<Case> {
        use DType::{Bf16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1};
        let mut cases = Vec::new();
        for dtype in [F32, F16, Bf16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1] {
            let widths = if dtype.is_quantized() { [32, 96, 256] } else { [1, 33, 257] };
            for width in widths {
                for (rows, count) in [(1, 1), (7, 3), (31, 33), (33, 0)] {
                    let table = (TensorType::new(dtype, &[width, rows]), Fill::Normal(1.0));
                    let index = (TensorType::new(DType::I32, &[count]), Fill::Integers(0, rows as i32 - 1));
                    cases.push(Case::new(GetRows { output: F32 }, &[table, index]));
                }
            }
            let table = (TensorType::new(dtype, &[2048, 512]), Fill::Normal(0.02));
            let index = (TensorType::new(DType::I32, &[64]), Fill::Distinct(512));
            cases.push(Case::new(GetRows { output: F32 }, &[table, index]));
        }
        cases
    }
}
