//! Products of eight rows of weights with one row of activations after the other, each of them as if it were alone.
//!
//! ```text
//!   rows of w ──decoded once──▶ [k][row]    each k: [row 0 ... row 7] * x[k] ─▶ R0, and as declared ─▶ blocks ─▶ Sums
//! ```
//!
//! Products and additions are rounded one by one, and the order of additions is fixed, so a sum depends neither on the
//! instruction set nor on other rows. Declared products are added in the order of the device, because their partial
//! sums determine the noise. Exact sums, and sums within a block (which the device adds as integers), use [`CHAINS`]
//! independent accumulators, because in a single chain each addition waits for the previous one. Each product then
//! passes through fewer additions, so the hard bound for a single chain still covers the verifier's own rounding.

mod minima;
mod places;
mod shared;

pub(super) use places::Places;
pub(super) use shared::{Covariance, Shared, shared_loss};

use super::dot::{Absolute, Accumulation, Loss, weight};
use crate::activation::{BLOCK_LEN, Row};
use crate::minimum;
use crate::operand::Operand;
use crate::precision::{Precision, ROUNDING_VARIANCE};
use crate::statistics::Expected;
use crate::sum::{Lost, Sums};
use minima::BlockSum;
use multiversion::multiversion;
use std::ops::{Deref, DerefMut};
use trueup_runtime::device::reference::side_by_side;
use trueup_runtime::profile::{Accumulator, Activations, Profile, Rounding, Weights};

/// Rows of weights that are looked at side by side.
pub(super) const ROWS: usize = 8;

/// The fewest elements that share a minimum, in q2_k.
pub(super) const MINIMUM_LEN: usize = 16;

/// A number for each row of a panel.
type Numbers = [f64; ROWS];

/// Elements of a row that are decoded at a time: few enough for the L1 cache, and a multiple of every block length.
const DECODED: usize = 256;

/// Chains of additions of a sum: element `k` is added to chain `k % CHAINS`.
const CHAINS: usize = 4;

/// A sum in several chains.
#[derive(Clone, Copy, Default)]
struct Chains([Numbers; CHAINS]);

impl Chains {
    /// The whole sum.
    #[inline(always)]
    fn total(&self) -> Numbers {
        let [a, b, c, d] = &self.0;
        let mut total = [0.0; ROWS];
        for i in 0..ROWS {
            total[i] = (a[i] + b[i]) + (c[i] + d[i]);
        }
        total
    }
}

/// The activations of one token.
pub(super) struct Token {
    exact: Vec<f64>,
    declared: Row,
    /// What minima of blocks are multiplied with; empty where blocks are not summed in integers.
    sums: Vec<BlockSum>,
    /// The same for minima of half a block.
    half_sums: Vec<BlockSum>,
    /// The smallest magnitude of a declared activation that is not zero.
    least: f64,
}

impl Token {
    /// Column `column` of the activations, as it is and as declared.
    pub(super) fn of(x: &Operand, column: usize, profile: &Profile) -> Token {
        let exact = x.row(column, &mut Vec::new()).to_vec();
        let declared = Row::declared(&exact, profile.activations);
        let least = declared.values.iter().fold(f64::INFINITY, |least, x| smaller(least, x.abs()));
        let integers = profile.accumulator == Accumulator::Int32ThenF32;
        let of_row = |len| if integers { BlockSum::of_row(&declared.values, len) } else { Vec::new() };
        let (sums, half_sums) = (of_row(BLOCK_LEN), of_row(BLOCK_LEN / 2));
        Token { exact, declared, sums, half_sums, least }
    }

    /// What minima of this many elements are multiplied with.
    #[inline(always)]
    fn sums_of(&self, len: usize) -> &[BlockSum] {
        if len == BLOCK_LEN { &self.sums } else { &self.half_sums }
    }
}

/// The smaller of two magnitudes, of which 0 does not count.
#[inline(always)]
fn smaller(least: f64, magnitude: f64) -> f64 {
    if magnitude > 0.0 && magnitude < least { magnitude } else { least }
}

/// Columns that start at a cache line: loading a vector that crosses two lines takes twice as long.
#[derive(Default)]
struct Columns {
    storage: Vec<f64>,
    first: usize,
    count: usize,
}

impl Columns {
    /// Sets the number of columns; their contents are not specified.
    fn resize(&mut self, count: usize) {
        // One more, because the storage may start inside a line.
        let len = self.storage.len().max((count + 1) * ROWS);
        self.storage.resize(len, 0.0);
        // Unaligned columns are slower, but right.
        self.first = Some(self.storage.as_ptr().align_offset(LINE_BYTES)).filter(|first| *first < ROWS).unwrap_or(0);
        self.count = count;
    }
}

impl Deref for Columns {
    type Target = [Numbers];

    fn deref(&self) -> &[Numbers] {
        self.storage.get(self.first..).unwrap_or_default().as_chunks().0.get(..self.count).unwrap_or_default()
    }
}

impl DerefMut for Columns {
    fn deref_mut(&mut self) -> &mut [Numbers] {
        let columns = self.storage.get_mut(self.first..).unwrap_or_default().as_chunks_mut().0;
        columns.get_mut(..self.count).unwrap_or_default()
    }
}

/// Bytes of a cache line, and of the largest vector.
const LINE_BYTES: usize = 64;

/// Some rows of weights side by side, and what is asked of them for every token.
#[derive(Default)]
pub(super) struct Panel {
    decoded: [Vec<f64>; ROWS],
    columns: Columns,
    /// The same as declared, where that is not what is stored; else empty.
    rounded: Columns,
    /// Sums of squares and of absolute values of each block; empty where activations are not quantized.
    blocks: Vec<[Numbers; 2]>,
    /// Elements whose products are summed in integers, if any are: a block or half of one.
    sub_block_len: usize,
    /// The minimum of each sub-block; empty where these have none, or are not summed in integers.
    minima: Vec<Numbers>,
    /// The minimum of each [`MINIMUM_LEN`] elements, where sums of activations are multiplied with it; else empty.
    apart: Vec<Numbers>,
    /// The smallest magnitude of a weight that is not zero, for each row.
    least: Numbers,
}

impl Panel {
    /// Takes `count` rows of weights from row `first` on; those beyond, up to [`ROWS`], are of no meaning.
    pub(super) fn read(&mut self, weights: &Operand, first: usize, count: usize, profile: &Profile) {
        let quantized =
            matches!(profile.activations, Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K);
        self.columns.resize(weights.ty.shape[0]);
        self.blocks.clear();
        self.least = [f64::INFINITY; ROWS];
        for (part, columns) in self.columns.chunks_mut(DECODED).enumerate() {
            let mut rows = [&[] as &[f64]; ROWS];
            for ((row, buffer), place) in rows.iter_mut().zip(&mut self.decoded).zip(first..first + count) {
                *row = weights.row_part(place, part * DECODED, columns.len(), buffer);
            }
            side_by_side(&rows[..count], columns);
            survey(columns, quantized.then_some(&mut self.blocks), &mut self.least);
        }
        self.round(profile.weights);
        self.split(weights, first, count, profile);
        self.sub_block_len = minimum::sub_block_len(weights.ty.dtype);
        self.minima.clear();
        if profile.accumulator == Accumulator::Int32ThenF32 && minimum::is_apart(weights) {
            self.minima.resize(self.columns.len().div_ceil(self.sub_block_len), [0.0; ROWS]);
            for i in 0..count {
                let minima = minimum::of_sub_blocks(weights, first + i);
                self.minima.iter_mut().zip(minima).for_each(|(place, minimum)| place[i] = minimum);
            }
        }
    }
}

impl Panel {
    /// Rounds weights as declared, and looks for the smallest of what they become.
    fn round(&mut self, weights: Weights) {
        self.rounded.resize(0);
        if weights == Weights::Unchanged {
            return;
        }
        self.rounded.resize(self.columns.len());
        for (rounded, column) in self.rounded.iter_mut().zip(self.columns.iter()) {
            *rounded = column.map(|element| weight(weights, element));
        }
        self.find_least();
    }

    fn find_least(&mut self) {
        self.least = [f64::INFINITY; ROWS];
        for column in self.rounded.iter() {
            self.least.iter_mut().zip(column).for_each(|(least, weight)| *least = smaller(*least, weight.abs()));
        }
    }

    /// Parts weights from their minima where these are multiplied with sums of activations.
    fn split(&mut self, weights: &Operand, first: usize, count: usize, profile: &Profile) {
        self.apart.clear();
        let sums = matches!(profile.activations, Activations::Q8_1 { .. } | Activations::Q8K);
        if !sums || profile.accumulator == Accumulator::Int32ThenF32 || !minimum::is_split(weights.ty.dtype) {
            return;
        }
        self.rounded.resize(self.columns.len());
        self.rounded.copy_from_slice(&self.columns);
        self.apart.resize(self.columns.len().div_ceil(MINIMUM_LEN), [0.0; ROWS]);
        for i in 0..count {
            let minima = minimum::of_elements(weights, first + i);
            self.rounded.iter_mut().zip(&minima).for_each(|(column, minimum)| column[i] -= minimum);
            self.apart.iter_mut().zip(minima.chunks(MINIMUM_LEN)).for_each(|(place, minima)| place[i] = minima[0]);
        }
        self.find_least();
    }

    /// Weights as declared.
    #[inline(always)]
    fn declared(&self) -> &[Numbers] {
        if self.rounded.is_empty() { &self.columns } else { &self.rounded }
    }
}

/// Finds the sums of squares and of absolute values of each block, if `blocks` are wanted, and the smallest magnitudes.
/// Three sums side by side need no chains.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn survey(columns: &[Numbers], mut blocks: Option<&mut Vec<[Numbers; 2]>>, least: &mut Numbers) {
    let mut smallest = *least;
    for columns in columns.chunks(BLOCK_LEN) {
        let (mut squares, mut absolute) = ([0.0; ROWS], [0.0; ROWS]);
        for column in columns {
            for i in 0..ROWS {
                let magnitude = column[i].abs();
                squares[i] += column[i] * column[i];
                absolute[i] += magnitude;
                smallest[i] = smaller(smallest[i], magnitude);
            }
        }
        if let Some(blocks) = &mut blocks {
            blocks.push([squares, absolute]);
        }
    }
    *least = smallest;
}

/// What each row's product with each of the tokens should be.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
pub(super) fn products(
    accumulation: &Accumulation,
    profile: &Profile,
    panel: &Panel,
    tokens: &[Token],
    results: &mut Vec<[Expected; ROWS]>,
) {
    let mut sums: Vec<ProductSums> = tokens.iter().map(|_| ProductSums::new(accumulation, panel)).collect();
    for first in (0..panel.columns.len()).step_by(DECODED) {
        let blocks = first / BLOCK_LEN..(first + DECODED).min(panel.columns.len()).div_ceil(BLOCK_LEN);
        for (sums, token) in sums.iter_mut().zip(tokens) {
            blocks.clone().for_each(|block| sums.add_block(accumulation, profile, panel, token, block));
        }
    }
    results.clear();
    results.extend(sums.iter_mut().zip(tokens).map(|(sums, token)| sums.finish(accumulation, panel, token)));
}

/// The sums of one token's products. A group of columns is added for all tokens before the next group, so that it stays
/// in the L1 cache.
struct ProductSums {
    exact: Chains,
    absolute: Chains,
    apart: Numbers,
    losses: Losses,
    sums: Sums<ROWS>,
    of_blocks: Vec<Numbers>,
}

impl ProductSums {
    fn new(accumulation: &Accumulation, panel: &Panel) -> ProductSums {
        let parts = if panel.minima.is_empty() { 1 } else { 2 };
        let of_blocks =
            if accumulation.blocks() { parts * panel.columns.len().div_ceil(panel.sub_block_len) } else { 0 };
        ProductSums {
            exact: Chains::default(),
            absolute: Chains::default(),
            apart: [0.0; ROWS],
            losses: Losses::default(),
            sums: Sums::new(accumulation.lanes),
            of_blocks: Vec::with_capacity(of_blocks),
        }
    }

    #[inline(always)]
    fn add_block(
        &mut self,
        accumulation: &Accumulation,
        profile: &Profile,
        panel: &Panel,
        token: &Token,
        block: usize,
    ) {
        let place = block * BLOCK_LEN..((block + 1) * BLOCK_LEN).min(panel.columns.len());
        let (columns, weights) = (&panel.columns[place.clone()], &panel.declared()[place.clone()]);
        let (x, declared) = (&token.exact[place.clone()], &token.declared.values[place]);
        let steps = Steps::of(profile.activations);
        let mut whole = [0.0; ROWS];
        if accumulation.blocks() {
            let (len, first) = (panel.sub_block_len, block * BLOCK_LEN / panel.sub_block_len);
            let parts = columns.chunks(len).zip(weights.chunks(len)).zip(x.chunks(len)).zip(declared.chunks(len));
            for (place, (((columns, weights), x), declared)) in parts.enumerate() {
                let total = sum_block([columns, weights], [x, declared], &mut self.exact, &mut self.absolute);
                let place = first + place;
                for i in 0..ROWS {
                    whole[i] += total[i];
                }
                if let (Some(minima), Some(x)) = (panel.minima.get(place), token.sums_of(len).get(place)) {
                    minima::add_absolute(&mut self.apart, minima, x);
                    self.of_blocks.extend(minima::parts(&total, minima, x));
                } else {
                    self.of_blocks.push(total);
                }
            }
        } else {
            let mut buffer = [[0.0; ROWS]; BLOCK_LEN];
            let products = &mut buffer[..columns.len()];
            multiply([columns, weights], [x, declared], &mut self.exact, products);
            if steps.as_ref().is_some_and(|steps| steps.scale > 0.0) {
                whole = totals(products);
            }
            self.sums.add(products);
        }
        if let (Some(steps), Some(weights), Some(step)) =
            (&steps, panel.blocks.get(block), token.declared.steps.get(block))
        {
            self.losses.add(steps, *step, weights, &whole);
        }
    }

    #[inline(always)]
    fn finish(&mut self, accumulation: &Accumulation, panel: &Panel, token: &Token) -> [Expected; ROWS] {
        let ProductSums { exact, absolute, apart, losses, sums, of_blocks } = self;
        let blocks = accumulation.blocks();
        // Both products of a block are one lane's.
        sums.add_groups(of_blocks, if panel.minima.is_empty() { 1 } else { 2 });
        for (element, step) in &token.declared.ties {
            losses.add_tie(&panel.columns[*element], *step);
        }
        // Products of minima and sums follow those of all codes.
        if !panel.apart.is_empty() {
            sums.add(&minima::of_sums(&panel.apart, &token.declared, losses));
        }
        let sums = sums.finish();
        let limits = sums.map(|sum| sum.stagnation_limit(accumulation.precision));
        let lost = if blocks { lost(of_blocks, limits) } else { lost_products(panel, token, limits) };
        let (exact, absolute) = (exact.total(), absolute.total());
        std::array::from_fn(|i| {
            let elements = if blocks { absolute[i] } else { sums[i].absolute };
            let absolute = Absolute { elements, parts: elements + apart[i] };
            accumulation.of_sum(&sums[i], lost[i], exact[i], absolute, &losses.of(i))
        })
    }
}

/// The sum of the declared products of some elements, from a multiple of [`CHAINS`] on; adds the exact products to
/// `exact`, and the absolute values of the declared ones to `absolute`.
#[inline(always)]
fn sum_block(
    [columns, weights]: [&[Numbers]; 2],
    [x, declared]: [&[f64]; 2],
    exact: &mut Chains,
    absolute: &mut Chains,
) -> Numbers {
    let mut sums = [*exact, *absolute, Chains::default()];
    let (columns, last_columns) = columns.as_chunks::<CHAINS>();
    let (weights, last_weights) = weights.as_chunks::<CHAINS>();
    let ((x, last_x), (declared, last_declared)) = (x.as_chunks::<CHAINS>(), declared.as_chunks::<CHAINS>());
    for (((columns, weights), x), declared) in columns.iter().zip(weights).zip(x).zip(declared) {
        for chain in 0..CHAINS {
            add_element(&mut sums, chain, [&columns[chain], &weights[chain]], [x[chain], declared[chain]]);
        }
    }
    for (chain, column) in last_columns.iter().enumerate() {
        add_element(&mut sums, chain, [column, &last_weights[chain]], [last_x[chain], last_declared[chain]]);
    }
    let totals;
    [*exact, *absolute, totals] = sums;
    totals.total()
}

#[inline(always)]
fn add_element(
    [exact, absolute, totals]: &mut [Chains; 3],
    chain: usize,
    [column, weights]: [&Numbers; 2],
    [x, declared]: [f64; 2],
) {
    for i in 0..ROWS {
        let product = weights[i] * declared;
        exact.0[chain][i] += column[i] * x;
        absolute.0[chain][i] += product.abs();
        totals.0[chain][i] += product;
    }
}

/// Adds a block's exact products to `exact`, and gives the declared ones.
#[inline(always)]
fn multiply(
    [columns, weights]: [&[Numbers]; 2],
    [x, declared]: [&[f64]; 2],
    exact: &mut Chains,
    products: &mut [Numbers],
) {
    let mut sums = *exact;
    let pairs = columns.chunks(CHAINS).zip(weights.chunks(CHAINS)).zip(x.chunks(CHAINS)).zip(declared.chunks(CHAINS));
    for (products, (((columns, weights), x), declared)) in products.chunks_mut(CHAINS).zip(pairs) {
        for (chain, product) in products.iter_mut().enumerate() {
            for i in 0..ROWS {
                sums.0[chain][i] += columns[chain][i] * x[chain];
                product[i] = weights[chain][i] * declared[chain];
            }
        }
    }
    *exact = sums;
}

#[inline(always)]
fn scaled(mut column: Numbers, x: f64) -> Numbers {
    for weight in &mut column {
        *weight *= x;
    }
    column
}

/// The sum of all products of each row.
#[inline(always)]
fn totals(products: &[Numbers]) -> Numbers {
    let mut totals = Chains::default();
    for products in products.chunks(CHAINS) {
        for (total, product) in totals.0.iter_mut().zip(products) {
            for i in 0..ROWS {
                total[i] += product[i];
            }
        }
    }
    totals.total()
}

/// What gets lost of sums of the blocks `sums`.
#[inline(always)]
fn lost(sums: &[Numbers], limits: Numbers) -> Numbers {
    let mut lost = Lost::new(limits);
    lost.add(sums);
    lost.sums
}

/// What gets lost of the sums of products, which are computed again where that can be anything.
#[inline(always)]
fn lost_products(panel: &Panel, token: &Token, limits: Numbers) -> Numbers {
    // No product that is not zero is below that of the smallest factors: rounding keeps the order.
    if panel.least.iter().zip(&limits).all(|(least, limit)| least * token.least >= *limit) {
        return [0.0; ROWS];
    }
    let (mut lost, mut buffer) = (Lost::new(limits), [[0.0; ROWS]; BLOCK_LEN]);
    for (columns, x) in panel.declared().chunks(BLOCK_LEN).zip(token.declared.values.chunks(BLOCK_LEN)) {
        let products = &mut buffer[..columns.len()];
        for ((products, column), x) in products.iter_mut().zip(columns).zip(x) {
            *products = scaled(*column, *x);
        }
        lost.add(products);
    }
    lost.sums
}

/// Variances of what 8-bit activations are off: each by up to half a step, evenly, and the scale by its f16 rounding.
struct Steps {
    /// In squares of a step.
    activation: f64,
    /// In squares of a block's sum.
    scale: f64,
}

impl Steps {
    /// Those of the declaration; `None` where activations are not quantized.
    #[inline(always)]
    fn of(activations: Activations) -> Option<Steps> {
        let (rounding, scale_f16) = match activations {
            Activations::Unchanged | Activations::F16 | Activations::Bf16 => return None,
            Activations::Q8 { rounding, scale_f16 } => (rounding, scale_f16),
            Activations::Q8_1 { rounding } => (rounding, true),
            Activations::Q8K => (Rounding::HalfEven, false),
        };
        let activation = match rounding {
            Rounding::HalfEven | Rounding::HalfAway => 1.0 / 12.0,
            Rounding::Truncate => 1.0 / 3.0,
        };
        let scale = if scale_f16 { ROUNDING_VARIANCE * Precision::F16.unit * Precision::F16.unit } else { 0.0 };
        Some(Steps { activation, scale })
    }
}

/// What 8-bit activations cost, for each row as [`Loss`] has it.
#[derive(Default)]
struct Losses {
    variance: Numbers,
    ties: Numbers,
    coarse: Numbers,
}

impl Losses {
    /// Adds a block whose codes are `step` apart: of `weights` the sums of squares and of absolute values, and the sum
    /// of its products.
    #[inline(always)]
    fn add(&mut self, steps: &Steps, step: f64, weights: &[Numbers; 2], block: &Numbers) {
        let [squares, absolute] = weights;
        for i in 0..ROWS {
            self.variance[i] += step * step * steps.activation * squares[i] + steps.scale * block[i] * block[i];
            self.coarse[i] += step * absolute[i];
        }
    }

    /// Adds an activation whose code may be the next one, `step` apart.
    #[inline(always)]
    fn add_tie(&mut self, weights: &Numbers, step: f64) {
        for (ties, weight) in self.ties.iter_mut().zip(weights) {
            *ties += step * weight.abs();
        }
    }

    /// Adds products one factor of which is rounded.
    fn add_rounded(&mut self, products: &Numbers, precision: Precision) {
        for (variance, product) in self.variance.iter_mut().zip(products) {
            *variance += precision.variance(*product);
        }
    }

    #[inline(always)]
    fn of(&self, row: usize) -> Loss {
        Loss { variance: self.variance[row], ties: self.ties[row], coarse: self.coarse[row] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::testing::{encoded, f32_type, numbers};
    use trueup_blocks::DType;
    use trueup_graph::TensorType;
    use trueup_runtime::profile::Products;

    /// A sum in [`CHAINS`] chains.
    fn chained(terms: impl Iterator<Item = f64>) -> f64 {
        let mut chains = [0.0; CHAINS];
        terms.enumerate().for_each(|(k, term)| chains[k % CHAINS] += term);
        (chains[0] + chains[1]) + (chains[2] + chains[3])
    }

    /// The same element by element: the readable twin. `minima` are those of blocks, where these are multiplied apart.
    fn plain(
        accumulation: &Accumulation,
        profile: &Profile,
        row: &[f64],
        minima: Option<&[f64]>,
        token: &Token,
    ) -> Expected {
        let exact = chained(row.iter().zip(&token.exact).map(|(w, x)| w * x));
        let products: Vec<f64> = row.iter().zip(&token.declared.values).map(|(w, x)| w * x).collect();
        let sums: Vec<f64> = products.chunks(BLOCK_LEN).map(|block| chained(block.iter().copied())).collect();
        let mut loss = Loss::default();
        if let Some(Steps { activation, scale }) = Steps::of(profile.activations) {
            for ((weights, step), sum) in row.chunks(BLOCK_LEN).zip(&token.declared.steps).zip(&sums) {
                let squares: f64 = weights.iter().map(|w| w * w).sum();
                loss.variance += step * step * activation * squares + scale * sum * sum;
                loss.coarse += step * weights.iter().map(|w| w.abs()).sum::<f64>();
            }
        }
        for (element, step) in &token.declared.ties {
            loss.ties += step * row[*element].abs();
        }
        if !accumulation.blocks() {
            return accumulation.expected(&products, exact, None, &loss);
        }
        let elements = chained(products.iter().map(|product| product.abs()));
        let Some(minima) = minima else {
            return accumulation.expected(&sums, exact, Some(Absolute { elements, parts: elements }), &loss);
        };
        let (mut both, mut apart) = (Vec::new(), 0.0);
        for ((sum, minimum), x) in sums.iter().zip(minima).zip(token.declared.values.chunks(BLOCK_LEN)) {
            let all: f64 = x.iter().sum();
            both.extend([sum - minimum * all, minimum * f64::from(all as f32)]);
            apart += 2.0 * minimum.abs() * x.iter().map(|x| x.abs()).sum::<f64>();
        }
        let mut sums = Sums::<1>::new(accumulation.lanes);
        sums.add_groups(both.as_chunks().0, 2);
        let [sum] = sums.finish();
        let stagnation = sum.stagnation(&both, accumulation.precision);
        accumulation.of_sum(&sum, stagnation, exact, Absolute { elements, parts: elements + apart }, &loss)
    }

    fn bits(expected: &Expected) -> [u64; 7] {
        let Expected { exact, declared, sigma, sigma_exact, bound, ties, coarse } = *expected;
        [exact, declared, sigma, sigma_exact, bound, ties, coarse].map(f64::to_bits)
    }

    fn profiles() -> Vec<Profile> {
        let q8 = |rounding, scale_f16| Activations::Q8 { rounding, scale_f16 };
        let activations =
            [Activations::Unchanged, Activations::F16, q8(Rounding::HalfEven, false), q8(Rounding::Truncate, true)];
        let accumulators = [0, 64].map(|chain| Accumulator::TensorCore { chain }).into_iter().chain([
            Accumulator::F64,
            Accumulator::F32,
            Accumulator::F16,
            Accumulator::Int32ThenF32,
        ]);
        let lanes = [1, 5, 32, 100];
        let pairs = accumulators.flat_map(|accumulator| activations.map(|activations| (accumulator, activations)));
        let profiles = pairs.flat_map(|(accumulator, activations)| {
            lanes.map(|lanes| Profile { activations, accumulator, lanes, products: Products::Rounded, ..Profile::F32 })
        });
        profiles.collect()
    }

    #[test]
    fn rows_side_by_side_have_the_bits_that_each_has_alone() {
        for (len, rows) in [(1, 3), (32, 8), (45, 7), (96, 8), (300, 1)] {
            let (mut w, mut x) = (numbers(len * rows, 31), numbers(len * 3, 32));
            // Some are lost beside the largest, some are zero, and some lie between two codes.
            w.iter_mut().step_by(7).for_each(|w| *w *= 1e-9);
            w.iter_mut().step_by(11).for_each(|w| *w = 0.0);
            x.iter_mut().step_by(5).for_each(|x| *x = 0.5);
            x[0] = 127.0;
            let (weights, x) =
                (Operand::numbers(f32_type(&[len, rows]), &w), Operand::numbers(f32_type(&[len, 3]), &x));
            for profile in profiles() {
                let accumulation = Accumulation::new(&profile, Precision::F16, true);
                let tokens: Vec<Token> = (0..3).map(|column| Token::of(&x, column, &profile)).collect();
                let (mut panel, mut found) = (Panel::default(), Vec::new());
                panel.read(&weights, 0, rows, &profile);
                products(&accumulation, &profile, &panel, &tokens, &mut found);
                for (token, found) in tokens.iter().zip(&found) {
                    for (row, found) in w.chunks(len).zip(found) {
                        let expected = plain(&accumulation, &profile, row, None, token);
                        assert_eq!(bits(found), bits(&expected), "{found:?} for {expected:?}, {len} of {profile:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_of_blocks_have_the_bits_that_each_has_alone_with_and_without_minima() {
        const LEN: usize = 96;
        let mut x = numbers(LEN * 3, 36);
        x.iter_mut().step_by(5).for_each(|x| *x = 0.5);
        let x = Operand::numbers(f32_type(&[LEN, 3]), &x);
        for dtype in [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q8_1] {
            let affine = matches!(dtype, DType::Q4_1 | DType::Q5_1);
            let (ty, bytes) = encoded(dtype, &[LEN, 7], &numbers(LEN * 7, 35));
            let (weights, w) = (Operand::blocks(ty, &bytes), crate::operand::decode(&ty, &bytes));
            for profile in profiles() {
                let blocks = profile.accumulator == Accumulator::Int32ThenF32;
                let accumulation = Accumulation::with_weights(&profile, Precision::F32, &weights);
                let as_new = Accumulation::new(&profile, Precision::F32, affine && !blocks);
                let tokens: Vec<Token> = (0..3).map(|column| Token::of(&x, column, &profile)).collect();
                let (mut panel, mut found) = (Panel::default(), Vec::new());
                panel.read(&weights, 2, 5, &profile);
                products(&accumulation, &profile, &panel, &tokens, &mut found);
                for (token, found) in tokens.iter().zip(&found) {
                    for (row, found) in (2..7).zip(found) {
                        let minima: Vec<f64> = bytes[row * bytes.len() / 7..]
                            .chunks(dtype.block_bytes())
                            .take(3)
                            .map(|block| half::f16::from_le_bytes([block[2], block[3]]).to_f64())
                            .collect();
                        let minima = (affine && blocks).then_some(minima.as_slice());
                        let expected = plain(&as_new, &profile, &w[row * LEN..][..LEN], minima, token);
                        assert_eq!(bits(found), bits(&expected), "{found:?} for {expected:?}, {dtype} of {profile:?}");
                    }
                }
            }
        }
    }

    /// Bytes of 256 elements and the minimum of each 16 elements, in q2_k: scales are 0.25, and of minima 0.125. Those
    /// of nvfp4 are any but NaN.
    fn block_of_16(dtype: DType) -> (Vec<u8>, Vec<f64>) {
        let len = 256 / dtype.block_len() * dtype.block_bytes();
        let mut bytes: Vec<u8> = (0..len).map(|place| (place * 151 % 253) as u8).collect();
        if dtype == DType::Nvfp4 {
            return (bytes, Vec::new());
        }
        let at = bytes.len() - if dtype == DType::Q2K { 4 } else { 2 };
        bytes[at..at + 2].copy_from_slice(&[0x00, 0x34]);
        if dtype != DType::Q2K {
            return (bytes, Vec::new());
        }
        bytes[at + 2..].copy_from_slice(&[0x00, 0x30]);
        let minima = bytes[..16].iter().map(|fields| -0.125 * f64::from(fields >> 4)).collect();
        (bytes, minima)
    }

    /// docs/numerics.md#sums-of-products, written out: sums of 16 products are exact; with a minimum they have two
    /// parts. Each part is multiplied by one rounded factor and added to one f32 sum.
    #[test]
    fn sub_blocks_of_16_have_the_noise_and_the_bound_of_their_formula() {
        const U: f64 = 1.0 / (1u64 << 24) as f64;
        let profile = Profile {
            activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
            accumulator: Accumulator::Int32ThenF32,
            ..Profile::F32
        };
        let x = numbers(256, 37);
        let x = Operand::numbers(f32_type(&[256, 1]), &x);
        for dtype in [DType::Q2K, DType::Q3K, DType::Q6K, DType::Nvfp4] {
            let (bytes, minima) = block_of_16(dtype);
            let ty = TensorType::new(dtype, &[256, 1]);
            let (weights, w) = (Operand::blocks(ty, &bytes), crate::operand::decode(&ty, &bytes));
            let (mut panel, mut found) = (Panel::default(), Vec::new());
            panel.read(&weights, 0, 1, &profile);
            let token = Token::of(&x, 0, &profile);
            let accumulation = Accumulation::with_weights(&profile, Precision::F32, &weights);
            products(&accumulation, &profile, &panel, std::slice::from_ref(&token), &mut found);

            let (mut parts, mut absolute) = (Vec::new(), 0.0);
            for (j, (w, x)) in w.chunks(16).zip(token.declared.values.chunks(16)).enumerate() {
                let total: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
                absolute += w.iter().zip(x).map(|(w, x)| (w * x).abs()).sum::<f64>();
                let Some(minimum) = minima.get(j) else {
                    parts.push(total);
                    continue;
                };
                let sum: f64 = x.iter().sum();
                parts.extend([total - minimum * sum, minimum * f64::from(sum as f32)]);
                absolute += 2.0 * minimum.abs() * x.iter().map(|x| x.abs()).sum::<f64>();
            }
            let (n, squares) = (parts.len() as f64, parts.iter().map(|part| part * part).sum::<f64>());
            let (mut sum, mut path) = (0.0, 0.0);
            parts.iter().for_each(|part| {
                sum += part;
                path += sum * sum;
            });
            let any_order = ((n + 1.0) * (2.0 * n + 1.0) * sum * sum + (n * n - 1.0) * squares) / (6.0 * n);
            let sigma = (0.18 * U * U * (f64::max(path, any_order) + squares)).sqrt();
            // The largest number of roundings on the way of a part: its factor, each addition, and that of the lane.
            let roundings = (n + 2.0) * U;
            let bound = roundings / (1.0 - roundings) * absolute;
            let found = found[0][0];
            let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-6;
            assert_eq!(parts.len(), if dtype == DType::Q2K { 32 } else { 16 });
            assert!(close(found.declared, sum), "{dtype}: declared {}, expected {sum}", found.declared);
            assert!(close(found.sigma, sigma), "{dtype}: sigma {:e}, expected {sigma:e}", found.sigma);
            assert!(close(found.bound, bound), "{dtype}: bound {:e}, expected {bound:e}", found.bound);
            assert_eq!(found.ties, 0.0, "{dtype}: no code is a tie, and no part is lost");
        }
    }

    /// The smallest scale of mxfp4 times that of the activations is a subnormal number, 1.5 steps of 2^-149, and f32
    /// holds 2 of them. All codes are the largest, 6.
    #[test]
    fn a_factor_below_the_normal_numbers_stays_within_the_bound() {
        let profile = Profile {
            activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
            accumulator: Accumulator::Int32ThenF32,
            ..Profile::F32
        };
        let mut bytes = [0x77; 17];
        bytes[0] = 0;
        let weights = Operand::blocks(TensorType::new(DType::Mxfp4, &[32, 1]), &bytes);
        let x = [127.0 * 1.5 * 2f64.powi(-21); 32];
        let token = Token::of(&Operand::numbers(f32_type(&[32, 1]), &x), 0, &profile);
        let (mut panel, mut found) = (Panel::default(), Vec::new());
        panel.read(&weights, 0, 1, &profile);
        let accumulation = Accumulation::with_weights(&profile, Precision::F32, &weights);
        products(&accumulation, &profile, &panel, std::slice::from_ref(&token), &mut found);
        let (step, sum) = (2f64.powi(-149), 32.0 * 12.0 * 127.0);
        let found = found[0][0];
        assert_eq!(found.declared, 1.5 * step * sum);
        assert!(2.0 * step * sum - found.declared <= found.bound, "bound {:e}", found.bound / step);
    }

    #[test]
    fn what_is_no_number_stays_with_its_row() {
        let (mut w, x) = (numbers(64 * 3, 33), numbers(64, 34));
        (w[70], w[130]) = (f64::NAN, f64::INFINITY);
        let weights = Operand::numbers(f32_type(&[64, 3]), &w);
        let token = [Token::of(&Operand::numbers(f32_type(&[64, 1]), &x), 0, &Profile::F32)];
        let (mut panel, mut found) = (Panel::default(), Vec::new());
        panel.read(&weights, 0, 3, &Profile::F32);
        let accumulation = Accumulation::new(&Profile::F32, Precision::F32, false);
        products(&accumulation, &Profile::F32, &panel, &token, &mut found);
        let expected = plain(&accumulation, &Profile::F32, &w[..64], None, &token[0]);
        assert_eq!(bits(&found[0][0]), bits(&expected));
        assert!(found[0][1].exact.is_nan() && found[0][2].exact.is_infinite());
    }
}
