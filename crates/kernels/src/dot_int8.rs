//! Products of 8-bit codes in registers: what the roof of integer products is measured with.
//!
//! ```text
//! sums[w][x][lane] += weights[w][4 lane .. 4 lane + 4] . xs[x][4 lane .. 4 lane + 4]      all 16 pairs, `rounds` times
//! ```

use super::kernel;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

/// Vectors of each side; all pairs of them are multiplied.
pub const SIDES: usize = 4;

/// Codes of a vector.
pub const CODES: usize = 64;

/// Sums of a pair of vectors, each of four products.
const LANES: usize = CODES / 4;

/// All sums: as many as hide the latency of one operation and stay in registers.
pub const INT8_SUMS: usize = SIDES * SIDES * LANES;

/// Products of one round.
pub const INT8_PRODUCTS: usize = SIDES * SIDES * CODES;

/// Weights, without sign and at most 127, so that two products fit into 16 bits.
pub type WeightCodes = [[u8; CODES]; SIDES];

/// Activations, with sign.
pub type ActivationCodes = [[i8; CODES]; SIDES];

kernel! {
    /// Multiplies the codes of all pairs of vectors and adds them up, `rounds` times. No memory but the codes' is
    /// touched between.
    fn dot_int8(rounds: usize, weights: &[[u8; CODES]], xs: &[[i8; CODES]], sums: &mut [i32; INT8_SUMS]) {
        avx512 => super::avx512::dot_int8::dot_int8,
        avx_vnni => super::avx_vnni::dot_int8::dot_int8,
        avx2 => super::avx2::dot_int8::dot_int8,
        scalar => products,
    }
    dot_int8_samples on samples
}

fn products(rounds: usize, weights: &[[u8; CODES]], xs: &[[i8; CODES]], sums: &mut [i32; INT8_SUMS]) {
    let (pairs, _) = sums.as_chunks_mut::<LANES>();
    let factors = weights.iter().flat_map(|w| xs.iter().map(move |x| (w, x)));
    for (sums, (w, x)) in pairs.iter_mut().zip(factors) {
        let mut kept = *sums;
        for _ in 0..rounds {
            // The compiler must not know that each round multiplies the same codes.
            let (w, x) = (std::hint::black_box(w), std::hint::black_box(x));
            let products: [i32; CODES] = std::array::from_fn(|k| i32::from(i16::from(w[k]) * i16::from(x[k])));
            for (sum, [a, b, c, d]) in kept.iter_mut().zip(products.as_chunks().0) {
                *sum = sum.wrapping_add(a + b + c + d);
            }
        }
        *sums = kept;
    }
}

/// Codes from end to end of what both sides may hold.
pub fn int8_codes() -> (WeightCodes, ActivationCodes) {
    let weight = |side: usize, k: usize| (31 * (side + 1) * (k + 1) % 128) as u8;
    let x = |side: usize, k: usize| (37 * (side + 2) * (k + 3) % 255) as u8 as i8;
    let weights = std::array::from_fn(|side| std::array::from_fn(|k| weight(side, k)));
    (weights, std::array::from_fn(|side| std::array::from_fn(|k| x(side, k))))
}

/// Sums in two halves, each exact as f32.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let (mut weights, mut xs) = int8_codes();
    // The largest sums of two products of either sign.
    (weights[0], xs[0], xs[1]) = ([127; CODES], [-128; CODES], [127; CODES]);
    let mut results = Vec::new();
    for rounds in [0, 1, 2, 7, 100_003] {
        let mut sums = std::array::from_fn(|place| place as i32 * 1000 - 50_000);
        dot_int8(instructions, rounds, &weights, &xs, &mut sums);
        results.extend(sums.iter().flat_map(|sum| [(sum >> 16) as f32, (sum & 0xFFFF) as f32]));
    }
    results
}
