//! `q2_k`: 256 weights in 2 bits each, in 16 parts with a scale and a minimum of 4 bits, 2.625 bits per weight.
//!
//! ```text
//!   0                16                      80    82    84
//!  ┌────────────────┬───────────────────────┬─────┬─────┐
//!  │ 16 parts       │ 64 bytes of codes     │ d   │ min │   part: step low, offset high in a byte
//!  └────────────────┴───────────────────────┴─────┴─────┘   d, min: f16; all little-endian
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::{Term, two_bits};
use crate::k_affine::{self, Format, Header};
use crate::packing::pack_two_bits;
use crate::parts::{self, Parts, all_two_bits, multiples};
use crate::search::affine::Tries;
use crate::search::lanes::{Columns, Lanes};
use crate::{Block, DType, f16};

const BYTES: usize = K_LEN / 16 + K_LEN / 4 + 2 * f16::BYTES;
const _: () = assert!(BYTES == DType::Q2K.block_bytes() && K_LEN == DType::Q2K.block_len());

/// Two bits above a minimum, in sixteen groups of 16 weights.
pub struct Q2K;

impl Block for Q2K {
    const DTYPE: DType = DType::Q2K;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, 16, 16>(bytes, weights, parts);
    }

    fn encode(weights: &[f32], bytes: &mut [u8]) {
        encode_rows(weights, bytes);
    }

    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        encode_rows_weighted(weights, importance, bytes);
    }
}

#[cfg(test)]
fn terms(block: &[u8; BYTES]) -> [Term; K_LEN] {
    let (parts, rest) = block.split_first_chunk::<16>().expect("a block has 84 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 84 bytes");
    let (scale, low) = (f16::widen([rest[0], rest[1]]), f16::widen([rest[2], rest[3]]));
    std::array::from_fn(|e| {
        let part = parts[e / 16];
        Term { scale, step: (part & 15) as i8, code: two_bits(codes, e) as i8, low, offset: (part >> 4) as i8 }
    })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (packed, rest) = block.split_first_chunk::<16>().expect("a block has 84 bytes");
    let (codes, rest) = rest.split_first_chunk::<64>().expect("a block has 84 bytes");
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), packed.map(|part| (part & 15) as i8)),
        minima: Some(multiples(f16::widen([rest[2], rest[3]]), packed.map(|part| (part >> 4) as i8))),
        codes: all_two_bits(codes).map(|code| code as i8),
    }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 16, 16>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q2_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q2K), in DType::Q2K
}

/// Weights of a part.
const PART: usize = 16;
const PARTS: usize = K_LEN / PART;

impl Format<BYTES, PARTS, PART> for Q2K {
    const PLAIN: Tries = Tries { top: 3, first: -0.5, step: 0.1, last: 15, is_absolute: true };
    const STEP_TOP: u8 = 15;
    const MEAN_SQUARES: f32 = 1.0;

    fn counts(weights: &[f32; PART]) -> [f32; PART] {
        weights.map(f32::abs)
    }

    #[inline(always)]
    fn counts_lanes<V: Lanes>(weights: &Columns<V, PART>) -> Columns<V, PART> {
        let mut counts = *weights;
        for count in &mut counts {
            *count = count.abs();
        }
        counts
    }

    #[inline(always)]
    fn pack(header: &Header<PARTS>, codes: &[u8; K_LEN], block: &mut [u8; BYTES]) {
        let (parts, rest) = block.split_first_chunk_mut::<16>().expect("a block has 84 bytes");
        let (packed, rest) = rest.split_first_chunk_mut::<64>().expect("a block has 84 bytes");
        *parts = std::array::from_fn(|part| header.steps[part] | header.offsets[part] << 4);
        *packed = pack_two_bits(codes);
        rest[..2].copy_from_slice(&header.scale);
        rest[2..].copy_from_slice(&header.low);
    }
}

encoders! { Q2K, k_affine, [BYTES, PARTS, PART], encode_q2_k, encode_q2_k_weighted }

exact_test! { Q2K }
