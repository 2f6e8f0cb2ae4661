//! Every candidate is told from all others where it is the truth; and f32 or f16 arithmetic written out here is
//! recognised.

use super::*;
use crate::bound::minima_tests::{BLOCK, Coded, INTEGERS, Matrix, products};
use crate::bound::testing::numbers;
use crate::precision::Precision;
use crate::scene::{Content, Given};
use trueup_blocks::DType;
use trueup_graph::op::{
    Arithmetic, Gated, KvAttention, KvMix, KvScores, MulMat, MulMatId, RmsNorm, Rope, RopePairs, RopeScaling, SoftMax,
};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::Usage;
use trueup_runtime::profile::{Accumulator, Activations, Angles, Profile, Rounding};

const LANES: Profile = Profile { lanes: 8, ..Profile::F32 };
const Q8: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    ..LANES
};

fn floats(sizes: &[usize], seed: u64) -> Given {
    let ty = TensorType::new(DType::F32, sizes);
    Given { ty, usage: Usage::Arena, content: Content::Numbers(numbers(ty.shape.elements(), seed)) }
}

fn integers(all: &[i32]) -> Given {
    let ty = TensorType::new(DType::I32, &[all.len()]);
    Given { ty, usage: Usage::Input, content: Content::Integers(all.to_vec()) }
}

fn scene(op: Op, profile: Profile, inputs: Vec<Given>) -> Scene {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let output = op.infer(&types).unwrap();
    let device = vec![0.0; output.shape.elements()];
    Scene { op, profile, inputs, output, device, focus: Vec::new() }
}

/// Activations that hold exact halves of codes: a block whose scale is 1.
fn activations(sizes: &[usize], seed: u64) -> Given {
    let mut given = floats(sizes, seed);
    let Content::Numbers(x) = &mut given.content else { unreachable!("floats are numbers") };
    for row in x.chunks_mut(sizes[0]) {
        row[0] = 127.0;
        (row[1], row[2]) = (2.5, -4.5);
    }
    given
}

/// Numbers beyond the range of f16.
fn large() -> Scene {
    let mut scene = product(LANES, 60);
    let Content::Numbers(w) = &mut scene.inputs[0].content else { unreachable!("floats are numbers") };
    w.iter_mut().for_each(|w| *w = f64::from((*w * 1e6) as f32));
    scene
}

fn product(profile: Profile, seed: u64) -> Scene {
    scene(Op::MulMat(MulMat), profile, vec![floats(&[256, 40], seed), activations(&[256, 3], seed + 1)])
}

/// Weights in blocks.
fn blocks(dtype: DType, profile: Profile) -> Scene {
    let weights: Vec<f32> = numbers(256 * 40, 5).into_iter().map(|w| w as f32 + 1.0).collect();
    let mut bytes = vec![0; 256 / dtype.block_len() * dtype.block_bytes() * 40];
    (dtype.codec().unwrap().encode)(&weights, &mut bytes);
    let ty = TensorType::new(dtype, &[256, 40]);
    let w = Given { ty, usage: Usage::Weight, content: Content::Blocks(bytes) };
    scene(Op::MulMat(MulMat), profile, vec![w, floats(&[256, 3], 6)])
}

fn attention(sequences: [i32; 3]) -> [Scene; 2] {
    let mut p = floats(&[40, 3, 8], 8);
    let Content::Numbers(weights) = &mut p.content else { unreachable!("floats are numbers") };
    weights.iter_mut().for_each(|p| *p = p.abs());
    let cache = |seed| Given { usage: Usage::State, ..floats(&[64, 40, 3], seed) };
    let scores = Op::KvScores(KvScores { capacity: 40 });
    [
        scene(scores, LANES, vec![floats(&[16, 8, 3], 7), cache(9), integers(&sequences)]),
        scene(Op::KvMix(KvMix { kv_heads: 4 }), LANES, vec![p, cache(10), integers(&sequences)]),
    ]
}

/// The same in one operator, each token with a window of the past.
fn fused_attention() -> Scene {
    let cache = |seed| Given { usage: Usage::State, ..floats(&[64, 40, 3], seed) };
    let op = KvAttention { scale: 0.25, max_bias: 0.0 };
    let inputs = vec![floats(&[16, 8, 3], 7), cache(9), cache(10), integers(&[1, 2, 1]), windows()];
    scene(op.into(), Profile { function_ulp: 1.0, ..LANES }, inputs)
}

/// Masks of three tokens: a window of the past is visible, to the last one nothing.
fn windows() -> Given {
    let mut mask = floats(&[40, 3], 1);
    let Content::Numbers(masks) = &mut mask.content else { unreachable!("floats are numbers") };
    for (index, mask) in masks.iter_mut().enumerate() {
        *mask = if index < 80 && (5..20 + index / 40).contains(&(index % 40)) { 0.0 } else { f64::NEG_INFINITY };
    }
    mask
}

/// Rows with a window of the past visible, and one where nothing is; scores large enough for what a large mask
/// swallows.
fn soft_max(size: f64) -> Scene {
    let mut x = floats(&[40, 3, 2], 11);
    let Content::Numbers(scores) = &mut x.content else { unreachable!("floats are numbers") };
    scores.iter_mut().for_each(|score| *score = f64::from((*score * size) as f32));
    let op = Op::SoftMax(SoftMax { scale: 0.5, max_bias: 0.0 });
    scene(op, Profile { function_ulp: 1.0, ..LANES }, vec![x, windows()])
}

/// Products with two of five experts for each of three tokens.
fn experts() -> Scene {
    let mut ids = integers(&[0, 3, 4, 1, 2, 3]);
    ids.ty = TensorType::new(DType::I32, &[2, 3]);
    scene(Op::MulMatId(MulMatId), LANES, vec![floats(&[64, 20, 5], 18), floats(&[64, 1, 3], 19), ids])
}

fn rope(base: f32, factors: bool) -> Scene {
    let scaling = RopeScaling::None;
    let op = Op::Rope(Rope { pairs: RopePairs::Neighbours, dimensions: 16, base, scaling });
    let mut inputs = vec![floats(&[20, 3, 3], 12), integers(&[77, 1009, 4095])];
    if factors {
        let content = Content::Numbers((0..8).map(|i| 1.0 + f64::from(i)).collect());
        inputs.push(Given { ty: TensorType::new(DType::F32, &[8]), usage: Usage::Weight, content });
    }
    scene(op, Profile { angles: Angles::F64, function_ulp: 1.0, ..Profile::F32 }, inputs)
}

fn norm(size: f64) -> Scene {
    let mut x = floats(&[96, 3], 13);
    let Content::Numbers(numbers) = &mut x.content else { unreachable!("floats are numbers") };
    numbers.iter_mut().for_each(|x| *x = f64::from((*x * size) as f32));
    scene(Op::RmsNorm(RmsNorm { epsilon: 3e-5 }), LANES, vec![x, floats(&[96], 14)])
}

fn scenes() -> Vec<Scene> {
    let rows =
        |index: &[i32]| scene(Op::get_rows(DType::F32), Profile::F32, vec![floats(&[32, 9], 15), integers(index)]);
    let mut all =
        vec![product(LANES, 20), product(Q8, 30), large(), blocks(DType::Q4_1, Q8), soft_max(1.0), soft_max(500.0)];
    all.extend([attention([0, 1, 0]), attention([1, 2, 1])].into_iter().flatten());
    all.extend([fused_attention(), experts()]);
    all.extend([blocks(DType::Q4_0, LANES), blocks(DType::Q5_1, LANES), rope(2e4, false)]);
    all.extend([rope(1e4, false), rope(1e4, true), norm(1.0), norm(0.01), rows(&[4, 1, 7])]);
    let state = Given { usage: Usage::State, ..floats(&[32, 4], 21) };
    all.push(scene(Op::get_rows(DType::F32), Profile::F32, vec![state, integers(&[2, 1, 3])]));
    let pair = || vec![floats(&[70, 2], 16), floats(&[70, 2], 17)];
    all.extend([
        scene(Op::Gated(Gated::Swiglu), Profile::F32, pair()),
        scene(Op::Gated(Gated::Reglu), Profile::F32, pair()),
        scene(Op::Arithmetic(Arithmetic::Add), Profile::F32, pair()),
    ]);
    all
}

/// The scene with what `guesses` say as the device's result.
fn with(scene: &Scene, guesses: &Guesses) -> Option<Scene> {
    let mut told = scene.clone();
    if guesses.len() < scene.device.len() {
        // Sums are thinned out: what is not among them is as declared.
        for (index, guess) in sums::listed(scene.judged().1) {
            told.device[index] = (guess.low + guess.high) / 2.0;
        }
    }
    for (index, guess) in guesses {
        told.device[*index] = f64::from(((guess.low + guess.high) / 2.0) as f32);
    }
    Some(told)
}

#[test]
fn every_candidate_is_named_where_it_is_the_truth() {
    let scenes = scenes();
    let mut problems = Vec::new();
    for candidate in CANDIDATES.into_iter().flatten().filter(|candidate| candidate.kind != CandidateKind::Noise) {
        let mut named = Vec::new();
        for scene in &scenes {
            let Some(told) = (candidate.guess)(scene).and_then(|guesses| with(scene, &guesses)) else { continue };
            let found = fingerprint(&told, 0);
            named.push(format!("{} {}", scene.op.name(), found.explained_by.unwrap_or_default()));
        }
        if !named.iter().any(|named| named.ends_with(&format!(" {}", candidate.name))) {
            problems.push(format!("{}: {named:?}", candidate.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The result of a matrix product, each element by `sum` of its weights and activations.
fn computed(scene: &Scene, sum: impl Fn(&[f64], &[f64]) -> f64) -> Scene {
    let [w, x] = [0, 1].map(|input| scene.inputs[input].operand().all());
    let len = scene.inputs[0].ty.shape[0];
    let mut told = scene.clone();
    told.device = x.chunks(len).flat_map(|x| w.chunks(len).map(|w| sum(w, x)).collect::<Vec<f64>>()).collect();
    told
}

#[test]
fn sums_written_out_in_other_arithmetic_are_recognised() {
    let half = |value: f64| Precision::F16.round(value);
    let scene = product(LANES, 40);
    let cases: [(&str, Scene); 5] = [
        (
            "accumulates in f16 with products rounded to f16, sequentially",
            computed(&scene, |w, x| {
                let products = w.iter().zip(x).map(|(w, x)| half(w * x));
                products.fold(0.0, |sum, product| half(sum + product))
            }),
        ),
        (
            "accumulates in pairs of f16 (half2), fused",
            computed(&scene, |w, x| {
                let lane = |first: usize| {
                    let pairs = w.iter().zip(x).skip(first).step_by(2);
                    pairs.fold(0.0, |sum, (w, x)| half(w * x + sum))
                };
                half(lane(0) + lane(1))
            }),
        ),
        (
            "accumulates in f16, in an unknown order",
            computed(&scene, |w, x| {
                let products = w.iter().zip(x).rev().map(|(w, x)| w * x);
                products.fold(0.0, |sum, product| half(sum + product))
            }),
        ),
        (
            "rounds weights and activations to bf16",
            computed(&scene, |w, x| {
                let round = |value: &f64| half::bf16::from_f64(*value).to_f32();
                f64::from(w.iter().zip(x).fold(0.0f32, |sum, (w, x)| round(w).mul_add(round(x), sum)))
            }),
        ),
        (
            "quantizes activations to int8 per token",
            computed(&scene, |w, x| {
                let scale = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs() as f32)) / 127.0;
                let code = |x: &f64| f64::from((*x as f32 / scale).round_ties_even());
                w.iter().zip(x).map(|(w, x)| w * code(x)).sum::<f64>() * f64::from(scale)
            }),
        ),
    ];
    for (name, told) in cases {
        let found = fingerprint(&told, 0);
        assert_eq!(found.explained_by.as_deref(), Some(name), "{:#?}", &found.candidates[..3]);
    }
}

/// Both products of a block cancel around a large mean: what is left is the noise of each.
#[test]
fn codes_that_saturate_are_recognised_in_blocks_above_a_minimum() {
    for (dtype, blocks) in [(DType::Q4_1, 2), (DType::Q5_1, 4), (DType::Q4_1, 8)] {
        let matrix = Matrix::of(dtype, blocks * BLOCK, 70);
        let around_20 = numbers(blocks * BLOCK * 5, 71).into_iter().map(|x| f64::from((x + 20.0) as f32));
        let x: Vec<f64> = around_20.collect();
        let token = |x: &[f64]| {
            x.chunks(BLOCK)
                .map(|block| Coded::rounded(block, |code| code.round_ties_even().clamp(-126.0, 126.0)))
                .collect()
        };
        let tokens: Vec<Vec<Coded>> = x.chunks(blocks * BLOCK).map(token).collect();
        let weights = Given { ty: matrix.ty, usage: Usage::Weight, content: Content::Blocks(matrix.bytes.clone()) };
        let activations = Given { content: Content::Numbers(x), ..floats(&[blocks * BLOCK, 5], 1) };
        let mut told = scene(Op::MulMat(MulMat), INTEGERS, vec![weights, activations]);
        told.device = products(&matrix.rows, &tokens);
        let found = fingerprint(&told, 0);
        let name = "quantizes activations to q8 per 32, saturating at 126";
        assert_eq!(found.explained_by.as_deref(), Some(name), "{dtype}, {blocks}: {:#?}", &found.candidates[..3]);
    }
}

#[test]
fn a_right_result_and_a_random_one_have_no_fingerprint() {
    let right = computed(&product(Profile::F32, 50), |w, x| {
        f64::from(w.iter().zip(x).fold(0.0f32, |sum, (w, x)| (*w as f32).mul_add(*x as f32, sum)))
    });
    assert_eq!(fingerprint(&right, 0).explained_by, None);
    let mut random = right;
    random.device = numbers(random.device.len(), 51);
    let found = fingerprint(&random, 0);
    assert_eq!(found.explained_by, None, "{:#?}", &found.candidates[..3]);
}

#[test]
fn parameters_that_are_in_no_list_are_estimated() {
    let norm = |epsilon| Op::RmsNorm(RmsNorm { epsilon });
    let rope = |base| {
        let (pairs, scaling) = (RopePairs::Halves, RopeScaling::None);
        Op::Rope(Rope { pairs, dimensions: 16, base, scaling })
    };
    let soft_max = |scale| Op::SoftMax(SoftMax { scale, max_bias: 0.0 });
    let mask = Given { ty: TensorType::new(DType::F32, &[30, 4]), ..floats(&[30, 4], 8) };
    let mask = Given { content: Content::Numbers(vec![0.0; 120]), ..mask };
    let profile = Profile { function_ulp: 1.0, ..LANES };
    let cases = [
        (
            norm(1e-6),
            norm(3.3e-3),
            vec![floats(&[64, 5], 1), floats(&[64], 2)],
            "uses an epsilon of 0.0033 instead of 1e-6",
        ),
        (
            rope(10_000.0),
            rope(123_000.0),
            vec![floats(&[16, 2, 4], 3), integers(&[0, 1, 9, 40])],
            "uses a RoPE frequency base of 123000 instead of 10000",
        ),
        (soft_max(0.25), soft_max(0.37), vec![floats(&[30, 4, 2], 4), mask], "scales scores by 0.37 instead of 0.25"),
    ];
    for (declared, used, inputs, expected) in cases {
        let mut device = scene(used, profile, inputs);
        let values: Vec<f64> = device.judged().1.into_iter().map(|one| f64::from(one.unwrap().exact as f32)).collect();
        (device.device, device.op) = (values, declared);
        let found = fingerprint(&device, 0);
        assert_eq!((found.explained_by.as_deref(), found.kind), (Some(expected), Some(CandidateKind::Formula)));
    }
}
