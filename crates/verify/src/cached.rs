//! Rows as a KV cache keeps them: each number rounded, or blocks of `q8_0`.
//!
//! ```text
//!   32 numbers x ──▶ d = max |x| / 127 ──▶ codes x / d, to the nearest, halves away from zero ──▶ f16(d) * code
//! ```
//!
//! This is a second implementation of the block rule, in f64. A device computes it in f32 and in any order. If a
//! quotient is within a few roundings of a half, both codes are correct; the same holds for the stored scale. These are
//! the ties of docs/numerics.md#data-movement-and-selection.

use crate::precision::Precision;
use crate::statistics::Expected;
use trueup_blocks::DType;

/// Elements of a block.
const LEN: usize = 32;
const _: () = assert!(LEN == DType::Q8_0.block_len());

/// Magnitude of the largest code.
const CODE_MAX: f64 = 127.0;

/// Largest relative error of a quotient that few f32 operations give: twice the four that are likely.
const QUOTIENT_ERROR: f64 = 8.0 / (1 << 24) as f64;

/// What a cache of type `dtype` should hold of `rows`, whole rows behind each other. Codes of rows that are not
/// `certain`, but near what a device has, may lie one beside.
pub(crate) fn expected_rows(dtype: DType, rows: &[f64], certain: bool) -> Vec<Expected> {
    if dtype == DType::Q8_0 {
        return rows.chunks(LEN).flat_map(|block| Block::of(block).expected(block, certain)).collect();
    }
    let cache = Precision::of(dtype);
    rows.iter().map(|value| Expected::same(*value, cache.round(*value))).collect()
}

/// What a cache of type `dtype` makes of `rows`, as numbers.
pub(crate) fn cached(dtype: DType, rows: &[f64]) -> Vec<f64> {
    expected_rows(dtype, rows, true).into_iter().map(|expected| expected.declared).collect()
}

/// How a block of 32 numbers is rounded.
struct Block {
    /// Before it is rounded.
    scale: f64,
    /// As it is stored.
    stored: f64,
    /// How far the stored scale may be from that.
    tie: f64,
}

impl Block {
    /// Numbers that are none count as zeros.
    fn of(block: &[f64]) -> Block {
        let largest = block.iter().fold(0.0, |largest: f64, x| if x.abs() > largest { x.abs() } else { largest });
        let scale = largest / CODE_MAX;
        let [low, stored, high] =
            [1.0 - QUOTIENT_ERROR, 1.0, 1.0 + QUOTIENT_ERROR].map(|factor| Precision::F16.round(scale * factor));
        let tie = if low == high { 0.0 } else { (high - stored).max(stored - low) };
        Block { scale, stored, tie }
    }

    fn expected(self, block: &[f64], certain: bool) -> impl Iterator<Item = Expected> {
        block.iter().map(move |x| {
            let quotient = if self.scale == 0.0 { 0.0 } else { x / self.scale };
            let code = quotient.round();
            let to_half = 0.5 - (quotient - code).abs();
            let is_tied = !certain || to_half <= QUOTIENT_ERROR * quotient.abs();
            let step = if is_tied { self.stored + self.tie } else { 0.0 };
            let declared = if x.is_nan() { *x } else { self.stored * code };
            Expected { ties: step + self.tie * code.abs(), ..Expected::same(*x, declared) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::testing::numbers;

    /// The rule of blocks is `gguf`'s, to whose bytes the codec is pinned.
    fn of_codec(rows: &[f64]) -> Vec<f64> {
        let (codec, floats) = (DType::Q8_0.codec().unwrap(), rows.iter().map(|x| *x as f32).collect::<Vec<f32>>());
        let mut bytes = vec![0; rows.len() / LEN * DType::Q8_0.block_bytes()];
        (codec.encode)(&floats, &mut bytes);
        let mut decoded = vec![0.0; rows.len()];
        (codec.decode_exact)(&bytes, &mut decoded);
        decoded
    }

    #[test]
    fn blocks_are_those_of_the_codec_but_for_few_ties() {
        let mut tied = 0;
        for (seed, size) in (1..).zip([1.0, 1e-3, 3e-6, 1e-8, 1e-30, 2048.0, 1e6]) {
            let rows: Vec<f64> = numbers(32 * 4000, seed).into_iter().map(|x| f64::from((x * size) as f32)).collect();
            for (place, (expected, found)) in
                expected_rows(DType::Q8_0, &rows, true).iter().zip(of_codec(&rows)).enumerate()
            {
                let error = (found - expected.declared).abs();
                assert!(error <= expected.ties, "{place} of {size}: {found} for {expected:?}");
                tied += usize::from(expected.ties > 0.0);
            }
        }
        assert!(tied < 7 * 32 * 4000 / 500, "{tied} may go either way");
    }

    #[test]
    fn halves_go_either_way_and_neighbours_of_halves_do_not() {
        let mut row = vec![0.0; LEN];
        (row[0], row[1], row[2], row[3]) = (127.0, 2.5, -2.5, 2.4999);
        let found = expected_rows(DType::Q8_0, &row, true);
        let of = |place: usize| (found[place].declared, found[place].ties);
        assert_eq!([of(0), of(1), of(2), of(3)], [(127.0, 0.0), (3.0, 1.0), (-3.0, 1.0), (2.0, 0.0)]);
    }

    #[test]
    fn blocks_without_extent_and_beyond_the_range_of_a_scale() {
        assert_eq!(cached(DType::Q8_0, &[0.0; LEN]), [0.0; LEN]);
        let mut row = vec![0.0; LEN];
        row[5] = -1e9;
        let found = cached(DType::Q8_0, &row);
        assert!(found[5] == f64::NEG_INFINITY && found[6].is_nan(), "{found:?}");
        row[5] = f64::NAN;
        assert!(expected_rows(DType::Q8_0, &row, true)[5].declared.is_nan());
    }

    #[test]
    fn floats_are_rounded_one_by_one() {
        assert_eq!(cached(DType::F16, &[1.0 + 2f64.powi(-11), 65520.0]), [1.0, f64::INFINITY]);
    }
}
