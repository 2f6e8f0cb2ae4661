use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// A table with new rows: `y[:, rows[t]] = x[:, t]`, stored as the table stores its elements; if several rows of `x`
/// have the same index, the last one is used.
///
/// Inputs: `table` `[width, n]` of a type that has a codec, `x` an activation `[width, t]`, `rows` i32 `[t]`, each
/// below `n`. Output: a copy of the table. Rows of a block type are what the reference rule of that type makes of them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SetRows;

impl Rule for SetRows {
    const NAMES: &'static [&'static str] = &["set_rows"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [table, x, rows] = exactly(inputs)?;
        expect_activation("x", &x)?;
        expect(table.dtype.codec().is_some(), || format!("this version has no codec for {}", table.dtype))?;
        let block_len = table.dtype.block_len();
        expect(table.shape[0].is_multiple_of(block_len), || format!("blocks of {block_len} do not divide {table}"))?;
        let matrices = [table, x].iter().all(|ty| ty.shape.rows() == ty.shape[1]);
        expect(matrices && table.shape[0] == x.shape[0], || {
            format!("the table {table} and x {x} must be matrices with rows of one length")
        })?;
        let fits = rows.dtype == DType::I32 && rows.shape.rows() == 1 && rows.shape[0] == x.shape[1];
        expect(fits, || format!("rows must be i32[{}], not {rows}", x.shape[1]))?;
        Ok(table)
    }

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q4_0, DType::Q8_0] {
            let widths = if dtype.is_quantized() { [32, 96, 256] } else { [1, 33, 257] };
            for width in widths {
                for (n, t) in [(1, 1), (7, 3), (31, 31), (33, 0)] {
                    let table = (TensorType::new(dtype, &[width, n]), Fill::Normal(1.0));
                    let x = (TensorType::new(DType::F32, &[width, t]), Fill::Uniform(-3.0, 3.0));
                    let rows = (TensorType::new(DType::I32, &[t]), Fill::Distinct(n as i32));
                    cases.push(Case::new(SetRows, &[table, x, rows]));
                }
            }
            let x = (TensorType::new(DType::F32, &[2048, 64]), Fill::Normal(1.0));
            let rows = (TensorType::new(DType::I32, &[64]), Fill::Distinct(128));
            cases.push(Case::new(SetRows, &[(TensorType::new(dtype, &[2048, 128]), Fill::Constant(0.0)), x, rows]));
        }
        cases
    }
}
