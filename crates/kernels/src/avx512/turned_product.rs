//! Products of turned rows: two registers hold one element of 32 rows, and up to six vectors use them before the next
//! are loaded.

use super::super::element::Element;
use super::super::lanes::{DOT_LANES, STEPS, padded};
use super::super::rows::Rows;
use super::super::turned_product::{TURNED_ROWS, Turned, panels_of, turned_len};
use super::key_scores::transposed;
use super::{LANES, ask_for_line, load_bf16, load_f16, load_f32, store};
use crate::panel_block::PANEL_ROWS;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Most vectors whose sums find room in registers, with their totals.
const TOKENS: usize = 6;

/// How many chunks ahead rows are asked for: sixteen of them at once are more than the processor guesses.
const CHUNKS_AHEAD: usize = 16;

/// Registers of one element of all rows.
const REGISTERS: usize = TURNED_ROWS / LANES;

/// Of f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn product_f32(turned: &[Turned<f32>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    product(turned, xs, tokens, sums, |source| load_f32(source));
}

/// Of f16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn product_f16(turned: &[Turned<f16>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    product(turned, xs, tokens, sums, |source| load_f16(source));
}

/// Of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn product_bf16(turned: &[Turned<bf16>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    product(turned, xs, tokens, sums, |source| load_bf16(source));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn product<E: Element>(
    turned: &[Turned<E>],
    xs: &[f32],
    tokens: usize,
    sums: &mut [[f32; PANEL_ROWS]],
    load: impl Fn(&[E; LANES]) -> __m512 + Copy,
) {
    let panels = panels_of(turned, xs, tokens, sums);
    // Passes as even as can be.
    let step = tokens.div_ceil(tokens.div_ceil(TOKENS).max(1)).max(1);
    let Aligned(totals) = &mut Aligned([[[[0.0; LANES]; REGISTERS]; TOKENS]; DOT_LANES]);
    for first in (0..tokens).step_by(step) {
        let vectors = Vectors { xs, tokens, first };
        let count = step.min(tokens - first);
        match count {
            1 => vectors.multiply::<E, 1>(turned, totals, load),
            2 => vectors.multiply::<E, 2>(turned, totals, load),
            3 => vectors.multiply::<E, 3>(turned, totals, load),
            4 => vectors.multiply::<E, 4>(turned, totals, load),
            5 => vectors.multiply::<E, 5>(turned, totals, load),
            _ => vectors.multiply::<E, TOKENS>(turned, totals, load),
        }
        for t in 0..count {
            for register in 0..panels {
                add(totals, t, register, &mut sums[first + t + tokens * register]);
            }
        }
    }
}

/// Each lane's total of each vector and of the rows of each register.
type Totals = [[[[f32; LANES]; REGISTERS]; TOKENS]; DOT_LANES];

/// Totals whose registers straddle no cache lines.
#[repr(C, align(64))]
struct Aligned(Totals);

/// Vectors from `first` on, of `tokens` that lie side by side.
struct Vectors<'x> {
    xs: &'x [f32],
    tokens: usize,
    first: usize,
}

impl Vectors<'_> {
    /// The totals of all rows with `T` vectors.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn multiply<E: Element, const T: usize>(
        &self,
        turned: &[Turned<E>],
        totals: &mut Totals,
        load: impl Fn(&[E; LANES]) -> __m512 + Copy,
    ) {
        let chunks = turned.len() / DOT_LANES;
        for (lane, totals) in totals.iter_mut().enumerate() {
            let turned = &turned[lane * chunks..][..chunks];
            let xs = &self.xs[lane * chunks * self.tokens..][..chunks * self.tokens];
            let mut kept = [[_mm512_setzero_ps(); REGISTERS]; T];
            for (turned, xs) in turned.chunks(STEPS).zip(xs.chunks(STEPS * self.tokens)) {
                let mut sums = [[_mm512_setzero_ps(); REGISTERS]; T];
                for (rows, xs) in turned.iter().zip(xs.chunks_exact(self.tokens)) {
                    let (halves, _) = rows.0.as_chunks::<LANES>();
                    let weights: [__m512; REGISTERS] = [load(&halves[0]), load(&halves[1])];
                    let xs: &[f32; T] = xs[self.first..].first_chunk().expect("each place has elements of all vectors");
                    for (sums, x) in sums.iter_mut().zip(xs) {
                        let x = _mm512_set1_ps(*x);
                        for (sum, weights) in sums.iter_mut().zip(weights) {
                            *sum = _mm512_fmadd_ps(weights, x, *sum);
                        }
                    }
                }
                for (kept, sum) in kept.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                    *kept = _mm512_add_ps(*kept, *sum);
                }
            }
            for (total, kept) in totals.as_flattened_mut().iter_mut().zip(kept.as_flattened()) {
                *total = store(*kept);
            }
        }
    }
}

/// Adds the 32 lanes in f64, each with the one 16, 8, 4, 2, 1 further, and rounds once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn add(totals: &Totals, t: usize, register: usize, sums: &mut [f32; LANES]) {
    for (half, sums) in sums.as_chunks_mut::<{ LANES / 2 }>().0.iter_mut().enumerate() {
        let mut wide = [_mm512_setzero_pd(); DOT_LANES];
        for (wide, totals) in wide.iter_mut().zip(totals) {
            let lanes = &totals[t][register].as_chunks::<{ LANES / 2 }>().0[half];
            // SAFETY: the array holds 32 bytes; the load needs no alignment.
            *wide = _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(lanes.as_ptr()) });
        }
        for half in [16, 8, 4, 2, 1] {
            for lane in 0..half {
                wide[lane] = _mm512_add_pd(wide[lane], wide[lane + half]);
            }
        }
        // SAFETY: the array holds 32 bytes; the store needs no alignment.
        unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), _mm512_cvtpd_ps(wide[0])) };
    }
}

/// Of f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn turn_f32(rows: Rows<f32>, turned: &mut [Turned<f32>]) {
    turn(rows, turned, |chunk, lanes| {
        for half in 0..DOT_LANES / LANES {
            let mut square = [_mm512_setzero_ps(); LANES];
            for (row, elements) in square.iter_mut().zip(chunk) {
                *row = load_f32(&elements.as_chunks().0[half]);
            }
            for (lane, column) in transposed(square).into_iter().enumerate() {
                *lanes.lane(half * LANES + lane) = store(column);
            }
        }
    });
}

/// Of f16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn turn_f16(rows: Rows<f16>, turned: &mut [Turned<f16>]) {
    turn(rows, turned, |chunk, lanes| turn_halves(chunk, lanes));
}

/// Of bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn turn_bf16(rows: Rows<bf16>, turned: &mut [Turned<bf16>]) {
    turn(rows, turned, |chunk, lanes| turn_halves(chunk, lanes));
}

/// A panel's places of one chunk, one in each lane.
struct Places<'t, E> {
    turned: &'t mut [Turned<E>],
    chunks: usize,
    chunk: usize,
    panel: usize,
}

impl<E> Places<'_, E> {
    /// The elements of all rows of a lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    fn lane(&mut self, lane: usize) -> &mut [E; LANES] {
        &mut self.turned[lane * self.chunks + self.chunk].0.as_chunks_mut().0[self.panel]
    }
}

/// Turns over a panel's rows at a time, 32 elements of each: `columns` brings each lane's element of all rows to its
/// place.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turn<E: Element>(
    rows: Rows<E>,
    turned: &mut [Turned<E>],
    columns: impl Fn(&[&[E; DOT_LANES]; LANES], &mut Places<E>),
) {
    assert_eq!(turned.len(), turned_len(rows.len()), "a place for each element");
    assert!(rows.count() <= TURNED_ROWS, "more rows than are turned over together");
    let chunks = turned.len() / DOT_LANES;
    let (zeros, mut rest) = ([E::default(); DOT_LANES], [[E::default(); DOT_LANES]; LANES]);
    for panel in 0..REGISTERS {
        let rows: [&[E]; LANES] = std::array::from_fn(|i| {
            let r = panel * LANES + i;
            if r < rows.count() { rows.row(r) } else { &[] }
        });
        for (row, rest) in rows.iter().zip(&mut rest) {
            *rest = padded(&row[row.len() / DOT_LANES * DOT_LANES..]);
        }
        for chunk in 0..chunks {
            let mut chunks_of_rows = [&zeros; LANES];
            for (i, elements) in chunks_of_rows.iter_mut().enumerate() {
                let (whole, behind) = rows[i].as_chunks();
                for line in (0..size_of::<[E; DOT_LANES]>()).step_by(64) {
                    let start: *const E = rows[i].as_ptr();
                    ask_for_line(start.wrapping_add((chunk + CHUNKS_AHEAD) * DOT_LANES).wrapping_byte_add(line));
                }
                *elements = match whole.get(chunk) {
                    Some(elements) => elements,
                    None if chunk == whole.len() && !behind.is_empty() => &rest[i],
                    None => &zeros,
                };
            }
            columns(&chunks_of_rows, &mut Places { turned, chunks, chunk, panel });
        }
    }
}

/// Pairs of elements of 16 bits are turned over as words, and then parted.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn turn_halves<E>(chunk: &[&[E; DOT_LANES]; LANES], lanes: &mut Places<E>) {
    const { assert!(size_of::<E>() == size_of::<u16>()) };
    let mut square = [_mm512_setzero_ps(); LANES];
    for (row, elements) in square.iter_mut().zip(chunk) {
        // SAFETY: the array holds 64 bytes; the load needs no alignment.
        *row = unsafe { _mm512_loadu_ps(elements.as_ptr().cast()) };
    }
    for (pair, words) in transposed(square).into_iter().enumerate() {
        let words = _mm512_castps_si512(words);
        for (odd, words) in [words, _mm512_srli_epi32::<16>(words)].into_iter().enumerate() {
            let lane = lanes.lane(2 * pair + odd).as_mut_ptr();
            // SAFETY: the array holds 32 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(lane.cast(), _mm512_cvtepi32_epi16(words)) };
        }
    }
}

/// Sixteen vectors at a time: squares of so many elements are turned over, and the columns stored as far as there are
/// vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn turn_vectors(xs: Rows<f32>, turned: &mut [f32]) {
    let (chunks, count) = (turned_len(xs.len()) / DOT_LANES, xs.count());
    assert_eq!(turned.len(), chunks * DOT_LANES * count, "room for the places of each vector");
    for (first_t, first) in
        (0..count).step_by(LANES).flat_map(|t| (0..chunks * DOT_LANES).step_by(LANES).map(move |k| (t, k)))
    {
        let some = LANES.min(count - first_t);
        let stored = ((1u32 << some) - 1) as __mmask16;
        let mut square = [_mm512_setzero_ps(); LANES];
        for (t, row) in square.iter_mut().enumerate().take(some) {
            let elements = xs.row(first_t + t).get(first..).unwrap_or_default();
            *row = match elements.first_chunk() {
                Some(whole) => load_f32(whole),
                None => load_f32(&padded(elements)),
            };
        }
        for (i, column) in transposed(square).into_iter().enumerate() {
            let (lane, chunk) = ((first + i) % DOT_LANES, (first + i) / DOT_LANES);
            let target = &mut turned[(lane * chunks + chunk) * count + first_t..][..some];
            // SAFETY: as many elements are stored as the target holds.
            unsafe { _mm512_mask_storeu_ps(target.as_mut_ptr(), stored, column) };
        }
    }
}
