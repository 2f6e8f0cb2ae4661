//! Encoding and losses for x86-64 processors with AVX-512: a block of 32 weights is two vectors of 16, and the scales
//! of 16 blocks are one.
//!
//! ```text
//!  block 0  │ elements 0 .. 16 │ elements 16 .. 32 │ ─┐
//!   ...                                               ├─ largest of each block in its lane ── scales ── codes, block by block
//!  block 15 │ elements 0 .. 16 │ elements 16 .. 32 │ ─┘
//! ```
//!
//! As in `avx2`, each function does the operations of the scalar rule element by element, in an order that changes no
//! result. Decoding is no faster than with AVX2: it is bound by its stores.

pub(crate) mod compiled;
pub(crate) mod lanes;

use std::arch::x86_64::*;

use crate::codec::whole_blocks;
use crate::scale::{self, LEN};
use crate::{f16, q4_0, q8_0};

/// Elements of one vector, and blocks whose scales are one.
const LANES: usize = 16;

/// Weights of a block.
type Weights = [f32; LEN];

/// The vectors of a block, element 0 first.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_block(weights: &Weights) -> [__m512; 2] {
    let (vectors, _) = weights.as_chunks::<LANES>();
    // SAFETY: each of the two arrays holds the 64 bytes that are read; the load has no alignment.
    unsafe { [_mm512_loadu_ps(vectors[0].as_ptr()), _mm512_loadu_ps(vectors[1].as_ptr())] }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn lanes(vector: __m512) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    // SAFETY: the array holds the 64 bytes that are written; the store has no alignment.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), vector) }
    lanes
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_16_bytes(bytes: &mut [u8; LANES], vector: __m128i) {
    // SAFETY: the array holds the 16 bytes that are written; the store has no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

/// Lane `i` becomes the largest of vector `i`, all of which have no NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest_of_each(vectors: &[__m512; LANES]) -> __m512 {
    // Four vectors, of which each quarter of the result has one lane each.
    let four = |first: usize| {
        let two = |a: __m512, b: __m512| _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let a = _mm512_castps_pd(two(vectors[first], vectors[first + 1]));
        let b = _mm512_castps_pd(two(vectors[first + 2], vectors[first + 3]));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        _mm512_max_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
    };
    let quarters = |a: __m512, b: __m512| {
        let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
        _mm512_max_ps(even, odd)
    };
    quarters(quarters(four(0), four(4)), quarters(four(8), four(12)))
}

/// The largest magnitude of each block, 0 or more. NaN loses every comparison, as in the scalar search.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn magnitudes(weights: &[Weights]) -> __m512 {
    let mut largest = [_mm512_setzero_ps(); LANES];
    for (weights, largest) in weights.iter().zip(&mut largest) {
        let [first, second] = load_block(weights);
        // The second operand is the result when the first is NaN.
        *largest = _mm512_max_ps(_mm512_abs_ps(second), _mm512_max_ps(_mm512_abs_ps(first), *largest));
    }
    largest_of_each(&largest)
}

/// The first weight of largest magnitude of each block; +0.0 when nothing is larger than zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn signed_extremes(weights: &[Weights]) -> __m512 {
    let sign = _mm512_set1_ps(-0.0);
    let (mut highest, mut lowest) = ([_mm512_setzero_ps(); LANES], [_mm512_setzero_ps(); LANES]);
    for ((weights, highest), lowest) in weights.iter().zip(&mut highest).zip(&mut lowest) {
        let [first, second] = load_block(weights);
        let negated = [_mm512_xor_ps(first, sign), _mm512_xor_ps(second, sign)];
        *highest = _mm512_max_ps(second, _mm512_max_ps(first, *highest));
        *lowest = _mm512_max_ps(negated[1], _mm512_max_ps(negated[0], *lowest));
    }
    let (highest, lowest) = (largest_of_each(&highest), largest_of_each(&lowest));
    let is_negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(highest, lowest);
    let extremes = _mm512_mask_xor_ps(highest, is_negative, lowest, sign);
    let mut ties = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(highest, lowest);
    ties &= _mm512_cmp_ps_mask::<_CMP_NEQ_OQ>(highest, _mm512_setzero_ps());
    if ties == 0 {
        return extremes;
    }
    // Of both signs at once: the first in the block decides.
    let mut extremes = lanes(extremes);
    let tied = extremes.iter_mut().zip(weights).enumerate().filter(|(block, _)| ties >> block & 1 == 1);
    tied.for_each(|(_, (extreme, weights))| *extreme = scale::signed_extreme(weights));
    // SAFETY: the array holds the 64 bytes that are read; the load has no alignment.
    unsafe { _mm512_loadu_ps(extremes.as_ptr()) }
}

/// `1 / scale` of each block, and 0 where the scale is 0.
#[inline]
#[target_feature(enable = "avx512f")]
fn reciprocals(scales: __m512) -> [f32; LANES] {
    let is_there = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(scales, _mm512_setzero_ps());
    lanes(_mm512_maskz_div_ps(is_there, _mm512_set1_ps(1.0), scales))
}

/// Scales as f16. They come from comparisons, which let no NaN through.
#[inline]
#[target_feature(enable = "avx512f")]
fn narrow(scales: __m512) -> [[u8; f16::BYTES]; LANES] {
    let mut halves = [[0; f16::BYTES]; LANES];
    let narrowed = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(scales);
    // SAFETY: the arrays are the 32 bytes that are written, without anything between them; the store has no alignment.
    unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), narrowed) }
    halves
}

/// Weights to `q4_0`, as the scalar rule.
#[target_feature(enable = "avx2,avx512f,avx512dq")]
pub(crate) fn encode_q4_0(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<{ q4_0::BYTES }>());
    let (offset, top, nibble) = (_mm512_set1_ps(8.5), _mm512_set1_epi32(15), _mm_set1_epi8(15));
    for (weights, blocks) in weights.chunks(LANES).zip(blocks.chunks_mut(LANES)) {
        let scales = _mm512_div_ps(signed_extremes(weights), _mm512_set1_ps(-8.0));
        let of_block = reciprocals(scales).into_iter().zip(narrow(scales));
        for ((weights, block), (inverse, scale)) in weights.iter().zip(blocks).zip(of_block) {
            let inverse = _mm512_set1_ps(inverse);
            // Cut toward zero; what no 32-bit integer holds becomes one whose low byte is 0, as in the scalar rule.
            let codes = load_block(weights).map(|vector| {
                let code = _mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(vector, inverse), offset));
                _mm_and_si128(_mm512_cvtepi32_epi8(_mm512_min_epi32(code, top)), nibble)
            });
            let [d0, d1, pairs @ ..] = block;
            [*d0, *d1] = scale;
            store_16_bytes(pairs, _mm_or_si128(codes[0], _mm_slli_epi16::<4>(codes[1])));
        }
    }
}

/// Weights to `q8_0`, as the scalar rule; rounded as at [`q8_0::PULL`].
#[target_feature(enable = "avx2,avx512f,avx512dq")]
pub(crate) fn encode_q8_0(weights: &[f32], bytes: &mut [u8]) {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<{ q8_0::BYTES }>());
    let (sign, pull) = (_mm512_set1_ps(-0.0), _mm512_set1_ps(q8_0::PULL));
    for (weights, blocks) in weights.chunks(LANES).zip(blocks.chunks_mut(LANES)) {
        let scales = _mm512_div_ps(magnitudes(weights), _mm512_set1_ps(127.0));
        let of_block = reciprocals(scales).into_iter().zip(narrow(scales));
        for ((weights, block), (inverse, scale)) in weights.iter().zip(blocks).zip(of_block) {
            let inverse = _mm512_set1_ps(inverse);
            let codes = load_block(weights).map(|vector| {
                let value = _mm512_mul_ps(vector, inverse);
                let pull = _mm512_or_ps(pull, _mm512_and_ps(value, sign));
                _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(value, pull)))
            });
            let [d0, d1, bytes @ ..] = block;
            [*d0, *d1] = scale;
            let (halves, _) = bytes.as_chunks_mut::<LANES>();
            store_16_bytes(&mut halves[0], codes[0]);
            store_16_bytes(&mut halves[1], codes[1]);
        }
    }
}
