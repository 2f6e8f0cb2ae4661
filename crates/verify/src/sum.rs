//! How far a sum of products may be from its exact value, for any order of summation
//! (docs/numerics.md#sums-of-products).
//!
//! ```text
//!   p_0 p_1 p_2 ...  ──lane k mod L──▶  s_l = p_l + p_{l+L} + ...   ──one after the other──▶  S
//!                                       each addition rounds a partial sum: variance 0.18 u^2 (sum of their squares)
//! ```
//!
//! The partial sums of the order at hand are known; those of another order are not, so the expectation over all orders
//! (a random bridge from 0 to S) is taken too, and the larger of both counts. With `S = sum p`, `V = sum p^2` a chain
//! of `n` additions has
//!
//! ```text
//!   E[sum s_k^2] = S^2 (n + 1)(2 n + 1) / (6 n) + V (n^2 - 1) / (6 n)            about  n/3 S^2 + n/6 V
//! ```
//!
//! If the device publishes no order, its squared partial sums may be several times the expectation, which counts in the
//! tail of the error: the term of `V` is then multiplied by [`ANY_ORDER`] (docs/numerics.md#unknown-order).

use crate::precision::{Precision, ROUNDING_VARIANCE};
use trueup_runtime::profile::Order;

/// Lanes beyond this are counted as this many; more only make sums more exact.
const LANES_MAX: usize = 64;

/// Multiple of the expected spread of partial sums that covers an unknown order: an error beyond 8 standard deviations
/// then has a probability of about 1e-9 (docs/numerics.md#unknown-order).
const ANY_ORDER: f64 = 5.0;

/// Products that tensor cores add to a partial sum at once: 8 up to compute capability 8.9, 16 on 9.0.
const TENSOR_CORE_STEP: f64 = 8.0;

/// Mean error of truncating a partial sum, relative to it, in units of f32.
const CUT_MEAN: f64 = 0.72;
/// Mean square of the error of one step, of its products and its partial sum, in the same units.
const CUT_SPREAD: f64 = 1.64;
/// Mean error of truncating the products of one step if all have the same sign, in the same units.
const CUT_PRODUCTS_MEAN: f64 = 2.9;

/// The exact sum of some products and what bounds its rounding.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sum {
    /// Number of products.
    pub terms: usize,
    /// The sum, `S`.
    pub value: f64,
    /// Sum of absolute values, `A`.
    pub absolute: f64,
    /// Sum of squares, `V`.
    pub squares: f64,
    /// Sum of squares of the partial sums, in the order at hand.
    pub path: f64,
    /// The largest partial sum, without its sign, in the order at hand.
    pub peak: f64,
}

/// Sums of `WIDTH` elements side by side, which take their products piece by piece: each is summed in the order of its
/// own products, so it has the bits that it has alone.
#[derive(Clone, Debug)]
pub struct Sums<const WIDTH: usize> {
    lanes: usize,
    terms: usize,
    value: [f64; WIDTH],
    absolute: [f64; WIDTH],
    squares: [f64; WIDTH],
    path: [f64; WIDTH],
    peak: [f64; WIDTH],
    /// Of each lane; empty for one lane, whose partial sum is `value`.
    partials: Vec<[f64; WIDTH]>,
}

impl<const WIDTH: usize> Sums<WIDTH> {
    /// Sums of no products yet, in `lanes` side by side.
    #[inline(always)]
    pub fn new(lanes: usize) -> Sums<WIDTH> {
        let zero = [0.0; WIDTH];
        let lanes = lanes.clamp(1, LANES_MAX);
        let (value, absolute, squares, path, peak) = (zero, zero, zero, zero, zero);
        let partials = if lanes == 1 { Vec::new() } else { vec![zero; lanes] };
        Sums { lanes, terms: 0, value, absolute, squares, path, peak, partials }
    }

    /// Adds the next products of each element.
    #[inline(always)]
    pub fn add(&mut self, products: &[[f64; WIDTH]]) {
        if self.lanes == 1 {
            self.add_to_chain(products);
            self.terms += products.len();
            return;
        }
        let mut rest = products;
        while !rest.is_empty() {
            let lane = self.terms % self.lanes;
            let (now, later) = rest.split_at(rest.len().min(self.lanes - lane));
            self.add_to_lanes(lane, now);
            self.terms += now.len();
            rest = later;
        }
    }

    /// Adds the first products, each group of `len` to a lane of its own, one after the other: group `g` to lane `g mod
    /// lanes`.
    #[inline(always)]
    pub fn add_groups(&mut self, products: &[[f64; WIDTH]], len: usize) {
        if self.lanes == 1 || len == 1 {
            return self.add(products);
        }
        for (number, group) in products.chunks(len).enumerate() {
            for products in group {
                self.add_to_lanes(number % self.lanes, std::slice::from_ref(products));
            }
        }
        self.terms += products.len();
    }

    /// One after the other.
    #[inline(always)]
    fn add_to_chain(&mut self, products: &[[f64; WIDTH]]) {
        let (mut value, mut absolute, mut squares) = (self.value, self.absolute, self.squares);
        let (mut path, mut peak) = (self.path, self.peak);
        for products in products {
            for i in 0..WIDTH {
                value[i] += products[i];
                path[i] += value[i] * value[i];
                peak[i] = larger(peak[i], value[i].abs());
                absolute[i] += products[i].abs();
                squares[i] += products[i] * products[i];
            }
        }
        (self.value, self.absolute, self.squares) = (value, absolute, squares);
        (self.path, self.peak) = (path, peak);
    }

    /// Each to one lane, from `lane` on.
    #[inline(always)]
    fn add_to_lanes(&mut self, lane: usize, products: &[[f64; WIDTH]]) {
        let (mut absolute, mut squares, mut path, mut peak) = (self.absolute, self.squares, self.path, self.peak);
        for (partial, products) in self.partials[lane..].iter_mut().zip(products) {
            for i in 0..WIDTH {
                partial[i] += products[i];
                path[i] += partial[i] * partial[i];
                peak[i] = larger(peak[i], partial[i].abs());
                absolute[i] += products[i].abs();
                squares[i] += products[i] * products[i];
            }
        }
        (self.absolute, self.squares, self.path, self.peak) = (absolute, squares, path, peak);
    }

    /// The sums, lanes added one after the other.
    #[inline(always)]
    pub fn finish(&self) -> [Sum; WIDTH] {
        let (mut value, mut path, mut peak) = (self.value, self.path, self.peak);
        for partial in &self.partials {
            for (i, partial) in partial.iter().enumerate() {
                value[i] += partial;
                path[i] += value[i] * value[i];
                peak[i] = larger(peak[i], value[i].abs());
            }
        }
        std::array::from_fn(|i| Sum {
            terms: self.terms,
            value: value[i],
            absolute: self.absolute[i],
            squares: self.squares[i],
            path: path[i],
            peak: peak[i],
        })
    }
}

/// The larger of two; `a` where `b` is no number.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// What gets lost of `WIDTH` elements' products because it is below each one's limit, piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Lost<const WIDTH: usize> {
    limits: [f64; WIDTH],
    /// Sum of the absolute values of the products below the limit.
    pub sums: [f64; WIDTH],
}

impl<const WIDTH: usize> Lost<WIDTH> {
    /// Nothing yet, of products below `limits`.
    #[inline(always)]
    pub fn new(limits: [f64; WIDTH]) -> Lost<WIDTH> {
        Lost { limits, sums: [0.0; WIDTH] }
    }

    /// Adds the next products of each element.
    #[inline(always)]
    pub fn add(&mut self, products: &[[f64; WIDTH]]) {
        let mut sums = self.sums;
        for products in products {
            for i in 0..WIDTH {
                let product = products[i].abs();
                sums[i] += if product < self.limits[i] { product } else { 0.0 };
            }
        }
        self.sums = sums;
    }
}

impl Sum {
    /// The sum of `products` in `lanes` side by side.
    pub fn of(products: &[f64], lanes: usize) -> Sum {
        let mut sums = Sums::<1>::new(lanes);
        sums.add(products.as_chunks().0);
        let [sum] = sums.finish();
        sum
    }

    /// Largest expected sum of squared partial sums: of the order at hand, and on average over all orders. A `chain`
    /// is the number of consecutive additions in one lane.
    fn partial_squares(&self, lanes: usize, chain: usize) -> f64 {
        let lanes = lanes.clamp(1, LANES_MAX) as f64;
        let square = self.value * self.value;
        // Random shares of the products: each lane's sum is S / L on average, and spreads.
        let lane_squares = square / lanes + self.squares * (1.0 - 1.0 / lanes);
        let inside = bridge(chain as f64, lane_squares, self.squares);
        let across = if lanes > 1.0 { bridge(lanes, square, lane_squares) } else { 0.0 };
        self.path.max(inside + across)
    }

    /// Variance of accumulating exact products in `precision`: `lanes` chains of `terms / lanes` additions, or one
    /// chain in an unknown order.
    pub fn variance(&self, precision: Precision, order: Order, lanes: usize) -> f64 {
        match order {
            Order::Lanes => self.chain_variance(precision, lanes, self.terms.div_ceil(lanes.max(1))),
            Order::Any => ROUNDING_VARIANCE * precision.unit * precision.unit * self.any_partial_squares(),
        }
    }

    /// Sum of squared partial sums for the tail of an unknown order.
    fn any_partial_squares(&self) -> f64 {
        self.path.max(bridge(self.terms as f64, self.value * self.value, ANY_ORDER * self.squares))
    }

    /// Variance of accumulating in `precision` where each of the lanes makes `chain` additions.
    pub fn chain_variance(&self, precision: Precision, lanes: usize, chain: usize) -> f64 {
        ROUNDING_VARIANCE * precision.unit * precision.unit * self.partial_squares(lanes, chain)
    }

    /// Variance of summing exact products in tensor cores, `chain` products at a time (0 for all), and these sums in
    /// f32 (docs/numerics.md#tensor-cores).
    pub fn tensor_core_variance(&self, chain: usize) -> f64 {
        let terms = self.terms.max(1) as f64;
        let chain = if chain == 0 { terms } else { terms.min(chain as f64) };
        let (steps, chains) = ((chain / TENSOR_CORE_STEP).ceil(), (terms / chain).ceil());
        let coherence = if self.absolute > 0.0 { self.value.abs() / self.absolute } else { 0.0 };
        let bias = (CUT_MEAN + CUT_PRODUCTS_MEAN * coherence) * steps / 2.0 * self.value;
        let random = CUT_MEAN * CUT_MEAN * 0.375 * steps * steps * self.squares;
        let spread = CUT_SPREAD * (steps / 2.0 * self.squares + steps / 3.0 * self.value * self.value / chains);
        let unit = Precision::F32.unit;
        // In one chain, the partial sums of the order at hand are known: the mean of their errors adds up to at most
        // this (Cauchy-Schwarz), with the coherence that the path shows.
        let ordered = if chains == 1.0 && self.absolute > 0.0 {
            let coherence = (3.0 * self.path / (terms * self.absolute * self.absolute)).sqrt().min(1.0);
            (CUT_MEAN + CUT_PRODUCTS_MEAN * coherence).powi(2) * steps * self.path / TENSOR_CORE_STEP
        } else {
            0.0
        };
        // Of the partial sums in the order at hand, only those after each chain are rounded.
        let rounded = Sum { path: self.path * chains / terms, ..*self };
        unit * unit * ((bias * bias + random).max(ordered) + spread)
            + rounded.chain_variance(Precision::F32, 1, chains as usize)
    }

    /// How much of the sum may get lost in `precision` because a product is below half a unit in the last place of the
    /// partial sum it is added to: one-sided, which no variance describes. In f16 that is no rare event but the fault
    /// of summing in f16, and nothing is taken for lost.
    pub fn stagnation(&self, products: &[f64], precision: Precision) -> f64 {
        let mut lost = Lost::new([self.stagnation_limit(precision)]);
        lost.add(products.as_chunks().0);
        lost.sums[0]
    }

    /// Products below this may get lost, see [`Sum::stagnation`].
    pub fn stagnation_limit(&self, precision: Precision) -> f64 {
        if precision.unit > Precision::F32.unit { 0.0 } else { precision.unit * self.peak }
    }

    /// Variance of rounding each product once.
    pub fn product_variance(&self, precision: Precision) -> f64 {
        ROUNDING_VARIANCE * precision.unit * precision.unit * self.squares
    }

    /// What no order of summation exceeds: `gamma A` with `gamma = n u / (1 - n u)` for `n` roundings on the way of
    /// each product (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). Infinite where `n u` reaches 1.
    pub fn hard_bound(&self, precision: Precision, roundings: usize) -> f64 {
        let error = (self.terms + roundings) as f64 * precision.unit;
        if error < 1.0 { error / (1.0 - error) * self.absolute } else { f64::INFINITY }
    }
}

/// Expected sum of squares of the partial sums of `terms` products in random order.
fn bridge(terms: f64, square_of_sum: f64, sum_of_squares: f64) -> f64 {
    if terms < 1.0 {
        return 0.0;
    }
    let drift = (terms + 1.0) * (2.0 * terms + 1.0) / (6.0 * terms);
    let spread = (terms * terms - 1.0) / (6.0 * terms);
    drift * square_of_sum + spread * sum_of_squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::LAMBDA;
    use crate::tokens::erfc;

    #[test]
    fn products_far_below_the_partial_sum_may_get_lost_whole() {
        let mut products = vec![1e-8; 4000];
        products[0] = 1.0;
        let sum = Sum::of(&products, 1);
        let lost = sum.stagnation(&products, Precision::F32);
        assert!((lost - 3999e-8).abs() < 1e-15, "{lost}");
        let f32_sum = products.iter().fold(0.0f32, |sum, product| sum + *product as f32);
        assert_eq!(f32_sum, 1.0, "all of them are lost in f32");
        assert_eq!(sum.stagnation(&products, Precision::F16), 0.0);
        assert_eq!(sum.stagnation(&products, Precision::F64), 0.0);
    }

    /// Products of both signs and all sizes, the same for one seed.
    fn products(len: usize, seed: u64, outlier: bool) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut all: Vec<f64> = (0..len).map(|_| f64::from((next() + next() + next() + next() - 2.0) as f32)).collect();
        if outlier {
            all[1] *= 300.0;
        }
        all
    }

    fn f32_sum(products: &[f64], lanes: usize) -> f64 {
        let mut partials = vec![0.0f32; lanes];
        for chunk in products.chunks(lanes) {
            for (partial, product) in partials.iter_mut().zip(chunk) {
                *partial += *product as f32;
            }
        }
        f64::from(partials.iter().fold(0.0f32, |sum, partial| sum + partial))
    }

    #[test]
    fn the_noise_of_f32_sums_is_the_predicted_one_for_any_length_lanes_and_data() {
        for (len, lanes, outlier) in [
            (1, 1, false),
            (2, 1, false),
            (33, 1, false),
            (257, 8, false),
            (4096, 1, false),
            (4096, 8, false),
            (1024, 1, true),
            (1024, 8, true),
            (64, 16, false),
        ] {
            let (mut squares, mut worst) = (0.0, 0.0f64);
            let runs = 600;
            for seed in 0..runs {
                let products = products(len, seed + 1, outlier);
                let sum = Sum::of(&products, lanes);
                let sigma = sum.variance(Precision::F32, Order::Lanes, lanes).sqrt();
                let error = f32_sum(&products, lanes) - sum.value;
                let z = if error == 0.0 { 0.0 } else { error / sigma };
                squares += z * z;
                worst = worst.max(z.abs());
                assert!(
                    error.abs() <= sum.hard_bound(Precision::F32, lanes),
                    "{len} terms, {lanes} lanes, seed {seed}"
                );
            }
            let rms = (squares / runs as f64).sqrt();
            assert!(
                rms <= 1.15 && worst <= 6.2,
                "{len} terms, {lanes} lanes, outlier {outlier}: rms {rms}, max {worst}"
            );
            assert!(rms >= 0.5 || len <= 2 || lanes > 8, "{len} terms, {lanes} lanes: too wide, rms {rms}");
        }
    }

    /// Sum of the squared partial sums that `lanes` partial sums, added one after the other, round.
    fn rounded_squares(products: &[f64], lanes: usize) -> f64 {
        let (mut partials, mut squares) = (vec![0.0; lanes], 0.0);
        for (place, product) in products.iter().enumerate() {
            let partial = &mut partials[place % lanes];
            *partial += product;
            squares += if place < lanes { 0.0 } else { *partial * *partial };
        }
        let mut value = 0.0;
        for (lane, partial) in partials.iter().take(products.len()).enumerate() {
            value += partial;
            squares += if lane == 0 { 0.0 } else { value * value };
        }
        squares
    }

    /// The same products in a random order.
    fn shuffled(products: &[f64], seed: u64) -> Vec<f64> {
        let mut state = seed | 1;
        let mut shuffled = products.to_vec();
        for end in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(end, (state >> 33) as usize % (end + 1));
        }
        shuffled
    }

    /// Probability that the error of a sum exceeds 8 standard deviations as predicted for `order`, averaged over
    /// products: Gaussian noise with the variance of the partial sums that `actual` rounds.
    fn beyond_the_limit(order: Order, all: &[Vec<f64>], actual: &dyn Fn(&[f64], u64) -> f64) -> f64 {
        let probability = |(seed, products): (usize, &Vec<f64>)| {
            let variance = ROUNDING_VARIANCE * Precision::F32.unit.powi(2) * actual(products, seed as u64);
            let predicted = Sum::of(products, 1).variance(Precision::F32, order, 1);
            erfc(LAMBDA * (predicted / variance / 2.0).sqrt())
        };
        all.iter().enumerate().map(probability).sum::<f64>() / all.len() as f64
    }

    #[test]
    fn an_unknown_order_exceeds_the_limit_once_in_a_thousand_million_sums() {
        let centred = |mut products: Vec<f64>| {
            let mean = products.iter().sum::<f64>() / products.len() as f64;
            products.iter_mut().for_each(|product| *product -= mean);
            products
        };
        let positive = |products: Vec<f64>| products.into_iter().map(f64::abs).collect();
        let (mut worst, mut worst_of_mean) = (0.0f64, 0.0f64);
        for len in [2usize, 3, 5, 8, 12, 20, 32, 48, 64, 256] {
            let draw = |outlier: bool| (0..4000).map(move |seed| products(len, seed + 1, outlier));
            let kinds: [Vec<Vec<f64>>; 4] = [
                draw(false).collect(),
                draw(true).collect(),
                draw(false).map(centred).collect(),
                draw(false).map(positive).collect(),
            ];
            for all in kinds {
                let in_16_lanes = |products: &[f64], _: u64| rounded_squares(products, 16);
                let permuted = |products: &[f64], seed: u64| rounded_squares(&shuffled(products, seed), 1);
                for actual in [&in_16_lanes as &dyn Fn(&[f64], u64) -> f64, &permuted] {
                    worst = worst.max(beyond_the_limit(Order::Any, &all, actual));
                    worst_of_mean = worst_of_mean.max(beyond_the_limit(Order::Lanes, &all, actual));
                }
            }
        }
        assert!(worst < 1e-9, "{worst:e}");
        assert!(worst_of_mean > 1e-7, "the expectation over all orders is not enough: {worst_of_mean:e}");
    }

    #[test]
    fn the_tail_of_an_unknown_order_costs_coherent_sums_little() {
        let positive: Vec<f64> = products(256, 3, false).into_iter().map(f64::abs).collect();
        let sigma = |products: &[f64], order| Sum::of(products, 1).variance(Precision::F32, order, 1).sqrt();
        let ratio = |products: &[f64]| sigma(products, Order::Any) / sigma(products, Order::Lanes);
        assert!(ratio(&positive) < 1.05, "{}", ratio(&positive));
        let worst = (1..500).map(|seed| ratio(&products(64, seed, false))).fold(0.0, f64::max);
        assert!(worst > 1.5 && worst < ANY_ORDER.sqrt(), "{worst}");
    }

    /// `products` as tensor cores add them: `step` of them and the partial sum at a time, each cut off at `bits` bits
    /// after the first bit of the largest, and the sum at the 24 bits of an f32. The rules are those measured by Fasi,
    /// Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021): 8 products and 24 bits on
    /// Ampere; 16 and 25 on Hopper, as Khattak and Mikaitis (arXiv:2512.07004) found.
    fn tensor_core_sum(products: &[f64], chain: usize, step: usize, bits: i32) -> f64 {
        let exponent = |number: f64| if number == 0.0 { -1000 } else { number.abs().log2().floor() as i32 };
        let cut = |number: f64, unit: f64| (number / unit).trunc() * unit;
        let mut sum = 0.0f32;
        for chain in products.chunks(chain) {
            let mut partial = 0.0f64;
            for step in chain.chunks(step) {
                let largest = step.iter().map(|product| exponent(*product)).fold(exponent(partial), i32::max);
                let unit = f64::from(largest - bits).exp2();
                let exact = step.iter().fold(cut(partial, unit), |sum, product| sum + cut(*product, unit));
                partial = cut(exact, f64::from(exponent(exact) - 23).exp2());
            }
            sum += partial as f32;
        }
        f64::from(sum)
    }

    #[test]
    fn the_noise_of_tensor_cores_is_at_least_theirs_and_not_far_above() {
        for (len, chain, sign) in [
            (64, 64, 0.0),
            (512, 64, 0.0),
            (512, 512, 0.0),
            (4096, 4096, 0.0),
            (4096, 64, 0.0),
            (512, 512, 3.0),
            (4096, 64, 3.0),
        ] {
            for (step, bits) in [(8, 24), (16, 25)] {
                let (mut squares, mut worst, runs) = (0.0, 0.0f64, 300);
                for seed in 0..runs {
                    let products: Vec<f64> =
                        products(len, seed + 1, false).iter().map(|p| f64::from((p + sign) as f32)).collect();
                    let sum = Sum::of(&products, 1);
                    let sigma = sum.tensor_core_variance(if chain == len { 0 } else { chain }).sqrt();
                    let error = tensor_core_sum(&products, chain, step, bits) - sum.value;
                    squares += (error / sigma).powi(2);
                    worst = worst.max((error / sigma).abs());
                    assert!(error.abs() <= 2.0 * sum.hard_bound(Precision::F32, 1), "{len} in {chain}, seed {seed}");
                }
                let rms = (squares / runs as f64).sqrt();
                assert!(rms <= 1.15 && worst <= 6.2, "{len} terms, {chain} at a time, {step}: rms {rms}, max {worst}");
                assert!(rms >= 0.15, "{len} terms, {chain} at a time, {step}: too wide, rms {rms}");
            }
        }
    }

    #[test]
    fn the_noise_of_tensor_cores_covers_sums_that_rise_and_fall() {
        type Mean = fn(f64) -> f64;
        let orders: [(&str, Mean); 3] = [
            ("up, then down", |share| if share < 0.5 { 1.0 } else { -1.0 }),
            ("a wave", |share| (2.0 * std::f64::consts::PI * share).sin()),
            ("three waves", |share| 2.0 * (6.0 * std::f64::consts::PI * share).sin()),
        ];
        for (name, mean) in orders {
            for (step, bits) in [(8, 24), (16, 25)] {
                let (mut squares, mut worst, runs) = (0.0, 0.0f64, 100);
                for seed in 0..runs {
                    let noise = products(4096, seed + 1, false);
                    let of = |(place, noise): (usize, &f64)| f64::from((noise + mean(place as f64 / 4096.0)) as f32);
                    let products: Vec<f64> = noise.iter().enumerate().map(of).collect();
                    let sum = Sum::of(&products, 1);
                    let sigma = sum.tensor_core_variance(0).sqrt();
                    let error = tensor_core_sum(&products, 4096, step, bits) - sum.value;
                    squares += (error / sigma).powi(2);
                    worst = worst.max((error / sigma).abs());
                }
                let rms = (squares / runs as f64).sqrt();
                assert!(rms <= 1.15 && worst <= 6.2, "{name}, {step} at a time: rms {rms}, max {worst}");
                assert!(rms >= 0.08, "{name}, {step} at a time: too wide, rms {rms}");
            }
        }
    }

    #[test]
    fn products_of_a_group_stay_in_one_lane() {
        // Large ones that cancel: in lanes of their own, or in one after the other.
        let products = [[4.0], [-3.0], [5.0], [-5.0], [7.0], [1.0]];
        let grouped = |lanes, len| {
            let mut sums = Sums::<1>::new(lanes);
            sums.add_groups(&products, len);
            let [sum] = sums.finish();
            (sum.terms, sum.value, sum.path)
        };
        // 4, 1, 8 and 9 in one lane, 5 and 0 in the other; then both lanes.
        assert_eq!(grouped(2, 2), (6, 9.0, 16.0 + 1.0 + 64.0 + 81.0 + 25.0 + 0.0 + 81.0 + 81.0));
        assert_eq!(grouped(1, 2), grouped(1, 1));
        let [alone] = {
            let mut sums = Sums::<1>::new(2);
            sums.add(&products);
            sums.finish()
        };
        assert_eq!(grouped(2, 1), (alone.terms, alone.value, alone.path));
    }

    #[test]
    fn one_product_is_rounded_once() {
        let sum = Sum::of(&[3.0], 1);
        assert_eq!(
            sum.variance(Precision::F32, Order::Lanes, 1),
            ROUNDING_VARIANCE * (3.0 * Precision::F32.unit).powi(2)
        );
    }

    #[test]
    fn the_sum_of_nothing_is_zero_and_certain() {
        let sum = Sum::of(&[], 8);
        assert_eq!(
            (sum.value, sum.variance(Precision::F32, Order::Lanes, 8), sum.hard_bound(Precision::F32, 0)),
            (0.0, 0.0, 0.0)
        );
    }
}
