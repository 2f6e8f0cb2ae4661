//! Weights on the grid of a block type: blocks of the type exist that decode to exactly these weights.
//!
//! ```text
//! weights ─ encode ─ decode ─ round to the type of the source ─▶ the same weights?
//!              │                                                    │ no
//!              └────────── another scale, q4_0 and q5_0 only ◀──────┘
//! ```
//!
//! The encoders of `q4_0` and `q5_0` derive the scale from the weight with the largest magnitude, as if its code were
//! the lowest one (-8 or -16). A block of int4 weights without this code has another scale. It is found by trying every
//! code that the largest weight could have. Each weight and its code limit the scale to an interval, because the weight
//! was rounded to its type. A block is on the grid if an f16 number is in the intervals of all its weights.

use crate::codec::whole_blocks;
use crate::q4_0::{self, Q4_0};
use crate::q5_0::{self, Q5_0};
use crate::scale::LEN;
use crate::weighted::Format;
use crate::{DType, f16, first_not_finite};

/// The types whose grids are recognized, smallest first.
pub const GRID_TYPES: [DType; 4] = [DType::Tq2_0, DType::Mxfp4, DType::Q4_0, DType::Q5_0];

/// Number of elements that are encoded at once: a multiple of every block length.
const PIECE: usize = 256;

/// Encodes weights as blocks of `target`, without loss if they are on its grid, and returns whether all of them are.
///
/// A block is lossless if its values, decoded and rounded to `source`, are equal to the weights, except for the sign of
/// zeros. Blocks that the codec encodes without loss get the bytes of the codec; blocks off the grid get the bytes of
/// [`crate::Codec::encode`]. If a weight is not finite, the result is `false` and nothing is written.
///
/// `source` is f32, f16 or bf16. Both slices hold whole blocks.
pub fn encode_exact(source: DType, target: DType, weights: &[f32], bytes: &mut [u8]) -> bool {
    let Some(codec) = target.codec().filter(|_| first_not_finite(weights).is_none()) else { return false };
    let (length, size) = (target.block_len(), target.block_bytes());
    (codec.encode)(weights, bytes);
    let mut decoded = [0.0; PIECE];
    let pieces = weights.chunks(PIECE).zip(bytes.chunks_mut(PIECE / length * size));
    let mut is_exact = true;
    for (weights, bytes) in pieces {
        let decoded = &mut decoded[..weights.len()];
        (codec.decode)(bytes, decoded);
        let blocks = weights.chunks(length).zip(decoded.chunks(length)).zip(bytes.chunks_mut(size));
        for ((weights, decoded), bytes) in blocks {
            let is_same = weights.iter().zip(decoded).all(|(weight, decoded)| round(source, *decoded) == *weight);
            is_exact &= is_same || rescale(source, target, weights, bytes);
        }
    }
    is_exact
}

/// Writes one block with a scale other than that of its codec, if that makes it exact.
fn rescale(source: DType, target: DType, weights: &[f32], bytes: &mut [u8]) -> bool {
    match target {
        DType::Q4_0 => rescale_as::<Q4_0, { q4_0::BYTES }>(source, 8, weights, bytes),
        DType::Q5_0 => rescale_as::<Q5_0, { q5_0::BYTES }>(source, 16, weights, bytes),
        _ => false,
    }
}

/// [`rescale`] for a format whose weights are a scale times a code from `-half` to `half - 1`.
fn rescale_as<F: Format<BYTES>, const BYTES: usize>(
    source: DType,
    half: i8,
    weights: &[f32],
    bytes: &mut [u8],
) -> bool {
    let (weights, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    let blocks = weights.iter().zip(blocks);
    blocks.fold(true, |all, (weights, block)| match scale_and_codes(source, half, weights) {
        Some((scale, codes)) => {
            F::pack((scale, 0.0), &codes.map(|code| (code + half) as u8), block);
            all
        }
        None => false,
    })
}

/// An f16 scale and codes from `-half` to `half - 1` that give exactly these weights; `None` if there are none.
fn scale_and_codes(source: DType, half: i8, weights: &[f32; LEN]) -> Option<(f32, [i8; LEN])> {
    let largest = weights.iter().fold(0.0, |largest: f32, weight| largest.max(weight.abs()));
    if !(largest > 0.0 && largest.is_finite()) {
        return None;
    }
    (1..=half).rev().find_map(|code_of_largest| {
        let guess = f64::from(largest) / f64::from(code_of_largest);
        let mut codes = [0.0_f64; LEN];
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        // Weights off the grid fail after a few codes.
        for (weight, code) in weights.iter().zip(&mut codes) {
            *code = (f64::from(*weight) / guess).round();
            if *code == 0.0 && *weight != 0.0 {
                return None;
            }
            if *code != 0.0 {
                let (start, end) = interval(source, weight.abs());
                (low, high) = (low.max(start / code.abs()), high.min(end / code.abs()));
            }
            if low > high {
                return None;
            }
        }
        // If the interval contains an f16 number, it contains the one closest to its middle.
        let scale = f16::widen(f16::narrow(((low + high) / 2.0) as f32));
        let has = |code: i8| codes.contains(&f64::from(code));
        // `half` is not a code; with a negative scale, it becomes `-half`.
        let sign = match (has(half), has(-half)) {
            (true, true) => return None,
            (true, false) => -1.0,
            (false, _) => 1.0,
        };
        let is_weight = |(weight, code): (&f32, &f64)| round(source, scale * *code as f32) == *weight;
        let is_exact = scale.is_finite() && weights.iter().zip(&codes).all(is_weight);
        is_exact.then(|| (scale * sign, codes.map(|code| code as i8 * sign as i8)))
    })
}

/// The interval of numbers that round to this positive weight in its type.
fn interval(source: DType, weight: f32) -> (f64, f64) {
    let (significant_bits, least_exponent) = match source {
        DType::F16 => (11, -14),
        DType::Bf16 => (8, -126),
        _ => (24, -126),
    };
    let exponent = (weight.to_bits() >> 23) as i32 - 127;
    let half_step = 2.0_f64.powi(exponent.max(least_exponent) - significant_bits);
    // Numbers just below a power of two are half as far apart as those above it.
    let is_power = weight.to_bits().trailing_zeros() >= 23 && exponent > least_exponent;
    let below = if is_power { half_step / 2.0 } else { half_step };
    (f64::from(weight) - below, f64::from(weight) + half_step)
}

/// A number rounded to a type.
fn round(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::F16 => f16::widen(f16::narrow(value)),
        DType::Bf16 => half::bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pseudorandom number from 0 to 1 for each place.
    fn noise(place: usize) -> f64 {
        let mut state = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((state ^ (state >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn scale_of_group(group: usize) -> f32 {
        f16::widen(f16::narrow((0.001 + 0.01 * noise(1_000_000 + group)) as f32))
    }

    /// Weights of `count` blocks of 32 in groups of `group`: a scale times a code from `low` to `high`.
    fn grid(source: DType, group: usize, (low, high): (i32, i32)) -> Vec<f32> {
        let code = |place: usize| low + (noise(place) * f64::from(high - low + 1)) as i32;
        (0..4096).map(|place| round(source, scale_of_group(place / group) * code(place) as f32)).collect()
    }

    fn is_exact(source: DType, target: DType, weights: &[f32]) -> bool {
        let mut bytes = vec![0; weights.len() / target.block_len() * target.block_bytes()];
        let answer = encode_exact(source, target, weights, &mut bytes);
        let mut decoded = vec![0.0; weights.len()];
        (target.codec().unwrap().decode)(&bytes, &mut decoded);
        let same = decoded.iter().zip(weights).all(|(decoded, weight)| round(source, *decoded) == *weight);
        assert_eq!(answer, same, "{source} {target}");
        answer
    }

    const SOURCES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

    #[test]
    fn int4_weights_are_exact_in_q4_0_and_asymmetric_ones_in_q5_0() {
        for source in SOURCES {
            for group in [32, 64, 128] {
                for codes in [(-8, 7), (-7, 7), (-7, 8), (-6, 5), (-1, 1)] {
                    let weights = grid(source, group, codes);
                    assert!(is_exact(source, DType::Q4_0, &weights), "{source} {group} {codes:?}");
                    assert!(is_exact(source, DType::Q5_0, &weights), "{source} {group} {codes:?}");
                }
                // Codes from 0 to 15 less a zero point.
                for zero in [0, 3, 8, 11, 15] {
                    let weights = grid(source, group, (-zero, 15 - zero));
                    assert!(is_exact(source, DType::Q5_0, &weights), "{source} {group} {zero}");
                    assert_eq!(is_exact(source, DType::Q4_0, &weights), zero == 8, "{source} {group} {zero}");
                }
            }
        }
    }

    #[test]
    fn mxfp4_and_ternary_weights_are_exact() {
        const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for source in SOURCES {
            let value = |place: usize| {
                let sign = if noise(3 * place) < 0.5 { -1.0 } else { 1.0 };
                let most = 2 + (place / 32) % 6;
                sign * VALUES[(noise(place) * (most + 1) as f64) as usize]
                    * 2.0_f32.powi(-((place / 32 % 5) as i32) - 4)
            };
            let weights: Vec<f32> = (0..4096).map(value).collect();
            assert!(is_exact(source, DType::Mxfp4, &weights), "{source}");
            let ternary = grid(source, 256, (-1, 1));
            assert!(is_exact(source, DType::Tq2_0, &ternary), "{source}");
            assert!(!is_exact(source, DType::Tq2_0, &grid(source, 256, (-2, 2))), "{source}");
        }
    }

    #[test]
    fn other_weights_are_not_exact() {
        for source in SOURCES {
            let random: Vec<f32> = (0..8192).map(|place| round(source, (noise(place) - 0.5) as f32)).collect();
            for target in GRID_TYPES {
                for block in random.chunks(256) {
                    assert!(!is_exact(source, target, block), "{source} {target}");
                }
                // One weight is off by 2%: more than the rounding of bf16 can hide.
                let mut weights = grid(source, 32, (-7, 7));
                let place = weights.iter().position(|weight| *weight != 0.0).unwrap();
                weights[place] = round(source, weights[place] * 1.02);
                assert!(!is_exact(source, target, &weights), "{source} {target}");
            }
            // One code more at each end than the type has.
            assert!(!is_exact(source, DType::Q4_0, &grid(source, 32, (-9, 8))));
            assert!(!is_exact(source, DType::Q5_0, &grid(source, 32, (-17, 16))));
        }
        // A scale that is not an f16 number, with f32 weights, which hide no error.
        let weights: Vec<f32> = grid(DType::F32, 32, (-7, 7)).iter().map(|weight| weight * 1.000_1).collect();
        assert!(!is_exact(DType::F32, DType::Q4_0, &weights));
        assert!(!is_exact(DType::F32, DType::Q4_0, &[f32::NAN; 32]));
        assert!(is_exact(DType::F32, DType::Q4_0, &[0.0; 32]));
    }

    #[test]
    fn bytes_of_the_codec_are_kept_where_they_are_exact() {
        let plain = grid(DType::F32, 32, (-8, 8));
        let weights = plain.chunks(32).flat_map(|block| {
            let mut block = block.to_vec();
            let scale = scale_of_group(block.len());
            block.iter_mut().for_each(|weight| *weight = (*weight / scale).round().clamp(-7.0, 7.0) * scale);
            block[5] = -8.0 * scale;
            block
        });
        let weights: Vec<f32> = weights.collect();
        let (mut exact, mut plain) = (vec![0; weights.len() / 32 * 18], vec![0; weights.len() / 32 * 18]);
        assert!(encode_exact(DType::F32, DType::Q4_0, &weights, &mut exact));
        (DType::Q4_0.codec().unwrap().encode)(&weights, &mut plain);
        assert!(exact == plain);
    }
}
