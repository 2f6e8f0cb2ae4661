//! How far products may be off because an activation that is known up to some noise lies close to where its rounding
//! changes.
//!
//! ```text
//!   x / d  ──────────┼─ . ─────────      noise may carry the activation across the border between two codes, and the
//! code is d off
//!                  border
//! ```
//!
//! Few noisy runs do not show what is rare: a code that flips in one run of a hundred. For the flips that are
//! possible, each with its probability `p` and effect `c`, Bernstein's inequality bounds the sum: `|sum| <= t` but
//! for `2 exp(-L)`, where `t = L M / 3 + sqrt((L M / 3)^2 + 2 L V)`, `M` is the largest effect, `V = sum p (1 - p)
//! c^2`, and `L = lambda^2 / 2`. All effects together are another bound. What the noisy runs show already is not
//! allowed twice.

use super::ensemble::{Value, spread};
use crate::activation::{BLOCK_LEN, Row};
use crate::minimum;
use crate::operand::Operand;
use crate::precision::{LAMBDA, Precision};
use crate::statistics::Expected;
use crate::tokens::erfc;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use trueup_graph::Op;
use trueup_runtime::HostTensor;
use trueup_runtime::profile::Activations;

/// Elements of a block of q8_K.
const LONG_BLOCK_LEN: usize = 256;

/// Largest code.
const CODE_MAX: f64 = 127.0;

/// What may be rounded the other way in one row of activations.
#[derive(Default)]
struct Flips {
    /// Elements, how far the other code is away, and how likely it is.
    codes: Vec<(usize, f64, f64)>,
    /// Blocks whose f16 scale may be the other neighbour: how far that is away in shares of the scale, and how likely
    /// it is.
    scales: Vec<(usize, f64, f64)>,
    /// Blocks whose f16 sum may be another one, and how far that is away.
    sums: Vec<(usize, f64)>,
}

/// Possible effects on one result.
#[derive(Clone, Copy, Default)]
struct Effects {
    total: f64,
    variance: f64,
    largest: f64,
}

impl Effects {
    fn add(&mut self, effect: f64, probability: f64) {
        let effect = effect.abs();
        self.total += effect;
        self.variance += probability * (1.0 - probability) * effect * effect;
        self.largest = self.largest.max(effect);
    }

    fn and(self, other: Effects) -> Effects {
        Effects {
            total: self.total + other.total,
            variance: self.variance + other.variance,
            largest: self.largest.max(other.largest),
        }
    }

    /// How far the result may be off.
    fn limit(&self) -> f64 {
        let exponent = LAMBDA * LAMBDA / 2.0;
        let single = exponent * self.largest / 3.0;
        self.total.min(single + (single * single + 2.0 * exponent * self.variance).sqrt())
    }
}

/// A column of the result of a product: which matrix is multiplied with which activations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Column {
    /// The matrix in the stack of weights; `None` if a router chose an expert that does not exist.
    pub matrix: Option<usize>,
    /// The column of the activations.
    pub activations: usize,
}

impl Column {
    /// The columns of the result of `op`; none if it is not a product of weights and activations.
    pub fn of(op: &Op, inputs: &[Operand]) -> Vec<Column> {
        let [weights, x, rest @ ..] = inputs else { return Vec::new() };
        let [_, _, b2, b3] = weights.ty.shape.sizes();
        let [_, tokens, n2, n3] = x.ty.shape.sizes();
        match (op, rest) {
            (Op::MulMat(_), []) => {
                // Neighbouring batches of activations are multiplied with the same matrix.
                let matrix = |batch: usize| batch % n2 / (n2 / b2) + b2 * (batch / n2 / (n3 / b3));
                let column = |activations| Column { matrix: Some(matrix(activations / tokens)), activations };
                (0..tokens * n2 * n3).map(column).collect()
            }
            (Op::MulMatId(_), [ids]) => {
                let used = ids.ty.shape[0].max(1);
                let column = |(pair, expert): (usize, &i32)| Column {
                    matrix: usize::try_from(*expert).ok().filter(|expert| *expert < b2),
                    activations: pair % used % tokens + tokens * (pair / used),
                };
                ids.indices().iter().enumerate().map(column).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Effects of flips on the product of a matrix.
pub(super) struct ProductFlips {
    /// On each element of the result.
    elements: Vec<f64>,
    /// On the sum of each column of the result.
    columns: Vec<Effects>,
}

impl ProductFlips {
    /// Those of `weights` and activations `x`, which are rounded as declared before they are multiplied.
    pub fn new(weights: &Operand, x: &Value, columns: &[Column], activations: Activations) -> ProductFlips {
        let (len, rows) = (weights.ty.shape[0].max(1), weights.ty.shape[1]);
        let members: Vec<Vec<f64>> = x.members.iter().map(|member| member.values().into_owned()).collect();
        let base = x.base.values();
        let noise = spread(&base, &members, len);
        let all: Vec<(Row, Flips)> = base
            .chunks(len)
            .zip(noise.chunks(len))
            .map(|(x, noise)| (Row::declared(x, activations), Flips::new(x, noise, activations)))
            .collect();
        let elements = vec![0.0; rows * columns.len()];
        let mut product = ProductFlips { elements, columns: vec![Effects::default(); columns.len()] };
        let matrices: BTreeSet<usize> = columns.iter().filter_map(|column| column.matrix).collect();
        for matrix in matrices {
            let own = columns.iter().enumerate().filter(|(_, column)| column.matrix == Some(matrix));
            let own: Vec<(usize, &(Row, Flips))> =
                own.filter_map(|(place, column)| Some((place, all.get(column.activations)?))).collect();
            product.add_matrix(weights, matrix * rows..(matrix + 1) * rows, &own);
        }
        product
    }

    /// Sets the effects on the products of these rows of weights: `columns` are places in the result, with their
    /// activations.
    fn add_matrix(&mut self, weights: &Operand, rows: Range<usize>, columns: &[(usize, &(Row, Flips))]) {
        let len = weights.ty.shape[0].max(1);
        let of_row = |row: usize| {
            let mut buffer = Vec::new();
            let (weights, minima) = (weights.row(row, &mut buffer).to_vec(), minimum::of_elements(weights, row));
            let limit = |(_, (x, flips)): &(usize, &(Row, Flips))| flips.effects(&weights, &minima, x).limit();
            let limits: Vec<f64> = columns.iter().map(limit).collect();
            (limits, weights, minima)
        };
        let piece = |first: usize| {
            let (mut limits, mut sum, mut minima) = (Vec::new(), vec![0.0; len], vec![0.0; len]);
            for row in first..rows.end.min(first + 64) {
                let (of_row, weights, below) = of_row(row);
                limits.push(of_row);
                sum.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += weight);
                minima.iter_mut().zip(&below).for_each(|(sum, minimum)| *sum += minimum);
            }
            (limits, sum, minima)
        };
        let firsts: Vec<usize> = rows.clone().step_by(64).collect();
        let pieces: Vec<_> = firsts.into_par_iter().map(piece).collect();
        let (mut sum, mut minima, mut row) = (vec![0.0; len], vec![0.0; len], 0);
        for (limits, of_sum, of_minima) in pieces {
            sum.iter_mut().zip(&of_sum).for_each(|(sum, part)| *sum += part);
            minima.iter_mut().zip(&of_minima).for_each(|(sum, part)| *sum += part);
            for limits in limits {
                let places = columns.iter().map(|(place, _)| place * rows.len() + row);
                places.zip(limits).for_each(|(place, limit)| self.elements[place] = limit);
                row += 1;
            }
        }
        for (place, (x, flips)) in columns {
            self.columns[*place] = flips.effects(&sum, &minima, x);
        }
    }

    /// Adds to each expectation what the noisy runs do not show: `inherited` is their deviation.
    pub fn add(&self, expected: &mut [Expected], inherited: &[f64]) {
        for ((expected, limit), noise) in expected.iter_mut().zip(&self.elements).zip(inherited) {
            expected.ties += (limit - LAMBDA * noise).max(0.0);
        }
    }

    /// The limit of the sum over the elements at `places` of a result whose columns have `rows` elements.
    pub fn of_sum(&self, places: &[usize], rows: usize) -> f64 {
        let first = places.first().map_or(0, |place| place / rows.max(1));
        let columns = self.columns.iter().skip(first);
        columns.fold(Effects::default(), |sum, effects| sum.and(*effects)).limit()
    }
}

impl Flips {
    fn new(x: &[f64], noise: &[f64], activations: Activations) -> Flips {
        let mut flips = Flips::default();
        match activations {
            Activations::Unchanged => {}
            Activations::F16 => flips.rounded(x, noise, Precision::F16),
            Activations::Bf16 => flips.rounded(x, noise, Precision::BF16),
            Activations::Q8 { scale_f16, .. } => flips.blocks(x, noise, BLOCK_LEN, scale_f16),
            Activations::Q8_1 { .. } => {
                flips.blocks(x, noise, BLOCK_LEN, true);
                flips.sums(x, noise);
            }
            Activations::Q8K => flips.blocks(x, noise, LONG_BLOCK_LEN, false),
        }
        flips
    }

    /// Elements that are rounded one by one.
    fn rounded(&mut self, x: &[f64], noise: &[f64], precision: Precision) {
        for (place, (x, noise)) in x.iter().zip(noise).enumerate() {
            let step = precision.ulp(*x);
            let distance = (step / 2.0 - (x - precision.round(*x)).abs()).abs();
            self.codes.extend(likely(distance, *noise).map(|probability| (place, step, probability)));
        }
    }

    fn blocks(&mut self, x: &[f64], noise: &[f64], len: usize, scale_f16: bool) {
        for (block, (x, noise)) in x.chunks(len).zip(noise.chunks(len)).enumerate() {
            let Some((scale, scale_noise)) = scale_of(x, noise) else { continue };
            for (place, (x, noise)) in x.iter().zip(noise).enumerate() {
                let quotient = x / scale;
                let noise = (noise / scale).hypot(quotient * scale_noise / scale);
                let distance = (quotient.abs() - 0.5).rem_euclid(1.0);
                let flip = likely(distance.min(1.0 - distance), noise);
                self.codes.extend(flip.map(|probability| (block * len + place, scale, probability)));
            }
            if scale_f16 {
                let step = Precision::F16.ulp(scale);
                let distance = (step / 2.0 - (scale - Precision::F16.round(scale)).abs()).abs();
                self.scales.extend(likely(distance, scale_noise).map(|probability| (block, step / scale, probability)));
            }
        }
    }

    /// Sums in f16, which move with every code and with the scale.
    fn sums(&mut self, x: &[f64], noise: &[f64]) {
        for (block, (x, noise)) in x.chunks(BLOCK_LEN).zip(noise.chunks(BLOCK_LEN)).enumerate() {
            let Some((scale, scale_noise)) = scale_of(x, noise) else { continue };
            let sum = scale * x.iter().map(|x| (x / scale).round_ties_even()).sum::<f64>();
            let step = Precision::F16.ulp(sum);
            let distance = (step / 2.0 - (sum - Precision::F16.round(sum)).abs()).abs();
            let moves = self.codes.iter().any(|(place, ..)| place / BLOCK_LEN == block);
            if moves || distance < LAMBDA * sum.abs() * scale_noise / scale {
                self.sums.push((block, step));
            }
        }
    }

    /// Effects on the product with a row of weights above `minima`.
    fn effects(&self, weights: &[f64], minima: &[f64], x: &Row) -> Effects {
        let mut effects = Effects::default();
        let minimum = |place: usize| minima.get(place).copied().unwrap_or(0.0);
        self.codes.iter().for_each(|(place, step, probability)| effects.add(step * weights[*place], *probability));
        for (block, step, probability) in &self.scales {
            let first = block * BLOCK_LEN;
            let places = first..weights.len().min(first + BLOCK_LEN);
            let sum: f64 = places.map(|place| (weights[place] - minimum(place)) * x.values[place]).sum();
            effects.add(step * sum, *probability);
        }
        self.sums.iter().for_each(|(block, step)| effects.add(step * minimum(block * BLOCK_LEN), 0.5));
        effects
    }
}

/// The scale of a block and its noise; none for zeros.
fn scale_of(x: &[f64], noise: &[f64]) -> Option<(f64, f64)> {
    let largest = x.iter().zip(noise).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let scale = largest.0.abs() / CODE_MAX;
    (scale > 0.0 && scale.is_finite()).then(|| (scale, largest.1 / CODE_MAX))
}

/// How likely noise carries a number over this distance; none where it does not.
fn likely(distance: f64, noise: f64) -> Option<f64> {
    (distance < LAMBDA * noise).then(|| 0.5 * erfc(distance / noise / std::f64::consts::SQRT_2))
}

/// What sums of activations that are kept in f16 add to products with weights above minima, for each block: `m (kept
/// - exact)`.
pub(super) struct KeptSums {
    /// Rows of a matrix.
    rows: usize,
    columns: Vec<Column>,
    /// The minima of each matrix that is used: of each row, one for each block.
    minima: BTreeMap<usize, Vec<Vec<f64>>>,
}

impl KeptSums {
    /// Those of weights that are multiplied with such activations in these columns; `None` for others.
    pub fn new(weights: &Operand, columns: &[Column], activations: Activations) -> Option<KeptSums> {
        if !matches!(activations, Activations::Q8_1 { .. }) || !minimum::is_affine(weights.ty.dtype) {
            return None;
        }
        let rows = weights.ty.shape[1].max(1);
        let of_row = |row| minimum::of_elements(weights, row).into_iter().step_by(BLOCK_LEN).collect();
        let of_matrix = |matrix| (matrix, (matrix * rows..(matrix + 1) * rows).map(of_row).collect());
        let used: BTreeSet<usize> = columns.iter().filter_map(|column| column.matrix).collect();
        let minima: BTreeMap<usize, Vec<Vec<f64>>> = used.into_iter().map(of_matrix).collect();
        (!minima.is_empty()).then(|| KeptSums { rows, columns: columns.to_vec(), minima })
    }

    /// Adds them to the product with the activations `x`.
    pub fn add(&self, product: &mut [f64], x: &HostTensor, activations: Activations) {
        let values = x.values();
        let errors = |x: &[f64]| -> Vec<f64> {
            let row = Row::declared(x, activations);
            let exact = row.values.chunks(BLOCK_LEN).map(|block| block.iter().sum::<f64>());
            row.sums.iter().zip(exact).map(|(kept, exact)| kept - exact).collect()
        };
        let errors: Vec<Vec<f64>> = values.chunks(x.ty().shape[0].max(1)).map(errors).collect();
        for (results, column) in product.chunks_mut(self.rows).zip(&self.columns) {
            let minima = column.matrix.and_then(|matrix| self.minima.get(&matrix));
            let (Some(minima), Some(errors)) = (minima, errors.get(column.activations)) else { continue };
            for (result, minima) in results.iter_mut().zip(minima) {
                *result += minima.iter().zip(errors).map(|(minimum, error)| minimum * error).sum::<f64>();
            }
        }
    }
}
