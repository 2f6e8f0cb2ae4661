//! Parameters that follow from a result: the epsilon of a norm, the base of rope, the scale of soft max.
//!
//! ```text
//!   rms_norm   y = x w / sqrt(mean x^2 + e)          e = (sum (x w)^2 / sum x w y)^2 - mean x^2
//!   rope       angle of pair i at p = p b^(-2 i/d)   b = (angle / p)^(-d / 2 i), where most pairs agree
//!   soft_max   ln y_j - ln y_k = s (x_j - x_k)       s by least squares over all rows
//! ```
//!
//! Tried where no value of the lists explains the result: a program that was configured otherwise has any value.

use super::sums::listed;
use super::{Guess, Guesses};
use crate::bound::pair_places;
use crate::scene::{Content, Scene};
use trueup_formats::significant;
use trueup_graph::Op;
use trueup_graph::op::{Rope, RopeScaling};

/// What completes "the device ...", and what the result should be then.
pub(super) type Estimate = (String, Guesses);

/// The estimates that may explain the scene, the rounder values first.
pub(super) fn estimates(scene: &Scene) -> Vec<Estimate> {
    let with = |op: Op, text: String| -> Option<Estimate> {
        (op != scene.op).then(|| (text, listed(Scene { op, ..scene.clone() }.judged().1)))
    };
    let found: Vec<Option<Estimate>> = if let Op::RmsNorm(norm) = scene.op {
        let text = |value: f32| {
            let [used, own] = [value, norm.epsilon].map(|value| significant(f64::from(value), 7));
            format!("uses an epsilon of {used} instead of {own}")
        };
        let mut op = norm;
        let changed = |value| (op.epsilon = value, with(Op::RmsNorm(op), text(value))).1;
        rounder(epsilon(scene)).into_iter().map(changed).collect()
    } else if let Op::Rope(rope) = scene.op {
        let text = |value: f32| format!("uses a RoPE frequency base of {value} instead of {}", rope.base);
        let changed = |value| with(Op::Rope(Rope { base: value, ..rope }), text(value));
        rounder(base(scene, &rope)).into_iter().map(changed).collect()
    } else if let Op::SoftMax(soft_max) = scene.op {
        let text = |value: f32| format!("scales scores by {value} instead of {}", soft_max.scale);
        let mut op = soft_max;
        let changed = |value| (op.scale = value, with(Op::SoftMax(op), text(value))).1;
        rounder(scale(scene)).into_iter().map(changed).collect()
    } else {
        Vec::new()
    };
    found.into_iter().flatten().filter(|(_, guesses)| guesses.iter().all(is_number)).collect()
}

fn is_number((_, guess): &(usize, Guess)) -> bool {
    guess.low.is_finite() && guess.high.is_finite()
}

/// Values near an estimate that somebody may have written: three digits, one by the root of a whole number, and itself.
fn rounder(estimate: Option<f64>) -> Vec<f32> {
    let Some(estimate) = estimate.filter(|estimate| estimate.is_finite() && *estimate > 0.0) else { return Vec::new() };
    let unit = 10f64.powf(estimate.log10().floor() - 2.0);
    let root = 1.0 / (1.0 / (estimate * estimate)).round().sqrt();
    let mut values = vec![((estimate / unit).round() * unit) as f32, root as f32, estimate as f32];
    values.retain(|value| value.is_finite() && (f64::from(*value) / estimate - 1.0).abs() < 0.01);
    values.dedup();
    values
}

/// The epsilon by the row with the smallest mean square, which shows it most.
fn epsilon(scene: &Scene) -> Option<f64> {
    let [x, weights] = scene.inputs.as_slice() else { return None };
    let (x, weights) = (x.operand(), weights.operand().all().into_owned());
    let len = x.ty.shape[0].max(1);
    let row = |(row, y): (usize, &[f64])| {
        let mut buffer = Vec::new();
        let x = x.row(row, &mut buffer);
        let square = x.iter().map(|x| x * x).sum::<f64>() / len as f64;
        let products = x.iter().zip(&weights).map(|(x, w)| x * w);
        let (over, under) = products
            .zip(y)
            .fold((0.0, 0.0), |(over, under), (product, y)| (over + product * product, under + product * y));
        (square, (over / under).powi(2) - square)
    };
    let rows = scene.device.chunks(len).enumerate().map(row).filter(|(square, _)| *square > 0.0);
    rows.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, epsilon)| epsilon)
}

/// The base that most pairs agree on: angles beyond half a turn give any.
fn base(scene: &Scene, rope: &Rope) -> Option<f64> {
    let [x, positions] = scene.inputs.as_slice() else { return None };
    let Content::Integers(positions) = &positions.content else { return None };
    if rope.scaling != RopeScaling::None || positions.len() != x.ty.shape[2] {
        return None;
    }
    let [head_size, heads, ..] = x.ty.shape.sizes();
    let x = x.operand().all().into_owned();
    let mut found: Vec<(f64, f64)> = Vec::new();
    for (token, position) in positions.iter().enumerate().filter(|(_, position)| **position > 0) {
        for pair in 1..rope.dimensions / 2 {
            let [first, second] = pair_places(rope, pair);
            let (mut cross, mut dot) = (0.0, 0.0);
            for head in 0..heads {
                let start = (token * heads + head) * head_size;
                let ([x0, x1], [y0, y1]) = (
                    [x[start + first], x[start + second]],
                    [scene.device[start + first], scene.device[start + second]],
                );
                (cross, dot) = (cross + x0 * y1 - x1 * y0, dot + x0 * y0 + x1 * y1);
            }
            let (angle, share) = (cross.atan2(dot), 2.0 * pair as f64 / rope.dimensions as f64);
            let logarithm = -(angle / f64::from(*position)).ln() / share;
            if logarithm.is_finite() {
                found.push((logarithm, share * angle));
            }
        }
    }
    // The logarithm's error is that of the angle by its weight.
    let near = |centre: f64| found.iter().filter(move |(logarithm, _)| (logarithm - centre).abs() < 0.02);
    let (centre, _) = found.iter().max_by_key(|(logarithm, _)| near(*logarithm).count())?;
    let weight: f64 = near(*centre).map(|(_, weight)| weight * weight).sum();
    let mean = near(*centre).map(|(logarithm, weight)| logarithm * weight * weight).sum::<f64>() / weight;
    Some(mean.exp())
}

/// The scale by which shown scores give the logarithms of their shares.
fn scale(scene: &Scene) -> Option<f64> {
    let Op::SoftMax(soft_max) = &scene.op else { return None };
    let x = scene.inputs.first()?.operand();
    let len = x.ty.shape[0].max(1);
    if soft_max.max_bias != 0.0 {
        return None;
    }
    let (mut product, mut square) = (0.0, 0.0);
    for (row, y) in scene.device.chunks(len).enumerate() {
        let mut buffer = Vec::new();
        let shown = x.row(row, &mut buffer).iter().zip(y).filter(|(_, y)| **y > SHARE_MIN);
        let shown: Vec<(f64, f64)> = shown.map(|(x, y)| (*x, y.ln())).collect();
        let count = shown.len().max(1) as f64;
        let means = shown.iter().fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x / count, sum.1 + y / count));
        for (x, y) in shown {
            (product, square) = (product + (x - means.0) * (y - means.1), square + (x - means.0) * (x - means.0));
        }
    }
    Some(product / square)
}

/// Shares below this have few bits.
const SHARE_MIN: f64 = 1e-5;
