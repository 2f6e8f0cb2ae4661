//! Rotated pairs: the error of the angle, which grows with the position, and a few roundings, all in units of the
//! pair's length (docs/numerics.md#rope). Elements that are not rotated keep their bits.

use super::angles::{Angle, Frequencies};
use super::{Case, arithmetic, function_error, in_strips, within};
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics, Tally};
use trueup_graph::op::{Rope, RopePairs};

pub(super) fn judge(rope: &Rope, case: &Case) -> Statistics {
    let (x, positions, factors) = match case.inputs {
        [x, positions] => (x, positions, None),
        [x, positions, factors] => (x, positions, Some(factors.all().into_owned())),
        _ => return Statistics::default(),
    };
    let [head_size, heads, ..] = x.ty.shape.sizes();
    let [tokens, rows, ..] = positions.ty.shape.sizes();
    let frequencies = Frequencies::new(rope, factors, case.profile.angles);
    in_strips(case, x.ty.shape[2], |token, tally| {
        let angles: Vec<Vec<Angle>> = (0..rows)
            .map(|row| {
                let position = positions.indices()[row * tokens + token];
                (0..rope.dimensions / 2).map(|pair| frequencies.angle(pair, position)).collect()
            })
            .collect();
        let mut buffer = Vec::new();
        for head in 0..heads {
            let row = token * heads + head;
            let x = x.row(row, &mut buffer);
            for (part, angles) in angles.iter().enumerate() {
                add_part(rope, case, angles, (row * head_size, part * rope.dimensions), x, tally);
            }
            for (place, x) in x.iter().enumerate().skip(rope.dimensions * rows) {
                tally.add(row * head_size + place, &Expected::same(*x, *x));
            }
        }
    })
}

/// The elements of the head `x` that are rotated by `angles`: those from `part` on. The head begins at element `head`.
fn add_part(rope: &Rope, case: &Case, angles: &[Angle], (head, part): (usize, usize), x: &[f64], tally: &mut Tally) {
    for (pair, angle) in angles.iter().enumerate() {
        let [first, second] = pair_places(rope, pair).map(|place| part + place);
        let (sine, cosine) = (angle.radians.sin() * angle.magnitude, angle.radians.cos() * angle.magnitude);
        let error = pair_error(case, angle, x[first], x[second]);
        let rotated = [x[first] * cosine - x[second] * sine, x[first] * sine + x[second] * cosine];
        let length = x[first].hypot(x[second]) * angle.magnitude.abs();
        for (place, exact) in [first, second].into_iter().zip(rotated) {
            let mut expected = within(case, exact, error);
            expected.coarse = error + 2.0 * Precision::BF16.unit * length;
            tally.add(head + place, &expected);
        }
    }
}

/// Which two elements of a head are pair `pair`.
pub(crate) fn pair_places(rope: &Rope, pair: usize) -> [usize; 2] {
    match rope.pairs {
        RopePairs::Neighbours => [2 * pair, 2 * pair + 1],
        RopePairs::Halves => [pair, pair + rope.dimensions / 2],
    }
}

/// How far arithmetic may put either element of a pair: the angle's error turns it, sine and cosine are functions or
/// roundings of exact values, a product and a sum round.
fn pair_error(case: &Case, angle: &Angle, first: f64, second: f64) -> f64 {
    let precision = arithmetic(case.profile);
    let functions = function_error(case.profile).max(1.0) + 2.0;
    let magnified = if angle.magnitude == 1.0 { 0.0 } else { 1.0 };
    let units = angle.units * angle.radians.abs() + functions + magnified;
    units * precision.unit * first.hypot(second) * angle.magnitude.abs() + precision.normal_min
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::op::{Rope, RopePairs, RopeScaling};
    use trueup_graph::{Op, TensorType};
    use trueup_runtime::profile::{Angles, Profile};

    const ROPE: Rope = Rope { pairs: RopePairs::Neighbours, dimensions: 16, base: 10000.0, scaling: RopeScaling::None };

    /// Heads of 20, of which 16 are rotated, by frequencies that f32 multiplies up.
    fn rotated(x: &[f64], positions: &[i32], halves: bool) -> Vec<f64> {
        let mut all: Vec<f64> = x.to_vec();
        for (row, head) in all.chunks_mut(20).enumerate() {
            let position = positions[row / 3] as f32;
            let (mut frequency, step) = (1.0f32, 10000f32.powf(-2.0 / 16.0));
            for pair in 0..8 {
                let [first, second] = if halves { [pair, pair + 8] } else { [2 * pair, 2 * pair + 1] };
                let (sine, cosine) = (position * frequency).sin_cos();
                let (a, b) = (head[first] as f32, head[second] as f32);
                head[first] = f64::from(a * cosine - b * sine);
                head[second] = f64::from(a * sine + b * cosine);
                frequency *= step;
            }
        }
        all
    }

    fn judged(op: Rope, positions: &[i32], result: &[f64], x: &[f64]) -> bool {
        let inputs = [
            Operand::numbers(f32_type(&[20, 3, 2]), x),
            Operand::integers(TensorType::new(DType::I32, &[2]), positions),
        ];
        let profile = Profile { angles: Angles::Iterated, function_ulp: 1.0, ..Profile::F32 };
        passes(&Op::Rope(op), &inputs, &profile, result)
    }

    #[test]
    fn iterated_angles_pass_near_and_far_and_one_position_off_does_not() {
        let x = numbers(20 * 3 * 2, 15);
        for positions in [[0, 1], [77, 4095], [32767, 131_071]] {
            assert!(judged(ROPE, &positions, &rotated(&x, &positions, false), &x), "{positions:?}");
            let off = positions.map(|position| position + 1);
            assert!(!judged(ROPE, &positions, &rotated(&x, &off, false), &x), "{positions:?}");
        }
    }

    #[test]
    fn the_other_pairing_is_seen() {
        let x = numbers(20 * 3 * 2, 16);
        let halves = Rope { pairs: RopePairs::Halves, ..ROPE };
        assert!(judged(halves, &[3, 9], &rotated(&x, &[3, 9], true), &x));
        assert!(!judged(halves, &[3, 9], &rotated(&x, &[3, 9], false), &x));
    }
}
