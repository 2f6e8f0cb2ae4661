//! Variants for AVX-512 with VNNI: each as exact as its rule, in registers of sixteen f32 or 64 codes.

mod block_rows;
pub mod decode_q8_0;
pub mod dot_int8;
pub mod dots;
pub mod key_scores;
pub mod mix;
pub mod multiply_add;
pub mod pack_panel;
pub mod panel_product;
pub mod quantize;
pub mod read_lines;
pub mod soft_max;
pub mod sub_block_product;
pub mod turned_product;

use crate::prefetch::Prefetch;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// f32 of a register.
const LANES: usize = 16;

/// Prefetch distance: two pages, measured to keep the memory busy.
const PREFETCH_BYTES: usize = 8192;

/// The prefetch distance of [`Prefetch::All`].
const PREFETCH_NEAR_BYTES: usize = 2048;

/// How far ahead weights are asked for that lie in a cache further off.
const PREFETCH_CACHED_BYTES: usize = 1024;

/// Prefetches the next weights, as many bytes as `weights` has, for a single use. Prefetching past the last weights has
/// no effect.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn prefetch_streamed<T>(weights: &T) {
    prefetch_streamed_bytes(weights, size_of::<T>());
}

/// Prefetches weights that follow `start`, for a single use.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn prefetch_streamed_bytes<T>(start: *const T, bytes: usize) {
    let strategy = Prefetch::current();
    for line in (0..bytes).step_by(64) {
        let start = start.wrapping_byte_add(line);
        // Accesses no memory: an address outside is ignored.
        match strategy {
            Prefetch::NonTemporal => _mm_prefetch::<_MM_HINT_NTA>(start.wrapping_byte_add(PREFETCH_BYTES).cast()),
            Prefetch::Outer => _mm_prefetch::<_MM_HINT_T2>(start.wrapping_byte_add(PREFETCH_BYTES).cast()),
            Prefetch::All => _mm_prefetch::<_MM_HINT_T0>(start.wrapping_byte_add(PREFETCH_NEAR_BYTES).cast()),
        }
    }
}

/// Asks for weights as many as these that come later and are used more than once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for_again<T>(weights: &T) {
    let start: *const T = weights;
    for line in (0..size_of::<T>()).step_by(64) {
        ask_for_line(start.wrapping_byte_add(PREFETCH_BYTES + line));
    }
}

/// Asks for weights as many as these that come next in their row, which lie in a cache.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for_soon<T>(weights: &T) {
    let start: *const T = weights;
    for line in (0..size_of::<T>()).step_by(64) {
        ask_for_line(start.wrapping_byte_add(PREFETCH_CACHED_BYTES + line));
    }
}

/// Asks for the cache line of an address, which is used more than once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn ask_for_line<T>(address: *const T) {
    _mm_prefetch::<_MM_HINT_T0>(address.cast());
}

/// Sixteen f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_f32(source: &[f32; LANES]) -> __m512 {
    // SAFETY: the array holds 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_ps(source.as_ptr()) }
}

/// Sixteen f16, widened.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_f16(source: &[f16; LANES]) -> __m512 {
    // SAFETY: the array holds 32 bytes, f16 is a transparent u16; the load needs no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(source.as_ptr().cast()) })
}

/// Sixteen bf16, widened.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_bf16(source: &[bf16; LANES]) -> __m512 {
    // SAFETY: the array holds 32 bytes, bf16 is a transparent u16; the load needs no alignment.
    let halves = unsafe { _mm256_loadu_si256(source.as_ptr().cast()) };
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
}

/// The sixteen lanes as an array.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn store(lanes: __m512) -> [f32; LANES] {
    let mut target = [0.0; LANES];
    // SAFETY: the array holds 64 bytes; the store needs no alignment.
    unsafe { _mm512_storeu_ps(target.as_mut_ptr(), lanes) };
    target
}
