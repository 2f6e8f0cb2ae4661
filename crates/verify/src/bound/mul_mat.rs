//! `y[m, n] = sum_k w[k, m] x[k, n]`: accumulation noise around R1, and the noise of declared 8-bit activations around R0.
//!
//! ```text
//!   R0: sigma^2 = sum over blocks b of d_b^2 / 12 (sum of w^2 in b)  [+ 0.18 u16^2 S_b^2]  + sigma_acc^2       (NUMERICS 2.3)
//!   R1: sigma^2 = sigma_acc^2, with blocks as products where sums inside a block are integers
//! ```

use super::dot::{Accumulation, Loss};
use super::{Case, in_strips};
use crate::activation::{BLOCK_LEN, Row};
use crate::precision::{Precision, ROUNDING_VARIANCE};
use crate::statistics::{Expected, Statistics};
use crate::sum::Sum;
use trueup_blocks::DType;
use trueup_runtime::profile::{Activations, Profile, Rounding};

/// The activations of one token.
struct Token {
    exact: Vec<f64>,
    declared: Row,
}

/// One row of weights and what is asked of it for every token.
struct Weights<'a> {
    row: &'a [f64],
    /// Sum of squares and of absolute values of each block; empty where activations are not quantized.
    blocks: Vec<(f64, f64)>,
}

pub(super) fn judge(case: &Case) -> Statistics {
    let [weights, x] = case.inputs else { return Statistics::default() };
    let output = Precision::of(case.output.ty.dtype);
    let accumulation = Accumulation::new(case.profile, output, is_affine(weights.ty.dtype));
    let tokens: Vec<Token> = (0..x.ty.shape.rows())
        .map(|token| {
            let exact = x.row(token, &mut Vec::new()).to_vec();
            Token { declared: Row::declared(&exact, case.profile.activations), exact }
        })
        .collect();
    let rows = weights.ty.shape.rows();
    let quantized = matches!(case.profile.activations, Activations::Q8 { .. });
    in_strips(case, rows, |row, tally| {
        let mut buffer = Vec::new();
        let mut products = Vec::new();
        let weights = Weights::new(weights.row(row, &mut buffer), quantized);
        for (column, token) in tokens.iter().enumerate() {
            let expected = product(&accumulation, case.profile, &weights, token, &mut products);
            tally.add(column * rows + row, &expected);
        }
    })
}

/// Whether decoding adds a minimum to a product, which rounds in f32.
fn is_affine(dtype: DType) -> bool {
    dtype == DType::Q4_1 || dtype == DType::Q5_1
}

impl Weights<'_> {
    fn new(row: &[f64], quantized: bool) -> Weights<'_> {
        let sums = |block: &[f64]| block.iter().fold((0.0, 0.0), |(squares, sum), w| (squares + w * w, sum + w.abs()));
        let blocks = if quantized { row.chunks(BLOCK_LEN).map(sums).collect() } else { Vec::new() };
        Weights { row, blocks }
    }
}

/// One element of the result.
fn product(
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
    let sum = Sum::of(products, accumulation.lanes());
    accumulation.expected(&sum, exact, absolute.unwrap_or(sum.absolute), &loss)
}

/// What 8-bit activations cost: each is off by up to half a step, evenly, and the scale by its f16 rounding.
fn quantization_loss(profile: &Profile, weights: &Weights, token: &Token, products: &[f64]) -> Loss {
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
