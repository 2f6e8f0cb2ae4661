//! Results that are one number, or right but for a factor of each row.

use super::{Evidence, SignatureKind};
use trueup_graph::Op;

/// The same number everywhere.
pub(super) fn constant(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let value = evidence.scene.device[*evidence.bad.first()?];
    let same = |index: &usize| evidence.scene.device[*index].to_bits() == value.to_bits();
    let found = evidence.bad.len() > 1 && value != 0.0 && evidence.bad.iter().all(same);
    let place = evidence.place(&evidence.bad);
    found.then(|| (SignatureKind::Constant, format!("the same number, {value}, in {place}")))
}

/// Rows that at least must show a factor: two elements each, so that one is predicted by the other.
const ROWS_MIN: usize = 2;

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
    let text = format!("each row has a factor of its own, {least:.4} to {most:.4}, in {place}: {divisor} is wrong");
    (shown >= ROWS_MIN).then_some((SignatureKind::Factor, text))
}
