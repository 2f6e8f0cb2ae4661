//! Results that are one number, or right but for a factor of each row.

use super::{Evidence, SignatureKind};
use trueup_formats::significant;
use trueup_graph::Op;

/// The same number everywhere.
pub(super) fn constant(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let value = evidence.scene.device[*evidence.bad.first()?];
    let same = |index: &usize| evidence.scene.device[*index].to_bits() == value.to_bits();
    let found = evidence.bad.len() > 1 && value != 0.0 && evidence.bad.iter().all(same);
    let place = evidence.place(&evidence.bad);
    found.then(|| (SignatureKind::Constant, format!("the same number, {}, in {place}", significant(value, 7))))
}

/// Rows that at least must show a factor: two elements each, so that one is predicted by the other.
const ROWS_MIN: usize = 2;

/// Rows of soft max whose shares do not add up to 1, each right but for that.
pub(super) fn row_sums(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let scene = evidence.scene;
    let len = scene.output.shape[0];
    if !matches!(scene.op, Op::SoftMax(_)) {
        return None;
    }
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for bad in evidence.bad.chunk_by(|a, b| a / len == b / len) {
        let row = bad[0] / len * len..(bad[0] / len + 1) * len;
        let sum: f64 = scene.device[row.clone()].iter().sum();
        let shown = sum.is_finite() && sum > 0.0 && (sum - 1.0).abs() > SUM_ERROR;
        if !shown || !evidence.holds(row.map(|index| (index, sum * evidence.declared(index)))) {
            return None;
        }
        (least, most) = (least.min(sum), most.max(sum));
    }
    let place = evidence.place(&evidence.bad);
    let sums = if most - least < SUM_ERROR { format!("{least:.4}") } else { format!("{least:.4} to {most:.4}") };
    let text = format!("rows add up to {sums} instead of 1, in {place}: the sum of their exponentials is wrong");
    Some((SignatureKind::Factor, text))
}

/// How far from 1 the sum of a row is at least for the sum to be what is wrong.
const SUM_ERROR: f64 = 1e-4;

/// A factor of each row, which a wrong divisor of the row makes.
pub(super) fn row_factors(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let op = &evidence.scene.op;
    let divisor = if matches!(op, Op::SoftMax(_)) {
        "the sum of its exponentials"
    } else if matches!(op, Op::RmsNorm(_)) {
        "its root mean square"
    } else {
        return None;
    };
    let len = evidence.scene.output.shape[0];
    let (mut shown, mut least, mut most) = (0, f64::INFINITY, f64::NEG_INFINITY);
    for bad in evidence.bad.chunk_by(|a, b| a / len == b / len) {
        let row = bad[0] / len * len..(bad[0] / len + 1) * len;
        let (product, square) = bad.iter().fold((0.0, 0.0), |(product, square), index| {
            let declared = evidence.declared(*index);
            (product + evidence.scene.device[*index] * declared, square + declared * declared)
        });
        let factor = product / square;
        let scaled = |index: usize| (index, factor * evidence.declared(index));
        if !factor.is_finite() || !evidence.holds(row.map(scaled)) {
            return None;
        }
        shown += usize::from(bad.len() > 1);
        (least, most) = (least.min(factor), most.max(factor));
    }
    let place = evidence.place(&evidence.bad);
    let text = format!("each row has a different factor, {least:.4} to {most:.4}, in {place}: {divisor} is wrong");
    (shown >= ROWS_MIN).then_some((SignatureKind::Factor, text))
}
