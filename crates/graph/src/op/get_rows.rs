use super::{Rule, exactly, expect};
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
}
