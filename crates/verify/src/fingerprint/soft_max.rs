//! Candidates for soft max: masks that are large numbers instead of -inf, sums and exponentials in f16, no maximum
//! subtracted.

use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::precision::{LAMBDA, Precision, ROUNDING_VARIANCE};
use crate::scene::{Given, Scene};
use trueup_graph::Op;

/// What differs from the formula.
#[derive(Clone, Copy)]
struct Rule {
    /// What is added to the scores of a row instead of its masks.
    mask: fn(&[f64]) -> Vec<f64>,
    /// Whether the largest argument is subtracted.
    subtracts: bool,
    /// What the argument of exp is rounded to, and its result.
    argument: Precision,
    exponential: Precision,
    /// What exponentials are summed in.
    sums: Precision,
    scaled: bool,
    /// Whether scores that are cap times tanh are capped after the mask: masked positions then have minus the cap.
    is_capped_late: bool,
}

const FORMULA: Rule = Rule {
    mask: <[f64]>::to_vec,
    subtracts: true,
    argument: Precision::F64,
    exponential: Precision::F64,
    sums: Precision::F64,
    scaled: true,
    is_capped_late: false,
};

macro_rules! candidates {
    ($($kind:ident $name:literal { $($field:ident: $value:expr),* })*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] = &[$(Candidate {
            name: $name,
            kind: CandidateKind::$kind,
            guess: |scene| guesses(scene, &Rule { $($field: $value,)* ..FORMULA }),
        }),*];
    };
}

candidates! {
    Formula "masks with -10000 instead of -inf" { mask: |masks| at_least(masks, -10_000.0) }
    Formula "masks with the smallest f32 instead of -inf" { mask: |masks| at_least(masks, f64::from(f32::MIN)) }
    Formula "masks with the smallest i32 instead of -inf" { mask: |masks| at_least(masks, f64::from(i32::MIN)) }
    Formula "ignores the mask" { mask: |masks| vec![0.0; masks.len()] }
    Formula "attends to one position more than the mask allows" { mask: |masks| later(masks, f64::max) }
    Formula "attends to one position less than the mask allows" { mask: |masks| sooner(masks, f64::min) }
    Formula "attends to one position more at the start of the mask" { mask: |masks| sooner(masks, f64::max) }
    Formula "attends to one position less at the start of the mask" { mask: |masks| later(masks, f64::min) }
    Formula "attends to all earlier positions: the sliding window is ignored" { mask: without_window }
    Formula "applies the soft cap of the scores after the mask" { is_capped_late: true }
    Formula "omits the scale" { scaled: false }
    Precision "does not subtract the maximum" { subtracts: false }
    Precision "computes exp in f16" { argument: Precision::F16, exponential: Precision::F16 }
    Precision "rounds the argument of exp to f16" { argument: Precision::F16 }
    Precision "rounds the result of exp to f16" { exponential: Precision::F16 }
    Precision "sums exponentials in f16, sequentially" { sums: Precision::F16 }
    Precision "computes exp in f16 and sums in f16, sequentially" {
        argument: Precision::F16, exponential: Precision::F16, sums: Precision::F16
    }
}

/// Masks of at least `least`.
fn at_least(masks: &[f64], least: f64) -> Vec<f64> {
    masks.iter().map(|mask| mask.max(least)).collect()
}

/// Each mask joined with the one before it; the first one stays.
pub(super) fn later(masks: &[f64], join: fn(f64, f64) -> f64) -> Vec<f64> {
    let join = |position: usize| join(masks[position], masks[position.saturating_sub(1)]);
    (0..masks.len()).map(join).collect()
}

/// Each mask joined with the one behind it, which hides behind the end.
pub(super) fn sooner(masks: &[f64], join: fn(f64, f64) -> f64) -> Vec<f64> {
    let join = |position: usize| join(masks[position], masks.get(position + 1).copied().unwrap_or(f64::NEG_INFINITY));
    (0..masks.len()).map(join).collect()
}

/// Nothing hidden before the last position that the mask shows.
pub(super) fn without_window(masks: &[f64]) -> Vec<f64> {
    let shown = masks.iter().rposition(|mask| *mask == 0.0).map_or(0, |last| last + 1);
    let mask = |(position, mask): (usize, &f64)| if position < shown { 0.0 } else { *mask };
    masks.iter().enumerate().map(mask).collect()
}

fn guesses(scene: &Scene, rule: &Rule) -> Option<Guesses> {
    let Op::SoftMax(soft_max) = &scene.op else { return None };
    let [x, mask] = scene.inputs.as_slice() else { return None };
    let [x, mask] = [x, mask].map(Given::operand);
    let [len, tokens, ..] = x.ty.shape.sizes();
    // One mask for each token, whatever the head.
    if soft_max.max_bias != 0.0 || mask.ty.shape.rows() != tokens {
        return None;
    }
    let scale = if rule.scaled { soft_max.scale } else { 1.0 };
    let mut all = Guesses::new();
    for row in 0..x.ty.shape.rows() {
        let (mut scores, mut masks) = (Vec::new(), Vec::new());
        let scores = x.row(row, &mut scores);
        let masks = (rule.mask)(mask.row(row % tokens, &mut masks));
        // As f32 has it: a large mask swallows the score.
        let argument = |position: usize| -> f64 {
            let mask = masks[position];
            let hidden = if rule.is_capped_late { f64::from(-scale) } else { mask };
            if mask == f64::NEG_INFINITY { hidden } else { f64::from(scale * scores[position] as f32 + mask as f32) }
        };
        let arguments: Vec<f64> = (0..len).map(argument).collect();
        all.extend(
            row_guesses(rule, &arguments).into_iter().enumerate().map(|(column, guess)| (row * len + column, guess)),
        );
    }
    Some(all)
}

fn row_guesses(rule: &Rule, arguments: &[f64]) -> Vec<Guess> {
    let largest = arguments.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let offset = if rule.subtracts && largest.is_finite() { largest } else { 0.0 };
    let exponential = |argument: &f64| {
        let exponential = rule.argument.round(argument - offset).exp();
        // f32 is as far as any device goes.
        if rule.subtracts { rule.exponential.round(exponential) } else { Precision::F32.round(exponential) }
    };
    let exponentials: Vec<f64> = arguments.iter().map(exponential).collect();
    let sum = exponentials.iter().fold(0.0, |sum, exponential| rule.sums.round(sum + exponential));
    let sum = if rule.subtracts { sum } else { Precision::F32.round(sum) };
    let walk = LAMBDA * (ROUNDING_VARIANCE * arguments.len() as f64 / 3.0).sqrt();
    let guess = |(argument, exponential): (&f64, &f64)| {
        let value = if rule.subtracts && sum == 0.0 { 0.0 } else { exponential / sum };
        let distance =
            if argument.is_finite() { (argument - offset).abs().min(200.0) + argument.abs().min(200.0) } else { 0.0 };
        let units = distance + walk + 6.0;
        Guess::at(value, Precision::F32.unit * units * value.abs() / LAMBDA + Precision::F32.normal_min)
    };
    arguments.iter().zip(&exponentials).map(guess).collect()
}
