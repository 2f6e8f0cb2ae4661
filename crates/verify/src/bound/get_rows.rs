//! Rows of a table: bit for bit what decoding gives, or that rounded to f16 if the device declares it.

use super::{Case, in_strips};
use crate::operand::Operand;
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics};
use trueup_runtime::profile::Weights;

pub(super) fn judge(case: &Case) -> Statistics {
    let [table, index] = case.inputs else { return Statistics::default() };
    let (width, rows) = (table.ty.shape[0], table.ty.shape[1]);
    let stored = Precision::of(case.output.ty.dtype);
    let count = index.ty.shape[0].max(1);
    in_strips(case, index.indices().len(), |column, tally| {
        let row = usize::try_from(index.indices()[column]).ok().filter(|row| *row < rows);
        let row = row.map(|row| column / count * rows + row);
        let mut exact = Vec::new();
        let exact = row.map_or(&[][..], |row| table.row(row, &mut exact));
        let decoded = row.map_or(Vec::new(), |row| decoded(table, row, exact, (stored, case.profile.weights)));
        for element in 0..width {
            // An index outside the table has no row that could be right.
            let pair = exact.get(element).zip(decoded.get(element));
            let (exact, declared) = pair.map_or((f64::NAN, f64::NAN), |(exact, declared)| (*exact, *declared));
            tally.add(column * width + element, &Expected::same(exact, declared));
        }
    })
}

/// The row by the decode rule of its type in f32, where results are f32 or come from it: the rule rounds sums like `d q
/// + m`.
fn decoded(table: &Operand, row: usize, exact: &[f64], (stored, weights): (Precision, Weights)) -> Vec<f64> {
    let is_rounded = weights == Weights::F16;
    let rounded = |value: f64| if is_rounded { Precision::F16.round(Precision::F32.round(value)) } else { value };
    let decoder = table.ty.dtype.decoder().filter(|_| stored == Precision::F32 || is_rounded);
    match table.row_bytes(row).zip(decoder) {
        Some((bytes, decoder)) => {
            let mut decoded = vec![0.0f32; exact.len()];
            (decoder.decode)(bytes, &mut decoded);
            decoded.into_iter().map(|value| stored.round(rounded(f64::from(value)))).collect()
        }
        None => exact.iter().map(|value| stored.round(rounded(*value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::{Op, TensorType};
    use trueup_runtime::profile::{Profile, Weights};

    #[test]
    fn decoded_rows_pass_and_the_neighbouring_row_does_not() {
        let codec = DType::Q4_1.codec().unwrap();
        let weights: Vec<f32> = numbers(32 * 5, 3).into_iter().map(|x| x as f32).collect();
        let mut bytes = vec![0; 20 * 5];
        (codec.encode)(&weights, &mut bytes);
        let mut decoded = vec![0.0f32; 32 * 5];
        (codec.decode)(&bytes, &mut decoded);
        let rows = |rows: [usize; 2]| -> Vec<f64> {
            rows.iter().flat_map(|row| decoded[row * 32..][..32].iter().map(|x| f64::from(*x))).collect()
        };
        let inputs = [
            Operand::blocks(TensorType::new(DType::Q4_1, &[32, 5]), &bytes),
            Operand::integers(TensorType::new(DType::I32, &[2]), &[4, 1]),
        ];
        let op = Op::get_rows(DType::F32);
        assert!(passes(&op, &inputs, &Profile::F32, &rows([4, 1])));
        assert!(!passes(&op, &inputs, &Profile::F32, &rows([4, 2])));
        // A table that the device stores as f16.
        let halves = Profile { weights: Weights::F16, ..Profile::F32 };
        let rounded: Vec<f64> = rows([4, 1]).into_iter().map(|x| half::f16::from_f64(x).to_f64()).collect();
        assert!(rounded != rows([4, 1]) && passes(&op, &inputs, &halves, &rounded));
        assert!(!passes(&op, &inputs, &halves, &rows([4, 1])) && !passes(&op, &inputs, &Profile::F32, &rounded));
    }

    #[test]
    fn an_index_outside_the_table_cannot_be_judged() {
        let table = numbers(8, 1);
        let inputs =
            [Operand::numbers(f32_type(&[4, 2]), &table), Operand::integers(TensorType::new(DType::I32, &[1]), &[-1])];
        let found = judged(&Op::get_rows(DType::F32), &inputs, &Profile::F32, &[0.0; 4]);
        assert_eq!(found.broken.undefined, 4);
    }
}
