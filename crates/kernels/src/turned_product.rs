//! Dot products of transposed rows: a register holds one element of each of sixteen rows, and lanes are never added
//! together.
//!
//! The sums are those of [`dots`](super::dots), bit for bit. To make the elements of a lane contiguous, element `k`
//! moves to place `k % 32 * chunks + k / 32`:
//!
//! ```text
//!  row      0 1 2 ... 31 │ 32 33 34 ... 63 │ ...        places    0 32 64 ... │ 1 33 65 ... │ ...     each of all rows
//!                                                                 lane 0        lane 1
//! ```
//!
//! A lane has at least as many places (`chunks`) as a row has groups of 32 elements. Unused places are zero in rows
//! and vectors. They do not change a sum, because no sum is -0.

use super::element::Element;
use super::kernel;
use super::lanes::{DOT_LANES, STEPS, sum_of_dot};
use super::rows::Rows;
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use crate::isa::Isa;
use crate::panel_block::PANEL_ROWS;
use half::{bf16, f16};

/// Rows that are turned over together.
pub const TURNED_ROWS: usize = 2 * PANEL_ROWS;

/// One element of each row; zero where there are fewer rows. Begins at a cache line, so that no register of it
/// straddles two.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
pub struct Turned<E>(pub [E; TURNED_ROWS]);

/// From so many vectors on the way over turned rows is the faster one, with this set; `None`: it never is.
pub fn turned_from(isa: Isa) -> Option<usize> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Some(32),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni | Isa::Avx2 | Isa::Sse41 => None,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => None,
        Isa::Scalar => None,
    }
}

/// Places of a row of so many elements.
pub fn turned_len(len: usize) -> usize {
    DOT_LANES * chunks_of(len)
}

/// Places of a lane: an odd number, for lanes at a distance of a power of two would push each other out of the cache.
fn chunks_of(len: usize) -> usize {
    if len == 0 { 0 } else { len.div_ceil(DOT_LANES) | 1 }
}

kernel! {
    /// Brings up to [`TILE`](super::TILE) vectors into the order of turned rows: element `k` of vector `t` comes to
    /// `place of k * vectors + t`. `turned` holds [`turned_len`] places for each vector.
    fn turn_vectors(xs: Rows<f32>, turned: &mut [f32]) {
        avx512 => super::avx512::turned_product::turn_vectors,
        scalar => vectors,
    }
    turn_vectors_samples on samples_vectors
}

kernel! {
    /// Turns up to [`TURNED_ROWS`] rows over; `turned` holds [`turned_len`] places.
    fn turn_f32(rows: Rows<f32>, turned: &mut [Turned<f32>]) {
        avx512 => super::avx512::turned_product::turn_f32,
        scalar => turn,
    }
    turn_f32_samples on samples_turned_f32
}

kernel! {
    /// As [`turn_f32`], of f16.
    fn turn_f16(rows: Rows<f16>, turned: &mut [Turned<f16>]) {
        avx512 => super::avx512::turned_product::turn_f16,
        scalar => turn,
    }
    turn_f16_samples on samples_turned_f16
}

kernel! {
    /// As [`turn_f32`], of bf16.
    fn turn_bf16(rows: Rows<bf16>, turned: &mut [Turned<bf16>]) {
        avx512 => super::avx512::turned_product::turn_bf16,
        scalar => turn,
    }
    turn_bf16_samples on samples_turned_bf16
}

kernel! {
    /// `sums[t + tokens * p][r] = row 16 p + r . x_t` of turned rows and vectors, of both panels or the first.
    fn turned_product_f32(turned: &[Turned<f32>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
        avx512 => super::avx512::turned_product::product_f32,
        scalar => product,
    }
    turned_product_f32_samples on samples_f32
}

kernel! {
    /// As [`turned_product_f32`], of f16.
    fn turned_product_f16(turned: &[Turned<f16>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
        avx512 => super::avx512::turned_product::product_f16,
        scalar => product,
    }
    turned_product_f16_samples on samples_f16
}

kernel! {
    /// As [`turned_product_f32`], of bf16.
    fn turned_product_bf16(turned: &[Turned<bf16>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
        avx512 => super::avx512::turned_product::product_bf16,
        scalar => product,
    }
    turned_product_bf16_samples on samples_bf16
}

fn vectors(xs: Rows<f32>, turned: &mut [f32]) {
    let (chunks, count) = (chunks_of(xs.len()), xs.count());
    assert_eq!(turned.len(), chunks * DOT_LANES * count, "room for the places of each vector");
    for (place, turned) in turned.chunks_exact_mut(count.max(1)).enumerate() {
        let k = place % chunks * DOT_LANES + place / chunks;
        for (t, turned) in turned.iter_mut().enumerate() {
            *turned = xs.row(t).get(k).copied().unwrap_or_default();
        }
    }
}

fn turn<E: Element>(rows: Rows<E>, turned: &mut [Turned<E>]) {
    assert_eq!(turned.len(), turned_len(rows.len()), "a place for each element");
    turned.fill(Turned::default());
    let chunks = turned.len() / DOT_LANES;
    let cells = (0..rows.count()).flat_map(|r| rows.row(r).iter().enumerate().map(move |(k, element)| (r, k, element)));
    for (r, k, element) in cells {
        turned[k % DOT_LANES * chunks + k / DOT_LANES].0[r] = *element;
    }
}

fn product<E: Element>(turned: &[Turned<E>], xs: &[f32], tokens: usize, sums: &mut [[f32; PANEL_ROWS]]) {
    let rows = PANEL_ROWS * panels_of(turned, xs, tokens, sums);
    let chunks = turned.len() / DOT_LANES;
    for (row, t) in (0..rows).flat_map(|row| (0..tokens).map(move |t| (row, t))) {
        let totals = std::array::from_fn(|lane| {
            let places: Vec<usize> = (lane * chunks..(lane + 1) * chunks).collect();
            let short = |places: &[usize]| {
                places.iter().fold(0.0, |sum, place| turned[*place].0[row].widen().mul_add(xs[place * tokens + t], sum))
            };
            places.chunks(STEPS).fold(0.0, |total, places| total + short(places))
        });
        sums[t + tokens * (row / PANEL_ROWS)][row % PANEL_ROWS] = sum_of_dot(totals);
    }
}

/// How many panels of rows there are sums for. Panics where vectors or sums are not as many as rows and tokens want.
pub(super) fn panels_of<E>(turned: &[Turned<E>], xs: &[f32], tokens: usize, sums: &[[f32; PANEL_ROWS]]) -> usize {
    assert!(turned.len().is_multiple_of(DOT_LANES), "whole chunks of places");
    assert_eq!(xs.len(), turned.len() * tokens, "an element of each vector for each place");
    let panels = sums.len() / tokens.max(1);
    assert!(
        panels * tokens == sums.len() && panels * PANEL_ROWS <= TURNED_ROWS,
        "sums of whole panels for each vector"
    );
    panels
}

/// Rows of odd lengths and numbers, turned over and brought back: their elements, and the zeros between.
#[cfg(feature = "samples")]
fn samples_turned<E: Element>(
    instructions: Instructions,
    narrow: fn(f32) -> E,
    turn: fn(Instructions, Rows<E>, &mut [Turned<E>]),
) -> Vec<f32> {
    let mut results = Vec::new();
    for (len, count) in [(0, 3), (1, 1), (31, 32), (32, 16), (33, 5), (64, 32), (100, 17), (250, 31)] {
        let cells: Vec<E> = numbers(count * (len + 3), 5 + len as u32).into_iter().map(narrow).collect();
        let mut turned = vec![Turned([narrow(f32::NAN); TURNED_ROWS]); turned_len(len)];
        turn(instructions, Rows::strided(&cells, count, len, len + 3), &mut turned);
        results.extend(turned.iter().flat_map(|place| &place.0).map(|element| element.widen()));
    }
    results
}

/// One to eighteen vectors of odd lengths.
#[cfg(feature = "samples")]
fn samples_vectors(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for (len, count) in [(0, 3), (1, 1), (31, 12), (32, 6), (33, 5), (64, 12), (100, 7), (250, 11), (70, 16), (90, 18)]
    {
        let cells = numbers(count * (len + 3), 5 + len as u32);
        let mut turned = vec![f32::NAN; turned_len(len) * count];
        turn_vectors(instructions, Rows::strided(&cells, count, len, len + 3), &mut turned);
        results.extend(turned);
    }
    results
}

#[cfg(feature = "samples")]
fn samples_turned_f32(instructions: Instructions) -> Vec<f32> {
    samples_turned(instructions, |number| number, turn_f32)
}

#[cfg(feature = "samples")]
fn samples_turned_f16(instructions: Instructions) -> Vec<f32> {
    samples_turned(instructions, f16::from_f32, turn_f16)
}

#[cfg(feature = "samples")]
fn samples_turned_bf16(instructions: Instructions) -> Vec<f32> {
    samples_turned(instructions, bf16::from_f32, turn_bf16)
}

/// The form of the products.
#[cfg(feature = "samples")]
type TurnedProduct<E> = fn(Instructions, &[Turned<E>], &[f32], usize, &mut [[f32; PANEL_ROWS]]);

/// Products of 0 to 1088 elements with 1 to 18 vectors.
#[cfg(feature = "samples")]
fn samples<E: Element>(instructions: Instructions, narrow: fn(f32) -> E, product: TurnedProduct<E>) -> Vec<f32> {
    let mut results = Vec::new();
    let sizes = [
        (0, 1),
        (32, 1),
        (64, 2),
        (96, 3),
        (544, 4),
        (512, 5),
        (1088, 6),
        (64, 7),
        (32, 11),
        (640, 12),
        (64, 17),
        (96, 18),
    ];
    for ((len, tokens), panels) in sizes.into_iter().flat_map(|size| [(size, 1), (size, 2)]) {
        let elements = numbers(len * TURNED_ROWS, 7 + len as u32).into_iter().map(narrow);
        let elements: Vec<E> = elements.collect();
        let turned: Vec<Turned<E>> = elements.as_chunks().0.iter().map(|place| Turned(*place)).collect();
        let xs = numbers(len * tokens, 11 + len as u32);
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; panels * tokens];
        product(instructions, &turned, &xs, tokens, &mut sums);
        results.extend(sums.into_flattened());
    }
    results
}

#[cfg(feature = "samples")]
fn samples_f32(instructions: Instructions) -> Vec<f32> {
    samples(instructions, |number| number, turned_product_f32)
}

#[cfg(feature = "samples")]
fn samples_f16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, f16::from_f32, turned_product_f16)
}

#[cfg(feature = "samples")]
fn samples_bf16(instructions: Instructions) -> Vec<f32> {
    samples(instructions, bf16::from_f32, turned_product_bf16)
}
