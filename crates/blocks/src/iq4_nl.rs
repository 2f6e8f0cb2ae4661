//! `iq4_nl`: 32 weights as 4-bit indices into a table of 16 steps, and one scale, 4.5 bits per weight.
//!
//! ```text
//!   0     2                                  18
//!  ┌─────┬──────────────────────────────────┐
//!  │ d   │ 16 bytes of index pairs          │   d: f16, little-endian
//!  └─────┴──────────────────────────────────┘   index j low, index j + 16 high in byte j
//! ```
//!
//! weight = d * STEPS[index].

use crate::codec::{assert_whole_rows, encode_blocks, encode_blocks_weighted, whole_blocks};
#[cfg(test)]
use crate::decoder::Term;
use crate::parts::{self, Parts};
use crate::scale::{LEN, reciprocal};
use crate::search::codebook::{self, STEPS, places_of};
use crate::search::lanes::{self, Lanes};
use crate::search::{importance_of, squares, sum_of_squares};
use crate::{Block, DType, f16, nibbles};

pub(crate) const BYTES: usize = f16::BYTES + nibbles::BYTES;
const _: () = assert!(BYTES == DType::Iq4Nl.block_bytes() && LEN == DType::Iq4Nl.block_len());

/// Places in a table of steps, one scale for 32 weights.
pub struct Iq4Nl;

impl Block for Iq4Nl {
    const DTYPE: DType = DType::Iq4Nl;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, LEN, 1, LEN>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; LEN] {
    let [d0, d1, pairs @ ..] = block;
    let scale = f16::widen([*d0, *d1]);
    nibbles::unpack(pairs).map(|place| Term { scale, step: 1, code: STEPS[usize::from(place)], ..Term::default() })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<LEN, 1> {
    let [d0, d1, pairs @ ..] = block;
    let mut codes = [0; LEN];
    let (low, high) = codes.split_at_mut(nibbles::BYTES);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(pairs) {
        (*low, *high) = (STEPS[usize::from(byte & 15)], STEPS[usize::from(byte >> 4)]);
    }
    Parts { scales: [f16::widen([*d0, *d1])], minima: None, codes }
}

fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, LEN, 1, LEN>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::iq4_nl::decode,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Iq4Nl), in DType::Iq4Nl
}

/// Writes a block under a scale. It is stored rounded and used unrounded.
#[inline(always)]
fn write(weights: &[f32; LEN], scale: f32, block: &mut [u8; BYTES]) {
    let (inverse, mut values) = (reciprocal(scale), *weights);
    for value in &mut values {
        *value *= inverse;
    }
    let [d0, d1, pairs @ ..] = block;
    [*d0, *d1] = f16::narrow(scale);
    *pairs = nibbles::pack(&places_of(&values));
}

fn encode_scalar(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights, block| {
        write(weights, codebook::search(weights, &squares(weights)), block);
    });
}

fn encode_weighted_scalar(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    encode_blocks_weighted(weights, importance, bytes, |weights, importance, block| {
        let mean_square = sum_of_squares(weights) * (2.0 / LEN as f32);
        write(weights, codebook::search(weights, &importance_of(weights, importance, mean_square)), block);
    });
}

/// The rule without importance, a block in each lane.
#[inline(always)]
pub(crate) fn encode_lanes<V: Lanes>(weights: &[f32], bytes: &mut [u8]) {
    let (sources, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (sources, blocks) in sources.chunks(V::LANES).zip(blocks.chunks_mut(V::LANES)) {
        let columns = lanes::columns::<V, LEN>(sources);
        let scales = lanes::codebook(&columns, &lanes::squares(&columns)).store();
        for ((weights, scale), block) in sources.iter().zip(scales).zip(blocks) {
            write(weights, scale, block);
        }
    }
}

/// The rule with importance, a block in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<V: Lanes>(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
    assert_whole_rows(weights, importance);
    let (sources, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    let (of_columns, rest) = importance.as_chunks::<LEN>();
    assert!(rest.is_empty(), "a row ends inside a block, {} elements over", rest.len());
    let row = of_columns.len().max(1);
    for (sources, blocks) in sources.chunks(row).zip(blocks.chunks_mut(row)) {
        let batches = sources.chunks(V::LANES).zip(of_columns.chunks(V::LANES)).zip(blocks.chunks_mut(V::LANES));
        for ((sources, importance), blocks) in batches {
            let columns = lanes::columns::<V, LEN>(sources);
            let mean_square = lanes::sum(&lanes::squares(&columns)) * V::splat(2.0 / LEN as f32);
            let counts = lanes::importance_of(&columns, &lanes::columns(importance), mean_square);
            let scales = lanes::codebook(&columns, &counts).store();
            for ((weights, scale), block) in sources.iter().zip(scales).zip(blocks) {
                write(weights, scale, block);
            }
        }
    }
}

encoders! { Iq4Nl, encode_iq4_nl, encode_iq4_nl_weighted }

exact_test! { Iq4Nl }
