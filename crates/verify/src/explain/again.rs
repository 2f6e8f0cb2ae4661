//! Whether a failing node gives the same result when it is computed again on the same inputs: arithmetic does, a race
//! need not.
//!
//! ```text
//!   plain runs differ ──▶ each node was computed again already: its spread          plain runs agree ──▶ computed again here
//! ```
//!
//! Plain runs may agree although a node races: where the race depends on how often the node was computed, or hits
//! rarely.

use crate::bound::Case;
use crate::operand;
use crate::precision::LAMBDA;
use crate::repeat::{RUNS, computed_again, larger};
use crate::statistics::{Expected, Statistics};
use crate::verdict::is_race;
use trueup_formats::significant;
use trueup_runtime::Seen;

/// How the results of a node differ.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Again {
    /// Elements that differ, by more than is declared where the device repeats nothing.
    pub elements: Vec<usize>,
    /// How many elements there are.
    pub all: usize,
    /// How far apart they are at most; NaN where some are no numbers.
    pub apart: f64,
    /// Whether no rounding does that.
    pub race: bool,
    /// What the node gave when it was computed first, where that is not the result that was judged.
    pub first: Option<Vec<f64>>,
}

impl Again {
    /// How a failing node differs; `None` where it does not, and where the device cannot compute it again. `expected`
    /// says what each element should be, `first` what was given first.
    pub fn of(
        case: &Case,
        statistics: &Statistics,
        expected: &[Option<Expected>],
        seen: &Seen<'_>,
        first: Option<&[f64]>,
    ) -> Option<Again> {
        if case.spread.is_empty() {
            return executed(case, seen);
        }
        let noise = |index: usize| expected[index].map_or(0.0, |expected| LAMBDA * expected.sigma);
        let raced = |index: &usize| case.spread[*index].is_nan() || case.spread[*index] > noise(*index);
        let elements: Vec<usize> = (0..case.spread.len().min(expected.len())).filter(raced).collect();
        let apart = elements.iter().map(|index| case.spread[*index]).fold(0.0, larger);
        let race = is_race(statistics);
        let again = Again { all: case.spread.len(), elements, apart, race, first: first.map(<[f64]>::to_vec) };
        (statistics.raced > 0 && !again.elements.is_empty()).then_some(again)
    }

    /// What that means, where `place` says which elements they are: a clause without a full stop.
    pub fn text(&self, place: &str) -> String {
        let apart = if self.apart.is_nan() {
            "some are not finite".to_owned()
        } else {
            format!("by up to {}", significant(self.apart, 4))
        };
        let (count, all) = (self.elements.len(), self.all);
        let verb = if count == 1 { "differs" } else { "differ" };
        let cause = if self.race {
            "a data race, or memory that is read before it is written"
        } else {
            "more than a different summation order explains in the declared precision"
        };
        format!(
            "{place} ({count} of {all} elements) {verb} when the node is recomputed on the same inputs, {apart}: \
                {cause}"
        )
    }
}

/// Computes the node again and leaves what it gave in its place.
fn executed(case: &Case, seen: &Seen<'_>) -> Option<Again> {
    let results = computed_again(seen, RUNS).ok()?;
    let first = results.first()?;
    seen.device.upload(&first.to_bytes(), &seen.step.output).ok()?;
    let original = operand::decode(first.ty(), &first.to_bytes());
    let mut differs = vec![false; original.len()];
    let mut apart = 0.0;
    for result in &results[1..] {
        let values = operand::decode(result.ty(), &result.to_bytes());
        for (place, (a, b)) in original.iter().zip(&values).enumerate().filter(|(_, (a, b))| a.to_bits() != b.to_bits())
        {
            differs[place] = true;
            apart = larger(apart, (a - b).abs());
        }
    }
    let elements: Vec<usize> = (0..differs.len()).filter(|place| differs[*place]).collect();
    let all = case.output.ty.shape.elements();
    (!elements.is_empty()).then_some(Again { elements, all, apart, race: true, first: None })
}
