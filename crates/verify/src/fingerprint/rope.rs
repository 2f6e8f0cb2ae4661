//! Candidates for rope: other pairs, other positions, angles computed otherwise.

use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::bound::angles::Frequencies;
use crate::precision::Precision;
use crate::scene::{Content, Scene};
use trueup_graph::Op;
use trueup_graph::op::{Rope, RopePairs, RopeScaling};
use trueup_runtime::profile::Angles;

/// The angle of a pair at a position, in radians; `None` where this way does not apply.
type Angle = fn(&Rope, usize, i32) -> Option<f64>;

/// What differs from the formula.
#[derive(Clone, Copy)]
struct Rule {
    /// The angle where it is computed otherwise.
    angle: Option<Angle>,
    /// The position of each token.
    position: fn(&[i32], usize) -> i32,
    other_pairs: bool,
    /// Frequencies are not divided by the model's factors.
    without_factors: bool,
    /// Angles turn the other way.
    backwards: bool,
    /// The base of the frequencies, of the model's.
    base: fn(f32) -> f32,
    /// Which elements are rotated.
    share: Share,
}

/// Which elements of those that should be are rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    All,
    /// The first of so many parts, with frequencies as if there were no others.
    First(usize),
    /// The first of so many parts, with frequencies of all.
    FirstOfAll(usize),
}

const FORMULA: Rule = Rule {
    angle: None,
    position: |positions, token| positions[token],
    other_pairs: false,
    without_factors: false,
    backwards: false,
    base: |base| base,
    share: Share::All,
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
    Formula "rotates the wrong pairs (adjacent instead of halves, or the reverse)" { other_pairs: true }
    Formula "uses positions that are one too large" { position: |positions, token| positions[token].saturating_add(1) }
    Formula "uses positions that are one too small" { position: |positions, token| positions[token].saturating_sub(1) }
    Formula "uses the position of the first token for all tokens" { position: |positions, _| positions[0] }
    Formula "counts positions from 0 in each batch" { position: |positions, token| positions[token] - positions[0] }
    Formula "does not rotate" { position: |_, _| 0 }
    Formula "rotates backwards" { backwards: true }
    Formula "omits the frequency factors" { without_factors: true }
    Formula "uses ten times the RoPE frequency base" { base: |base| base * 10.0 }
    Formula "uses a tenth of the RoPE frequency base" { base: |base| base / 10.0 }
    Formula "uses a RoPE frequency base of 10000" { base: |_| 1e4 }
    Formula "uses a RoPE frequency base of 500000" { base: |_| 5e5 }
    Formula "uses a RoPE frequency base of 1000000" { base: |_| 1e6 }
    Formula "rotates the first half of the dimensions only" { share: Share::First(2) }
    Formula "rotates the first quarter of the dimensions only" { share: Share::First(4) }
    Formula "rotates the first half of the dimensions only, with the frequencies of all" { share: Share::FirstOfAll(2) }
    Formula "rotates the first quarter of the dimensions only, with the frequencies of all" { share: Share::FirstOfAll(4) }
    Precision "computes angles with pow in f32" { angle: Some(by_pow) }
    Precision "computes angles by repeated multiplication in f32" { angle: Some(iterated) }
    Precision "computes angles in f16" { angle: Some(in_f16) }
}

/// `position base^(-2 i / dimensions)` with pow and product in f32.
fn by_pow(rope: &Rope, pair: usize, position: i32) -> Option<f64> {
    let frequency = rope.base.powf(-2.0 * pair as f32 / rope.dimensions as f32);
    (rope.scaling == RopeScaling::None).then(|| f64::from(position as f32 * frequency))
}

/// The angle of the pair before times `base^(-2 / dimensions)`, in f32.
fn iterated(rope: &Rope, pair: usize, position: i32) -> Option<f64> {
    let step = rope.base.powf(-2.0 / rope.dimensions as f32);
    let angle = (0..pair).fold(position as f32, |angle, _| angle * step);
    (rope.scaling == RopeScaling::None).then(|| f64::from(angle))
}

/// The exact angle, rounded to f16.
fn in_f16(rope: &Rope, pair: usize, position: i32) -> Option<f64> {
    let angle = Frequencies::new(rope, None, Angles::F64).angle(pair, position);
    (rope.scaling == RopeScaling::None).then(|| Precision::F16.round(angle.radians))
}

/// The rope that a rule has in place of `rope`, and the one whose frequencies it takes.
fn ropes(rope: &Rope, rule: &Rule) -> Option<[Rope; 2]> {
    let based = Rope { base: (rule.base)(rope.base), ..*rope };
    let (parts, own) = match rule.share {
        Share::All => (1, true),
        Share::First(parts) => (parts, true),
        Share::FirstOfAll(parts) => (parts, false),
    };
    let partial = Rope { dimensions: rope.dimensions / parts / 2 * 2, ..based };
    let frequencies = if own { partial } else { based };
    (partial.dimensions > 0).then_some([partial, frequencies])
}

fn guesses(scene: &Scene, rule: &Rule) -> Option<Guesses> {
    let Op::Rope(rope) = &scene.op else { return None };
    let Content::Integers(positions) = &scene.inputs.get(1)?.content else { return None };
    let factors = scene.inputs.get(2).map(|factors| factors.operand().all().into_owned());
    if (rule.without_factors || rule.angle.is_some()) && factors.is_some() != rule.without_factors {
        return None;
    }
    let [rope, of_frequencies] = &ropes(rope, rule)?;
    let frequencies = Frequencies::new(of_frequencies, factors.filter(|_| !rule.without_factors), Angles::F64);
    let x = scene.inputs[0].operand();
    let [head_size, heads, tokens, _] = x.ty.shape.sizes();
    let mut all = Guesses::new();
    for token in 0..tokens {
        let position = (rule.position)(positions, token);
        for pair in 0..rope.dimensions / 2 {
            let known = frequencies.angle(pair, position);
            let mut radians = rule.angle.map_or(Some(known.radians), |angle| angle(rope, pair, position))?;
            if rule.backwards {
                radians = -radians;
            }
            // One rounding of the angle where it is not at hand bit for bit, and a few of the products.
            let units = 1.0 + if rule.angle.is_some() { 0.5 } else { known.radians.abs() };
            for head in 0..heads {
                let row = token * heads + head;
                let mut buffer = Vec::new();
                let x = x.row(row, &mut buffer);
                let [first, second] = places(rope, rule.other_pairs, pair);
                let (sine, cosine) = (radians.sin() * known.magnitude, radians.cos() * known.magnitude);
                let sigma = units * Precision::F32.unit * x[first].hypot(x[second]) + Precision::F32.normal_min;
                let guess = |value| Guess::at(value, sigma);
                all.push((row * head_size + first, guess(x[first] * cosine - x[second] * sine)));
                all.push((row * head_size + second, guess(x[first] * sine + x[second] * cosine)));
            }
        }
    }
    // What is not rotated stays as it is.
    for row in 0..heads * tokens {
        let mut buffer = Vec::new();
        let rest = x.row(row, &mut buffer).iter().enumerate().skip(rope.dimensions);
        all.extend(rest.map(|(element, x)| (row * head_size + element, Guess::at(*x, 0.0))));
    }
    Some(all)
}

/// The two elements of a pair.
fn places(rope: &Rope, other: bool, pair: usize) -> [usize; 2] {
    match (rope.pairs, other) {
        (RopePairs::Neighbours, false) | (RopePairs::Halves, true) => [2 * pair, 2 * pair + 1],
        (RopePairs::Halves, false) | (RopePairs::Neighbours, true) => [pair, pair + rope.dimensions / 2],
    }
}
