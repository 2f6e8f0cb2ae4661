//! The fingerprint of a device: the arithmetic that explains a result if the declared profile does not
//! (docs/numerics.md#fingerprint).
//!
//! ```text
//!   64 sampled rows of the result ──each candidate in f64──▶ rms z, max |z| of each ──▶ the one that leaves only noise
//! ```
//!
//! A candidate changes one thing: how activations are rounded, the type of accumulators, the contents of a mask. For
//! the arithmetic that the device really uses, only accumulation noise remains; every other candidate is off by many
//! standard deviations. If several fit, the most likely one is reported.

mod blocks;
mod estimated;
mod functions;
mod kv_attention;
mod quantized;
mod rms_norm;
mod rope;
mod rounded;
mod soft_max;
mod sums;
mod wiring;

pub(crate) use blocks::{high_bits, nibbles};

use crate::bound::gate;
use crate::precision::LAMBDA;
use crate::scene::Scene;
use crate::statistics::Expected;
use crate::verdict::Gate;
use serde::Serialize;

/// Sampled rows, and sampled tokens of each.
const ROWS: usize = 64;
const TOKENS: usize = 6;

/// What a candidate says about one element.
#[derive(Clone, Copy, Debug)]
struct Guess {
    /// Between these it may lie without any noise: ties of a rounding may go either way.
    low: f64,
    high: f64,
    /// Standard deviation of what is left.
    sigma: f64,
}

impl Guess {
    /// One value with noise.
    fn at(value: f64, sigma: f64) -> Guess {
        Guess { low: value, high: value, sigma }
    }
}

impl From<Expected> for Guess {
    fn from(expected: Expected) -> Guess {
        let Expected { declared, ties, sigma, .. } = expected;
        Guess { low: declared - ties, high: declared + ties, sigma }
    }
}

/// Elements of the result by index, with what they should be.
type Guesses = Vec<(usize, Guess)>;

/// What a candidate is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateKind {
    /// The same formula in other precision.
    Precision,
    /// The same, as noise: the order of the operations is not known, only how large their errors are.
    Noise,
    /// Another formula, parameter or input.
    Formula,
}

/// Another way to compute an operator.
struct Candidate {
    /// Completes the sentence "the device ...".
    name: &'static str,
    kind: CandidateKind,
    /// What it makes of the scene; `None` where it does not apply.
    guess: fn(&Scene) -> Option<Guesses>,
}

/// All lists of candidates, one for each family of operators.
const CANDIDATES: [&[Candidate]; 9] = [
    sums::CANDIDATES,
    blocks::CANDIDATES,
    functions::CANDIDATES,
    rms_norm::CANDIDATES,
    rope::CANDIDATES,
    soft_max::CANDIDATES,
    kv_attention::CANDIDATES,
    rounded::CANDIDATES,
    wiring::CANDIDATES,
];

/// How well a candidate fits.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fit {
    /// What the device would do: completes "the device ...".
    pub candidate: String,
    /// What it is about.
    pub kind: CandidateKind,
    /// Root mean square of the error in standard deviations; null where that is no number.
    pub rms_z: Option<f64>,
    /// The largest of them.
    pub worst_z: Option<f64>,
    /// Whether nothing but noise is left.
    pub explains: bool,
    /// Minus the logarithm of the likelihood of an element, and how far elements are off on average: smaller is
    /// likelier.
    #[serde(skip)]
    score: (f64, f64),
}

/// What was found for one node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fingerprint {
    /// The profile that the device declares, in words.
    pub declared: String,
    /// Elements that candidates were tried on.
    pub sampled: usize,
    /// The candidate that explains them: completes "the device ..."; null where none does.
    pub explained_by: Option<String>,
    /// What that is about.
    pub kind: Option<CandidateKind>,
    /// Every candidate that applies to the operator, the likeliest first.
    pub candidates: Vec<Fit>,
}

/// Tries every candidate on a sample of the scene around its worst element.
pub(crate) fn fingerprint(scene: &Scene, worst: usize) -> Fingerprint {
    let mut sample = scene.sampled(worst, ROWS, TOKENS);
    let declared: Guesses = sums::listed(sample.judged().1);
    sample.focus = worst_of(&sample, &declared);
    let mut fits = vec![fit("computes as declared", CandidateKind::Precision, &sample, &declared)];
    for candidate in CANDIDATES.into_iter().flatten() {
        if let Some(guesses) = (candidate.guess)(&sample).filter(|guesses| !guesses.is_empty()) {
            fits.push(fit(candidate.name, candidate.kind, &sample, &guesses));
        }
    }
    let declared_fits = fits[0].explains;
    if !fits.iter().any(|fit| fit.explains && fit.kind != CandidateKind::Noise) {
        let all = estimated::estimates(&sample);
        let tried = all.into_iter().map(|(name, guesses)| fit(&name, CandidateKind::Formula, &sample, &guesses));
        // The first that explains is the roundest.
        let mut tried: Vec<Fit> = tried.filter(|fit| fit.explains).collect();
        tried.truncate(1);
        fits.extend(tried);
    }
    fits.sort_by(|a, b| {
        let order = b.explains.cmp(&a.explains).then(a.score.0.total_cmp(&b.score.0));
        order.then(a.score.1.total_cmp(&b.score.1))
    });
    let found = fits.first().filter(|fit| fit.explains && !declared_fits);
    Fingerprint {
        declared: sample.profile.to_string(),
        sampled: declared.len(),
        explained_by: found.map(|fit| fit.candidate.clone()),
        kind: found.map(|fit| fit.kind),
        candidates: fits,
    }
}

/// Worst elements that every candidate is tried on.
const FOCUS: usize = 64;

/// The elements that are furthest from what is declared, those that are off at all.
fn worst_of(scene: &Scene, declared: &Guesses) -> Vec<usize> {
    let far = declared.iter().map(|(index, guess)| (*index, deviation(scene.device[*index], guess).0));
    let mut far: Vec<(usize, f64)> = far.filter(|(_, z)| *z > LAMBDA || z.is_nan()).collect();
    far.sort_by(|a, b| b.1.total_cmp(&a.1));
    far.into_iter().take(FOCUS).map(|(index, _)| index).collect()
}

/// The least rms of z that noise of unknown order has: a candidate whose errors are far larger than those seen explains
/// nothing.
const NOISE_RMS_MIN: f64 = 0.2;

/// The least median of z by its rms that noise has: that of a normal distribution is 0.67. Few large errors among none
/// are another fault.
const NOISE_MEDIAN_MIN: f64 = 0.2;

/// The middle one; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Largest rms of z in large samples, as the gate of sums has it.
const RMS_MAX: f64 = 1.3;

fn fit(name: &str, kind: CandidateKind, scene: &Scene, guesses: &Guesses) -> Fit {
    let (mut squares, mut worst, mut likelihood, mut distance) = (0.0, 0.0f64, 0.0, 0.0);
    let mut all = Vec::with_capacity(guesses.len());
    for (index, guess) in guesses {
        let (z, raw) = deviation(scene.device[*index], guess);
        all.push(z);
        squares += z * z;
        worst = if worst.is_nan() || z.is_nan() { f64::NAN } else { worst.max(z) };
        distance += raw;
        let width = guess.sigma + (guess.high - guess.low) / 2.0;
        // Ties leave an interval; its middle is likelier than its ends.
        let middle = if raw == 0.0 { 0.0 } else { raw / width.max(f64::MIN_POSITIVE) };
        likelihood += z * z / 2.0 + middle * middle / 2.0 + width.max(f64::MIN_POSITIVE).ln();
    }
    let count = guesses.len() as f64;
    let rms = (squares / count).sqrt();
    let limit = (1.0 + LAMBDA * (2.0 / count).sqrt()).max(RMS_MAX * RMS_MAX).sqrt();
    let noisy = kind != CandidateKind::Noise || (rms >= NOISE_RMS_MIN && median(all) >= NOISE_MEDIAN_MIN * rms);
    Fit {
        candidate: name.to_owned(),
        kind,
        rms_z: rms.is_finite().then_some(rms),
        worst_z: worst.is_finite().then_some(worst),
        explains: worst <= LAMBDA && (rms <= limit || gate(&scene.op) != Gate::Noise) && noisy,
        score: (likelihood / count, distance / count),
    }
}

/// How many standard deviations the device is away, and how far from the middle. What is no finite number must be the
/// same.
fn deviation(device: f64, guess: &Guess) -> (f64, f64) {
    if !device.is_finite() || !guess.low.is_finite() || !guess.high.is_finite() {
        let same = (device.is_nan() && guess.low.is_nan()) || device == guess.low;
        return if same { (0.0, 0.0) } else { (f64::INFINITY, f64::INFINITY) };
    }
    let outside = (guess.low - device).max(device - guess.high).max(0.0);
    let z = if outside == 0.0 { 0.0 } else { outside / guess.sigma.max(f64::MIN_POSITIVE) };
    (z, (device - (guess.low + guess.high) / 2.0).abs())
}

#[cfg(test)]
mod tests;
