//! Derives one of eight verdicts from statistics (docs/numerics.md#verdicts).
//!
//! ```text
//!   never written ──▶ structural bug      NaN, Inf ──▶ not finite       first values that are not finite,
//!   worst element beyond its limit? rms beyond its limit?               then the worst element, then averages
//!     ├─ no:  equal ▶ exact    lossless ▶ rounding    declared rounding of inputs ▶ declared loss
//!     └─ yes: spread like rounding, and small enough for some precision ▶ undeclared precision, else structural bug
//! ```
//!
//! R1 limits what the device computes. R0 limits only the rms, and only the part that the device adds to its declared
//! loss `R1 - R0`. That loss follows from the inputs, and all rows of a column share it. If the inputs are far from
//! uniform on the grid of codes, its rms exceeds 1.3 on a correct device. Therefore, if the loss exceeds its model,
//! the limit for the rms of R0 is 1.3 times that of the loss. A device that matches R1 passes R0. Whether the declared
//! loss is as small as its model is reported, but does not fail a node.

use crate::precision::LAMBDA;
use crate::statistics::Statistics;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said about a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Bit for bit what it should be.
    Exact,
    /// Different by rounding as declared.
    Rounding,
    /// Different from the exact result by the loss that the device declares, and by nothing else.
    DeclaredLoss,
    /// Not looked at.
    Unchecked,
    /// Looked at without an answer: the inputs were not numbers already.
    Inconclusive,
    /// Less exact than declared, in the way that rounding is.
    UndeclaredPrecision,
    /// Wrong in a way that no rounding is.
    StructuralBug,
    /// NaN or infinite where the reference is a number.
    NotFinite,
}

impl Verdict {
    /// All verdicts, from good to bad.
    pub const ALL: [Verdict; 8] = [
        Verdict::Exact,
        Verdict::Rounding,
        Verdict::DeclaredLoss,
        Verdict::Unchecked,
        Verdict::Inconclusive,
        Verdict::UndeclaredPrecision,
        Verdict::StructuralBug,
        Verdict::NotFinite,
    ];

    /// Whether the node is as it should be.
    pub fn passes(self) -> bool {
        match self {
            Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => true,
            Verdict::Unchecked | Verdict::Inconclusive => false,
            Verdict::UndeclaredPrecision | Verdict::StructuralBug | Verdict::NotFinite => false,
        }
    }

    /// Whether the node is proved not to be what it should be.
    pub fn fails(self) -> bool {
        match self {
            Verdict::UndeclaredPrecision | Verdict::StructuralBug | Verdict::NotFinite => true,
            Verdict::Exact | Verdict::Rounding | Verdict::DeclaredLoss => false,
            Verdict::Unchecked | Verdict::Inconclusive => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Exact => "exact",
            Verdict::Rounding => "rounding",
            Verdict::DeclaredLoss => "declared loss",
            Verdict::Unchecked => "unchecked",
            Verdict::Inconclusive => "inconclusive",
            Verdict::UndeclaredPrecision => "undeclared precision",
            Verdict::StructuralBug => "structural bug",
            Verdict::NotFinite => "not finite",
        })
    }
}

/// How an operator's results are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Bit for bit: nothing is computed.
    Bits,
    /// Each element within its bound: few roundings, each bounded.
    Bound,
    /// `|z| <= 8` and `b <= 1` for each element, and the rms of z as noise has it: sums of many roundings.
    Noise,
}

/// Largest rms of z against one's own noise in large samples: the models of noise hold within 30%.
pub(crate) const RMS_MAX: f64 = 1.3;

/// A spread over repetitions that is far beyond the noise is a race where it is in no larger a share of the elements;
/// in more of them it may be noise that was not declared.
const RACED_SHARE: f64 = 0.01;

/// An order of sums that changes shows in most elements: where no larger a share differs at all, it is a race.
const UNSTEADY_SHARE: f64 = 0.25;

/// Whether a spread far beyond the noise is a race: few elements have it, or it is larger than any rounding makes it.
pub(crate) fn is_race(statistics: &Statistics) -> bool {
    let share = |count: u64| count as f64 / statistics.elements.max(1) as f64;
    let few = share(statistics.raced) <= RACED_SHARE || share(statistics.unsteady) <= UNSTEADY_SHARE;
    statistics.raced > 0 && (few || statistics.worst_spread > 1.0)
}

impl Gate {
    /// The verdict on what was seen. `loss` says whether the declared profile rounds inputs or results beyond f32.
    pub fn verdict(self, statistics: &Statistics, loss: bool) -> Verdict {
        let broken = &statistics.broken;
        if statistics.elements == 0 {
            Verdict::Unchecked
        } else if broken.nan + broken.infinite > 0 {
            Verdict::NotFinite
        } else if broken.unwritten > 0 {
            Verdict::StructuralBug
        } else if statistics.raced > 0 {
            if is_race(statistics) { Verdict::StructuralBug } else { Verdict::UndeclaredPrecision }
        } else if !self.holds(statistics) {
            failure(self, statistics)
        } else if broken.undefined > 0 {
            Verdict::Inconclusive
        } else if loss || broken.range_exceeded > 0 {
            Verdict::DeclaredLoss
        } else if statistics.equal == statistics.elements {
            Verdict::Exact
        } else {
            Verdict::Rounding
        }
    }

    /// The worst element by its limit, and averages by theirs where they are beyond it: above 1 the gate does not hold.
    /// Results that are no numbers are infinitely beyond.
    pub fn share(self, statistics: &Statistics) -> f64 {
        let broken = &statistics.broken;
        if broken.nan + broken.infinite + broken.unwritten + statistics.raced > 0 {
            return f64::INFINITY;
        }
        let worst = worst_z(statistics) / LAMBDA;
        match self {
            Gate::Bits | Gate::Bound => worst,
            Gate::Noise => {
                let exact = rms_max(statistics) * statistics.rms_loss().max(1.0);
                let averages = (statistics.rms_z() / rms_max(statistics)).max(statistics.rms_z_exact() / exact);
                let worst = worst.max(statistics.worst_bound.map_or(0.0, |worst| worst.ratio));
                if averages > 1.0 { worst.max(averages) } else { worst }
            }
        }
    }

    /// Whether the worst element and the averages are within the gate.
    fn holds(self, statistics: &Statistics) -> bool {
        match self {
            Gate::Bits | Gate::Bound => worst_z(statistics) <= LAMBDA,
            Gate::Noise => {
                worst_z(statistics) <= LAMBDA
                    && statistics.worst_bound.is_none_or(|worst| worst.ratio <= 1.0)
                    && statistics.rms_z() <= rms_max(statistics)
                    && statistics.rms_z_exact() <= rms_max(statistics) * statistics.rms_loss().max(1.0)
            }
        }
    }
}

fn worst_z(statistics: &Statistics) -> f64 {
    statistics.worst_z.map_or(0.0, |worst| worst.ratio)
}

/// The largest rms of z that noise can have: in `n` samples the mean square of pure noise spreads by `sqrt(2 / n)`
/// around 1.
fn rms_max(statistics: &Statistics) -> f64 {
    let spread = (2.0 / statistics.samples().max(1) as f64).sqrt();
    (1.0 + LAMBDA * spread).max(RMS_MAX * RMS_MAX).sqrt()
}

/// Rounding is spread over all elements and is bounded by the coarsest precision; anything else is another kind of
/// error.
fn failure(gate: Gate, statistics: &Statistics) -> Verdict {
    let spread = worst_z(statistics) <= LAMBDA * statistics.rms_z();
    let rounding = gate != Gate::Bits && statistics.worst_coarse <= 1.0 && spread;
    if rounding { Verdict::UndeclaredPrecision } else { Verdict::StructuralBug }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::Precision;
    use crate::statistics::{Expected, Tally};

    /// Element `i` and what is expected of it are both `i` larger, so that no value comes again.
    fn judged(gate: Gate, loss: bool, results: &[f64], expected: &[Expected]) -> Verdict {
        let results: Vec<f64> = results.iter().enumerate().map(|(index, result)| result + index as f64).collect();
        let mut tally = Tally::new(0, Precision::F32, &results, None);
        for (index, Expected { exact, declared, .. }) in expected.iter().enumerate() {
            let (exact, declared) = (exact + index as f64, declared + index as f64);
            tally.add(index, &Expected { exact, declared, ..expected[index] });
        }
        gate.verdict(&tally.finish(), loss)
    }

    fn noise(exact: f64) -> Expected {
        Expected { exact, declared: 0.0, sigma: 1.0, sigma_exact: 100.0, bound: 50.0, ties: 0.0, coarse: 1000.0 }
    }

    #[test]
    fn one_table_of_cases() {
        let same = Expected::same(1.0, 1.0);
        let near = Expected::within(1.0, 0.5, 2.0);
        let mut lost_row = vec![0.0; 500];
        lost_row[7] = 900.0;
        let undefined = Expected::same(f64::NAN, f64::NAN);
        let cases = [
            ("nothing looked at", Gate::Bits, false, vec![], vec![], Verdict::Unchecked),
            ("equal", Gate::Bits, false, vec![1.0], vec![same], Verdict::Exact),
            ("equal to a rounded input", Gate::Bits, true, vec![1.0], vec![same], Verdict::DeclaredLoss),
            ("one bit off a copy", Gate::Bits, false, vec![1.0 + f64::EPSILON], vec![same], Verdict::StructuralBug),
            ("inside the bound", Gate::Bound, false, vec![1.5], vec![near], Verdict::Rounding),
            ("outside the bound", Gate::Bound, false, vec![1.6], vec![near], Verdict::UndeclaredPrecision),
            ("far outside the bound", Gate::Bound, false, vec![4.0], vec![near], Verdict::StructuralBug),
            ("noise", Gate::Noise, false, vec![0.9; 500], vec![noise(0.0); 500], Verdict::Rounding),
            ("too much noise", Gate::Noise, false, vec![1.4; 500], vec![noise(0.0); 500], Verdict::UndeclaredPrecision),
            ("one row lost", Gate::Noise, false, lost_row, vec![noise(0.0); 500], Verdict::StructuralBug),
            ("NaN", Gate::Noise, false, vec![f64::NAN], vec![noise(0.0)], Verdict::NotFinite),
            ("unwritten", Gate::Bound, false, vec![crate::operand::UNWRITTEN], vec![near], Verdict::StructuralBug),
            ("inputs no numbers", Gate::Bound, false, vec![f64::NAN], vec![undefined], Verdict::Inconclusive),
        ];
        for (name, gate, loss, results, expected, verdict) in cases {
            assert_eq!(judged(gate, loss, &results, &expected), verdict, "{name}");
        }
    }

    #[test]
    fn the_exact_reference_gates_the_loss_that_was_not_declared() {
        // R1 agrees by chance of a wrong emulation; R0 is 1.5 sigma away everywhere.
        let far = Expected { declared: 0.0, ..noise(150.0) };
        assert!(judged(Gate::Noise, true, &[0.0; 500], &[far; 500]).passes(), "the declared loss is as far from R0");
        let near = Expected { declared: 0.0, sigma: 50.0, ..noise(0.0) };
        assert!(!judged(Gate::Noise, true, &[140.0; 500], &[near; 500]).passes());
    }

    #[test]
    fn an_element_beyond_its_hard_bound_fails_however_large_the_noise() {
        let loose = Expected { bound: 5.0, ..noise(0.0) };
        let mut results = vec![0.5; 500];
        assert!(judged(Gate::Noise, false, &results, &[loose; 500]).passes());
        results[9] = 5.5;
        assert!(judged(Gate::Noise, false, &results, &[loose; 500]).fails(), "z is 5.5, b is 1.1");
    }

    #[test]
    fn few_elements_may_spread_more() {
        assert!(judged(Gate::Noise, false, &[1.5; 9], &[noise(0.0); 9]).passes());
        assert!(!judged(Gate::Noise, false, &[1.5; 900], &[noise(0.0); 900]).passes());
    }

    #[test]
    fn a_spread_within_the_noise_passes_and_beyond_it_is_a_race_or_undeclared() {
        let verdict = |spread: &[f64]| {
            let results = vec![0.5; 500];
            let mut tally = Tally::new(0, Precision::F32, &results, None).spreading(spread);
            (0..500).for_each(|index| tally.add(index, &noise(0.0)));
            Gate::Noise.verdict(&tally.finish(), false)
        };
        let mut few = vec![0.5; 500];
        assert_eq!(verdict(&few), Verdict::Rounding);
        few[..5].fill(9.0);
        assert_eq!(verdict(&few), Verdict::StructuralBug, "1 % of the elements");
        few[..6].fill(9.0);
        assert_eq!(verdict(&few), Verdict::UndeclaredPrecision);
        few[6] = 1001.0;
        assert_eq!(verdict(&few), Verdict::StructuralBug, "no rounding makes results differ by so much");
        let mut row = vec![0.0; 500];
        row[..125].fill(9.0);
        assert_eq!(verdict(&row), Verdict::StructuralBug, "all others repeat themselves bit for bit");
    }

    #[test]
    fn verdicts_are_ordered_from_good_to_bad() {
        assert!(Verdict::ALL.is_sorted());
        assert_eq!(Verdict::ALL.iter().filter(|verdict| verdict.passes()).count(), 3);
        assert_eq!(Verdict::ALL.iter().filter(|verdict| verdict.fails()).count(), 3);
    }
}
