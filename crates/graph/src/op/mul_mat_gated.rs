use super::mul_mat::{RANDOM_BLOCKS, WEIGHTS};
use super::{Gated, MulMat, Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[m, n] = f(sum_k g[k, m] x[k, n]) sum_k u[k, m] x[k, n]`: the first half of a gated feed-forward in one operator
/// (Shazeer 2020, equations 5 and 6), [`MulMat`] twice and [`Gated`] after them.
///
/// Inputs: `g` and `u` of one shape, each as the `w` of [`MulMat`], and its `x`. Output: that of [`MulMat`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MulMatGated {
    /// The function of the gate and its product.
    pub gated: Gated,
}

impl Rule for MulMatGated {
    /// In the order of [`Gated::ALL`].
    const NAMES: &'static [&'static str] =
        &["mul_mat_reglu", "mul_mat_geglu", "mul_mat_geglu_erf", "mul_mat_geglu_quick", "mul_mat_swiglu"];

    fn name(&self) -> &'static str {
        Self::NAMES[self.gated as usize]
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [gate, up, x] = exactly(inputs)?;
        expect(gate.shape == up.shape, || format!("gate {gate} and up {up} must have one shape"))?;
        MulMat.infer(&[gate, x])?;
        MulMat.infer(&[up, x])
    }

    fn cases() -> Vec<Case> {
        let members = Gated::ALL.into_iter().flat_map(|gated| [plain(gated), edges(gated)].concat());
        members.chain(by_type()).chain(probes()).chain(as_in_layers()).collect()
    }
}

/// Weights of a layer, with which products are about as large as in models, where functions of the gate bend.
fn weights(dtype: DType, sizes: &[usize]) -> (TensorType, Fill) {
    (TensorType::new(dtype, sizes), Fill::Normal(if sizes[0] < 256 { 0.125 } else { 0.03125 }))
}

fn case(gated: Gated, types: [DType; 2], w: &[usize], x: (DType, &[usize])) -> Case {
    let x = (TensorType::new(x.0, x.1), Fill::Normal(1.0));
    Case::new(MulMatGated { gated }, &[weights(types[0], w), weights(types[1], w), x])
}

/// Every function with weights of plain numbers and of blocks, one token and several, rows that fill no vector.
fn plain(gated: Gated) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::Q8_0] {
        for (k, m, n) in [(32, 1, 1), (64, 31, 2), (256, 33, 1), (96, 257, 7)] {
            cases.push(case(gated, [dtype; 2], &[k, m], (DType::F32, &[k, n])));
        }
    }
    cases
}

/// Both ends of the functions, products around 0, nothing to sum, no rows and no tokens.
fn edges(gated: Gated) -> Vec<Case> {
    let ty = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
    let mut cases = Vec::new();
    for (gate, x) in [(30.0, 1.0), (1e-3, 1.0), (1.0, 1e-6)] {
        let inputs =
            [(ty(&[33, 65]), Fill::Normal(gate)), weights(DType::F32, &[33, 65]), (ty(&[33, 3]), Fill::Normal(x))];
        cases.push(Case::new(MulMatGated { gated }, &inputs));
    }
    for (w, x) in [([33, 5], [33, 0]), ([33, 0], [33, 2]), ([0, 5], [0, 2])] {
        cases.push(case(gated, [DType::F32; 2], &w, (DType::F32, &x)));
    }
    cases
}

/// Every type of weights, types that differ, activations in f16, and stacks of matrices.
fn by_type() -> Vec<Case> {
    let gated = Gated::Swiglu;
    let mut cases = Vec::new();
    for (dtype, _) in WEIGHTS {
        for (k, m, n) in [(288, 40, 1), (512, 33, 9), (1024, 100, 17)] {
            cases.push(case(gated, [dtype; 2], &[k, m], (DType::F32, &[k, n])));
        }
        cases.push(case(gated, [dtype; 2], &[64, 31], (DType::F16, &[64, 5])));
        cases.push(case(gated, [dtype; 2], &[64, 13, 2], (DType::F32, &[64, 3, 6])));
    }
    for types in
        [[DType::F32, DType::F16], [DType::Bf16, DType::F32], [DType::Q4_0, DType::Q8_0], [DType::Q8_0, DType::Q4_0]]
    {
        cases.extend([1, 5].map(|n| case(gated, types, &[96, 41], (DType::F32, &[96, n]))));
    }
    for dtype in RANDOM_BLOCKS {
        for (k, m, n) in [(256, 31, 2), (512, 33, 7), (768, 45, 20)] {
            let w = (TensorType::new(dtype, &[k, m]), Fill::Blocks(0.01));
            let x = (TensorType::new(DType::F32, &[k, n]), Fill::Normal(1.0));
            cases.push(Case::new(MulMatGated { gated }, &[w, w, x]));
        }
    }
    cases
}

/// Types of blocks, the ends of their codes, and a power of two that a whole block holds exactly.
const BLOCKS: [(DType, (i32, i32), f64); 4] = [
    (DType::Q4_0, (-8, 7), -8.0),
    (DType::Q4_1, (0, 15), 8.0),
    (DType::Q5_0, (-16, 15), -16.0),
    (DType::Q5_1, (0, 31), 8.0),
];

/// Exact integers: weights, activations, sums and their product are not rounded, and relu keeps them integers.
fn probes() -> Vec<Case> {
    let op = MulMatGated { gated: Gated::Reglu };
    let ty = |dtype, sizes: [usize; 2]| TensorType::new(dtype, &sizes);
    let mut cases = Vec::new();
    for (k, m, n) in [(33, 9, 1), (64, 31, 5)] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let w = (ty(dtype, [k, m]), Fill::Integers(-3, 3));
            cases.push(Case::probe(op, &[w, w, (ty(DType::F32, [k, n]), Fill::Integers(-4, 4))]));
        }
    }
    // The sum of 32 codes needs at most 10 bits. Two factors of 127 add 14 bits, and the power of two adds none.
    for (dtype, (low, high), power) in BLOCKS {
        for (m, n) in [(9, 1), (31, 5)] {
            let w = |fill| (ty(dtype, [32, m]), fill);
            let x = (ty(DType::F32, [32, n]), Fill::Constant(127.0 * power.signum()));
            let (codes, same) = (w(Fill::Codes(low, high)), w(Fill::Constant(power)));
            cases.extend([[codes, same, x], [same, codes, x]].map(|inputs| Case::probe(op, &inputs)));
        }
    }
    cases
}

/// The sizes of real layers.
fn as_in_layers() -> Vec<Case> {
    let layer = |dtype, tokens| case(Gated::Swiglu, [dtype; 2], &[2048, 5632], (DType::F32, &[2048, tokens]));
    let mut cases: Vec<Case> =
        [DType::Q4_0, DType::Q8_0, DType::F16].into_iter().map(|dtype| layer(dtype, 1)).collect();
    cases.push(layer(DType::Q4_0, 8));
    cases
}
