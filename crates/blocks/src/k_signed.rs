//! Encoding that `q3_k` and `q6_k` share: sixteen groups with a signed scale, as a code under one f16 scale.

use crate::codec::{encode_blocks, encode_blocks_weighted, whole_blocks};
use crate::decoder::K_LEN;
use crate::k_lanes::{self, BLOCKS_MAX, Batch, BatchImportance, Importance};
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::{nearest, squares, sum_of_squares};

/// Groups of a block.
pub(crate) const GROUPS: usize = 16;
/// Weights of a group.
pub(crate) const GROUP: usize = K_LEN / GROUPS;

/// What differs between the formats: blocks of `BYTES` bytes.
pub(crate) trait Format<const BYTES: usize> {
    /// The search of a group: see [`signed`](crate::search::signed::search).
    fn search(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32;

    /// The search when importance is given.
    fn search_weighted(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32;

    /// How much the error of each weight counts when importance is given.
    fn counts(weights: &[f32; GROUP], importance: &[f32; GROUP], square_sum: f32) -> [f32; GROUP];

    /// [`Format::search`] of several groups.
    fn search_lanes<V: Lanes>(weights: &Columns<V, GROUP>, counts: &Columns<V, GROUP>) -> lanes::Found<V, GROUP>;

    /// [`Format::search`] of twice as many groups.
    #[inline(always)]
    fn search_two_lanes<V: Lanes>(
        weights: [&Columns<V, GROUP>; 2],
        counts: [&Columns<V, GROUP>; 2],
    ) -> [lanes::Found<V, GROUP>; 2] {
        [Self::search_lanes(weights[0], counts[0]), Self::search_lanes(weights[1], counts[1])]
    }

    /// [`Format::search_weighted`] of several groups.
    fn search_weighted_lanes<V: Lanes>(
        weights: &Columns<V, GROUP>,
        counts: &Columns<V, GROUP>,
    ) -> lanes::Found<V, GROUP>;

    /// [`Format::counts`] of several groups.
    fn counts_lanes<V: Lanes>(
        importance: &BatchImportance,
        batch: &Batch<GROUP>,
        weights: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP>;

    /// Writes a block from what the search found.
    fn write(weights: &[f32; K_LEN], found: &Found, block: &mut [u8; BYTES]);

    /// Writes a block when importance is given.
    fn write_weighted(weights: &[f32; K_LEN], found: &Found, block: &mut [u8; BYTES]);
}

/// What the search finds in a block.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub scales: [f32; GROUPS],
    /// How much each group counts: the sum over its weights.
    pub counts: [f32; GROUPS],
    pub codes: [u8; K_LEN],
}

impl Found {
    const NOTHING: Found = Found { scales: [0.0; GROUPS], counts: [0.0; GROUPS], codes: [0; K_LEN] };
}

/// The rule without importance, block by block.
pub(crate) fn encode<F: Format<BYTES>, const BYTES: usize>(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights, block| {
        F::write(weights, &search(weights, |_, weights| squares(weights), F::search), block);
    });
}

/// The rule with importance, block by block.
pub(crate) fn encode_weighted<F: Format<BYTES>, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    encode_blocks_weighted(weights, importance, bytes, |weights, importance: &[f32; K_LEN], block| {
        let square_sum = sum_of_squares(weights);
        let counts = |group: usize, weights: &_| F::counts(weights, &importance.as_chunks().0[group], square_sum);
        F::write_weighted(weights, &search(weights, counts, F::search_weighted), block);
    });
}

/// [`encode`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize>(weights: &[f32], bytes: &mut [u8]) {
    let (sources, blocks) = whole_blocks(weights.as_chunks::<K_LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, blocks) in sources.chunks(BLOCKS_MAX).zip(blocks.chunks_mut(BLOCKS_MAX)) {
        let mut found = [Found::NOTHING; BLOCKS_MAX];
        let mut batches = Batch::all::<V, GROUPS, GROUP>(weights);
        while let Some(batch) = batches.next() {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            let counts = lanes::squares(&columns);
            let Some(second) = batches.next() else {
                take(&mut found, &batch, &counts, &F::search_lanes(&columns, &counts));
                continue;
            };
            let second_columns = lanes::columns::<V, GROUP>(second.groups);
            let second_counts = lanes::squares(&second_columns);
            let [results, second_results] = F::search_two_lanes([&columns, &second_columns], [&counts, &second_counts]);
            take(&mut found, &batch, &counts, &results);
            take(&mut found, &second, &second_counts, &second_results);
        }
        for ((weights, block), found) in weights.iter().zip(blocks).zip(&found) {
            F::write(weights, found, block);
        }
    }
}

/// [`encode_weighted`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    let mut importance = Importance::of(weights, importance);
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let importance = importance.next(weights, |sum| 2.0 * sum / K_LEN as f32);
        let mut found = Found::NOTHING;
        for batch in Batch::all::<V, GROUPS, GROUP>(weights) {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            let counts = F::counts_lanes(&importance, &batch, &columns);
            take(std::slice::from_mut(&mut found), &batch, &counts, &F::search_weighted_lanes(&columns, &counts));
        }
        for (weights, block) in weights.iter().zip(blocks) {
            F::write_weighted(weights, &found, block);
        }
    }
}

/// Searches each group. `counts` says how much the error of each weight of a group counts.
fn search(
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
    search: impl Fn(&[f32; GROUP], &[f32; GROUP], &mut [u8; GROUP]) -> f32,
) -> Found {
    let mut found = Found::NOTHING;
    let groups = weights.as_chunks().0.iter().zip(found.codes.as_chunks_mut().0);
    let results = found.scales.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (scale, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *scale = search(weights, &counts, codes);
    }
    found
}

/// Takes what was found in the groups of a batch, for each of its blocks.
#[inline(always)]
fn take<V: Lanes>(
    found: &mut [Found],
    batch: &Batch<GROUP>,
    counts: &Columns<V, GROUP>,
    results: &lanes::Found<V, GROUP>,
) {
    let (sums, scales) = (lanes::sum(counts).store(), results.scale.store());
    let codes = lanes::bytes(&results.codes);
    for lane in 0..batch.groups.len() {
        let (block, group) = ((batch.first + lane) / GROUPS, (batch.first + lane) % GROUPS);
        let found = &mut found[block];
        found.scales[group] = scales[lane];
        found.counts[group] = sums[lane];
        for (code, column) in found.codes[group * GROUP..][..GROUP].iter_mut().zip(&codes) {
            *code = column[lane];
        }
    }
}

/// Replaces the codes of the search, stored as `code + levels`, by those nearest under the rounded scales. A group
/// whose scale became 0 keeps its codes.
#[inline(always)]
pub(crate) fn settle(levels: i32, scales: &[f32; GROUPS], weights: &[f32; K_LEN], codes: &mut [u8; K_LEN]) {
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for ((weights, codes), scale) in groups.zip(scales) {
        if *scale != 0.0 {
            for (code, weight) in codes.iter_mut().zip(weights) {
                *code = (nearest(weight / scale).clamp(-levels, levels - 1) + levels) as u8;
            }
        }
    }
}
