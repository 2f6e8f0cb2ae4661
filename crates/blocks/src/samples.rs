//! Inputs on which all variants of a function must agree: every bit pattern of 16-bit types, otherwise edge cases.

use crate::DType;
use crate::decoder::K_LEN;
use crate::scale::LEN;

/// SplitMix64 with a fixed seed: the same inputs on every run.
struct Random(u64);

impl Random {
    const SEED: u64 = 0x7275_6575_7020_3031;

    fn new() -> Random {
        Random(Random::SEED)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Uniform in -1 .. 1.
    fn signed_unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// All 65536 patterns of a two-byte number.
pub(crate) fn all_halves() -> Vec<u8> {
    (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
}

/// Every f16 and bf16 number, the midpoints between adjacent numbers, the next f32 numbers on both sides of these, and
/// random bit patterns. They include NaN payloads, infinities, subnormals and zeros of both signs.
pub(crate) fn around_halves() -> Vec<f32> {
    let mut bits: Vec<u32> = Vec::new();
    for pattern in 0..=u16::MAX {
        let half = half::f16::from_bits(pattern).to_f32().to_bits();
        let brain = u32::from(pattern) << 16;
        for center in [half, half.wrapping_add(0x1000), brain, brain.wrapping_add(0x8000)] {
            bits.extend([center.wrapping_sub(1), center, center.wrapping_add(1)]);
        }
    }
    let mut random = Random::new();
    bits.extend((0..100_000).map(|_| random.next() as u32));
    bits.into_iter().map(f32::from_bits).collect()
}

/// Random blocks, one for every f16 scale (every eighth scale for blocks of 256), including NaN and infinities; and for
/// each byte value, a block filled with it.
pub(crate) fn encoded(dtype: DType) -> Vec<u8> {
    let mut random = Random::new();
    // Types without an f16 scale have random ones.
    let place = dtype.scale_places().map(|places| places[0]);
    let mut bytes = Vec::new();
    for scale in (0..=u16::MAX).step_by(dtype.block_len() / LEN) {
        let start = bytes.len();
        bytes.extend((0..dtype.block_bytes()).map(|_| random.next() as u8));
        if let Some(place) = place {
            bytes[start + place..][..2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    for value in 0..=u8::MAX {
        bytes.extend(std::iter::repeat_n(value, dtype.block_bytes()));
    }
    bytes
}

/// 2 to this power, including subnormal numbers.
pub(crate) fn power_of_two(exponent: i32) -> f32 {
    2f64.powi(exponent) as f32
}

/// Columns of a row with importance: three blocks of 256, which do not fill a whole number of wide vectors of blocks.
const ROW: usize = 3 * K_LEN;

/// Groups whose codes change in each of the five sweeps of [`descent`](crate::search::descent).
const SLOW: [[f32; 16]; 4] = [
    [-5.0, -6.0, -9.0, -6.0, -12.0, -7.0, 12.0, -11.0, -15.0, 5.0, 0.0, -1.0, -9.0, 15.0, -10.0, 5.0],
    [18.0, 9.0, -14.0, 15.0, -19.0, -8.0, 3.0, 15.0, -13.0, 6.0, -18.0, 2.0, -12.0, 19.0, 12.0, 5.0],
    [10.0, -6.0, 10.0, -3.0, -14.0, 5.0, -9.0, 17.0, -14.0, 4.0, 1.0, 13.0, -18.0, 18.0, 18.0, 12.0],
    [-5.0, -6.0, -9.0, -6.0, -12.0, -7.0, 12.0, -11.0, -15.0, 5.0, 0.0, -1.0, -9.0, 15.0, -10.0, 5.0],
];

/// Blocks of weights of every magnitude of f32, magnitudes around 1 first; ties, repeated extremes, zeros of both
/// signs, subnormals, random bit patterns, and blocks with single NaNs and infinities.
pub(crate) fn weights() -> Vec<f32> {
    let mut random = Random::new();
    // In the first batch of blocks, whose other groups need few sweeps.
    let mut weights = SLOW.as_flattened().to_vec();
    let mut exponents: Vec<i32> = (-149..=127).collect();
    exponents.sort_by_key(|exponent| exponent.abs());
    for exponent in exponents {
        for _ in 0..8 {
            weights.extend((0..LEN).map(|_| random.signed_unit() * power_of_two(exponent)));
        }
    }
    for exponent in [-20, -3, 0, 6] {
        for steps in [8u64, 16, 127, 128, 254] {
            for _ in 0..32 {
                let tie = |random: &mut Random| (random.next() % (2 * steps + 1)) as f32 - steps as f32;
                weights.extend((0..LEN).map(|_| tie(&mut random) * 0.5 * 2f32.powi(exponent)));
            }
        }
    }
    for _ in 0..512 {
        weights.extend((0..LEN).map(|_| f32::from_bits(random.next() as u32)));
    }
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, f32::MIN, f32::from_bits(1), 1.0, -1.0]
    {
        for place in 0..LEN {
            let start = weights.len();
            weights.extend((0..LEN).map(|_| random.signed_unit()));
            weights[start + place] = special;
            weights[start + (place + 5) % LEN] = -special;
            weights.extend((0..LEN).map(|j| if j == place { special } else { 0.0 }));
        }
        weights.extend([special; LEN]);
    }
    // More than two batches of blocks in which every group needs all sweeps.
    weights.extend(SLOW[0].iter().cycle().take(33 * K_LEN));
    weights.resize(weights.len().next_multiple_of(ROW), 0.0);
    weights
}

/// Importance for a number of weights, in rows of [`ROW`] columns, or in one row if they do not fill whole rows. It has
/// various magnitudes, is constant in some groups, and is zero for single columns, groups of 16 and 32, and a block of
/// 256.
pub(crate) fn importance(weights: usize) -> Vec<f32> {
    let mut random = Random::new();
    let columns = if weights.is_multiple_of(ROW) { ROW.min(weights) } else { weights };
    let of = |column: usize, random: &mut Random| match column / 16 % 8 {
        _ if column / K_LEN == 1 || column / LEN == 20 => 0.0,
        3 => 0.0,
        5 => 1.0,
        6 => random.signed_unit().abs() * 2f32.powi((random.next() % 60) as i32 - 30),
        _ if column.is_multiple_of(37) => 0.0,
        _ => random.signed_unit().abs(),
    };
    (0..columns).map(|column| of(column, &mut random)).collect()
}

/// [`weights`] with zeros in place of NaN and infinities, which no format can store.
pub(crate) fn finite_weights() -> Vec<f32> {
    weights().into_iter().map(|weight| if weight.is_finite() { weight } else { 0.0 }).collect()
}
