//! Candidates for norms: another epsilon, sums in less precision, weights used otherwise.

use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::precision::Precision;
use crate::scene::Scene;
use trueup_graph::Op;

/// What differs from the formula.
#[derive(Clone, Copy)]
struct Rule {
    epsilon: fn(f64) -> f64,
    /// What squares are summed in, one after the other; `None` is f64.
    sums: Option<Precision>,
    weight: fn(f64) -> f64,
    /// Epsilon is added to the root instead of the mean.
    outside: bool,
    /// The sum of squares is not divided by their number.
    undivided: bool,
    /// The mean is subtracted first.
    centred: bool,
}

const FORMULA: Rule =
    Rule { epsilon: same, sums: None, weight: same, outside: false, undivided: false, centred: false };

fn same(value: f64) -> f64 {
    value
}

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
    Formula "uses ten times the epsilon" { epsilon: |epsilon| epsilon * 10.0 }
    Formula "uses a tenth of the epsilon" { epsilon: |epsilon| epsilon / 10.0 }
    Formula "uses no epsilon" { epsilon: |_| 0.0 }
    Formula "uses an epsilon of 1e-5" { epsilon: |_| f64::from(1e-5f32) }
    Formula "uses an epsilon of 1e-6" { epsilon: |_| f64::from(1e-6f32) }
    Formula "adds epsilon after the square root instead of before it" { outside: true }
    Formula "does not divide the sum of squares by the number of elements" { undivided: true }
    Formula "subtracts the mean first, as layer norm does" { centred: true }
    Formula "subtracts the mean first, as layer norm does, and omits the weights" { centred: true, weight: |_| 1.0 }
    Formula "omits the weights" { weight: |_| 1.0 }
    Formula "adds 1 to the weights" { weight: |weight| weight + 1.0 }
    Precision "sums squares in f16, sequentially" { sums: Some(Precision::F16) }
    Precision "sums squares in bf16, sequentially" { sums: Some(Precision::BF16) }
}

fn guesses(scene: &Scene, rule: &Rule) -> Option<Guesses> {
    let Op::RmsNorm(norm) = &scene.op else { return None };
    if scene.inputs.len() < 2 {
        return None;
    }
    let [x, weights] = [0, 1].map(|input| scene.inputs[input].operand());
    let (len, weights) = (x.ty.shape[0], weights.all());
    let epsilon = (rule.epsilon)(f64::from(norm.epsilon));
    let mut all = Guesses::new();
    for row in 0..x.ty.shape.rows() {
        let mut buffer = Vec::new();
        let x = x.row(row, &mut buffer);
        let mean = if rule.centred { x.iter().sum::<f64>() / len as f64 } else { 0.0 };
        let x: Vec<f64> = x.iter().map(|x| x - mean).collect();
        let sum = squares(&x, rule.sums);
        let square = if rule.undivided { sum } else { sum / len as f64 };
        let root = if rule.outside { square.sqrt() + epsilon } else { (square + epsilon).sqrt() };
        for (column, (x, weight)) in x.iter().zip(weights.iter()).enumerate() {
            let weight = (rule.weight)(*weight);
            let value = x / root * weight;
            // f32 around: a few roundings, and the sums'. An error of the mean is one of each element.
            let size = value.abs() + (mean / root * weight).abs();
            let sigma = Precision::F32.unit * size * (1.0 + (len as f64).sqrt() / 4.0) + Precision::F32.normal_min;
            all.push((row * len + column, Guess::at(value, sigma)));
        }
    }
    Some(all)
}

/// The sum of squares.
fn squares(x: &[f64], precision: Option<Precision>) -> f64 {
    let Some(precision) = precision else { return x.iter().map(|x| x * x).sum() };
    x.iter().fold(0.0, |sum, x| precision.round(sum + precision.round(x * x)))
}
