//! Recognizes structural failures by the pattern of bad elements: unwritten, exchanged or shifted rows, a constant
//! factor, a truncated sum.
//!
//! ```text
//!   result of the device │ expected value of each element ──▶ patterns, most specific first ──▶ one sentence
//! ```
//!
//! A pattern counts only if it explains every bad element. Otherwise, the report states that no known pattern matches.

mod cache;
mod depth;
mod region;
mod rows;
mod slices;
mod weights;

pub(crate) use cache::old_activations;

use crate::explain::Supposed;
use crate::operand::is_unwritten;
use crate::precision::LAMBDA;
use crate::scene::Scene;
use crate::statistics::Expected;
use region::region;
use serde::Serialize;
use trueup_formats::{counted, significant};

/// What kind of pattern it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureKind {
    /// Elements that nothing was written to.
    Unwritten,
    /// NaN or infinity.
    NotFinite,
    /// The result of an earlier computation, or one with its activations.
    Stale,
    /// Zeros.
    Zeros,
    /// One number everywhere.
    Constant,
    /// The other sign.
    Sign,
    /// A constant factor, or one of each row.
    Factor,
    /// Rows, tokens or heads that stand at another place.
    Moved,
    /// Stored column by column instead of row by row.
    Transposed,
    /// A sum that leaves out or changes some of its terms.
    Depth,
    /// A row of the cache at another position.
    CacheRow,
    /// No known pattern.
    Unknown,
}

/// The pattern of a failure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Signature {
    /// What kind it is.
    pub kind: SignatureKind,
    /// The pattern in numbers: a clause without a full stop.
    pub text: String,
    /// Elements that are not what they should be.
    pub bad: usize,
    /// Elements that were looked at.
    pub elements: usize,
}

/// A failed computation, element by element.
pub(crate) struct Evidence<'a> {
    pub scene: &'a Scene,
    pub expected: &'a [Option<Expected>],
    /// Whether the result is bit for bit that of the step before.
    pub repeats: bool,
    /// What inputs may have contained instead of the correct values.
    pub supposed: &'a [Supposed],
    /// What the innermost indices of the result count.
    pub axes: &'a [&'static str],
    /// Indices of elements that are not what they should be.
    pub bad: Vec<usize>,
}

impl<'a> Evidence<'a> {
    /// Compares element by element.
    pub fn new(
        scene: &'a Scene,
        expected: &'a [Option<Expected>],
        repeats: bool,
        axes: &'a [&'static str],
    ) -> Evidence<'a> {
        let mut evidence = Evidence { scene, expected, repeats, supposed: &[], axes, bad: Vec::new() };
        let known = |index: &usize| evidence.expected[*index].is_some();
        evidence.bad = (0..scene.device.len()).filter(known).filter(|index| !evidence.fits(*index, *index)).collect();
        evidence
    }

    /// Whether the device's element `index` is what element `other` should be.
    fn fits(&self, index: usize, other: usize) -> bool {
        self.expected[other].is_none_or(|expected| close(self.scene.device[index], &expected, expected.declared))
    }

    /// Whether a pattern that says what some elements are leaves nothing but noise: of each, and of all on average.
    fn holds(&self, values: impl Iterator<Item = (usize, f64)>) -> bool {
        let (mut squares, mut count) = (0.0, 0);
        for (index, value) in values {
            let device = self.scene.device[index];
            let Some(expected) = self.expected[index].filter(|expected| close(device, expected, value)) else {
                return false;
            };
            if expected.sigma > 0.0 && device.is_finite() {
                // Other weights have other ties, of a like size.
                let ties = 2.0 * expected.ties;
                let z = ((device - value).abs() / widened(&expected, value) - ties).max(0.0) / expected.sigma;
                squares += z * z;
            }
            count += 1;
        }
        count > 0 && squares <= PATTERN_RMS_MAX * PATTERN_RMS_MAX * f64::from(count)
    }

    /// What element `index` should be; 0 where that is not known.
    fn declared(&self, index: usize) -> f64 {
        self.expected[index].map_or(0.0, |expected| expected.declared)
    }

    /// Where the bad elements lie, in words.
    pub fn place(&self, indices: &[usize]) -> String {
        region(indices, &self.scene.output.shape.sizes(), self.axes)
    }
}

/// Whether `device` is `value`, up to the noise of an element.
fn close(device: f64, expected: &Expected, value: f64) -> bool {
    if !device.is_finite() || !value.is_finite() {
        return device == value || (device.is_nan() && value.is_nan() && !is_unwritten(device));
    }
    let noise = expected.ties + LAMBDA * expected.sigma.max(expected.bound / LAMBDA);
    (device - value).abs() <= noise * widened(expected, value)
}

/// How many times the noise of an element `value` has, which is larger than what the element should be.
fn widened(expected: &Expected, value: f64) -> f64 {
    if expected.declared == 0.0 { 1.0 } else { (value / expected.declared).abs().clamp(1.0, 1e6) }
}

/// Largest rms of what a pattern leaves, in standard deviations: a fault may round once more than is declared.
const PATTERN_RMS_MAX: f64 = 3.0;

/// A pattern: gives what it found where it explains all bad elements.
type Pattern = fn(&Evidence) -> Option<(SignatureKind, String)>;

/// From the most specific on.
const PATTERNS: [Pattern; 15] = [
    unwritten,
    not_finite,
    repeated,
    old_activations,
    cache::cache_row,
    cache::first_rows,
    zeros,
    rows::row_sums,
    rows::constant,
    sign,
    slices::moved,
    slices::transposed,
    depth::depth,
    factor,
    rows::row_factors,
];

/// The pattern of a failure, `None` where no element is bad.
pub(crate) fn signature(evidence: &Evidence) -> Option<Signature> {
    let (bad, elements) = (evidence.bad.len(), evidence.scene.device.len());
    if bad == 0 {
        return None;
    }
    let found = PATTERNS.iter().find_map(|pattern| pattern(evidence));
    let (kind, text) = found.unwrap_or_else(|| {
        let place = evidence.place(&evidence.bad);
        let are = if bad == 1 { "is" } else { "are" };
        (SignatureKind::Unknown, format!("{bad} of {elements} elements {are} wrong ({place}); no known pattern fits"))
    });
    Some(Signature { kind, text, bad, elements })
}

fn unwritten(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let found: Vec<usize> =
        evidence.bad.iter().copied().filter(|index| is_unwritten(evidence.scene.device[*index])).collect();
    let place = evidence.place(&found);
    let count = format!("{} of {} elements", found.len(), evidence.scene.device.len());
    let others = others(evidence, found.len());
    (!found.is_empty()).then(|| (SignatureKind::Unwritten, format!("nothing was written to {place} ({count}){others}")))
}

fn not_finite(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let device = &evidence.scene.device;
    let found: Vec<usize> = evidence.bad.iter().copied().filter(|index| !device[*index].is_finite()).collect();
    let nan = found.iter().filter(|index| device[**index].is_nan()).count();
    let place = evidence.place(&found);
    let others = others(evidence, found.len());
    let counts = match (nan, found.len() - nan) {
        (nan, 0) => format!("{nan} NaN"),
        (0, infinite) => format!("{infinite} infinite"),
        (nan, infinite) => format!("{nan} NaN and {infinite} infinite"),
    };
    let text = format!("{counts} in {place}{others}");
    (!found.is_empty()).then_some((SignatureKind::NotFinite, text))
}

/// `; 3 others are wrong too`, where a pattern is sure but not all.
fn others(evidence: &Evidence, found: usize) -> String {
    match evidence.bad.len() - found {
        0 => String::new(),
        1 => "; 1 other is wrong too".to_owned(),
        count => format!("; {count} others are wrong too"),
    }
}

fn repeated(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let text = || "the result is bit for bit that of the previous step".to_owned();
    evidence.repeats.then(|| (SignatureKind::Stale, text()))
}

fn zeros(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let zeros = evidence.bad.iter().all(|index| evidence.scene.device[*index] == 0.0);
    let place = evidence.place(&evidence.bad);
    let kind = SignatureKind::Zeros;
    zeros.then(|| {
        (kind, format!("zeros in {place} ({}), as if it had not been computed", counted(evidence.bad.len(), "element")))
    })
}

fn sign(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let negated = |index: &usize| {
        let expected = evidence.expected[*index];
        expected.is_some_and(|expected| close(evidence.scene.device[*index], &expected, -expected.declared))
    };
    let place = evidence.place(&evidence.bad);
    let text = || format!("the opposite sign in {place} ({})", counted(evidence.bad.len(), "element"));
    evidence.bad.iter().all(negated).then(|| (SignatureKind::Sign, text()))
}

/// How far from 1 a factor is at least: what is nearer is noise of a few elements.
const FACTOR_MIN: f64 = 1e-5;

fn factor(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let device = &evidence.scene.device;
    let sums = evidence.bad.iter().fold((0.0, 0.0), |(product, square), index| {
        let declared = evidence.declared(*index);
        (product + device[*index] * declared, square + declared * declared)
    });
    let factor = sums.0 / sums.1;
    let scaled = |index: usize| (index, factor * evidence.declared(index));
    let bad = || evidence.bad.iter().copied().map(scaled);
    let shown = factor.is_finite() && (factor - 1.0).abs() >= FACTOR_MIN;
    let holds = evidence.bad.len() > 1 && shown && evidence.holds(bad());
    // Elements too small to show it may pass by themselves: all of a result counts as scaled where most of it is.
    let most = holds && evidence.bad.len() * 2 > device.len() && evidence.holds((0..device.len()).map(scaled));
    let place = if most { "the whole result".to_owned() } else { evidence.place(&evidence.bad) };
    holds.then(|| (SignatureKind::Factor, format!("a factor of {} on {place}", significant(factor, 7))))
}

#[cfg(test)]
mod tests;
