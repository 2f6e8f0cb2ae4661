//! Packs sixteen rows side by side by transposing 4 x 4 squares of words: four registers hold sixteen bytes of all
//! rows.

use super::super::pack_panel::{mark_zeros, pack_scales_of as rule, row_bytes_of};
use super::ask_for_line;
use crate::panel_block::{PANEL_ROWS, PanelBlock};
use std::arch::x86_64::*;

/// Words of four bytes that are turned over at once.
const WORDS: usize = 4;

/// Whole panels; the rule takes others.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn pack<const S: usize, const G: usize>(bytes: &[u8], panel: &mut [PanelBlock<S, G>], scale_bytes: usize) {
    match scale_bytes {
        1 => {
            pack_scales_of::<S, G, 1>(bytes, panel);
            mark_zeros(panel);
        }
        2 => pack_scales_of::<S, G, 2>(bytes, panel),
        _ => panic!("scales have one or two bytes, not {scale_bytes}"),
    }
}

/// With scales of `B` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn pack_scales_of<const S: usize, const G: usize, const B: usize>(bytes: &[u8], panel: &mut [PanelBlock<S, G>]) {
    let block_bytes = PanelBlock::<S, G>::source_bytes(B);
    let row_bytes = row_bytes_of(bytes, panel, B);
    if bytes.len() < PANEL_ROWS * row_bytes {
        return rule::<S, G, B>(bytes, panel);
    }
    for (b, block) in panel.iter_mut().enumerate() {
        // As far into the next panel, which most often lies behind this one.
        for line in (0..PANEL_ROWS * block_bytes).step_by(64) {
            ask_for_line(bytes.as_ptr().wrapping_add((row_bytes + b * block_bytes) * PANEL_ROWS + line));
        }
        let blocks = &bytes[b * block_bytes..];
        let scales = scales_of::<S, G, B>(blocks, row_bytes);
        let narrow = _mm512_cvtepi32_epi16(scales);
        // SAFETY: the array holds 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(block.scales[0].as_mut_ptr().cast(), narrow) };
        if S == 2 {
            let narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(scales));
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(block.scales[S - 1].as_mut_ptr().cast(), narrow) };
        }
        // The last four words may begin with some of the first.
        for first_group in (0..G - WORDS).step_by(WORDS).chain([G - WORDS]) {
            let words = turned(&blocks[PanelBlock::<S, G>::codes_at(B) + 4 * first_group..], row_bytes);
            for (word, rows) in words.into_iter().enumerate() {
                // SAFETY: the array holds 64 bytes; the store needs no alignment.
                unsafe { _mm512_storeu_si512(block.codes[first_group + word].as_mut_ptr().cast(), rows) };
            }
        }
    }
}

/// The scales of a block of sixteen rows at a distance: the first in the lower half of each row's word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scales_of<const S: usize, const G: usize, const B: usize>(blocks: &[u8], distance: usize) -> __m512i {
    if !PanelBlock::<S, G>::SCALES_LAST {
        let [scales, ..] = turned(blocks, distance);
        return if B == 1 { _mm512_and_si512(scales, _mm512_set1_epi32(0xFF)) } else { scales };
    }
    let [.., last] = turned(&blocks[PanelBlock::<S, G>::source_bytes(2) - 4 * WORDS..], distance);
    if S == 2 { last } else { _mm512_srli_epi32::<16>(last) }
}

/// The first sixteen bytes of sixteen rows at a distance, word by word, each of all rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turned(rows: &[u8], distance: usize) -> [__m512i; WORDS] {
    assert!(rows.len() >= (PANEL_ROWS - 1) * distance + 4 * WORDS, "sixteen bytes of each row");
    // SAFETY: called for the sixteen rows, the last of which ends within the slice; the load needs no alignment.
    let load = |row: usize| unsafe { _mm_loadu_si128(rows.as_ptr().add(row * distance).cast()) };
    let mut fours = [_mm512_setzero_si512(); WORDS];
    for (i, four) in fours.iter_mut().enumerate() {
        let low = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(load(i)), load(i + 4));
        *four = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(low, load(i + 8)), load(i + 12));
    }
    let [a, b, c, d] = fours;
    let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (others_low, others_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(low, others_low),
        _mm512_unpackhi_epi64(low, others_low),
        _mm512_unpacklo_epi64(high, others_high),
        _mm512_unpackhi_epi64(high, others_high),
    ]
}
