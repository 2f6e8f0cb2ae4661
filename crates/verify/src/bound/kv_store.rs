//! Rows enter the KV cache, rounded to its type; every other row keeps its bits.
//!
//! ```text
//!   before │ r0 │ r1 │ r2 │ r3 │        expected │ r0 │ round(x 0) │ r2 │ round(x 1) │       rows = [1, 3]
//! ```

use super::Case;
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics, Tally};
use std::collections::HashMap;

pub(super) fn judge(case: &Case) -> Statistics {
    let [before, x, rows] = case.inputs else { return Statistics::default() };
    let cache = Precision::of(case.output.ty.dtype);
    let width = before.ty.shape[0];
    // The last of several tokens on one row stays.
    let written: HashMap<usize, usize> = rows
        .indices()
        .iter()
        .enumerate()
        .filter_map(|(token, row)| Some((usize::try_from(*row).ok()?, token)))
        .collect();
    let mut tally = Tally::new(case.step, cache, &[], None).spreading(case.spread);
    for row in 0..before.ty.shape.rows() {
        let source = written.get(&row);
        if source.is_none() && before.row_bytes(row).is_some() && before.row_bytes(row) == case.output.row_bytes(row) {
            tally.add_untouched(width);
            continue;
        }
        let (mut after, mut exact) = (Vec::new(), Vec::new());
        let after = case.output.row(row, &mut after);
        let exact = source.map_or(before, |_| x).row(source.copied().unwrap_or(row), &mut exact);
        for (column, (device, exact)) in after.iter().zip(exact).enumerate() {
            let reference = source.and_then(|token| case.reference.map(|reference| reference[token * width + column]));
            let expected = Expected::same(*exact, cache.round(*exact));
            tally.add_value(row * width + column, *device, &expected, reference);
        }
    }
    tally.finish()
}

#[cfg(test)]
mod tests {
    use crate::bound::{Case, gate, judge};
    use crate::operand::Operand;
    use crate::verdict::Verdict;
    use trueup_blocks::DType;
    use trueup_graph::{Op, TensorType, op::KvStore};
    use trueup_runtime::profile::Profile;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect()
    }

    fn verdict(after: &[f32]) -> Verdict {
        let cache = TensorType::new(DType::F16, &[2, 3]);
        let (before, after) = (bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), bytes(after));
        let x = [0.1f32, -7.0].map(f64::from);
        let inputs = [
            Operand::blocks(cache, &before),
            Operand::numbers(TensorType::new(DType::F32, &[2, 1]), &x),
            Operand::integers(TensorType::new(DType::I32, &[1]), &[1]),
        ];
        let op = Op::KvStore(KvStore);
        let output = Operand::blocks(cache, &after);
        let case = Case {
            op: &op,
            inputs: &inputs,
            profile: &Profile::F32,
            output,
            reference: Some(&[0.5, -7.0]),
            copies: &[],
            spread: &[],
            step: 0,
            expectations: None,
        };
        gate(&op).verdict(&judge(&case), true)
    }

    #[test]
    fn written_rows_are_rounded_and_others_stay() {
        assert_eq!(verdict(&[1.0, 2.0, 0.1, -7.0, 5.0, 6.0]), Verdict::DeclaredLoss);
    }

    #[test]
    fn a_wrong_row_a_lost_row_and_a_changed_neighbour_are_seen() {
        for after in [[0.1, -7.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 0.1, -7.0, 5.0, 6.5]]
        {
            assert_eq!(verdict(&after), Verdict::StructuralBug, "{after:?}");
        }
    }
}
