//! `q5_k`: 256 weights in 5 bits each, in 8 parts with a scale and a minimum of 6 bits, 5.5 bits per weight.
//!
//! ```text
//!   0     2     4           16             48                                 176
//!  ┌─────┬─────┬───────────┬──────────────┬──────────────────────────────────┐
//!  │ d   │ min │ 8 parts   │ fifth bits   │ 128 bytes of code pairs          │   d, min: f16, little-endian
//!  └─────┴─────┴───────────┴──────────────┴──────────────────────────────────┘   fifth bit of element e: bit e / 32 of byte e % 32
//! ```
//!
//! weight = d * step * code - min * offset.

use crate::decoder::K_LEN;
#[cfg(test)]
use crate::decoder::{Term, nibble, six_bits};
use crate::k_affine::{self, Format, Header};
use crate::packing::{pack_nibbles, pack_single_bits, pack_steps_and_offsets};
use crate::parts::{self, Parts, all_nibbles, eight_steps_and_offsets, multiples, put_single_bits};
use crate::search::affine::Tries;
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::magnitudes_above_mean;
use crate::{Block, DType, f16};

const BYTES: usize = 2 * f16::BYTES + 12 + K_LEN / 8 + K_LEN / 2;
const _: () = assert!(BYTES == DType::Q5K.block_bytes() && K_LEN == DType::Q5K.block_len());

/// Five bits above a minimum, in eight groups of 32 weights.
pub struct Q5K;

impl Block for Q5K {
    const DTYPE: DType = DType::Q5K;
    const USES_IMPORTANCE: bool = true;

    fn decode(bytes: &[u8], weights: &mut [f32]) {
        decode_rows(bytes, weights);
    }

    #[inline(always)]
    fn decode_exact(bytes: &[u8], weights: &mut [f64]) {
        parts::decode_exact::<BYTES, K_LEN, 8, 32>(bytes, weights, parts);
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
    let ([d0, d1, m0, m1], rest) = block.split_first_chunk().expect("a block has 176 bytes");
    let (parts, rest) = rest.split_first_chunk::<12>().expect("a block has 176 bytes");
    let (fifth, rest) = rest.split_first_chunk::<32>().expect("a block has 176 bytes");
    let codes = rest.first_chunk::<128>().expect("a block has 176 bytes");
    let (scale, low) = (f16::widen([*d0, *d1]), f16::widen([*m0, *m1]));
    std::array::from_fn(|e| {
        let (step, offset) = six_bits(parts, e / 32);
        let code = nibble(codes, e) | (fifth[e % 32] >> (e / 32) & 1) << 4;
        Term { scale, step, code: code as i8, low, offset }
    })
}

/// The parts of a block; its elements are those of `terms`, which only tests use.
#[inline(always)]
fn parts(block: &[u8; BYTES]) -> Parts<K_LEN, 8> {
    let ([d0, d1, m0, m1], rest) = block.split_first_chunk().expect("a block has 176 bytes");
    let (packed, rest) = rest.split_first_chunk::<12>().expect("a block has 176 bytes");
    let (fifth, rest) = rest.split_first_chunk::<32>().expect("a block has 176 bytes");
    let mut codes = all_nibbles::<32>(rest.first_chunk().expect("a block has 176 bytes"));
    put_single_bits(&mut codes, fifth, 4);
    let [steps, offsets] = eight_steps_and_offsets(packed);
    Parts {
        scales: multiples(f16::widen([*d0, *d1]), steps),
        minima: Some(multiples(f16::widen([*m0, *m1]), offsets)),
        codes: codes.map(|code| code as i8),
    }
}

#[inline(always)]
pub(crate) fn decode_parts(bytes: &[u8], weights: &mut [f32]) {
    parts::decode::<BYTES, K_LEN, 8, 32>(bytes, weights, parts);
}

#[cfg(test)]
fn decode_scalar(bytes: &[u8], weights: &mut [f32]) {
    crate::decoder::decode(bytes, weights, terms);
}

dispatch! {
    fn decode_rows(bytes: &[u8], weights: &mut [f32]) {
        fast avx2("avx2", "f16c") => crate::avx2::compiled::decode_q5_k,
        portable => decode_parts,
        scalar => decode_scalar,
    }
    decode_variants_agree on crate::samples::encoded(DType::Q5K), in DType::Q5K
}

/// Weights of a part.
const PART: usize = 32;
const PARTS: usize = K_LEN / PART;

impl Format<BYTES, PARTS, PART> for Q5K {
    const PLAIN: Tries = Tries { top: 31, first: -0.5, step: 0.1, last: 15, is_absolute: false };
    const STEP_TOP: u8 = 63;
    const MEAN_SQUARES: f32 = 2.0;

    fn counts(weights: &[f32; PART]) -> [f32; PART] {
        magnitudes_above_mean(weights)
    }

    #[inline(always)]
    fn counts_lanes<V: Lanes>(weights: &Columns<V, PART>) -> Columns<V, PART> {
        lanes::magnitudes_above_mean(weights)
    }

    #[inline(always)]
    fn pack(header: &Header<PARTS>, codes: &[u8; K_LEN], block: &mut [u8; BYTES]) {
        let ([d0, d1, m0, m1], rest) = block.split_first_chunk_mut().expect("a block has 176 bytes");
        let (parts, rest) = rest.split_first_chunk_mut::<12>().expect("a block has 176 bytes");
        [*d0, *d1] = header.scale;
        [*m0, *m1] = header.low;
        *parts = pack_steps_and_offsets(&header.steps, &header.offsets);
        let (fifth, rest) = rest.split_first_chunk_mut::<32>().expect("a block has 176 bytes");
        *fifth = pack_single_bits(codes, 4);
        rest.copy_from_slice(&pack_nibbles::<32>(codes));
    }
}

encoders! { Q5K, k_affine, [BYTES, PARTS, PART], encode_q5_k, encode_q5_k_weighted }

exact_test! { Q5K }
