//! A dot product as declared: its exact value, the noise of its accumulation, what bounds it.

use crate::minimum;
use crate::operand::Operand;
use crate::precision::{Precision, ROUNDING_VARIANCE};
use crate::statistics::Expected;
use crate::sum::Sum;
use trueup_runtime::profile::{Accumulator, Activations, Order, Products, Profile, Weights};

/// The largest sum of integers that a factor is multiplied by: a block of 32 products of 8-bit codes.
const INTEGERS_MAX: f64 = 32.0 * 128.0 * 127.0;

/// How a device sums products.
#[derive(Clone, Copy, Debug)]
pub struct Accumulation {
    pub(super) precision: Precision,
    output: Precision,
    pub(super) lanes: usize,
    order: Order,
    /// Blocks are summed in integers; each block's product is rounded once or twice more. Blocks above a minimum have
    /// two.
    blocks: bool,
    products_rounded: bool,
    /// Products that tensor cores add in one chain, 0 for all of them; `None` if other units compute the sum.
    tensor_chain: Option<usize>,
    /// Variance of the declared roundings of an activation and a weight, relative to the square of their product.
    factor_variance: f64,
    /// Decoding a weight rounds it to f32.
    weights_rounded: bool,
}

impl Accumulation {
    /// The declared accumulation with results stored as `output`.
    pub fn new(profile: &Profile, output: Precision, weights_rounded: bool) -> Accumulation {
        let unit = match profile.activations {
            Activations::Unchanged | Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K => 0.0,
            Activations::F16 => Precision::F16.unit,
            Activations::Bf16 => Precision::BF16.unit,
        };
        let weight_unit = match profile.weights {
            Weights::Unchanged => 0.0,
            Weights::F16 => Precision::F16.unit,
        };
        let precision = super::arithmetic(profile);
        Accumulation {
            precision,
            output,
            lanes: profile.lanes.max(1),
            order: profile.order,
            blocks: profile.accumulator == Accumulator::Int32ThenF32,
            products_rounded: profile.products == Products::Rounded,
            tensor_chain: match profile.accumulator {
                Accumulator::TensorCore { chain } => Some(chain),
                Accumulator::F64 | Accumulator::F32 | Accumulator::F16 | Accumulator::Int32ThenF32 => None,
            },
            factor_variance: ROUNDING_VARIANCE * (unit * unit + weight_unit * weight_unit),
            weights_rounded: weights_rounded && precision != Precision::F64,
        }
    }

    /// The declared accumulation of products with these weights. Blocks with minima that are summed in integers are
    /// never decoded.
    pub(super) fn with_weights(profile: &Profile, output: Precision, weights: &Operand) -> Accumulation {
        let apart = profile.accumulator == Accumulator::Int32ThenF32 && minimum::is_apart(weights);
        Accumulation::new(profile, output, !apart && minimum::is_affine(weights.ty.dtype))
    }

    /// Whether products are those of blocks, exact inside.
    pub fn blocks(&self) -> bool {
        self.blocks
    }

    /// What a result should be whose `products` as declared are summed and whose exact value is `exact`. `absolute` is
    /// about element products where `products` are those of blocks.
    pub fn expected(&self, products: &[f64], exact: f64, absolute: Option<Absolute>, loss: &Loss) -> Expected {
        let sum = &Sum::of(products, self.lanes);
        let absolute = absolute.unwrap_or(Absolute { elements: sum.absolute, parts: sum.absolute });
        self.of_sum(sum, sum.stagnation(products, self.precision), exact, absolute, loss)
    }

    /// The same where the products' sum and what gets lost of it are known.
    pub(super) fn of_sum(&self, sum: &Sum, stagnation: f64, exact: f64, absolute: Absolute, loss: &Loss) -> Expected {
        let mut variance = match self.tensor_chain {
            Some(chain) => sum.tensor_core_variance(chain),
            None => sum.variance(self.precision, self.order, self.lanes),
        };
        let roundings =
            usize::from(self.products_rounded) + usize::from(self.blocks) + usize::from(self.weights_rounded);
        variance += roundings as f64 * sum.product_variance(self.precision);
        let (own, own_bound) = self.own_error(sum);
        variance += own;
        let parts = Sum { absolute: absolute.parts, ..*sum };
        // Cutting off costs up to one unit in the last place, twice as much as rounding.
        let cut = if self.tensor_chain.is_some() { 2.0 } else { 1.0 };
        let mut bound = cut * parts.hard_bound(self.precision, roundings + self.lanes) + own_bound;
        // A tie that went the other way moves every partial sum behind it, and the result, to where roundings may be
        // larger.
        let tied = sum.value.abs() + loss.ties;
        let unit = self.precision.unit * loss.ties;
        variance += ROUNDING_VARIANCE * unit * unit * sum.terms as f64;
        if self.output.unit > self.precision.unit {
            variance += self.output.variance(tied);
            bound += self.output.ulp(tied);
        }
        let loss_variance = loss.variance + self.factor_variance * sum.squares;
        Expected {
            exact,
            declared: sum.value,
            sigma: variance.sqrt(),
            sigma_exact: (variance + loss_variance).sqrt(),
            bound: bound + loss.ties,
            ties: loss.ties + stagnation,
            coarse: 2.0 * Precision::BF16.unit * absolute.elements + loss.coarse,
        }
    }

    /// Variance and bound of the verifier's own f64 sum, and of results below the smallest normal number.
    fn own_error(&self, sum: &Sum) -> (f64, f64) {
        // Below the smallest normal number each addition and each product is rounded by an absolute amount. In blocks
        // that product is a factor of two scales, which a sum of integers is multiplied by.
        let tiny = if sum.absolute > 0.0 { self.precision.normal_min * self.precision.unit } else { 0.0 };
        let factor = if self.blocks { INTEGERS_MAX } else { 1.0 };
        let tiny_variance = factor * factor * tiny * tiny * sum.terms as f64;
        let tiny_bound = (1.0 + factor) * tiny * sum.terms as f64;
        let variance = sum.chain_variance(Precision::F64, 1, sum.terms) + 2.0 * sum.product_variance(Precision::F64);
        (variance + tiny_variance, sum.hard_bound(Precision::F64, 2) + tiny_bound)
    }
}

/// What a weight, or a cached element, becomes before it is multiplied.
pub(super) fn weight(declared: Weights, weight: f64) -> f64 {
    match declared {
        Weights::Unchanged => weight,
        Weights::F16 => Precision::F16.round(Precision::F32.round(weight)),
    }
}

/// Sums of absolute values of products of elements.
#[derive(Clone, Copy, Debug)]
pub struct Absolute {
    /// Of the products.
    pub elements: f64,
    /// The same where what is above a minimum and the minimum are multiplied apart: no less than the sum of both parts.
    pub parts: f64,
}

/// What the declared rounding of activations costs one result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    /// Variance around the exact value.
    pub variance: f64,
    /// How far ties may move the result as declared.
    pub ties: f64,
    /// How far activations of one bit less may move it.
    pub coarse: f64,
}
