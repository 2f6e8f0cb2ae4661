//! What the declared rounding of activations costs two products that share them: the variance of each and their
//! covariance.
//!
//! ```text
//!   s0 g x + s1 u x, of which x is off by e:   variance of e (s0 g + s1 u) = s0^2 [gg] + 2 s0 s1 [gu] + s1^2 [uu]
//! ```

use super::{Numbers, Panel, ROWS, Steps, Token, totals};
use crate::activation::BLOCK_LEN;
use crate::precision::{Precision, ROUNDING_VARIANCE};
use multiversion::multiversion;
use trueup_runtime::profile::Activations;

/// For each row, of both panels: `[gg]`, `[gu]`, `[uu]`.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::bound) struct Covariance([Numbers; 3]);

/// The same sums of the weights alone, for each block.
#[derive(Default)]
pub(in crate::bound) struct Shared(Vec<Covariance>);

impl Shared {
    /// Those of two panels.
    pub fn read(&mut self, panels: &[Panel; 2]) {
        self.0.clear();
        let blocks = panels.each_ref().map(|panel| panel.columns.chunks(BLOCK_LEN));
        let [gates, ups] = blocks;
        self.0.extend(gates.zip(ups).map(|(gates, ups)| products_of(gates, ups)));
    }
}

impl Covariance {
    /// The variance of a row's result with these slopes along both products.
    pub fn variance(&self, row: usize, slopes: [f64; 2]) -> f64 {
        let Covariance([gg, gu, uu]) = self;
        let [gate, up] = slopes;
        (gate * gate * gg[row] + 2.0 * gate * up * gu[row] + up * up * uu[row]).max(0.0)
    }

    #[inline(always)]
    fn add(&mut self, factor: f64, other: &Covariance) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            for i in 0..ROWS {
                own[i] += factor * other[i];
            }
        }
    }
}

/// Sums of products of what stands side by side.
#[inline(always)]
fn products_of(gates: &[Numbers], ups: &[Numbers]) -> Covariance {
    let mut sums = [[0.0; ROWS]; 3];
    for (g, u) in gates.iter().zip(ups) {
        for i in 0..ROWS {
            sums[0][i] += g[i] * g[i];
            sums[1][i] += g[i] * u[i];
            sums[2][i] += u[i] * u[i];
        }
    }
    Covariance(sums)
}

/// What the rounding of each token's activations costs.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(in crate::bound) fn shared_loss(
    activations: Activations,
    panels: &[Panel; 2],
    shared: &Shared,
    tokens: &[Token],
    losses: &mut Vec<Covariance>,
) {
    losses.clear();
    losses.extend(tokens.iter().map(|token| match activations {
        Activations::Unchanged => Covariance::default(),
        Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K => {
            of_blocks(activations, panels, shared, token)
        }
        Activations::F16 => of_each(Precision::F16.unit, panels, token),
        Activations::Bf16 => of_each(Precision::BF16.unit, panels, token),
    }));
}

/// Activations that are quantized by blocks.
#[inline(always)]
fn of_blocks(activations: Activations, panels: &[Panel; 2], shared: &Shared, token: &Token) -> Covariance {
    let mut sum = Covariance::default();
    let Some(steps) = Steps::of(activations) else { return sum };
    for (block, (weights, step)) in shared.0.iter().zip(&token.declared.steps).enumerate() {
        sum.add(step * step * steps.activation, weights);
        if steps.scale > 0.0 {
            let [gates, ups] = panels.each_ref().map(|panel| block_sums(panel, token, block));
            sum.add(steps.scale, &products_of(&[gates], &[ups]));
        }
    }
    sum
}

/// Activations that are rounded one by one in units of `unit`.
#[inline(always)]
fn of_each(unit: f64, panels: &[Panel; 2], token: &Token) -> Covariance {
    let mut sum = Covariance::default();
    let [gates, ups] = panels;
    for ((gates, ups), x) in gates.columns.iter().zip(ups.columns.iter()).zip(&token.declared.values) {
        sum.add(x * x * ROUNDING_VARIANCE * unit * unit, &products_of(&[*gates], &[*ups]));
    }
    sum
}

/// The products of one block, summed.
#[inline(always)]
fn block_sums(panel: &Panel, token: &Token, block: usize) -> Numbers {
    let places = block * BLOCK_LEN..((block + 1) * BLOCK_LEN).min(panel.columns.len());
    let mut buffer = [[0.0; ROWS]; BLOCK_LEN];
    let products = &mut buffer[..places.len()];
    for ((product, column), x) in
        products.iter_mut().zip(&panel.columns[places.clone()]).zip(&token.declared.values[places])
    {
        *product = super::scaled(*column, *x);
    }
    totals(products)
}
