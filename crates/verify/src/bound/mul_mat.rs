//! `y[m, n] = sum_k w[k, m] x[k, n]`, in stacks each matrix for neighbouring batches: accumulation noise around R1, and the noise of declared 8-bit activations around R0.
//!
//! ```text
//!   R0: sigma^2 = sum over blocks b of d_b^2 / 12 (sum of w^2 in b)  [+ 0.18 u16^2 S_b^2]  + sigma_acc^2       (NUMERICS 2.3)
//!   R1: sigma^2 = sigma_acc^2, with blocks as products where sums inside a block are integers
//! ```

use super::dot::{Accumulation, Loss};
use super::{Case, in_strips};
use crate::activation::{BLOCK_LEN, Row};
use crate::operand::Operand;
use crate::precision::{Precision, ROUNDING_VARIANCE};
use crate::statistics::{Expected, Statistics};
use trueup_blocks::DType;
use trueup_runtime::profile::{Activations, Profile, Rounding};

/// The activations of one token.
pub(super) struct Token {
    exact: Vec<f64>,
    declared: Row,
}

impl Token {
    /// Column `column` of the activations, as it is and as declared.
    pub(super) fn of(x: &Operand, column: usize, profile: &Profile) -> Token {
        let exact = x.row(column, &mut Vec::new()).to_vec();
        Token { declared: Row::declared(&exact, profile.activations), exact }
    }

    /// As declared.
    pub(super) fn declared(&self) -> &[f64] {
        &self.declared.values
    }
}

/// One row of weights and what is asked of it for every token.
pub(super) struct Weights<'a> {
    row: &'a [f64],
    /// Sum of squares and of absolute values of each block; empty where activations are not quantized.
    blocks: Vec<(f64, f64)>,
}

pub(super) fn judge(case: &Case) -> Statistics {
    let [weights, x] = case.inputs else { return Statistics::default() };
    let output = Precision::of(case.output.ty.dtype);
    let accumulation = Accumulation::new(case.profile, output, is_affine(weights.ty.dtype));
    let all: Vec<Token> = (0..x.ty.shape.rows()).map(|column| Token::of(x, column, case.profile)).collect();
    let [_, rows, b2, b3] = weights.ty.shape.sizes();
    let [_, tokens, n2, n3] = x.ty.shape.sizes();
    in_strips(case, rows * n2 * n3, |strip, tally| {
        let (row, batch) = (strip % rows, strip / rows);
        let matrix = batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
        let mut buffer = Vec::new();
        let mut products = Vec::new();
        let weights = Weights::new(weights.row(matrix * rows + row, &mut buffer), case.profile);
        for (column, token) in all.iter().enumerate().skip(batch * tokens).take(tokens) {
            let expected = product(&accumulation, case.profile, &weights, token, &mut products);
            if case.copies.get(column).copied().unwrap_or(false) {
                tally.add_copy(column * rows + row, &expected);
            } else {
                tally.add(column * rows + row, &expected);
            }
        }
    })
}

/// Whether decoding adds a minimum to a product, which rounds in f32.
pub(super) fn is_affine(dtype: DType) -> bool {
    matches!(dtype, DType::Q4_1 | DType::Q5_1 | DType::Q2K | DType::Q4K | DType::Q5K)
}

impl Weights<'_> {
    /// A row of exact weights.
    pub(super) fn new<'a>(row: &'a [f64], profile: &Profile) -> Weights<'a> {
        let quantized = matches!(profile.activations, Activations::Q8 { .. });
        let sums = |block: &[f64]| block.iter().fold((0.0, 0.0), |(squares, sum), w| (squares + w * w, sum + w.abs()));
        let blocks = if quantized { row.chunks(BLOCK_LEN).map(sums).collect() } else { Vec::new() };
        Weights { row, blocks }
    }

    /// The weights.
    pub(super) fn row(&self) -> &[f64] {
        self.row
    }
}

/// One element of the result.
pub(super) fn product(
    accumulation: &Accumulation,
    profile: &Profile,
    weights: &Weights,
    token: &Token,
    products: &mut Vec<f64>,
) -> Expected {
    let exact = weights.row.iter().zip(&token.exact).fold(0.0, |sum, (w, x)| sum + w * x);
    products.clear();
    products.extend(weights.row.iter().zip(&token.declared.values).map(|(w, x)| w * x));
    let mut loss = quantization_loss(profile, weights, token, products);
    for (element, step) in &token.declared.ties {
        loss.ties += step * weights.row[*element].abs();
    }
    let mut absolute = None;
    if accumulation.blocks() {
        absolute = Some(products.iter().fold(0.0, |sum, product: &f64| sum + product.abs()));
        for block in 0..products.len().div_ceil(BLOCK_LEN) {
            products[block] = products[block * BLOCK_LEN..].iter().take(BLOCK_LEN).sum();
        }
        products.truncate(products.len().div_ceil(BLOCK_LEN));
    }
    accumulation.expected(products, exact, absolute, &loss)
}

/// What 8-bit activations cost: each is off by up to half a step, evenly, and the scale by its f16 rounding.
pub(super) fn quantization_loss(profile: &Profile, weights: &Weights, token: &Token, products: &[f64]) -> Loss {
    let Activations::Q8 { rounding, scale_f16 } = profile.activations else { return Loss::default() };
    let step_variance = match rounding {
        Rounding::HalfEven | Rounding::HalfAway => 1.0 / 12.0,
        Rounding::Truncate => 1.0 / 3.0,
    };
    let scale_variance = if scale_f16 { ROUNDING_VARIANCE * Precision::F16.unit * Precision::F16.unit } else { 0.0 };
    let mut loss = Loss::default();
    let blocks = weights.blocks.iter().zip(&token.declared.steps).zip(products.chunks(BLOCK_LEN));
    for (((squares, absolute), step), products) in blocks {
        let block: f64 = products.iter().sum();
        loss.variance += step * step * step_variance * squares + scale_variance * block * block;
        loss.coarse += step * absolute;
    }
    loss
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::{Op, op::MulMat};
    use trueup_runtime::profile::{Accumulator, Activations, Profile, Rounding};

    const Q8: Profile = Profile {
        activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
        accumulator: Accumulator::F64,
        ..Profile::F32
    };

    fn judged(w: &[f64], x: &[f64], result: &[f64]) -> bool {
        let rows = w.len() / x.len();
        let inputs = [Operand::numbers(f32_type(&[x.len(), rows]), w), Operand::numbers(f32_type(&[x.len(), 1]), x)];
        passes(&Op::MulMat(MulMat), &inputs, &Q8, result)
    }

    #[test]
    fn a_tie_may_go_either_way_and_no_further() {
        // Scale 1, and 2.5 between two codes; the other products cancel but for little.
        let mut x = vec![0.0; 32];
        (x[0], x[1], x[2]) = (127.0, 127.0, 2.5);
        let mut w = vec![0.0; 32];
        (w[0], w[1], w[2]) = (1.0, f64::from(-1.0f32 + 1e-6), 0.7);
        let sum = |w: &[f64], code: f64| f64::from((w[0] * 127.0 + w[1] * 127.0 + w[2] * code) as f32);
        assert!(judged(&w, &x, &[sum(&w, 2.0)]) && judged(&w, &x, &[sum(&w, 3.0)]));
        assert!(!judged(&w, &x, &[sum(&w, 0.0)]) && !judged(&w, &x, &[sum(&w, 4.0)]));
        // Where the sum is small on one side of the tie, roundings are those of the larger other side.
        w[2] = -(w[0] + w[1]) * 127.0 / 2.0 * 1.000_001;
        assert!(judged(&w, &x, &[sum(&w, 2.0)]) && judged(&w, &x, &[sum(&w, 3.0)]));
    }

    #[test]
    fn quantized_products_pass_and_a_dropped_element_does_not() {
        let (w, x) = (numbers(64 * 40, 17), numbers(64, 18));
        let scale = |block: &[f64]| block.iter().fold(0.0f32, |largest, x| largest.max(x.abs() as f32)) / 127.0;
        let quantized: Vec<f64> = x
            .chunks(32)
            .flat_map(|block| {
                let scale = scale(block);
                block.iter().map(move |x| f64::from((*x as f32 / scale).round_ties_even()) * f64::from(scale))
            })
            .collect();
        let product = |len: usize| -> Vec<f64> {
            let sum = |row: &[f64]| row.iter().zip(&quantized).take(len).map(|(w, x)| w * x).sum::<f64>();
            w.chunks(64).map(|row| f64::from(sum(row) as f32)).collect()
        };
        assert!(judged(&w, &x, &product(64)));
        assert!(!judged(&w, &x, &product(63)));
    }
}
