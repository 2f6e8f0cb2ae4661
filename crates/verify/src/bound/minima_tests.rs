//! A kernel of blocks above a minimum in f32, written here: what it makes is noise, and what a wrong one makes is not.
//!
//! ```text
//!   sum = fma(f32(sum of q c), f32(d dx), sum)       sum = fma(m, f32(dx (sum of c)), sum)       block after block
//! ```

use super::gate;
use super::testing::{encoded, f32_type, judged, numbers, passes};
use crate::operand::Operand;
use crate::statistics::Statistics;
use trueup_blocks::DType;
use trueup_graph::op::{Gated, MulMat, MulMatGated, MulMatId};
use trueup_graph::{Op, TensorType};
use trueup_runtime::profile::{Accumulator, Activations, Profile, Rounding};

pub(crate) const BLOCK: usize = 32;
const ROWS: usize = 60;
const TYPES: [DType; 2] = [DType::Q4_1, DType::Q5_1];
/// Types whose sub-blocks of 32 have minima.
const SUB_BLOCK_TYPES: [DType; 2] = [DType::Q4K, DType::Q5K];
/// Blocks in integers, as the kernel has them.
pub(crate) const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    function_ulp: 1.0,
    ..Profile::F32
};

/// What activations are like.
const KINDS: [&str; 3] = ["around zero", "around a large mean", "with outliers"];

/// Activations that are `kind` of these.
fn activations(kind: &str, len: usize, seed: u64) -> Vec<f64> {
    let mut x = numbers(len, seed);
    if kind == KINDS[1] {
        x.iter_mut().for_each(|x| *x = f64::from((*x + 20.0) as f32));
    } else if kind == KINDS[2] {
        x.iter_mut().skip(5).step_by(71).for_each(|x| *x = f64::from((*x * 300.0) as f32));
    }
    x
}

/// A block of weights as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub scale: f32,
    pub minimum: f32,
    codes: [i32; BLOCK],
}

impl Weights {
    /// The blocks of 32 elements of a block.
    fn read(dtype: DType, bytes: &[u8]) -> Vec<Weights> {
        if SUB_BLOCK_TYPES.contains(&dtype) {
            (0..8).map(|sub_block| Weights::of_sub_block(dtype, bytes, sub_block)).collect()
        } else {
            vec![Weights::of_block(dtype, bytes)]
        }
    }

    /// One of eight. Scales and minima of six bits are in bytes 4 to 15; those of sub-blocks 4 to 7 are in two parts.
    fn of_sub_block(dtype: DType, bytes: &[u8], j: usize) -> Weights {
        let half = |at: usize| half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        let (fields, fifths) = (&bytes[4..16], &bytes[16..48]);
        let (scale, minimum) = if j < 4 {
            (fields[j] & 63, fields[j + 4] & 63)
        } else {
            (fields[j + 4] & 15 | fields[j - 4] >> 6 << 4, fields[j + 4] >> 4 | fields[j] >> 6 << 4)
        };
        let pairs = &bytes[bytes.len() - 128..][j / 2 * 32..];
        let fifth = |k: usize| if dtype == DType::Q5K { (fifths[k] >> j & 1) << 4 } else { 0 };
        Weights {
            scale: half(0) * f32::from(scale),
            minimum: -(half(2) * f32::from(minimum)),
            codes: std::array::from_fn(|k| i32::from(pairs[k] >> (j % 2 * 4) & 15 | fifth(k))),
        }
    }

    fn of_block(dtype: DType, bytes: &[u8]) -> Weights {
        let half = |at: usize| half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        let pairs = &bytes[bytes.len() - BLOCK / 2..];
        let fifths = if dtype == DType::Q5_1 { u32::from_le_bytes([4, 5, 6, 7].map(|at| bytes[at])) } else { 0 };
        let code = |k: usize| pairs[k % 16] >> (k / 16 * 4) & 15 | ((fifths >> k & 1) << 4) as u8;
        Weights { scale: half(0), minimum: half(2), codes: std::array::from_fn(|k| i32::from(code(k))) }
    }
}

/// A block of activations as a kernel has it.
#[derive(Clone, Copy)]
pub(crate) struct Coded {
    scale: f32,
    codes: [i32; BLOCK],
    /// What the minimum is multiplied with.
    sum: f32,
}

impl Coded {
    fn of(x: &[f64]) -> Coded {
        Coded::rounded(x, f32::round_ties_even)
    }

    /// Codes as `round` makes them.
    pub(crate) fn rounded(x: &[f64], round: fn(f32) -> f32) -> Coded {
        let scale = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs() as f32)) / 127.0;
        let codes = std::array::from_fn(|k| round(x[k] as f32 / scale) as i32);
        Coded { scale, codes, sum: scale * codes.iter().sum::<i32>() as f32 }
    }
}

/// One row of weights with one of activations.
fn product(weights: &[Weights], x: &[Coded]) -> f32 {
    weights.iter().zip(x).fold(0.0, |sum, (w, x)| {
        let dot: i32 = w.codes.iter().zip(&x.codes).map(|(q, c)| q * c).sum();
        let sum = (dot as f32).mul_add(w.scale * x.scale, sum);
        w.minimum.mul_add(x.sum, sum)
    })
}

/// A matrix of `ROWS` rows: its type, its bytes, and its rows as a kernel has them.
pub(crate) struct Matrix {
    pub ty: TensorType,
    pub bytes: Vec<u8>,
    pub rows: Vec<Vec<Weights>>,
}

impl Matrix {
    pub(crate) fn of(dtype: DType, len: usize, seed: u64) -> Matrix {
        let weights: Vec<f64> = numbers(len * ROWS, seed).into_iter().map(|w| w * 0.2).collect();
        let (ty, bytes) = encoded(dtype, &[len, ROWS], &weights);
        let row = |row: &[u8]| row.chunks(dtype.block_bytes()).flat_map(|block| Weights::read(dtype, block)).collect();
        let rows = bytes.chunks(bytes.len() / ROWS).map(row).collect();
        Matrix { ty, bytes, rows }
    }

    fn operand(&self) -> Operand<'_> {
        Operand::blocks(self.ty, &self.bytes)
    }

    /// The rows with each changed.
    fn changed(&self, change: fn(&mut Vec<Weights>)) -> Vec<Vec<Weights>> {
        let mut rows = self.rows.clone();
        rows.iter_mut().for_each(change);
        rows
    }
}

fn coded(x: &[f64], len: usize) -> Vec<Vec<Coded>> {
    x.chunks(len).map(|token| token.chunks(BLOCK).map(Coded::of).collect()).collect()
}

/// All rows with all tokens.
pub(crate) fn products(rows: &[Vec<Weights>], tokens: &[Vec<Coded>]) -> Vec<f64> {
    tokens.iter().flat_map(|x| rows.iter().map(|row| f64::from(product(row, x)))).collect()
}

/// The worst |z|, where the result passes.
fn worst(op: &Op, found: &Statistics, what: &str) -> f64 {
    let worst = found.worst_z.map_or(0.0, |worst| worst.ratio);
    let passes = gate(op).verdict(found, true).passes();
    assert!(passes && worst <= 6.5, "{what}: worst {worst}, rms {}, passes {passes}", found.rms_z());
    worst
}

#[test]
fn a_right_kernel_passes_with_the_noise_that_is_declared() {
    let op = MulMat.into();
    let types = TYPES.into_iter().chain(SUB_BLOCK_TYPES);
    for (dtype, kind) in types.flat_map(|dtype| KINDS.map(|kind| (dtype, kind))) {
        for (blocks, narrowest) in [(1, 0.5), (2, 0.5), (3, 0.4), (8, 0.3), (40, 0.15)] {
            let (len, mut worst_of_all) = (blocks * BLOCK, 0.0f64);
            if !len.is_multiple_of(dtype.block_len()) {
                continue;
            }
            for seed in 0..5 {
                let matrix = Matrix::of(dtype, len, 10 + seed);
                let x = activations(kind, len * 3, 20 + seed);
                let inputs = [matrix.operand(), Operand::numbers(f32_type(&[len, 3]), &x)];
                let found = judged(&op, &inputs, &INTEGERS, &products(&matrix.rows, &coded(&x, len)));
                let what = format!("{dtype}, {kind}, {blocks} blocks, seed {seed}");
                worst_of_all = worst_of_all.max(worst(&op, &found, &what));
                let rms = found.rms_z();
                assert!((narrowest..=1.1).contains(&rms), "{what}: rms {rms}");
            }
            assert!(worst_of_all > 2.0 * narrowest, "{dtype}, {kind}, {blocks} blocks: worst {worst_of_all}");
        }
    }
}

/// A block with an infinite scale, no code of which is zero, makes an infinite result: in blocks and in sub-blocks.
#[test]
fn an_infinite_scale_makes_infinite_results() {
    let x: Vec<f64> = numbers(256, 70).into_iter().map(|x| x.abs() + 1.0).map(|x| f64::from(x as f32)).collect();
    for dtype in TYPES.into_iter().chain(SUB_BLOCK_TYPES) {
        let ty = TensorType::new(dtype, &[256, 1]);
        let mut bytes = vec![0x11; ty.bytes()];
        for block in bytes.chunks_mut(dtype.block_bytes()) {
            block[..4].copy_from_slice(&[0x00, 0x7C, 0x00, 0x3C]);
        }
        let row = bytes.chunks(dtype.block_bytes()).flat_map(|block| Weights::read(dtype, block)).collect();
        let result = products(&[row], &coded(&x, 256));
        let inputs = [Operand::blocks(ty, &bytes), Operand::numbers(f32_type(&[256, 1]), &x)];
        let found = judged(&MulMat.into(), &inputs, &INTEGERS, &result);
        assert_eq!((found.equal, found.broken.undefined), (1, 0), "{dtype}: {result:?}, {found:?}");
    }
}

/// The rounded factor of minima is the same one for all rows.
#[test]
fn rows_of_one_token_do_not_err_together() {
    for (dtype, kind) in TYPES.into_iter().flat_map(|dtype| KINDS.map(|kind| (dtype, kind))) {
        for seed in 0..100 {
            let len = BLOCK * (1 + seed as usize % 4);
            let (matrix, x) = (Matrix::of(dtype, len, 3), activations(kind, len, 1000 + seed));
            let inputs = [matrix.operand(), Operand::numbers(f32_type(&[len, 1]), &x)];
            let found = judged(&MulMat.into(), &inputs, &INTEGERS, &products(&matrix.rows, &coded(&x, len)));
            assert!(found.rms_z() <= 1.3, "{dtype}, {kind}, seed {seed}, {len}: rms {}", found.rms_z());
        }
    }
}

/// A fault of weights, and what it changes in a row.
type WrongWeights = (&'static str, fn(&mut Vec<Weights>));

/// A fault of activations, and what it changes in a token.
type WrongActivations = (&'static str, fn(&mut Vec<Coded>, &[f64]));

/// What a kernel may do wrong with weights.
const WRONG_WEIGHTS: [WrongWeights; 4] = [
    ("minima left out", |row| row.iter_mut().for_each(|block| block.minimum = 0.0)),
    ("a minimum of the neighbor", |row| row[1].minimum = row[2].minimum),
    ("a minimum off by its last place", |row| {
        let bits = half::f16::from_f32(row[1].minimum).to_bits();
        row[1].minimum = half::f16::from_bits(bits + 1).to_f32();
    }),
    ("a minimum for the scale", |row| row[1].scale = row[1].minimum),
];

/// What a kernel may do wrong with activations, which it gets exact too.
const WRONG_ACTIVATIONS: [WrongActivations; 4] = [
    ("sums of exact activations", |coded, x| {
        let sums = x.chunks(BLOCK).map(|block| block.iter().sum::<f64>() as f32);
        coded.iter_mut().zip(sums).for_each(|(block, sum)| block.sum = sum);
    }),
    ("the sum of the last block without its last element", |coded, _| {
        let last = coded.last_mut().unwrap();
        last.sum = last.scale * last.codes[..BLOCK - 1].iter().sum::<i32>() as f32;
    }),
    ("the last element left out", |coded, _| {
        let last = coded.last_mut().unwrap();
        last.codes[BLOCK - 1] = 0;
        last.sum = last.scale * last.codes.iter().sum::<i32>() as f32;
    }),
    ("sums in f16", |coded, _| coded.iter_mut().for_each(|block| block.sum = half::f16::from_f32(block.sum).to_f32())),
];

/// The kernel of a row with each fault: its name, all rows and all tokens.
type Faulty = (&'static str, Vec<Vec<Weights>>, Vec<Vec<Coded>>);

fn faulty(matrix: &Matrix, x: &[f64], len: usize) -> Vec<Faulty> {
    let right = coded(x, len);
    let of_weights = WRONG_WEIGHTS.map(|(name, change)| (name, matrix.changed(change), right.clone()));
    let of_activations = WRONG_ACTIVATIONS.map(|(name, change)| {
        let mut wrong = right.clone();
        wrong.iter_mut().zip(x.chunks(len)).for_each(|(coded, x)| change(coded, x));
        (name, matrix.rows.clone(), wrong)
    });
    of_weights.into_iter().chain(of_activations).collect()
}

#[test]
fn wrong_kernels_do_not_pass() {
    let types = TYPES.into_iter().chain(SUB_BLOCK_TYPES);
    for (dtype, kind) in types.flat_map(|dtype| KINDS.map(|kind| (dtype, kind))) {
        for blocks in [3, 16] {
            let len = (blocks * BLOCK).next_multiple_of(dtype.block_len());
            let (matrix, x) = (Matrix::of(dtype, len, 41), activations(kind, len * 3, 42));
            let inputs = [matrix.operand(), Operand::numbers(f32_type(&[len, 3]), &x)];
            let judge = |result: &[f64]| passes(&MulMat.into(), &inputs, &INTEGERS, result);
            assert!(judge(&products(&matrix.rows, &coded(&x, len))), "{dtype}, {kind}: right");
            for (name, rows, tokens) in faulty(&matrix, &x, len) {
                assert!(!judge(&products(&rows, &tokens)), "{dtype}, {kind}, {blocks} blocks: {name}");
            }
            let mut one = products(&matrix.rows, &coded(&x, len));
            one[17] *= 1.001;
            assert!(!judge(&one), "{dtype}, {kind}, {blocks} blocks: one element off by 1e-3");
        }
    }
}

fn swiglu(gate: &[Vec<Weights>], up: &[Vec<Weights>], tokens: &[Vec<Coded>]) -> Vec<f64> {
    let pairs = products(gate, tokens).into_iter().zip(products(up, tokens));
    let gated = |(gate, up): (f64, f64)| gate as f32 / (1.0 + (-gate as f32).exp()) * up as f32;
    pairs.map(|pair| f64::from(gated(pair))).collect()
}

#[test]
fn gated_products_pass_and_wrong_ones_do_not() {
    const LEN: usize = 3 * BLOCK;
    let op: Op = MulMatGated { gated: Gated::Swiglu }.into();
    for (dtype, other) in [(DType::Q4_1, DType::Q5_1), (DType::Q5_1, DType::Q4_1)] {
        for (kind, seed) in KINDS.into_iter().flat_map(|kind| (50..60).map(move |seed| (kind, seed))) {
            let (gate, up) = (Matrix::of(dtype, LEN, seed), Matrix::of(other, LEN, seed + 20));
            let x = activations(kind, LEN * 3, seed + 40);
            let tokens = coded(&x, LEN);
            let inputs = [gate.operand(), up.operand(), Operand::numbers(f32_type(&[LEN, 3]), &x)];
            let found = judged(&op, &inputs, &INTEGERS, &swiglu(&gate.rows, &up.rows, &tokens));
            let what = format!("{dtype} and {other}, {kind}, seed {seed}");
            worst(&op, &found, &what);
            assert!((0.1..=1.1).contains(&found.rms_z()), "{what}: rms {}", found.rms_z());
            for (name, rows, tokens) in faulty(&gate, &x, LEN) {
                assert!(
                    !passes(&op, &inputs, &INTEGERS, &swiglu(&rows, &up.rows, &tokens)),
                    "{what}: gate with {name}"
                );
            }
            for (name, rows, tokens) in faulty(&up, &x, LEN) {
                assert!(
                    !passes(&op, &inputs, &INTEGERS, &swiglu(&gate.rows, &rows, &tokens)),
                    "{what}: up with {name}"
                );
            }
        }
    }
}

#[test]
fn products_with_the_chosen_experts_pass_and_wrong_ones_do_not() {
    const LEN: usize = 4 * BLOCK;
    let op: Op = MulMatId.into();
    for (dtype, kind) in TYPES.into_iter().flat_map(|dtype| KINDS.map(|kind| (dtype, kind))) {
        let (all, x) = (Matrix::of(dtype, LEN, 91), activations(kind, LEN * 3, 92));
        let experts = TensorType::new(dtype, &[LEN, ROWS / 3, 3]);
        let ids = [2, 0, 1];
        let inputs = [
            Operand::blocks(experts, &all.bytes),
            Operand::numbers(f32_type(&[LEN, 1, 3]), &x),
            Operand::integers(TensorType::new(DType::I32, &[1, 3]), &ids),
        ];
        let result = |rows: &[Vec<Weights>], tokens: &[Vec<Coded>]| {
            let pairs = ids.iter().zip(tokens);
            let of_one = |(expert, token): (&i32, &Vec<Coded>)| {
                products(&rows[*expert as usize * ROWS / 3..][..ROWS / 3], std::slice::from_ref(token))
            };
            pairs.flat_map(of_one).collect::<Vec<f64>>()
        };
        let found = judged(&op, &inputs, &INTEGERS, &result(&all.rows, &coded(&x, LEN)));
        worst(&op, &found, &format!("{dtype}, {kind}"));
        assert!(found.rms_z() <= 1.1, "{dtype}, {kind}: rms {}", found.rms_z());
        for (name, rows, tokens) in faulty(&all, &x, LEN) {
            assert!(!passes(&op, &inputs, &INTEGERS, &result(&rows, &tokens)), "{dtype}, {kind}: {name}");
        }
    }
}
