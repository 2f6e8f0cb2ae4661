//! `q6_k`: 256 weights in 6 bits each, in 16 parts with a scale of 8 bits, 6.5625 bits per weight.
//!
//! ```text
//!   0                           128            192         208   210
//!  ┌───────────────────────────┬──────────────┬───────────┬─────┐
//!  │ 128 bytes of lower nibbles│ upper bits   │ 16 steps  │ d   │   steps: i8; d: f16, little-endian
//!  └───────────────────────────┴──────────────┴───────────┴─────┘
//! ```
//!
//! weight = d * step * (code - 32). Of each 128 elements, the first 64 are low nibbles of 64 bytes and the last 64
//! their high ones.

use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::{Term, two_bits};
use crate::k_lanes::{Batch, BatchImportance};
use crate::k_signed::{self, Format, Found, GROUP, Header, VECTORS};
use crate::packing::{pack_nibbles, pack_two_bits};
use crate::parts::{self, Parts, all_nibbles, all_two_bits, multiples};
use crate::search::lanes::{Columns, Lanes, Swept};
use crate::search::{TINY, nearest, peak, signed};
use crate::{Block, DType, f16};

const BYTES: usize = K_LEN / 2 + K_LEN / 4 + K_LEN / 16 + f16::BYTES;
const _: () = assert!(BYTES == DType::Q6K.block_bytes() && K_LEN == DType::Q6K.block_len());

/// Six bits around zero, in sixteen groups of 16 weights.
pub struct Q6K;

impl Block for Q6K {
    const DTYPE: DType = DType::Q6K;
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
    let (lower, rest) = block.split_first_chunk::<128>().expect("a block has 210 bytes");
    let (upper, rest) = rest.split_first_chunk::<64>().expect("a block has 210 bytes");
    let scale = f16::widen([rest[16], rest[17]]);
    std::array::from_fn(|e| {
        let nibble = lower[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
        let code = nibble | two_bits(upper, e) << 4;
        Term { scale, step: rest[e / 16] as i8, code: code as i8 - 32, ..Term::default() }
    })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 16> {
    let (lower, rest) = block.split_first_chunk::<128>().expect("a block has 210 bytes");
    let (upper, rest) = rest.split_first_chunk::<64>().expect("a block has 210 bytes");
    let (steps, rest) = rest.split_first_chunk::<16>().expect("a block has 210 bytes");
    let (lower, upper) = (all_nibbles::<64>(lower), all_two_bits(upper));
    Parts {
        scales: multiples(f16::widen([rest[0], rest[1]]), steps.map(|step| step as i8)),
        minima: None,
        codes: std::array::from_fn(|e| (lower[e] | upper[e] << 4) as i8 - 32),
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
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q6_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q6K), in DType::Q6K
}

/// Codes are `-LEVELS .. LEVELS`.
const LEVELS: i32 = 32;

impl Format<BYTES> for Q6K {
    const LEVELS: i32 = LEVELS;

    fn search(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32 {
        signed::search(LEVELS, weights, counts, codes)
    }

    fn search_weighted(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32 {
        signed::search(LEVELS, weights, counts, codes)
    }

    fn counts(_: &[f32; GROUP], importance: &[f32; GROUP], _: f32) -> [f32; GROUP] {
        *importance
    }

    #[inline(always)]
    fn search_lanes<V: Lanes>(
        _: usize,
        weights: [&Columns<V, GROUP>; VECTORS],
        counts: [&Columns<V, GROUP>; VECTORS],
    ) -> Swept<V, VECTORS> {
        Swept { scales: Self::search_weighted_lanes(weights, counts), changes: [V::splat(0.0); VECTORS] }
    }

    #[inline(always)]
    fn counts_lanes<V: Lanes>(
        importance: &BatchImportance,
        batch: &Batch<GROUP>,
        _: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP> {
        importance.columns(batch)
    }

    #[inline(always)]
    fn header(found: &Found, peak: f32) -> Option<Header> {
        if peak.abs() < TINY {
            return None;
        }
        let inverse = -128.0 / peak;
        let steps = found.scales.map(|scale| nearest(inverse * scale).min(127) as i8);
        Some(Header { scale: f16::narrow(1.0 / inverse), steps })
    }

    #[inline(always)]
    fn weighted_header(found: &Found) -> Option<Header> {
        Self::header(found, peak(&found.scales))
    }

    #[inline(always)]
    fn pack(header: &Header, codes: &[u8; K_LEN], block: &mut [u8; BYTES]) {
        let (lower, rest) = block.split_first_chunk_mut::<128>().expect("a block has 210 bytes");
        let (upper, rest) = rest.split_first_chunk_mut::<64>().expect("a block has 210 bytes");
        let (packed_steps, rest) = rest.split_first_chunk_mut::<16>().expect("a block has 210 bytes");
        *lower = pack_nibbles::<64>(codes);
        *upper = pack_two_bits(&codes.map(|code| code >> 4));
        *packed_steps = header.steps.map(|step| step as u8);
        rest.copy_from_slice(&header.scale);
    }
}

encoders! { Q6K, k_signed, [BYTES], encode_q6_k, encode_q6_k_weighted }

exact_test! { Q6K }
