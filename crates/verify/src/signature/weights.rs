//! Sums that use the right weights at the wrong places, or a wrong scale.
//!
//! ```text
//!   y - expected = (c - 1) sum over block b of (w - minimum) x       the scale of b is c times too large
//!   y - expected = (w_a - w_b)(x_b - x_a)        weights a and b of a row exchanged
//!   y - expected = (other - minimum) sum over block b of x           b has another minimum
//!   y = sum over k of w[m, k] x[k]               a square matrix transposed
//! ```
//!
//! A block `b` may be a sub-block.

use super::Evidence;
use super::depth::{Sum, median};
use crate::minimum;
use crate::operand::Operand;
use std::ops::Range;
use trueup_blocks::DType;
use trueup_formats::significant;

/// Weights of a row among which pairs are searched.
const WEIGHTS_MAX: usize = 8192;

/// Sums that must show an exchange: one of many pairs fits two by chance.
const SUMS_MIN: usize = 3;

/// Elements of a matrix that is decoded as a whole.
const ELEMENTS_MAX: usize = 1 << 26;

/// Two weights of the one bad row that changed places.
pub(super) fn exchanged_pair(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    let len = first.weights.len();
    if sums.len() < SUMS_MIN || len > WEIGHTS_MAX || sums.iter().any(|sum| sum.row != first.row) {
        return None;
    }
    let value = |sum: &Sum, a: usize, b: usize| {
        let (w, x) = (&sum.weights, &sum.activations);
        sum.declared + (w[a] - w[b]) * (x[b] - x[a])
    };
    let fits = |a: usize, b: usize| {
        first.weights[a] != first.weights[b]
            && super::slices::same(evidence, first.index, value(first, a, b))
            && evidence.holds(sums.iter().map(|sum| (sum.index, value(sum, a, b))))
    };
    let mut pairs = (0..len).flat_map(|a| (a + 1..len).map(move |b| (a, b)));
    let (a, b) = pairs.find(|(a, b)| fits(*a, *b))?;
    Some(format!("weights {a} and {b} of row {} are swapped", first.row))
}

/// A square matrix whose columns are used as rows.
pub(super) fn transposed(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let [columns, rows, b2, b3] = evidence.scene.inputs[0].ty.shape.sizes();
    if columns != rows || b2 * b3 != 1 || columns * rows > ELEMENTS_MAX || sums.len() < SUMS_MIN {
        return None;
    }
    let matrix = evidence.scene.inputs[0].operand();
    let all = matrix.all();
    let value = |sum: &Sum| sum.activations.iter().enumerate().map(|(k, x)| all[k * columns + sum.row] * x).sum();
    let found = evidence.holds(sums.iter().map(|sum| (sum.index, value(sum))));
    found.then(|| "the weight is transposed: its columns are used as rows".to_owned())
}

/// The blocks or sub-blocks of a row, each with a scale; without a minimum they have the minimum 0.
struct SubBlocks {
    /// What they are called.
    name: &'static str,
    /// Elements of one.
    len: usize,
    minima: Vec<f64>,
}

impl SubBlocks {
    /// Those of types with sub-blocks or minima; none for other types.
    fn of(matrix: &Operand, row: usize) -> SubBlocks {
        let scales = minimum::scales_of_sub_blocks(matrix, row);
        let mut minima = minimum::of_sub_blocks(matrix, row);
        minima.resize(minima.len().max(scales.len()), 0.0);
        let name = if scales.is_empty() { "block" } else { "sub-block" };
        SubBlocks { name, len: minimum::sub_block_len(matrix.ty.dtype), minima }
    }

    /// The products of `range` without those of minima.
    fn above_minima(&self, sum: &Sum, range: Range<usize>) -> f64 {
        range.map(|k| (sum.weights[k] - self.minima[k / self.len]) * sum.activations[k]).sum()
    }
}

/// The scale of one block or sub-block of the one bad row, in types whose scales can be wrong while minima, or other
/// sub-blocks, stay as they are.
pub(super) fn code_scale(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    let matrix = evidence.scene.inputs[0].operand();
    if sums.len() < SUMS_MIN || sums.iter().any(|sum| sum.row != first.row) {
        return None;
    }
    let sub_blocks = SubBlocks::of(&matrix, first.row);
    let elements = sub_blocks.minima.len() * sub_blocks.len;
    let scaled = |len: usize| {
        (0..elements / len).find_map(|block| {
            let part = |sum: &Sum| sub_blocks.above_minima(sum, block * len..(block + 1) * len);
            let more = median(sums.iter().map(|sum| sum.ratio(part(sum))))?;
            let holds = evidence.holds(sums.iter().map(|sum| (sum.index, sum.declared + more * part(sum))));
            holds.then_some((block, 1.0 + more))
        })
    };
    let row = first.row;
    if let Some((block, factor)) = scaled(sub_blocks.len) {
        let from =
            neighbour_scale(evidence, row, block, factor).map_or(String::new(), |from| format!(": it is {from}"));
        let name = sub_blocks.name;
        return Some(format!("the scale of {name} {block} of row {row} is {factor:.4} times the correct one{from}"));
    }
    let (block, factor) = scaled(matrix.ty.dtype.block_len())?;
    Some(format!("the scale of block {block} of row {row} is {factor:.4} times the correct one"))
}

/// The minimum of one block or sub-block of the one bad row.
pub(super) fn other_minimum(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    let matrix = evidence.scene.inputs[0].operand();
    if sums.len() < SUMS_MIN || sums.iter().any(|sum| sum.row != first.row) || !minimum::is_apart(&matrix) {
        return None;
    }
    let SubBlocks { name, len, minima } = SubBlocks::of(&matrix, first.row);
    let (block, own, used) = minima.iter().enumerate().find_map(|(block, own)| {
        let part = |sum: &Sum| sum.activations[block * len..(block + 1) * len].iter().sum::<f64>();
        let more = median(sums.iter().map(|sum| sum.ratio(part(sum))))?;
        let holds = evidence.holds(sums.iter().map(|sum| (sum.index, sum.declared + more * part(sum))));
        holds.then_some((block, own, own + more))
    })?;
    let is = |other: Option<&f64>| other.is_some_and(|other| (other - used).abs() < FACTOR_ERROR * (other - own).abs());
    let from = if is(minima.get(block + 1)) {
        format!(": it is the minimum of the next {name}")
    } else if is(block.checked_sub(1).and_then(|before| minima.get(before))) {
        format!(": it is the minimum of the previous {name}")
    } else {
        String::new()
    };
    let used = if is(Some(&0.0)) { 0.0 } else { used };
    let [used, own] = [used, *own].map(|value| significant(value, 4));
    Some(format!("the minimum of {name} {block} of row {} is {used} instead of {own}{from}", first.row))
}

/// What the scale of block or sub-block `block` of a row would be but for a factor: that of a neighbor, in types with
/// sub-blocks or an f16 scale in front.
pub(super) fn neighbour_scale(evidence: &Evidence, row: usize, block: usize, factor: f64) -> Option<&'static str> {
    let matrix = evidence.scene.inputs[0].operand();
    let dtype = matrix.ty.dtype;
    let scales = minimum::scales_of_sub_blocks(&matrix, row);
    let scaled = matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Iq4Nl);
    let bytes = matrix.row_bytes(row).filter(|_| scaled || !scales.is_empty())?;
    let scale = |block: usize| {
        if !scales.is_empty() {
            return scales.get(block).copied();
        }
        let bytes = bytes.get(block * dtype.block_bytes()..)?.get(..2)?;
        Some(half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f64())
    };
    let own = scale(block)?;
    let is = |other: Option<f64>| other.is_some_and(|other| (other / own / factor - 1.0).abs() < FACTOR_ERROR);
    let [next, previous] = if scales.is_empty() {
        ["the scale of the next block", "the scale of the previous block"]
    } else {
        ["the scale of the next sub-block", "the scale of the previous sub-block"]
    };
    if is(scale(block + 1)) { Some(next) } else { is(block.checked_sub(1).and_then(scale)).then_some(previous) }
}

/// How far a fitted factor may be from the one that is meant.
const FACTOR_ERROR: f64 = 1e-3;
