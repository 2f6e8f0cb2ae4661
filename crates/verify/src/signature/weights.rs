//! Sums that use the right weights at the wrong places, or a wrong scale.
//!
//! ```text
//!   y - expected = (c - 1) sum over block b of (w - minimum) x       the scale of b is c times too large
//!   y - expected = (w_a - w_b)(x_b - x_a)        weights a and b of a row exchanged
//!   y - expected = (other - minimum) sum over block b of x           b has another minimum
//!   y - expected = (c - 1) sum over block b of minimum x             the unit of all minima of b is c times too large
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

    /// The minimum of element `k`.
    fn minimum(&self, k: usize) -> f64 {
        self.minima.get(k / self.len).copied().unwrap_or(0.0)
    }

    /// The products of `range` without those of minima.
    fn above_minima(&self, sum: &Sum, range: Range<usize>) -> f64 {
        range.map(|k| (sum.weights[k] - self.minimum(k)) * sum.activations[k]).sum()
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
    let scaled = |elements: usize, len: usize| {
        (0..elements / len).find_map(|block| {
            let part = |sum: &Sum| sub_blocks.above_minima(sum, block * len..(block + 1) * len);
            let more = median(sums.iter().map(|sum| sum.ratio(part(sum))))?;
            let holds = evidence.holds(sums.iter().map(|sum| (sum.index, sum.declared + more * part(sum))));
            holds.then_some((block, 1.0 + more))
        })
    };
    let row = first.row;
    let said = |name: &str, len: usize, (block, factor): (usize, f64)| {
        let from = neighbour_scale(evidence, row, block * len..(block + 1) * len, factor);
        let from = from.map_or(String::new(), |from| format!(": it is {from}"));
        format!("the scale of {name} {block} of row {row} is {factor:.4} times the correct one{from}")
    };
    if let Some(found) = scaled(sub_blocks.minima.len() * sub_blocks.len, sub_blocks.len) {
        return Some(said(sub_blocks.name, sub_blocks.len, found));
    }
    // Smaller blocks have no sub-blocks, and were tried, or are described by their weights.
    let len = matrix.ty.dtype.block_len();
    let found = if len > sub_blocks.len { scaled(first.weights.len(), len)? } else { return None };
    Some(said("block", len, found))
}

/// The minimum of one block or sub-block of the one bad row.
pub(super) fn other_minimum(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    let matrix = evidence.scene.inputs[0].operand();
    if sums.len() < SUMS_MIN || sums.iter().any(|sum| sum.row != first.row) || !minimum::is_apart(&matrix) {
        return None;
    }
    let sub_blocks = SubBlocks::of(&matrix, first.row);
    let SubBlocks { name, len, minima } = &sub_blocks;
    let found = minima.iter().enumerate().find_map(|(block, own)| {
        let part = |sum: &Sum| sum.activations[block * len..(block + 1) * len].iter().sum::<f64>();
        let more = median(sums.iter().map(|sum| sum.ratio(part(sum))))?;
        let holds = evidence.holds(sums.iter().map(|sum| (sum.index, sum.declared + more * part(sum))));
        holds.then_some((block, own, own + more))
    });
    let Some((block, own, used)) = found else {
        return other_minima(evidence, sums, &sub_blocks, matrix.ty.dtype.block_len());
    };
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

/// All minima of one block with sub-blocks: what they are multiples of is `c` times what it should be.
fn other_minima(evidence: &Evidence, sums: &[Sum], sub_blocks: &SubBlocks, len: usize) -> Option<String> {
    let first = sums.first()?;
    let blocks = if len > sub_blocks.len { first.weights.len() / len } else { 0 };
    let (block, factor) = (0..blocks).find_map(|block| {
        let elements = block * len..(block + 1) * len;
        let part = |sum: &Sum| elements.clone().map(|k| sub_blocks.minimum(k) * sum.activations[k]).sum::<f64>();
        let more = median(sums.iter().map(|sum| sum.ratio(part(sum))))?;
        let holds = evidence.holds(sums.iter().map(|sum| (sum.index, sum.declared + more * part(sum))));
        holds.then_some((block, 1.0 + more))
    })?;
    let factor = if factor.abs() < FACTOR_ERROR { 0.0 } else { factor };
    Some(format!("the minima of block {block} of row {} are {factor:.4} times the correct ones", first.row))
}

/// Where the scale of the weights `range` of a row comes from if it has a wrong factor: from a neighbor. `None` for
/// weights that are not whole blocks or sub-blocks, and for types without scales.
pub(super) fn neighbour_scale(
    evidence: &Evidence,
    row: usize,
    range: Range<usize>,
    factor: f64,
) -> Option<&'static str> {
    let matrix = evidence.scene.inputs[0].operand();
    let dtype = matrix.ty.dtype;
    let scales = minimum::scales_of_sub_blocks(&matrix, row);
    let bytes = matrix.row_bytes(row)?;
    let scale = |block: usize| {
        if !scales.is_empty() {
            return scales.get(block).copied();
        }
        let block = bytes.get(block * dtype.block_bytes()..(block + 1) * dtype.block_bytes())?;
        if dtype == DType::Mxfp4 {
            return Some(2f64.powi(i32::from(block[0]) - 127));
        }
        let place = *dtype.scale_places()?.first()?;
        Some(half::f16::from_le_bytes([block[place], block[place + 1]]).to_f64())
    };
    let len = if scales.is_empty() { dtype.block_len() } else { minimum::sub_block_len(dtype) };
    if !range.start.is_multiple_of(len) || !range.len().is_multiple_of(len) {
        return None;
    }
    let mut blocks = range.start / len..range.end / len;
    let is = |block: usize, other: Option<f64>| {
        let ratio = other.zip(scale(block)).map(|(other, own)| other / own);
        ratio.is_some_and(|ratio| (ratio / factor - 1.0).abs() < FACTOR_ERROR)
    };
    let [next, previous] = if scales.is_empty() {
        ["the scale of the next block", "the scale of the previous block"]
    } else {
        ["the scale of the next sub-block", "the scale of the previous sub-block"]
    };
    if blocks.clone().all(|block| is(block, scale(block + 1))) {
        return Some(next);
    }
    blocks.all(|block| is(block, block.checked_sub(1).and_then(scale))).then_some(previous)
}

/// How far a fitted factor may be from the one that is meant.
const FACTOR_ERROR: f64 = 1e-3;
