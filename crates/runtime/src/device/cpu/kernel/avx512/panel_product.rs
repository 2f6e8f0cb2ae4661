//! Products of panels: a 512-bit register holds four codes of each of a panel's rows, and up to twelve tokens use it before the next is loaded.
//!
//! `vpdpbusd` multiplies unsigned by signed bytes and adds four products to a lane of 32 bits, without saturation:
//!
//! ```text
//!  q8_0   (w + 128) * x, the sign bit turned over      128 * sum of x goes off before
//!  q4_0   (w + 8) * x                                  8 * sum of x goes off before; of few tokens high nibbles stay where they are, as
//!                                                      16 (w + 8), and their sum is shifted once a block
//! ```

use super::super::panel_product::TILE;
use super::super::quantize::ActivationBlock;
use super::ask_for;
use crate::device::cpu::panels::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Up to so many tokens, weights come from memory faster than they are multiplied, and are asked for ahead; with more they stay in a cache
/// from tile to tile.
const TOKENS_STREAMED: usize = 4;

/// Calls a tile of as many tokens as there are sums: its registers are counted when it is compiled.
macro_rules! of_tokens {
    ($tile:ident($panel:ident, $xs:ident, $sums:ident), $($tokens:literal)*) => {
        match $sums.len() {
            0 => {}
            $($tokens => $tile::<$tokens>($panel, $xs, $sums),)*
            tokens => panic!("a tile has {tokens} tokens, and at most {TILE} find room in registers"),
        }
    };
}

/// Of q8_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn q8_0(panel: &[PanelBlock<8>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    of_tokens!(tile_q8_0(panel, xs, sums), 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// Of q4_0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn q4_0(panel: &[PanelBlock<4>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    of_tokens!(tile_q4_0(panel, xs, sums), 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// `T` tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile_q8_0<const T: usize>(panel: &[PanelBlock<8>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    let xs = tokens_of::<T>(panel.len(), xs);
    let sign = _mm512_set1_epi8(i8::MIN);
    let mut totals = [_mm512_setzero_ps(); T];
    for (block, xs) in panel.iter().zip(xs) {
        if T <= TOKENS_STREAMED {
            ask_for(block);
        }
        let mut dots: [__m512i; T] = std::array::from_fn(|i| _mm512_set1_epi32(-128 * xs[i].sum));
        for (g, codes) in block.codes.iter().enumerate() {
            let codes = _mm512_xor_si512(load_codes(codes), sign);
            for i in 0..T {
                dots[i] = _mm512_dpbusd_epi32(dots[i], codes, repeat(&xs[i], g));
            }
        }
        let scales = load_scales(&block.scales);
        for i in 0..T {
            totals[i] = multiply_add(dots[i], scales, xs[i].scale, totals[i]);
        }
    }
    store_all(&totals, sums);
}

/// `T` tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile_q4_0<const T: usize>(panel: &[PanelBlock<4>], xs: &[ActivationBlock], sums: &mut [[f32; PANEL_ROWS]]) {
    let xs = tokens_of::<T>(panel.len(), xs);
    let mut totals = [_mm512_setzero_ps(); T];
    for (block, xs) in panel.iter().zip(xs) {
        if T <= TOKENS_STREAMED {
            ask_for(block);
        }
        let dots = if T <= TOKENS_STREAMED { dots_apart(block, xs) } else { dots_together(block, xs) };
        let scales = load_scales(&block.scales);
        for i in 0..T {
            totals[i] = multiply_add(dots[i], scales, xs[i].scale, totals[i]);
        }
    }
    store_all(&totals, sums);
}

/// A block's products, high nibbles where they are: few instructions, two registers a token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots_apart<const T: usize>(block: &PanelBlock<4>, xs: &[ActivationBlock; T]) -> [__m512i; T] {
    let (low, high) = (_mm512_set1_epi8(0x0F), _mm512_set1_epi8(0xF0_u8 as i8));
    let mut lows: [__m512i; T] = std::array::from_fn(|i| _mm512_set1_epi32(-8 * xs[i].sum));
    let mut highs = [_mm512_setzero_si512(); T];
    for (g, codes) in block.codes.iter().enumerate() {
        let codes = load_codes(codes);
        let (first, second) = (_mm512_and_si512(codes, low), _mm512_and_si512(codes, high));
        for i in 0..T {
            lows[i] = _mm512_dpbusd_epi32(lows[i], first, repeat(&xs[i], g));
            highs[i] = _mm512_dpbusd_epi32(highs[i], second, repeat(&xs[i], g + 4));
        }
    }
    std::array::from_fn(|i| _mm512_add_epi32(lows[i], _mm512_srai_epi32::<4>(highs[i])))
}

/// The same with high nibbles brought down: one register a token.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dots_together<const T: usize>(block: &PanelBlock<4>, xs: &[ActivationBlock; T]) -> [__m512i; T] {
    let low = _mm512_set1_epi8(0x0F);
    let mut dots: [__m512i; T] = std::array::from_fn(|i| _mm512_set1_epi32(-8 * xs[i].sum));
    for (g, codes) in block.codes.iter().enumerate() {
        let codes = load_codes(codes);
        let first = _mm512_and_si512(codes, low);
        for i in 0..T {
            dots[i] = _mm512_dpbusd_epi32(dots[i], first, repeat(&xs[i], g));
        }
        let second = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low);
        for i in 0..T {
            dots[i] = _mm512_dpbusd_epi32(dots[i], second, repeat(&xs[i], g + 4));
        }
    }
    dots
}

/// The activations of each block, token beside token.
fn tokens_of<const T: usize>(blocks: usize, xs: &[ActivationBlock]) -> &[[ActivationBlock; T]] {
    let (xs, rest) = xs.as_chunks();
    assert!(xs.len() == blocks && rest.is_empty(), "activations for each token and block");
    xs
}

/// Four bytes of codes of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_codes(codes: &[[u8; 4]; PANEL_ROWS]) -> __m512i {
    // SAFETY: the arrays hold 64 bytes behind each other; the load needs no alignment.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

/// Each row's scale.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn load_scales(scales: &[u16; PANEL_ROWS]) -> __m512 {
    // SAFETY: the array holds 32 bytes; the load needs no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(scales.as_ptr().cast()) })
}

/// `totals + dots * (scales * scale)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply_add(dots: __m512i, scales: __m512, scale: f32, totals: __m512) -> __m512 {
    _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(scales, _mm512_set1_ps(scale)), totals)
}

/// Four codes of the activations in each lane: elements `4 group ...` of the block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn repeat(x: &ActivationBlock, group: usize) -> __m512i {
    let codes = x.codes.as_chunks::<4>().0[group].map(|code| code as u8);
    _mm512_set1_epi32(i32::from_le_bytes(codes))
}

/// Each token's sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn store_all(totals: &[__m512], sums: &mut [[f32; PANEL_ROWS]]) {
    for (sums, totals) in sums.iter_mut().zip(totals) {
        // SAFETY: the array holds 64 bytes; the store needs no alignment.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), *totals) };
    }
}
