use super::{Rule, exactly, expect, expect_multiplied, is_activation};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[m, n, i, j] = sum_k w[k, m, i / (n2 / b2), j / (n3 / b3)] x[k, n, i, j]`: a weight matrix applied to each token;
/// a stack of matrices applied to a stack of batches, each matrix to `n2 / b2` by `n3 / b3` neighbouring ones (grouped
/// heads).
///
/// Inputs: `w` `[K, M, b2, b3]` of any stored type, `x` `[K, N, n2, n3]` an activation or f16, `b2` and `b3` divide
/// `n2` and `n3`. Output: `[M, N, n2, n3]` of the type of `x`, f32 for f16.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MulMat;

impl Rule for MulMat {
    const NAMES: &'static [&'static str] = &["mul_mat"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [w, x] = exactly(inputs)?;
        expect_multiplied("x", &x)?;
        expect(w.shape[0] == x.shape[0], || {
            format!("w has rows of {}, x of {}: their lengths must be equal", w.shape[0], x.shape[0])
        })?;
        let stack = |shape: &Shape| Shape::new(&shape.sizes()[2..]);
        expect(stack(&w.shape).repeats_to(&stack(&x.shape)), || {
            format!("matrices {} do not share batches {} evenly", stack(&w.shape), stack(&x.shape))
        })?;
        let dtype = if is_activation(&x) { x.dtype } else { DType::F32 };
        Ok(TensorType::new(dtype, &[w.shape[1], x.shape[1], x.shape[2], x.shape[3]]))
    }

    fn cases() -> Vec<Case> {
        [single(), batched(), probes(), as_in_layers(), random_blocks()].concat()
    }
}

/// Types of weights, with the ends of their codes where they have some.
pub(super) const WEIGHTS: [(DType, Option<(i32, i32)>); 9] = [
    (DType::F32, None),
    (DType::F16, None),
    (DType::Bf16, None),
    (DType::Q4_0, Some((-8, 7))),
    (DType::Q4_1, Some((0, 15))),
    (DType::Q5_0, Some((-16, 15))),
    (DType::Q5_1, Some((0, 31))),
    (DType::Q8_0, Some((-127, 127))),
    (DType::Q8_1, Some((-127, 127))),
];

/// Types of weights whose blocks have random bytes: the codes of a block cannot be chosen one by one.
pub(super) const RANDOM_BLOCKS: [DType; 11] = [
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Tq1_0,
    DType::Tq2_0,
];

const PLAIN: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

fn product(w: DType, w_sizes: &[usize], x: DType, x_sizes: &[usize]) -> Case {
    let w = (TensorType::new(w, w_sizes), Fill::Normal(0.02));
    Case::new(MulMat, &[w, (TensorType::new(x, x_sizes), Fill::Normal(1.0))])
}

/// One matrix: every type of weights, few and many tokens, rows that fill no vector.
fn single() -> Vec<Case> {
    let blocks = [
        (32, 1, 1),
        (64, 31, 2),
        (256, 33, 3),
        (288, 257, 7),
        (512, 40, 8),
        (96, 7, 9),
        (1024, 100, 17),
        (2048, 64, 33),
    ];
    let odd = [(1, 1, 1), (31, 33, 2), (257, 31, 3), (33, 257, 1), (100, 9, 8), (63, 17, 9)];
    let mut cases = Vec::new();
    for (dtype, _) in WEIGHTS {
        cases.extend(blocks.map(|(k, m, n)| product(dtype, &[k, m], DType::F32, &[k, n])));
        cases.extend([(256, 33, 1), (64, 31, 5)].map(|(k, m, n)| product(dtype, &[k, m], DType::F16, &[k, n])));
    }
    for dtype in PLAIN {
        cases.extend(odd.map(|(k, m, n)| product(dtype, &[k, m], DType::F32, &[k, n])));
        cases.push(product(dtype, &[33, 5], DType::F16, &[33, 3]));
        cases.push(product(dtype, &[33, 5], DType::F32, &[33, 0]));
        cases.push(product(dtype, &[33, 0], DType::F32, &[33, 2]));
        cases.push(product(dtype, &[0, 5], DType::F32, &[0, 2]));
    }
    cases
}

/// Stacks: each matrix for one batch, for several neighbouring ones, and for all; rows that end inside a panel of the
/// next matrix.
fn batched() -> Vec<Case> {
    let stacks = [([3, 1], [3, 1]), ([2, 1], [8, 1]), ([1, 1], [5, 2]), ([2, 3], [4, 3]), ([1, 2], [3, 4])];
    let mut cases = Vec::new();
    for (dtype, _) in WEIGHTS {
        for ([b2, b3], [n2, n3]) in stacks {
            cases.push(product(dtype, &[64, 13, b2, b3], DType::F32, &[64, 3, n2, n3]));
        }
        cases.push(product(dtype, &[128, 16, 2], DType::F16, &[128, 1, 4]));
        cases.push(product(dtype, &[96, 19, 2, 2], DType::F32, &[96, 11, 4, 6]));
    }
    for dtype in PLAIN {
        cases.push(product(dtype, &[33, 31, 2], DType::F32, &[33, 7, 6]));
        cases.push(product(dtype, &[80, 257, 4], DType::F32, &[80, 9, 32]));
    }
    cases
}

/// Integers that no type of weights or activations rounds, and no sum either.
fn probes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, codes) in WEIGHTS {
        let fill = codes.map_or(Fill::Integers(-8, 8), |(low, high)| Fill::Codes(low, high));
        // Largest products are 127 * 127: 1024 of them are below 2^24. Block maxima of 127 are exact in 8 bits.
        for (k, m, n) in [(32, 9, 1), (256, 31, 2), (1024, 33, 9)] {
            let w = (TensorType::new(dtype, &[k, m]), fill);
            let x = |fill| (TensorType::new(DType::F32, &[k, n]), fill);
            cases.push(Case::probe(MulMat, &[w, x(Fill::Codes(-127, 127))]));
            if PLAIN.contains(&dtype) {
                cases.push(Case::probe(MulMat, &[w, x(Fill::Integers(-9, 9))]));
            }
        }
        let stack = (TensorType::new(dtype, &[64, 11, 2]), fill);
        cases.push(Case::probe(MulMat, &[stack, (TensorType::new(DType::F32, &[64, 3, 6]), Fill::Codes(-127, 127))]));
    }
    cases
}

/// The sizes of real layers.
fn as_in_layers() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::Q4_0, DType::Q8_0, DType::F16] {
        cases.extend([1, 8].map(|tokens| product(dtype, &[2048, 8192], DType::F32, &[2048, tokens])));
    }
    cases.push(product(DType::Q4_0, &[8192, 2048], DType::F32, &[8192, 1]));
    cases
}

/// These types: one matrix, few and many tokens, and a stack.
fn random_blocks() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in RANDOM_BLOCKS {
        let product = |w: &[usize], x: (DType, &[usize])| {
            let w = (TensorType::new(dtype, w), Fill::Blocks(0.01));
            Case::new(MulMat, &[w, (TensorType::new(x.0, x.1), Fill::Normal(1.0))])
        };
        for (k, m, n) in [(256, 1, 1), (256, 31, 2), (512, 33, 7), (1024, 257, 9), (2048, 64, 33)] {
            cases.push(product(&[k, m], (DType::F32, &[k, n])));
        }
        cases.push(product(&[512, 33], (DType::F16, &[512, 3])));
        cases.push(product(&[256, 13, 2], (DType::F32, &[256, 3, 6])));
        cases.push(product(&[256, 13, 2], (DType::F16, &[256, 10, 6])));
        cases.push(product(&[256, 9], (DType::F32, &[256, 0])));
    }
    for dtype in [DType::Q4K, DType::Q6K] {
        let w = (TensorType::new(dtype, &[2048, 2048]), Fill::Blocks(0.01));
        cases.push(Case::new(MulMat, &[w, (TensorType::new(DType::F32, &[2048, 1]), Fill::Normal(1.0))]));
    }
    cases
}
