//! `iq4_xs`: 256 weights as 4-bit indices into a table of 16 steps, 8 groups with a 6-bit scale, 4.25 bits per weight.
//!
//! ```text
//!   0     2       4     8                                  136
//!  ┌─────┬───────┬─────┬──────────────────────────────────┐
//!  │ d   │ upper │lower│ 8 times 16 bytes of index pairs  │   d: f16; upper: u16; all little-endian
//!  └─────┴───────┴─────┴──────────────────────────────────┘   index j low, index j + 16 high in byte j of a group
//! ```
//!
//! weight = d * (scale - 32) * STEPS\[index\]. Four bits of the scale of group g are in byte g / 2 of `lower`, low if g
//! is even; its upper two bits are bits 2 g and 2 g + 1 of `upper`.

use crate::codec::{encode_blocks, encode_blocks_weighted};
use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::Term;
use crate::k_lanes::{self, Batch, GROUPS_MAX, Importance};
use crate::parts::{self, Parts, all_nibbles, multiples};
use crate::scale::reciprocal;
use crate::search::codebook::{self, STEPS, places_of};
use crate::search::lanes::{self, Lanes};
use crate::search::{importance_of, nearest, peak, squares, sum_of_squares};
use crate::{Block, DType, f16};

const GROUPS: usize = 8;
const GROUP: usize = K_LEN / GROUPS;
/// Scales are `-LEVELS .. LEVELS`.
const LEVELS: i32 = 32;
const BYTES: usize = f16::BYTES + 2 + GROUPS / 2 + K_LEN / 2;
const _: () = assert!(BYTES == DType::Iq4Xs.block_bytes() && K_LEN == DType::Iq4Xs.block_len());

/// Places in a table of steps, in eight groups of 32 weights.
pub struct Iq4Xs;

impl Block for Iq4Xs {
    const DTYPE: DType = DType::Iq4Xs;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, GROUPS, GROUP>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

/// The block's scale, those of the groups, and the places of all weights.
#[inline(always)]
fn read(block: &[u8; BYTES]) -> (f32, [i8; GROUPS], [u8; K_LEN]) {
    let ([d0, d1, h0, h1, lower @ ..], pairs) = block.split_first_chunk::<8>().expect("a block has 136 bytes");
    let upper = u16::from_le_bytes([*h0, *h1]);
    let scales = std::array::from_fn(|group| {
        let nibble = lower[group / 2] >> (group % 2 * 4) & 15;
        (nibble | ((upper >> (2 * group) & 3) as u8) << 4) as i8 - LEVELS as i8
    });
    let places = all_nibbles::<16>(pairs.first_chunk().expect("a block has 136 bytes"));
    (f16::widen([*d0, *d1]), scales, places)
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (scale, steps, places) = read(block);
    std::array::from_fn(|e| {
        let code = STEPS[usize::from(places[e])];
        Term { scale, step: steps[e / GROUP], code, ..Term::default() }
    })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, GROUPS> {
    let (scale, steps, places) = read(block);
    let mut codes = [0; K_LEN];
    for (code, place) in codes.iter_mut().zip(places) {
        *code = STEPS[usize::from(place)];
    }
    Parts { scales: multiples(scale, steps), minima: None, codes }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, GROUPS, GROUP>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

/// Writes a block from the scales that the search found. The block's scale is stored rounded and used unrounded.
#[inline(always)]
fn write(weights: &[f32; K_LEN], scales: &[f32; GROUPS], block: &mut [u8; BYTES]) {
    let scale = -peak(scales) / LEVELS as f32;
    let inverse = reciprocal(scale);
    let (header, pairs) = block.split_first_chunk_mut::<8>().expect("a block has 136 bytes");
    let (mut lower, mut upper) = ([0; GROUPS / 2], 0u16);
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(pairs.as_chunks_mut::<{ GROUP / 2 }>().0);
    for (group, ((weights, pairs), found)) in groups.zip(scales).enumerate() {
        let step = nearest(inverse * found).clamp(-LEVELS, LEVELS - 1);
        let inverse = reciprocal(scale * step as f32);
        let mut values = *weights;
        for value in &mut values {
            *value *= inverse;
        }
        let places = places_of(&values);
        *pairs = std::array::from_fn(|j| places[j] | places[j + GROUP / 2] << 4);
        let stored = (step + LEVELS) as u8;
        lower[group / 2] |= (stored & 15) << (group % 2 * 4);
        upper |= u16::from(stored >> 4) << (2 * group);
    }
    let ([d0, d1], [h0, h1], [l0, l1, l2, l3]) = (f16::narrow(scale), upper.to_le_bytes(), lower);
    *header = [d0, d1, h0, h1, l0, l1, l2, l3];
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights: &[f32; K_LEN], block| {
        let groups = weights.as_chunks::<GROUP>().0;
        let scales = std::array::from_fn(|group| codebook::search(&groups[group], &squares(&groups[group])));
        write(weights, &scales, block);
    });
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    encode_blocks_weighted(weights, importance, bytes, |weights: &[f32; K_LEN], importance, block| {
        let mean_square = sum_of_squares(weights) * (2.0 / K_LEN as f32);
        let (groups, importance) = (weights.as_chunks::<GROUP>().0, importance.as_chunks().0);
        let scales = std::array::from_fn(|group| {
            codebook::search(&groups[group], &importance_of(&groups[group], &importance[group], mean_square))
        });
        write(weights, &scales, block);
    });
}

/// The rule without importance, a group in each lane.
#[inline(always)]
pub(crate) fn encode_lanes<V: Lanes>(weights: &[f32], bytes: &mut [u8]) {
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let mut scales = [0.0; GROUPS_MAX];
        for [batch] in Batch::all::<V, 1, GROUPS, GROUP>(weights) {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            let found = lanes::codebook(&columns, &lanes::squares(&columns)).store();
            scales[batch.first..][..V::LANES].copy_from_slice(&found[..V::LANES]);
        }
        write_all(weights, &scales, blocks);
    }
}

/// The rule with importance, a group in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    let mut importance = Importance::of(weights, importance);
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let importance = importance.next(weights, |sum| sum * (2.0 / K_LEN as f32));
        let mut scales = [0.0; GROUPS_MAX];
        for [batch] in Batch::all::<V, 1, GROUPS, GROUP>(weights) {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            let counts = importance.counts::<V, GROUPS, GROUP>(&batch, &columns);
            let found = lanes::codebook(&columns, &counts).store();
            scales[batch.first..][..V::LANES].copy_from_slice(&found[..V::LANES]);
        }
        write_all(weights, &scales, blocks);
    }
}

#[inline(always)]
fn write_all(weights: &[[f32; K_LEN]], scales: &[f32; GROUPS_MAX], blocks: &mut [[u8; BYTES]]) {
    for ((weights, scales), block) in weights.iter().zip(scales.as_chunks().0).zip(blocks) {
        write(weights, scales, block);
    }
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_iq4_xs,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Iq4Xs), in DType::Iq4Xs
}

encoders! { Iq4Xs, encode_iq4_xs, encode_iq4_xs_weighted }

exact_test! { Iq4Xs }
