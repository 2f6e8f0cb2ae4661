//! Candidates for sums of products: matrix products and both products of attention.
//!
//! ```text
//!   x ──Row: how activations are rounded──▶ ┐
//!   w ──stored side: rounded or not──────▶  ├─ products ──Sums: f32 as declared, or f16 in order──▶ y
//! ```

use super::quantized::{self, Quantizer, RowRounding};
use super::{Candidate, CandidateKind, Guess, Guesses};
use crate::activation::Row;
use crate::bound::dot::{Accumulation, Loss};
use crate::minimum;
use crate::precision::Precision;
use crate::scene::{Content, Scene};
use crate::statistics::Expected;
use crate::sum::Sum;
use trueup_graph::Op;
use trueup_runtime::profile::{Accumulator, Activations, Order, Profile};

/// Sums that candidates are tried on at most.
const DOTS_MAX: usize = 512;

/// How products are summed.
#[derive(Clone, Copy, Debug)]
enum Sums {
    /// As declared.
    Declared,
    /// As declared, each product rounded before.
    RoundedProducts(Precision),
    /// In this precision one after the other in so many lanes; fused, or with products rounded before. Lanes are added
    /// in `last`.
    Chain { precision: Precision, lanes: Lanes, fused: bool, last: Precision },
    /// In this precision in any order.
    Any(Precision),
}

/// Partial sums side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lanes {
    One,
    Two,
    Declared,
}

/// One way to sum.
struct Rule {
    activations: Quantizer,
    /// What happens to rows of weights, keys or values.
    stored: Option<RowRounding>,
    sums: Sums,
    /// The minimum of a block is multiplied with the sum of activations that are not rounded.
    raw_sums: bool,
    /// Meant for devices that declare to round activations: for others it is the same as another rule.
    rounding: bool,
}

const DECLARED: Rule =
    Rule { activations: quantized::declared, stored: None, sums: Sums::Declared, raw_sums: false, rounding: false };

const fn chain(lanes: Lanes, fused: bool) -> Sums {
    Sums::Chain { precision: Precision::F16, lanes, fused, last: Precision::F16 }
}

/// Two f16 sums side by side that are added in f32.
const HALF2_F32: Sums = Sums::Chain { precision: Precision::F16, lanes: Lanes::Two, fused: true, last: Precision::F32 };

macro_rules! candidates {
    ($($kind:ident $name:literal { $($field:ident: $value:expr),* $(,)? })*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] = &[$(Candidate {
            name: $name,
            kind: CandidateKind::$kind,
            guess: |scene| guesses(scene, &Rule { $($field: $value,)* ..DECLARED }),
        }),*];
    };
}

candidates! {
    Precision "uses activations unchanged" { activations: quantized::unchanged, rounding: true }
    Precision "rounds activations to f16" { activations: quantized::f16 }
    Precision "rounds activations to bf16" { activations: quantized::bf16 }
    Precision "rounds weights and activations to f16" { activations: quantized::f16, stored: Some(quantized::rows_f16) }
    Precision "rounds weights and activations to bf16" { activations: quantized::bf16, stored: Some(quantized::rows_bf16) }
    Precision "rounds weights and activations to tf32" { activations: quantized::tf32, stored: Some(quantized::rows_tf32) }
    Precision "quantizes activations to q8 per 32 with an f32 scale" { activations: quantized::q8_half_even }
    Precision "quantizes activations to q8 per 32 with an f32 scale, ties away from zero" { activations: quantized::q8_half_away }
    Precision "quantizes activations to q8 per 32 with an f32 scale, codes truncated" { activations: quantized::q8_truncated }
    Precision "quantizes activations to q8 per 32 with an f16 scale" { activations: quantized::q8_half_even_f16 }
    Precision "quantizes activations to q8 per 32 with an f16 scale, ties away from zero" { activations: quantized::q8_half_away_f16 }
    Precision "quantizes activations to q8 per 32 with an f16 scale, codes truncated" { activations: quantized::q8_truncated_f16 }
    Precision "quantizes activations to q8 per 128" { activations: quantized::q8_per_128 }
    Precision "quantizes activations to 7 bits per 32" { activations: quantized::seven_bits }
    Precision "quantizes activations to q8 per 32, saturating at 126" { activations: quantized::saturating }
    Precision "quantizes activations to int8 per token" { activations: quantized::per_token }
    Precision "rounds activations to f16 first" { activations: quantized::f16_in_front, rounding: true }
    Precision "rounds activations to bf16 first" { activations: quantized::bf16_in_front, rounding: true }
    Precision "quantizes activations to q8 per 128 first" { activations: quantized::per_128_in_front, rounding: true }
    Precision "quantizes activations to int8 per token first" { activations: quantized::per_token_in_front, rounding: true }
    Precision "quantizes activations to 7 bits per 32 first" { activations: quantized::seven_bits_in_front, rounding: true }
    Precision "quantizes activations to q8 per 32, saturating at 126, first" { activations: quantized::saturating_in_front, rounding: true }
    Precision "quantizes activations to q8 per 32 first, codes truncated" { activations: quantized::truncated_in_front, rounding: true }
    Precision "multiplies weight minima by sums of unrounded activations (q8_1)" { raw_sums: true }
    Precision "multiplies weight minima by sums of unrounded activations (q8_1 with an f16 scale)" { activations: quantized::q8_half_even_f16, raw_sums: true }
    Precision "rounds products to f16" { sums: Sums::RoundedProducts(Precision::F16) }
    Noise "rounds products to f32" { sums: Sums::RoundedProducts(Precision::F32) }
    Precision "accumulates in f16, fused, sequentially" { sums: chain(Lanes::One, true) }
    Precision "accumulates in f16 with products rounded to f16, sequentially" { sums: chain(Lanes::One, false) }
    Precision "accumulates in f16, fused, in the declared lanes" { sums: chain(Lanes::Declared, true) }
    Precision "accumulates in f16 with products rounded to f16, in the declared lanes" { sums: chain(Lanes::Declared, false) }
    Precision "accumulates in pairs of f16 (half2), fused" { sums: chain(Lanes::Two, true) }
    Precision "accumulates in pairs of f16 (half2) with products rounded to f16" { sums: chain(Lanes::Two, false) }
    Precision "accumulates activations rounded to f16 in f16, sequentially" { activations: quantized::f16, sums: chain(Lanes::One, true) }
    Precision "accumulates activations rounded to f16 in pairs of f16 (half2)" { activations: quantized::f16, sums: chain(Lanes::Two, true) }
    Precision "accumulates in pairs of f16 (half2), fused, and adds the pairs in f32" { sums: HALF2_F32 }
    Precision "accumulates activations rounded to f16 in pairs of f16 (half2), and adds the pairs in f32" { activations: quantized::f16, sums: HALF2_F32 }
    Precision "accumulates unchanged activations in f16, sequentially" { activations: quantized::unchanged, sums: chain(Lanes::One, true), rounding: true }
    Precision "accumulates unchanged activations in f16 with products rounded to f16, sequentially" { activations: quantized::unchanged, sums: chain(Lanes::One, false), rounding: true }
    Precision "accumulates unchanged activations in pairs of f16 (half2)" { activations: quantized::unchanged, sums: chain(Lanes::Two, true), rounding: true }
    Precision "accumulates unchanged activations in pairs of f16 (half2), and adds the pairs in f32" { activations: quantized::unchanged, sums: HALF2_F32, rounding: true }
    Precision "accumulates in bf16, sequentially" {
        sums: Sums::Chain { precision: Precision::BF16, lanes: Lanes::One, fused: true, last: Precision::BF16 }
    }
    Noise "accumulates in f16, in an unknown order" { sums: Sums::Any(Precision::F16) }
    Noise "accumulates unchanged activations in f16, in an unknown order" { activations: quantized::unchanged, sums: Sums::Any(Precision::F16), rounding: true }
    Noise "accumulates in f32, in an unknown order" { sums: Sums::Any(Precision::F32) }
    Precision "rounds the KV cache or the weights to f16" { stored: Some(quantized::rows_f16) }
    Precision "rounds the KV cache or the weights to bf16" { stored: Some(quantized::rows_bf16) }
    Precision "rounds the KV cache or the weights to q8_0" { stored: Some(quantized::rows_q8_0) }
}

/// Everything the judge found, by index.
pub(super) fn listed(expected: Vec<Option<Expected>>) -> Guesses {
    let found = expected.into_iter().enumerate().filter_map(|(index, expected)| Some((index, expected?.into())));
    found.collect()
}

/// One sum of products.
struct Dot {
    index: usize,
    weights: usize,
    activations: usize,
}

/// The sums of a scene, with what they share.
struct Dots {
    all: Vec<Dot>,
    weights: Vec<Vec<f64>>,
    /// The minimum of each sub-block of a row of weights; empty where there is none.
    minima: Vec<Vec<f64>>,
    activations: Vec<Vec<f64>>,
}

fn guesses(scene: &Scene, rule: &Rule) -> Option<Guesses> {
    if rule.rounding && scene.profile.activations == Activations::Unchanged {
        return None;
    }
    let changed;
    let scene = match rule.stored {
        Some(change) => {
            changed = scene.with_rows(stored_side(&scene.op)?, change);
            &changed
        }
        None => scene,
    };
    let dots = dots(scene)?;
    if rule.raw_sums && dots.minima.iter().all(Vec::is_empty) {
        return None;
    }
    let rows: Vec<Row> = dots.activations.iter().map(|x| (rule.activations)(x, &scene.profile)).collect();
    let guess = |dot: &Dot| (dot.index, guess(scene, rule, &dots, dot, &rows[dot.activations]));
    Some(dots.all.iter().map(guess).collect())
}

/// Which input is the weight matrix or the cache; `None` where nothing is multiplied.
fn stored_side(op: &Op) -> Option<usize> {
    let attention = matches!(op, Op::KvScores(_) | Op::KvMix(_));
    if matches!(op, Op::MulMat(_)) { Some(0) } else { attention.then_some(1) }
}

fn guess(scene: &Scene, rule: &Rule, dots: &Dots, dot: &Dot, row: &Row) -> Guess {
    let (weights, raw) = (&dots.weights[dot.weights], &dots.activations[dot.activations]);
    let mut products: Vec<f64> = weights.iter().zip(&row.values).map(|(w, x)| w * x).collect();
    if rule.raw_sums {
        let minima = &dots.minima[dot.weights];
        let len = sub_block_len(raw, minima);
        for (block, minimum) in minima.iter().enumerate() {
            let range = block * len..((block + 1) * len).min(raw.len());
            let lost: f64 = range.map(|k| raw[k] - row.values[k]).sum();
            products[block * len] += minimum * lost;
        }
    }
    let ties = row.ties.iter().map(|(element, step)| step * weights[*element].abs()).sum();
    let guess = sum(rule.sums, &scene.profile, products, ties);
    let (minima, integers) = (&dots.minima[dot.weights], scene.profile.accumulator == Accumulator::Int32ThenF32);
    if minima.is_empty() || !integers || !matches!(rule.sums, Sums::Declared) {
        return guess;
    }
    let summed = if rule.raw_sums { raw } else { &row.values };
    let apart = sum(rule.sums, &scene.profile, parts(weights, minima, row, summed), ties);
    Guess { sigma: guess.sigma.max(apart.sigma), ..apart }
}

/// Elements of a sub-block of a row with these minima.
fn sub_block_len(row: &[f64], minima: &[f64]) -> usize {
    row.len().div_ceil(minima.len().max(1)).max(1)
}

/// Both products of each sub-block above a minimum, in kernels that sum blocks in integers. The product of the minimum
/// is with sums of `summed` in f32.
fn parts(weights: &[f64], minima: &[f64], row: &Row, summed: &[f64]) -> Vec<f64> {
    let len = sub_block_len(weights, minima);
    let blocks = weights.chunks(len).zip(row.values.chunks(len));
    let parts = blocks.zip(summed.chunks(len)).zip(minima).flat_map(|(((w, x), summed), minimum)| {
        let codes: f64 = w.iter().zip(x).map(|(w, x)| (w - minimum) * x).sum();
        [codes, minimum * Precision::F32.round(summed.iter().sum())]
    });
    parts.collect()
}

/// One sum as `sums` has it.
fn sum(sums: Sums, profile: &Profile, products: Vec<f64>, ties: f64) -> Guess {
    let accumulator = if profile.accumulator == Accumulator::F64 { Accumulator::F64 } else { Accumulator::F32 };
    // Blocks that are summed in integers leave less noise, which the gate takes as well.
    let plain = Profile { accumulator, activations: Activations::Unchanged, ..*profile };
    let declared = |products: &[f64], profile: &Profile| -> Guess {
        let accumulation = Accumulation::new(profile, Precision::F32, true);
        let loss = Loss { ties, ..Loss::default() };
        accumulation.expected(products, 0.0, None, &loss).into()
    };
    match sums {
        Sums::Declared => declared(&products, &plain),
        Sums::RoundedProducts(precision) if precision == Precision::F32 => {
            let mut guess = declared(&products, &plain);
            let more = Sum::of(&products, profile.lanes).product_variance(precision);
            guess.sigma = guess.sigma.hypot(more.sqrt());
            guess
        }
        Sums::RoundedProducts(precision) => {
            let rounded: Vec<f64> = products.iter().map(|product| precision.round(*product)).collect();
            declared(&rounded, &plain)
        }
        Sums::Any(precision) => {
            let mut guess = declared(&products, &plain);
            let all = Sum::of(&products, 1);
            guess.sigma = guess.sigma.hypot(all.variance(precision, Order::Lanes, 1).sqrt());
            guess
        }
        Sums::Chain { precision, lanes, fused, last } => {
            let lanes = match lanes {
                Lanes::One => 1,
                Lanes::Two => 2,
                Lanes::Declared => profile.lanes.max(1),
            };
            let exact = declared(&products, &plain);
            let chain = Chain { precision, lanes, fused, last };
            let values = STEPS.map(|step| in_order(&products, &chain, step));
            let (low, high) = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
            // Infinities of both signs, and numbers that are none, are kept as they come.
            let [low, high] = if low <= high { [low - ties, high + ties] } else { [values[0]; 2] };
            Guess { low, high, sigma: exact.sigma }
        }
    }
}

/// Sums where every addition rounds: element `k` goes to lane `k mod lanes`, lanes are added one after the other in
/// `last`.
struct Chain {
    precision: Precision,
    lanes: usize,
    fused: bool,
    last: Precision,
}

/// `sum + product` before it is rounded to less.
type Addition = fn(f64, f64) -> f64;

/// Devices round once, or to f32 first: the product, the sum, or both.
const STEPS: [Addition; 3] = [
    |sum, product| sum + product,
    |sum, product| f64::from((sum + product) as f32),
    |sum, product| f64::from(sum as f32 + product as f32),
];

fn in_order(products: &[f64], chain: &Chain, add: Addition) -> f64 {
    let mut partial = vec![0.0; chain.lanes];
    for (index, product) in products.iter().enumerate() {
        let product = if chain.fused { *product } else { chain.precision.round(*product) };
        let lane = &mut partial[index % chain.lanes];
        *lane = chain.precision.round(add(*lane, product));
    }
    partial.into_iter().reduce(|sum, lane| chain.last.round(sum + lane)).unwrap_or(0.0)
}

fn dots(scene: &Scene) -> Option<Dots> {
    if let Op::KvMix(mix) = &scene.op {
        return Some(of_mix(scene, mix.kv_heads));
    }
    let scores = matches!(scene.op, Op::KvScores(_)).then(|| of_scores(scene));
    if matches!(scene.op, Op::MulMat(_)) { Some(of_product(scene)) } else { scores }
}

/// Every `n`-th, so that at most [`DOTS_MAX`] remain, and those in focus.
fn thinned(dots: Vec<Dot>, focus: &[usize]) -> Vec<Dot> {
    // An odd step meets every remainder of rows and heads, which come in powers of two.
    let step = (dots.len().div_ceil(DOTS_MAX)) | 1;
    let kept = |(place, dot): &(usize, Dot)| place.is_multiple_of(step) || focus.contains(&dot.index);
    dots.into_iter().enumerate().filter(kept).map(|(_, dot)| dot).collect()
}

fn of_product(scene: &Scene) -> Dots {
    let [w, x] = [0, 1].map(|input| scene.inputs[input].operand());
    let (rows, tokens) = (w.ty.shape.rows(), x.ty.shape.rows());
    let all = (0..tokens)
        .flat_map(|token| (0..rows).map(move |row| Dot { index: token * rows + row, weights: row, activations: token }))
        .collect();
    let decoded = |operand: &crate::operand::Operand, row| operand.row(row, &mut Vec::new()).to_vec();
    Dots {
        all: thinned(all, &scene.focus),
        weights: (0..rows).map(|row| decoded(&w, row)).collect(),
        minima: (0..rows).map(|row| minimum::of_sub_blocks(&w, row)).collect(),
        activations: (0..tokens).map(|token| decoded(&x, token)).collect(),
    }
}

fn of_scores(scene: &Scene) -> Dots {
    let [q, keys] = [0, 1].map(|input| scene.inputs[input].operand());
    let [head_size, heads, tokens, _] = q.ty.shape.sizes();
    let (capacity, group) = (scene.output.shape[0], heads / (keys.ty.shape[0] / head_size));
    let mut dots = Dots { all: Vec::new(), weights: Vec::new(), minima: Vec::new(), activations: Vec::new() };
    for head in 0..heads {
        for token in 0..tokens {
            let index = |position| (head * tokens + token) * capacity + position;
            dots.all.extend((0..capacity).map(|position| Dot {
                index: index(position),
                weights: 0,
                activations: token * heads + head,
            }));
        }
    }
    dots.all = thinned(dots.all, &scene.focus);
    for dot in &mut dots.all {
        let (position, token, head) =
            (dot.index % capacity, dot.index / capacity % tokens, dot.index / capacity / tokens);
        let row = sequence(scene, token) * keys.ty.shape[1] + position;
        dot.weights = dots.weights.len();
        dots.weights.push(keys.row(row, &mut Vec::new())[head / group * head_size..][..head_size].to_vec());
        dots.minima.push(Vec::new());
    }
    dots.activations = (0..tokens * heads).map(|row| q.row(row, &mut Vec::new()).to_vec()).collect();
    dots
}

fn of_mix(scene: &Scene, kv_heads: usize) -> Dots {
    let [p, values] = [0, 1].map(|input| scene.inputs[input].operand());
    let [capacity, tokens, heads, _] = p.ty.shape.sizes();
    let (head_size, group) = (values.ty.shape[0] / kv_heads, heads / kv_heads);
    let width = head_size * heads;
    let activations: Vec<Vec<f64>> = (0..tokens * heads).map(|row| p.row(row, &mut Vec::new()).to_vec()).collect();
    let all = (0..tokens * width).map(|index| Dot { index, weights: 0, activations: 0 }).collect();
    let mut dots = Dots { all: thinned(all, &scene.focus), weights: Vec::new(), minima: Vec::new(), activations };
    let all = values.all();
    for dot in &mut dots.all {
        let (token, head, element) = (dot.index / width, dot.index % width / head_size, dot.index % head_size);
        dot.activations = head * tokens + token;
        let first = sequence(scene, token) * values.ty.shape[1];
        let column = head / group * head_size + element;
        let p = &dots.activations[dot.activations];
        let value = |position: usize| {
            if p[position] == 0.0 { 0.0 } else { all[(first + position) * values.ty.shape[0] + column] }
        };
        dot.weights = dots.weights.len();
        dots.weights.push((0..capacity).map(value).collect());
        dots.minima.push(Vec::new());
    }
    dots
}

/// The sequence of a token.
fn sequence(scene: &Scene, token: usize) -> usize {
    match &scene.inputs[2].content {
        Content::Integers(sequences) => usize::try_from(sequences[token]).unwrap_or(0),
        Content::Numbers(_) | Content::Blocks(_) => 0,
    }
}
