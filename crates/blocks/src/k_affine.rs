//! Encoding that `q2_k`, `q4_k` and `q5_k` share: groups with a scale and a minimum, both as codes under one f16 scale
//! each.
//!
//! ```text
//!  256 weights ──search──▶ a scale, a minimum and codes a group
//!                             │
//!                             ├─▶ header: two f16 scales; a step and an offset a group
//!                             └─▶ codes again, from what the header decodes to
//! ```

use crate::decoder::K_LEN;
use crate::f16;
use crate::search::affine::{self, Affine, Tries};
use crate::search::{greatest, nearest, nested};

/// The tries of every affine format when importance is given.
pub(crate) const fn weighted_tries(top: i32) -> Tries {
    Tries { top, first: -0.9, step: 0.05, last: 36, is_absolute: false }
}

/// What the search finds in a block of `GROUPS` groups.
pub(crate) struct Found<const GROUPS: usize> {
    pub pairs: [Affine; GROUPS],
    /// How much each group counts: the sum over its weights.
    pub counts: [f32; GROUPS],
    pub codes: [u8; K_LEN],
}

/// What a block stores for its groups.
pub(crate) struct Header<const GROUPS: usize> {
    pub scale: [u8; f16::BYTES],
    pub low: [u8; f16::BYTES],
    pub steps: [u8; GROUPS],
    pub offsets: [u8; GROUPS],
}

/// Searches each group; `GROUP` is `K_LEN / GROUPS`. `counts` says how much the error of each weight of a group counts.
#[inline(always)]
pub(crate) fn search<const GROUPS: usize, const GROUP: usize>(
    tries: Tries,
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
) -> Found<GROUPS> {
    const { assert!(GROUPS * GROUP == K_LEN) };
    let mut found = Found { pairs: [Affine::default(); GROUPS], counts: [0.0; GROUPS], codes: [0; K_LEN] };
    let groups = weights.as_chunks().0.iter().zip(found.codes.as_chunks_mut().0);
    let results = found.pairs.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (pair, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *pair = affine::search(tries, weights, &counts, codes);
    }
    found
}

/// The header when no importance is given: the greatest scale and the greatest minimum get the code `top`.
#[inline(always)]
pub(crate) fn plain_header<const GROUPS: usize>(top: u8, found: &Found<GROUPS>) -> Header<GROUPS> {
    let codes = |numbers: [f32; GROUPS]| {
        let greatest = greatest(&numbers);
        let inverse = if greatest > 0.0 { f32::from(top) / greatest } else { 0.0 };
        let codes = numbers.map(|number| (nearest(inverse * number) as u8).min(top));
        (f16::narrow(greatest / f32::from(top)), codes)
    };
    let (scale, steps) = codes(found.pairs.map(|pair| pair.scale));
    let (low, offsets) = codes(found.pairs.map(|pair| pair.minimum));
    Header { scale, low, steps, offsets }
}

/// The header when importance is given.
#[inline(always)]
pub(crate) fn weighted_header<const GROUPS: usize>(top: u8, found: &Found<GROUPS>) -> Header<GROUPS> {
    let codes = |numbers: [f32; GROUPS]| {
        let mut codes = [0; GROUPS];
        let scale = nested::search(top.into(), &numbers, &found.counts, &mut codes);
        (f16::narrow(scale), codes)
    };
    let (scale, steps) = codes(found.pairs.map(|pair| pair.scale));
    let (low, offsets) = codes(found.pairs.map(|pair| pair.minimum));
    Header { scale, low, steps, offsets }
}

/// Replaces the codes of the search by those nearest under the rounded header. A group whose scale became 0 keeps its
/// codes.
#[inline(always)]
pub(crate) fn settle<const GROUPS: usize, const GROUP: usize>(
    top: i32,
    header: &Header<GROUPS>,
    weights: &[f32; K_LEN],
    codes: &mut [u8; K_LEN],
) {
    let (scale, low) = (f16::widen(header.scale), f16::widen(header.low));
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for ((weights, codes), (step, offset)) in groups.zip(header.steps.iter().zip(header.offsets)) {
        let (scale, minimum) = (scale * f32::from(*step), low * f32::from(offset));
        if scale != 0.0 {
            for (code, weight) in codes.iter_mut().zip(weights) {
                *code = nearest((weight + minimum) / scale).clamp(0, top) as u8;
            }
        }
    }
}
