//! Encoding that `q3_k` and `q6_k` share: sixteen groups with a signed scale, as a code under one f16 scale.

use crate::decoder::K_LEN;
use crate::search::nearest;

/// Groups of a block.
pub(crate) const GROUPS: usize = 16;
/// Weights of a group.
pub(crate) const GROUP: usize = K_LEN / GROUPS;

/// What the search finds in a block.
pub(crate) struct Found {
    pub scales: [f32; GROUPS],
    /// How much each group counts: the sum over its weights.
    pub counts: [f32; GROUPS],
    pub codes: [u8; K_LEN],
}

/// Searches each group. `counts` says how much the error of each weight of a group counts.
#[inline(always)]
pub(crate) fn search(
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
    search: impl Fn(&[f32; GROUP], &[f32; GROUP], &mut [u8; GROUP]) -> f32,
) -> Found {
    let mut found = Found { scales: [0.0; GROUPS], counts: [0.0; GROUPS], codes: [0; K_LEN] };
    let groups = weights.as_chunks().0.iter().zip(found.codes.as_chunks_mut().0);
    let results = found.scales.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (scale, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *scale = search(weights, &counts, codes);
    }
    found
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
