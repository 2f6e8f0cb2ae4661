//! The effect of errors on the output: divergence of the next token's probabilities, and tokens that change
//! (docs/numerics.md#logits-and-tokens).
//!
//! ```text
//!   error of logits, mean shift removed ──rms──▶ sigma
//!   margin m between the reference's best two ──▶ chance of a flip erfc(m / (2 sigma)) / 2
//!   observed flips <= expected + 4 sqrt(expected) + 1;   a flip at m > 8 sqrt(2) sigma is a bug, sigma being the row's own where that is larger
//! ```
//!
//! Positions whose reference logits are the same again, as those of a repeated token, carry the same error: they are
//! one sample, and a flip of one of them is a flip of all. Counts of flips are gated by distinct positions.
//!
//! The divergence is reported and not gated: it is `sigma^2 / 2 (1 - sum p^2)` of the logits' error, so it has no noise
//! of its own to be measured by, and what causes that error is judged node by node.

use crate::flip::{BEFORE_MAX, Flip};
use crate::precision::LAMBDA;
use crate::report::Outcome;
use serde::Serialize;

/// One position, for a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TokenPoint {
    /// How far the reference's best logit is above the next, or above that of the token that the device took.
    pub margin: f64,
    /// How far the device has this margin differently.
    pub error: f64,
    /// Whether the most likely token differs.
    pub flipped: bool,
}

/// Flips that are listed.
const FLIPS_MAX: usize = 20;

/// Positions that are kept for a figure, of those without a flip and of those with one.
const POINTS_MAX: usize = 500;

/// The comparison of logits over all positions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TokenReport {
    /// Positions compared.
    pub positions: usize,
    /// Positions with the same most likely token.
    pub top1_equal: usize,
    /// Root mean square error of logits, the mean of each position removed; null where any logit is not finite, as are
    /// the divergences.
    pub logit_sigma: Option<f64>,
    /// Mean of the Kullback-Leibler divergence, reference to device, in nats.
    pub kl_mean: Option<f64>,
    /// Its largest value.
    pub kl_max: Option<f64>,
    /// The mean that `logit_sigma` predicts.
    pub kl_expected: Option<f64>,
    /// Flips that the logits' error and the margins predict, at positions with numbers.
    pub flips_expected: f64,
    /// Flips seen.
    pub flips: usize,
    /// The smallest margin of the reference.
    pub margin_min: Option<f64>,
    /// The first differing token.
    pub first_flip: Option<Flip>,
    /// The first flip that no noise of this size explains.
    pub bad_flip: Option<Flip>,
    /// The first 20 flips, and `bad_flip` where it is none of them.
    pub flip_list: Vec<Flip>,
    /// Positions with different reference logits; only these are independent samples.
    pub distinct: usize,
    /// Positions where the device's logits are no numbers and the reference's are.
    pub not_finite: usize,
    /// Positions where the reference's own logits are no numbers: nothing can be said.
    pub reference_not_finite: usize,
    /// Whether flips are within what the noise explains, at positions that all have numbers.
    pub passes: bool,
    /// Largest margin that noise of this size may turn around, of the positions that have numbers.
    pub tie_limit: f64,
    /// The first positions without a flip, and the first with one.
    pub points: Vec<TokenPoint>,
    /// The comparison of an encoder's vectors, which stands for that of most likely tokens; null for logits.
    pub vectors: Option<VectorReport>,
}

/// The comparison of an encoder's vectors.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct VectorReport {
    /// The smallest cosine of a vector of the device and that of the reference; null where any is not finite.
    pub cosine_min: Option<f64>,
}

impl TokenReport {
    /// Adds the texts of flips, by a tokenizer that gives the bytes of a sequence of ids.
    pub(crate) fn add_texts(&mut self, decode: &dyn Fn(&[u32]) -> Vec<u8>) {
        let flips = self.first_flip.iter_mut().chain(&mut self.bad_flip).chain(&mut self.flip_list);
        flips.for_each(|flip| flip.add_text(decode));
    }

    /// What the logits say by themselves.
    pub fn outcome(&self) -> Outcome {
        match (self.passes, self.reference_not_finite) {
            (true, _) => Outcome::Pass,
            (false, 0) => Outcome::Fail,
            (false, _) if self.not_finite > 0 || self.bad_flip.is_some() => Outcome::Fail,
            (false, _) => Outcome::Inconclusive,
        }
    }
}

/// One position's share.
#[derive(Clone, Debug)]
struct Position {
    margin: f64,
    flip: Option<Flip>,
    /// `1 - sum p^2` of the reference.
    uncertainty: f64,
    /// Which of the distinct rows of reference logits it has.
    group: usize,
    /// The margin to the token that the device took, or to the second best.
    own: f64,
    /// How far the device has that margin differently.
    error: f64,
    /// Noise of this row's logits alone: errors may gather in few rows.
    sigma: f64,
}

/// A row of logits in few numbers: equal for rows that differ by rounding only, and different for others.
#[derive(Clone, Copy, Debug)]
struct Signature {
    best: usize,
    /// Root of the sum of squares.
    length: f64,
    /// Sum of logits, and of those weighted by a walk over -1 to 1.
    sums: [f64; 2],
}

/// How far apart signatures of the same row may be, by its length: the rounding of sums in f32.
const SAME_ROW: f64 = 1.0 / (1 << 20) as f64;

impl Signature {
    fn of(logits: &[f64]) -> Signature {
        let golden = 0.618_033_988_749_895;
        let walk = |index: usize| 2.0 * (index as f64 * golden).fract() - 1.0;
        Signature {
            best: top(logits),
            length: logits.iter().fold(0.0, |sum, logit| sum + logit * logit).sqrt(),
            sums: logits
                .iter()
                .enumerate()
                .fold([0.0; 2], |[plain, weighted], (index, logit)| [plain + logit, weighted + logit * walk(index)]),
        }
    }

    fn same(&self, other: &Signature) -> bool {
        let limit = SAME_ROW * self.length;
        let near = |a: f64, b: f64| (a - b).abs() <= limit;
        let sums = self.sums.iter().zip(&other.sums).all(|(a, b)| near(*a, *b));
        self.best == other.best && near(self.length, other.length) && sums
    }
}

/// Collects positions.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tokens {
    positions: Vec<Position>,
    squares: f64,
    logits: f64,
    kl_sum: f64,
    kl_max: f64,
    not_finite: usize,
    reference_not_finite: usize,
    rows: Vec<Signature>,
    /// Whether the logits that are added are those of the batch of all prompts.
    in_batch: bool,
    /// The smallest cosine, if rows are vectors and no logits.
    cosine_min: Option<f64>,
    /// Rows that are vectors.
    vectors: usize,
}

impl Tokens {
    /// No positions yet, of a model with logits or with vectors.
    pub fn of(has_logits: bool) -> Tokens {
        Tokens { cosine_min: (!has_logits).then_some(1.0), ..Tokens::default() }
    }

    /// The logits that are added from now on are those of the batch of all prompts.
    pub fn begin_batch(&mut self) {
        self.in_batch = true;
    }

    /// Adds the logits after the last of the ids `before`, at this position of a prompt.
    pub fn add(&mut self, prompt: usize, position: usize, before: &[u32], reference: &[f64], device: &[f64]) {
        if reference.iter().any(|logit| !logit.is_finite()) {
            self.reference_not_finite += 1;
            return;
        }
        if reference.len() != device.len() || device.iter().any(|logit| !logit.is_finite()) {
            self.not_finite += 1;
            return;
        }
        // Softmax ignores what is added to all logits; in a vector, it is an error.
        let mean = reference.iter().zip(device).map(|(r, d)| d - r).sum::<f64>() / reference.len() as f64;
        let shift = if self.cosine_min.is_some() { 0.0 } else { mean };
        self.squares += reference.iter().zip(device).map(|(r, d)| (d - r - shift).powi(2)).sum::<f64>();
        self.logits += reference.len() as f64;
        if let Some(smallest) = &mut self.cosine_min {
            *smallest = smallest.min(cosine(reference, device));
            self.vectors += 1;
            return;
        }
        let (p, q) = (log_probabilities(reference), log_probabilities(device));
        let kl: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>().max(0.0);
        self.kl_sum += kl;
        self.kl_max = self.kl_max.max(kl);
        let (best, found) = (top(reference), top(device));
        let second = reference.iter().enumerate().filter(|(id, _)| *id != best).map(|(_, logit)| *logit);
        let margin = reference[best] - second.fold(f64::NEG_INFINITY, f64::max);
        let flip = (best != found).then_some(Flip {
            prompt,
            in_batch: self.in_batch,
            position,
            before: before[before.len().saturating_sub(BEFORE_MAX)..].to_vec(),
            reference: best as u32,
            device: found as u32,
            // A flip between other tokens than the best two crosses the distance to the one that was taken.
            margin: reference[best] - reference[found],
            explained: true,
            text: None,
        });
        let uncertainty = 1.0 - p.iter().map(|p| (2.0 * p).exp()).sum::<f64>();
        let group = self.group(Signature::of(reference));
        let other = if flip.is_some() { found } else { runner_up(reference, best) };
        let own = reference[best] - reference[other];
        let error = (own - (device[best] - device[other])).abs();
        let sigma = row_sigma(reference, device, shift);
        self.positions.push(Position { margin, flip, uncertainty, group, own, error, sigma });
    }

    /// The number of the distinct row that this is.
    fn group(&mut self, row: Signature) -> usize {
        self.rows.iter().position(|known| known.same(&row)).unwrap_or_else(|| {
            self.rows.push(row);
            self.rows.len() - 1
        })
    }

    /// Whether flips are no more than the noise explains, each distinct row being one sample.
    fn flips_within(&self, sigma: f64) -> bool {
        let mut groups = vec![(0.0f64, false); self.rows.len()];
        for position in &self.positions {
            let (chance, flipped) = &mut groups[position.group];
            *chance = chance.max(flip_chance(position.margin, sigma));
            *flipped |= position.flip.is_some();
        }
        let expected = groups.iter().fold(0.0, |sum, (chance, _)| sum + chance);
        let flips = groups.iter().filter(|(_, flipped)| *flipped).count();
        flips as f64 <= expected + 4.0 * expected.sqrt() + 1.0
    }

    fn points(&self) -> Vec<TokenPoint> {
        let of = |flipped: bool| {
            let some = self.positions.iter().filter(move |position| position.flip.is_some() == flipped);
            some.take(POINTS_MAX).map(move |position| TokenPoint {
                margin: position.own,
                error: position.error,
                flipped,
            })
        };
        of(false).chain(of(true)).collect()
    }

    /// All flips, and whether noise explains them.
    fn flips(&self, sigma: f64) -> Vec<Flip> {
        let of = |position: &Position| {
            let flip = position.flip.clone()?;
            let explained = flip.margin <= tie_reach(sigma.max(position.sigma));
            Some(Flip { explained, ..flip })
        };
        self.positions.iter().filter_map(of).collect()
    }

    /// The comparison of all positions.
    pub fn report(&self) -> TokenReport {
        let count = self.positions.len() + self.vectors;
        let sigma = if self.logits > 0.0 { (self.squares / self.logits).sqrt() } else { 0.0 };
        let sum =
            |share: &dyn Fn(&Position) -> f64| self.positions.iter().fold(0.0, |sum, position| sum + share(position));
        let flips = self.flips(sigma);
        let bad_flip = flips.iter().find(|flip| !flip.explained).cloned();
        let mut flip_list: Vec<Flip> = Vec::new();
        // Sequences of the batch can have the same tokens.
        for flip in &flips {
            if flip_list.len() < FLIPS_MAX && !flip_list.contains(flip) {
                flip_list.push(flip.clone());
            }
        }
        flip_list.extend(bad_flip.iter().filter(|bad| !flip_list.contains(bad)).cloned().collect::<Vec<_>>());
        let smallest = self.positions.iter().map(|position| position.margin).fold(f64::INFINITY, f64::min);
        let numbers = self.not_finite == 0 && self.reference_not_finite == 0;
        let known = |value: f64| (numbers && count > 0).then_some(value);
        let mean = |sum: f64| known(sum / count as f64);
        TokenReport {
            positions: count + self.not_finite + self.reference_not_finite,
            top1_equal: count - flips.len(),
            logit_sigma: known(sigma),
            kl_mean: mean(self.kl_sum),
            kl_max: known(self.kl_max),
            kl_expected: mean(sum(&|position| sigma * sigma / 2.0 * position.uncertainty)),
            flips_expected: sum(&|position| flip_chance(position.margin, sigma)),
            flips: flips.len(),
            margin_min: smallest.is_finite().then_some(smallest),
            first_flip: flips.first().cloned(),
            passes: numbers && bad_flip.is_none() && self.flips_within(sigma),
            bad_flip,
            flip_list,
            distinct: self.rows.len(),
            not_finite: self.not_finite,
            reference_not_finite: self.reference_not_finite,
            tie_limit: tie_reach(sigma),
            points: self.points(),
            vectors: self.cosine_min.map(|smallest| VectorReport { cosine_min: known(smallest) }),
        }
    }
}

/// The cosine of the angle between two vectors; 1 if both are zero, 0 if one is.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b);
    let [square, other] = [dot(a, a), dot(b, b)];
    match (square > 0.0, other > 0.0) {
        (true, true) => dot(a, b) / (square * other).sqrt(),
        (false, false) => 1.0,
        (true, false) | (false, true) => 0.0,
    }
}

/// The largest distance below the best score that noise of standard deviation `sigma` on each score explains
/// (docs/numerics.md#logits-and-tokens).
pub(crate) fn tie_reach(sigma: f64) -> f64 {
    LAMBDA * sigma * std::f64::consts::SQRT_2
}

/// The lowest id of the largest logit.
pub(crate) fn top(logits: &[f64]) -> usize {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best
}

/// The id of the largest logit but that of `best`; `best` itself where there is no other.
fn runner_up(logits: &[f64], best: usize) -> usize {
    let others = (0..logits.len()).filter(|id| *id != best);
    others.reduce(|a, b| if logits[b] > logits[a] { b } else { a }).unwrap_or(best)
}

fn log_probabilities(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    logits.iter().map(|logit| logit - largest - sum.ln()).collect()
}

/// Standard deviation of a row's errors by their median, which a few wrong logits do not move.
fn row_sigma(reference: &[f64], device: &[f64], shift: f64) -> f64 {
    let mut errors: Vec<f64> = reference.iter().zip(device).map(|(r, d)| (d - r - shift).abs()).collect();
    let middle = errors.len() / 2;
    // The median of |x| of normal noise is 0.6745 of its standard deviation.
    errors.select_nth_unstable_by(middle, f64::total_cmp).1.abs() / 0.6745
}

/// Chance that noise of standard deviation `sigma` on each logit turns a margin around.
fn flip_chance(margin: f64, sigma: f64) -> f64 {
    if sigma > 0.0 { 0.5 * erfc(margin / (2.0 * sigma)) } else { 0.0 }
}

/// The share of a normal distribution below `z`.
pub(crate) fn normal_below(z: f64) -> f64 {
    let tail = 0.5 * erfc(z.abs() / std::f64::consts::SQRT_2);
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// The complementary error function for arguments from 0 on: its power series, and from 2 on its continued fraction
/// (Abramowitz and Stegun 7.1.5 and 7.1.14).
pub(crate) fn erfc(x: f64) -> f64 {
    let root_pi = std::f64::consts::PI.sqrt();
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        1.0 - 2.0 / root_pi * sum
    } else {
        let tail = (1..80).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
        (-x * x).exp() / (root_pi * tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfc_agrees_with_the_published_table() {
        // Abramowitz and Stegun, table 7.1 (erf) and 7.3.
        for (x, value) in [(0.0, 1.0), (0.5, 0.479_500_122_2), (1.0, 0.157_299_207_1), (2.0, 0.004_677_734_98)] {
            assert!((erfc(x) - value).abs() < 1e-10, "erfc({x}) = {}", erfc(x));
        }
        assert!((erfc(1.999_999) - erfc(2.0)).abs() < 1e-7);
    }

    #[test]
    fn equal_logits_and_a_mean_shift_are_no_error() {
        let mut tokens = Tokens::default();
        tokens.add(0, 0, &[], &[1.0, 3.0, 2.0], &[2.0, 4.0, 3.0]);
        let report = tokens.report();
        assert!(report.passes && report.logit_sigma == Some(0.0) && report.kl_max.is_some_and(|kl| kl < 1e-15));
        assert_eq!((report.top1_equal, report.margin_min), (1, Some(1.0)));
    }

    #[test]
    fn divergence_of_two_known_distributions() {
        // p = (1/2, 1/2), q = (3/4, 1/4): ln 2 / 2 ... = 1/2 ln(2/3) + 1/2 ln 2.
        let mut tokens = Tokens::default();
        tokens.add(0, 0, &[], &[0.0, 0.0], &[3f64.ln(), 0.0]);
        let expected = 0.5 * (2.0f64 / 3.0).ln() + 0.5 * 2f64.ln();
        assert!((tokens.report().kl_mean.unwrap() - expected).abs() < 1e-15);
    }

    #[test]
    fn a_flip_beyond_the_noise_fails_and_a_near_tie_passes() {
        let mut near = Tokens::default();
        let logits: Vec<f64> = (0..100).map(|i| f64::from(i) * 0.01).collect();
        let mut swapped = logits.clone();
        swapped.swap(98, 99);
        near.add(0, 5, &[], &logits, &swapped);
        let report = near.report();
        assert!(report.passes, "{report:?}");
        assert_eq!(report.first_flip.map(|flip| (flip.position, flip.reference, flip.device)), Some((5, 99, 98)));
        let mut far = Tokens::default();
        let mut moved = logits.clone();
        moved[0] = 2.0;
        for _ in 0..50 {
            far.add(0, 0, &[], &logits, &logits);
        }
        far.add(0, 7, &[], &logits, &moved);
        assert_eq!(far.report().bad_flip.map(|flip| flip.position), Some(7));
        assert!(!far.report().passes);
    }

    #[test]
    fn flips_are_listed_with_what_stood_before_and_the_unexplained_one_in_any_case() {
        let mut tokens = Tokens::default();
        let logits: Vec<f64> = (0..100).map(|i| f64::from(i) * 0.01).collect();
        let before: Vec<u32> = (0..30).collect();
        for position in 0..40 {
            let mut swapped = logits.clone();
            swapped.swap(98, 99);
            tokens.add(0, position, &before[..=position.min(29)], &logits, &swapped);
        }
        let mut moved = logits.clone();
        moved[0] = 2.0;
        tokens.add(0, 40, &before, &logits, &moved);
        let report = tokens.report();
        assert_eq!((report.flips, report.flip_list.len()), (41, FLIPS_MAX + 1));
        assert_eq!(report.flip_list[1].place(""), "position 1 of prompt 0");
        let mut batch = Tokens::default();
        batch.begin_batch();
        batch.add(0, 7, &[], &logits, &moved);
        batch.add(0, 7, &[], &logits, &moved);
        assert_eq!((batch.report().flips, batch.report().flip_list.len()), (2, 1));
        let place = batch.report().first_flip.map(|flip| flip.place(""));
        assert_eq!(place.as_deref(), Some("position 7 of prompt 0, in the batch of all prompts"));
        assert_eq!(report.flip_list.last(), report.bad_flip.as_ref());
        let explained = report.flip_list.iter().filter(|flip| flip.explained).count();
        assert_eq!((explained, report.flip_list[2].before.as_slice()), (FLIPS_MAX, &before[..3]));
        assert_eq!(report.flip_list[19].before, before[20 - BEFORE_MAX..20]);
    }

    #[test]
    fn vectors_are_compared_by_their_angle_and_not_by_their_largest_element() {
        let mut vectors = Tokens::of(false);
        vectors.add(0, 0, &[], &[3.0, 4.0], &[4.0, 3.0]);
        let report = vectors.report();
        let cosine = report.vectors.and_then(|vectors| vectors.cosine_min).unwrap();
        assert!((cosine - 24.0 / 25.0).abs() < 1e-15, "{cosine}");
        assert!(report.passes && report.flips == 0 && report.positions == 1 && report.logit_sigma == Some(1.0));
        vectors.add(0, 1, &[], &[3.0, 4.0], &[f64::NAN, 3.0]);
        let report = vectors.report();
        assert_eq!((report.passes, report.not_finite, report.positions), (false, 1, 2));
        assert_eq!(report.vectors, Some(VectorReport { cosine_min: None }));
        assert_eq!(Tokens::of(true).report().vectors, None);
    }

    #[test]
    fn logits_that_are_no_numbers_fail() {
        let mut tokens = Tokens::default();
        tokens.add(0, 0, &[], &[0.0, 1.0], &[0.0, f64::NAN]);
        assert_eq!((tokens.report().not_finite, tokens.report().outcome()), (1, Outcome::Fail));
        tokens.add(0, 1, &[], &[0.0, 1.0], &[0.5, 1.0]);
        let report = tokens.report();
        assert_eq!([report.kl_mean, report.kl_max, report.kl_expected, report.logit_sigma], [None; 4], "not 0");
        assert!(report.tie_limit > 0.0, "the other position has numbers");
    }

    #[test]
    fn a_reference_that_is_no_number_says_nothing() {
        let mut tokens = Tokens::default();
        tokens.add(0, 0, &[], &[0.0, f64::NAN], &[0.0, f64::NAN]);
        let report = tokens.report();
        assert_eq!((report.reference_not_finite, report.not_finite), (1, 0));
        assert_eq!((report.passes, report.outcome()), (false, Outcome::Inconclusive));
        assert_eq!((report.flips_expected.to_string().as_str(), report.tie_limit), ("0", 0.0));
        assert_eq!([report.kl_mean, report.kl_max, report.kl_expected, report.logit_sigma], [None; 4]);
        tokens.add(0, 1, &[], &[0.0, 1.0], &[0.0, f64::NAN]);
        assert_eq!(tokens.report().outcome(), Outcome::Fail, "elsewhere the device is wrong");
    }

    #[test]
    fn a_repeated_row_is_one_sample() {
        let reference: Vec<f64> = (0..64).map(|i| f64::from(i % 7) * 0.3 + if i == 6 { 0.001 } else { 0.0 }).collect();
        let device: Vec<f64> = (0..64).map(|i| reference[i] - 0.004 * (i as f64 * 2.4).sin()).collect();
        assert_ne!(top(&reference), top(&device));
        let mut repeated = Tokens::default();
        for position in 0..60 {
            let rounding = 1.0 + position as f64 * 1e-16;
            let row: Vec<f64> = reference.iter().map(|logit| logit * rounding).collect();
            repeated.add(0, position, &[], &row, &device);
        }
        let report = repeated.report();
        assert_eq!((report.flips, report.distinct, report.positions), (60, 1, 60));
        assert!(report.passes && report.bad_flip.is_none(), "{report:?}");
        let mut different = Tokens::default();
        for position in 0..60 {
            let shift = position as f64 * 0.01;
            let moved = |row: &[f64]| row.iter().map(|logit| logit + shift).collect::<Vec<f64>>();
            let mut far = moved(&reference);
            far[6] += 0.01;
            different.add(0, position, &[], &far, &moved(&device));
        }
        assert_eq!(different.report().distinct, 60);
        assert!(!different.report().passes, "{:?}", different.report());
    }
}
