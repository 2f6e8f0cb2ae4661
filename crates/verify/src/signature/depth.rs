//! Sums that leave out their end, or use a block of weights otherwise.
//!
//! ```text
//!   y - expected = - (sum over the last n elements)          the end dropped
//!   y - expected = (c - 1) (sum over block b)                the scale of block b is c times too large
//!   y - expected = sum over (w_b+1 - w_b)(x_b - x_b+1)        blocks b and b + 1 exchanged
//! ```

use super::weights::{code_scale, exchanged_pair, neighbour_scale, other_minimum, transposed};
use super::{Evidence, SignatureKind};
use crate::activation::{BLOCK_LEN, Row};
use trueup_graph::Op;
use trueup_runtime::profile::Activations;

/// Bad elements that a pattern is fitted to.
const ELEMENTS_MAX: usize = 64;

/// A bad element with its products as declared.
pub(super) struct Sum {
    pub index: usize,
    pub row: usize,
    pub weights: Vec<f64>,
    pub activations: Vec<f64>,
    /// Before they are rounded as declared.
    pub raw: Vec<f64>,
    pub declared: f64,
    /// What the device has more.
    excess: f64,
    /// Noise of the result.
    sigma: f64,
}

impl Sum {
    /// How many times `part` the excess is, and the weight of that: results near 0 say it most exactly.
    pub fn ratio(&self, part: f64) -> (f64, f64) {
        (self.excess / part, part.abs() / self.sigma.max(f64::MIN_POSITIVE))
    }

    fn over(&self, range: std::ops::Range<usize>) -> f64 {
        self.weights[range.clone()].iter().zip(&self.activations[range]).map(|(w, x)| w * x).sum()
    }
}

/// The pattern along the depth of a matrix product.
pub(super) fn depth(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    if !matches!(evidence.scene.op, Op::MulMat(_)) {
        return None;
    }
    let sums = sums(evidence);
    let patterns = [dropped_end, exchanged, code_scale, one_row, other_minimum, exchanged_pair, transposed];
    let text = patterns.into_iter().find_map(|pattern| pattern(evidence, &sums))?;
    Some((SignatureKind::Depth, text))
}

fn sums(evidence: &Evidence) -> Vec<Sum> {
    let scene = evidence.scene;
    let [w, x] = [0, 1].map(|input| scene.inputs[input].operand());
    let rows = w.ty.shape.rows();
    let step = evidence.bad.len().div_ceil(ELEMENTS_MAX);
    let sum = |index: &usize| {
        let (row, token) = (index % rows, index / rows);
        let raw = x.row(token, &mut Vec::new()).to_vec();
        let activations = Row::declared(&raw, scene.profile.activations).values;
        let weights = w.row(row, &mut Vec::new()).to_vec();
        let declared = evidence.declared(*index);
        let sigma = evidence.expected[*index].map_or(0.0, |expected| expected.sigma);
        Sum { index: *index, row, weights, activations, raw, declared, excess: scene.device[*index] - declared, sigma }
    };
    evidence.bad.iter().step_by(step).map(sum).collect()
}

/// How many of the last elements are left out everywhere.
fn dropped_end(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    let len = first.weights.len();
    let profile = &evidence.scene.profile;
    let without = |sum: &Sum, kept: usize| (sum.index, sum.declared - sum.over(kept..len));
    // What is left out before activations are rounded is no part of their scales either.
    let rounded = |sum: &Sum, kept: usize| {
        let x = Row::declared(&[&sum.raw[..kept], &vec![0.0; len - kept]].concat(), profile.activations).values;
        (sum.index, sum.weights.iter().zip(&x).map(|(w, x)| w * x).sum())
    };
    let late = |kept: &usize| evidence.holds(sums.iter().map(|sum| without(sum, *kept)));
    let early = |kept: &usize| evidence.holds(sums.iter().map(|sum| rounded(sum, *kept)));
    let rounds = profile.activations != Activations::Unchanged;
    let kept = (0..len).rev().find(late).or_else(|| (0..len).rev().filter(|_| rounds).find(early))?;
    let (dropped, rows) = (len - kept, evidence.place(&evidence.bad));
    let elements = if dropped == 1 { "element".to_owned() } else { format!("{dropped} elements") };
    let are = if dropped == 1 { "is" } else { "are" };
    let (bad, all) = (evidence.bad.len(), evidence.scene.device.len());
    let rows =
        if rows.contains(" among ") { format!("which affects {bad} of {all} elements") } else { format!("in {rows}") };
    (sums.len() > 1).then(|| format!("sums end early: the last {elements} of {len} {are} omitted, {rows}"))
}

/// What is wrong with the weights of the one row that is bad.
fn one_row(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let first = sums.first()?;
    if sums.len() < 2 || sums.iter().any(|sum| sum.row != first.row) {
        return None;
    }
    let starts = (0..first.weights.len()).step_by(BLOCK_LEN);
    let end = |start: usize| (start + BLOCK_LEN).min(first.weights.len());
    let scaled = starts.clone().find_map(|start| Some((start..end(start), scale(evidence, sums, start..end(start))?)));
    // A single weight: where there are no blocks, a factor is that of an element.
    let element = || (0..first.weights.len()).find_map(|k| Some((k..k + 1, scale(evidence, sums, k..k + 1)?)));
    let (range, factor) = element().or(scaled)?;
    let (row, what) = (first.row, if range.len() == 1 { "weight" } else { "weights" });
    let place =
        if range.len() == 1 { range.start.to_string() } else { format!("{} to {}", range.start, range.end - 1) };
    if let Some(other) = neighbour_scale(evidence, row, range.clone(), factor).filter(|_| range.len() > 1) {
        return Some(format!(
            "{what} {place} of row {row} act as if multiplied by {factor:.4}: their block uses {other}"
        ));
    }
    let acts = if range.len() == 1 { "acts" } else { "act" };
    Some(format!(
        "{what} {place} of row {row} {acts} as if multiplied by {factor:.4}; a block scale or a weight was probably \
         uploaded incorrectly"
    ))
}

/// Two neighbouring blocks of the matrix that changed places; the end of one row and the start of the next are
/// neighbours too.
fn exchanged(evidence: &Evidence, sums: &[Sum]) -> Option<String> {
    let (first, last) = (sums.iter().map(|sum| sum.row).min()?, sums.iter().map(|sum| sum.row).max()?);
    let len = sums[0].weights.len();
    let blocks = len / BLOCK_LEN;
    if sums.len() < 2 || last > first + 1 || !len.is_multiple_of(BLOCK_LEN) {
        return None;
    }
    let matrix = evidence.scene.inputs[0].operand();
    let rows = [first, last].map(|row| matrix.row(row, &mut Vec::new()).to_vec());
    let within = |row: usize, block: usize| block * BLOCK_LEN + if row == first { 0 } else { len };
    // Blocks are counted from the first bad row on.
    let both = [rows[0].as_slice(), &rows[1]].concat();
    let pairs = if first == last { 0..blocks.saturating_sub(1) } else { blocks - 1..blocks };
    let found = pairs.into_iter().find(|block| {
        let swapped = |place: usize| {
            if place == *block {
                block + 1
            } else if place == block + 1 {
                *block
            } else {
                place
            }
        };
        evidence.holds(sums.iter().map(|sum| {
            let blocks_of = 0..blocks;
            let value = blocks_of.map(|own| {
                let source = swapped(within(sum.row, own) / BLOCK_LEN) * BLOCK_LEN;
                let x = &sum.activations[own * BLOCK_LEN..][..BLOCK_LEN];
                both[source..][..BLOCK_LEN].iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
            });
            (sum.index, value.sum())
        }))
    })?;
    let name = |block: usize| format!("block {} of row {}", block % blocks, first + block / blocks);
    Some(format!("{} and {} (blocks of {BLOCK_LEN} weights) are swapped", name(found), name(found + 1)))
}

/// The factor that explains the excess of all sums by the products of `range`: the median of what each says, by weight.
/// A tie that went the other way is no part of it.
fn scale(evidence: &Evidence, sums: &[Sum], range: std::ops::Range<usize>) -> Option<f64> {
    let parts: Vec<f64> = sums.iter().map(|sum| sum.over(range.clone())).collect();
    let more = median(parts.iter().zip(sums).map(|(part, sum)| sum.ratio(*part)))?;
    let scaled = parts.iter().zip(sums).map(|(part, sum)| (sum.index, sum.declared + more * part));
    evidence.holds(scaled).then_some(1.0 + more)
}

/// The median of `(value, weight)`.
pub(super) fn median(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let mut values: Vec<(f64, f64)> = values.filter(|(value, _)| value.is_finite()).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    values
        .into_iter()
        .find(|(_, weight)| {
            sum += weight;
            sum >= half
        })
        .map(|(value, _)| value)
}
