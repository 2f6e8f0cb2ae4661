//! Rows enter the KV cache, rounded to its type (`cached.rs`); every other row keeps its bits.
//!
//! ```text
//!   before │ r0 │ r1 │ r2 │ r3 │        expected │ r0 │ round(x 0) │ r2 │ round(x 1) │       rows = [1, 3]
//! ```

use super::Case;
use crate::cached::expected_rows;
use crate::detail::DetailCollector;
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
    let detail = DetailCollector::new(width, before.ty.shape.rows());
    let tally = Tally::new(case.step, cache, &[], None).spreading(case.spread);
    let mut tally = tally.collecting(case.collector).detailed(&detail);
    for row in 0..before.ty.shape.rows() {
        let source = written.get(&row);
        if source.is_none() && before.row_bytes(row).is_some() && before.row_bytes(row) == case.output.row_bytes(row) {
            tally.add_untouched(width);
            continue;
        }
        let (mut after, mut exact) = (Vec::new(), Vec::new());
        let after = case.output.row(row, &mut after);
        let exact = source.map_or(before, |_| x).row(source.copied().unwrap_or(row), &mut exact);
        let expected = match source {
            Some(_) => expected_rows(case.output.ty.dtype, exact, true),
            None => exact.iter().map(|kept| Expected::same(*kept, *kept)).collect(),
        };
        for (column, (device, expected)) in after.iter().zip(&expected).enumerate() {
            let reference = source.and_then(|token| case.reference.map(|reference| reference[token * width + column]));
            tally.add_value(row * width + column, *device, expected, reference);
        }
    }
    let mut statistics = tally.finish();
    statistics.detail = Some(Box::new(detail.finish()));
    statistics
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::numbers;
    use crate::bound::{Case, declares_loss, gate, judge};
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
            collector: None,
        };
        gate(&op).verdict(&judge(&case), true)
    }

    #[test]
    fn written_rows_are_rounded_and_others_stay() {
        assert_eq!(verdict(&[1.0, 2.0, 0.1, -7.0, 5.0, 6.0]), Verdict::DeclaredLoss);
    }

    /// 64 numbers over the second of three rows of a cache of q8_0, whose bytes are then changed.
    fn verdict_of_blocks(change: impl Fn(&mut [u8])) -> Verdict {
        let (cache, codec) = (TensorType::new(DType::Q8_0, &[64, 3]), DType::Q8_0.codec().unwrap());
        let (old, x) = (numbers(192, 3), numbers(64, 4));
        let floats = |numbers: &[f64]| numbers.iter().map(|number| *number as f32).collect::<Vec<f32>>();
        let mut before = vec![0; cache.bytes()];
        (codec.encode)(&floats(&old), &mut before);
        let mut after = before.clone();
        (codec.encode)(&floats(&x), &mut after[68..136]);
        change(&mut after);
        let inputs = [
            Operand::blocks(cache, &before),
            Operand::numbers(TensorType::new(DType::F32, &[64, 1]), &x),
            Operand::integers(TensorType::new(DType::I32, &[1]), &[1]),
        ];
        let (op, profile) = (Op::KvStore(KvStore), Profile { output: DType::Q8_0, ..Profile::F32 });
        let output = Operand::blocks(cache, &after);
        let (copies, spread, step) = (&[], &[], 0);
        let case = Case {
            op: &op,
            inputs: &inputs,
            profile: &profile,
            output,
            reference: None,
            copies,
            spread,
            step,
            collector: None,
        };
        gate(&op).verdict(&judge(&case), declares_loss(&op, &profile, &cache))
    }

    #[test]
    fn blocks_are_rounded_as_declared_and_a_code_or_a_scale_beside_is_seen() {
        assert_eq!(verdict_of_blocks(|_| {}), Verdict::DeclaredLoss);
        // A code of the new row, one of an old row, and the last bit of a scale.
        for byte in [68 + 2 + 7, 136 + 2, 68 + 34] {
            let verdict = verdict_of_blocks(|bytes| bytes[byte] = bytes[byte].wrapping_add(1));
            assert_eq!(verdict, Verdict::StructuralBug, "byte {byte}");
        }
        assert_eq!(
            verdict_of_blocks(|bytes| bytes.copy_within(68..102, 102)),
            Verdict::StructuralBug,
            "one block twice"
        );
    }

    #[test]
    fn a_wrong_row_a_lost_row_and_a_changed_neighbour_are_seen() {
        for after in [[0.1, -7.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 0.1, -7.0, 5.0, 6.5]]
        {
            assert_eq!(verdict(&after), Verdict::StructuralBug, "{after:?}");
        }
    }
}
