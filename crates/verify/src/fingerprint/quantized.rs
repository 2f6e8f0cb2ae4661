//! What devices do to activations, and to weights or cached rows, before they multiply.

use crate::activation::{BLOCK_LEN, Row};
use crate::precision::Precision;
use trueup_runtime::profile::{Activations, Profile, Rounding};

/// One row of activations as a device uses it.
pub(super) type Quantizer = fn(&[f64], &Profile) -> Row;

/// One row of weights, keys or values as a device uses it.
pub(super) type RowRounding = fn(&[f64]) -> Vec<f64>;

/// As the profile has it.
pub(super) fn declared(x: &[f64], profile: &Profile) -> Row {
    Row::declared(x, profile.activations)
}

/// Used as they are.
pub(super) fn unchanged(x: &[f64], _: &Profile) -> Row {
    Row::declared(x, Activations::Unchanged)
}

/// Rounded to f16.
pub(super) fn f16(x: &[f64], _: &Profile) -> Row {
    Row::declared(x, Activations::F16)
}

/// Rounded to bf16.
pub(super) fn bf16(x: &[f64], _: &Profile) -> Row {
    Row::declared(x, Activations::Bf16)
}

/// Rounded to tf32: the range of f32, ten fraction bits.
pub(super) fn tf32(x: &[f64], _: &Profile) -> Row {
    Row { values: rows_tf32(x), ..Row::default() }
}

macro_rules! q8 {
    ($($(#[$doc:meta])* $name:ident: $rounding:ident, $scale_f16:literal;)*) => {
        $($(#[$doc])* pub(super) fn $name(x: &[f64], _: &Profile) -> Row {
            Row::declared(x, Activations::Q8 { rounding: Rounding::$rounding, scale_f16: $scale_f16 })
        })*
    };
}

q8! {
    /// Blocks of 32, f32 scale, halves to even.
    q8_half_even: HalfEven, false;
    /// Blocks of 32, f32 scale, halves away from zero.
    q8_half_away: HalfAway, false;
    /// Blocks of 32, f16 scale, halves to even.
    q8_half_even_f16: HalfEven, true;
    /// Blocks of 32, f16 scale, halves away from zero.
    q8_half_away_f16: HalfAway, true;
}

/// Blocks of 32, f32 scale, cut off.
pub(super) fn q8_truncated(x: &[f64], _: &Profile) -> Row {
    blocks(x, BLOCK_LEN, &TRUNCATED)
}

/// Blocks of 32, f16 scale, cut off.
pub(super) fn q8_truncated_f16(x: &[f64], _: &Profile) -> Row {
    blocks(x, BLOCK_LEN, &Codes { scale_f16: true, ..TRUNCATED })
}

/// One scale for 128 elements.
pub(super) fn q8_per_128(x: &[f64], _: &Profile) -> Row {
    blocks(x, 128, &NEAREST)
}

/// Codes from -63 to 63.
pub(super) fn seven_bits(x: &[f64], _: &Profile) -> Row {
    blocks(x, BLOCK_LEN, &Codes { largest: 63.0, last: 63.0, ..NEAREST })
}

/// Codes that end at 126 although the scale is made for 127.
pub(super) fn saturating(x: &[f64], _: &Profile) -> Row {
    blocks(x, BLOCK_LEN, &Codes { last: 126.0, ..NEAREST })
}

/// One scale for all elements of a token.
pub(super) fn per_token(x: &[f64], _: &Profile) -> Row {
    blocks(x, x.len(), &NEAREST)
}

macro_rules! in_front {
    ($($(#[$doc:meta])* $name:ident: $first:expr;)*) => {
        $($(#[$doc])* pub(super) fn $name(x: &[f64], profile: &Profile) -> Row {
            let first: Quantizer = $first;
            then_declared(first(x, profile), profile)
        })*
    };
}

in_front! {
    /// Rounded to f16, then as declared.
    f16_in_front: f16;
    /// Rounded to bf16, then as declared.
    bf16_in_front: bf16;
    /// One scale for 128 elements, then as declared.
    per_128_in_front: q8_per_128;
    /// One scale for all elements of a token, then as declared.
    per_token_in_front: per_token;
    /// Codes from -63 to 63, then as declared.
    seven_bits_in_front: seven_bits;
    /// Codes that end at 126, then as declared.
    saturating_in_front: saturating;
    /// Codes cut toward zero, then as declared.
    truncated_in_front: q8_truncated;
}

/// What comes of a first rounding, stored in f32, as the profile has it. A tie of the first rounding is one of the
/// result.
fn then_declared(first: Row, profile: &Profile) -> Row {
    let stored: Vec<f64> = first.values.iter().map(|value| f64::from(*value as f32)).collect();
    let mut row = Row::declared(&stored, profile.activations);
    row.ties.extend(first.ties);
    row
}

/// How elements become codes.
#[derive(Clone, Copy)]
struct Codes {
    /// The code of the largest element of a block.
    largest: f32,
    /// Codes end here.
    last: f32,
    round: fn(f32) -> f32,
    /// Where between two whole numbers an error of the quotient changes the code.
    border: f32,
    /// The scale is rounded to f16 once codes are made.
    scale_f16: bool,
}

/// To the nearest of 127 codes and their negatives, halves to even.
const NEAREST: Codes =
    Codes { largest: 127.0, last: 127.0, round: f32::round_ties_even, border: 0.5, scale_f16: false };

/// The same, cut toward zero. The largest element itself is on a border: the quotient in f32 tells.
const TRUNCATED: Codes = Codes { round: f32::trunc, border: 0.0, ..NEAREST };

/// Blocks of `len`. Both codes beside a border may be meant.
fn blocks(x: &[f64], len: usize, codes: &Codes) -> Row {
    let mut row = Row::default();
    for block in x.chunks(len.max(1)) {
        let largest = block.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let scale = largest as f32 / codes.largest;
        let used = f64::from(scale);
        let used = if codes.scale_f16 { Precision::F16.round(used) } else { used };
        for x in block {
            let quotient = if scale > 0.0 { *x as f32 / scale } else { 0.0 };
            let distance = (quotient.abs() - codes.border).rem_euclid(1.0);
            if quotient != 0.0 && distance.min(1.0 - distance) < 4.0 * f32::EPSILON * quotient.abs() {
                row.ties.push((row.values.len(), used));
            }
            let code = (codes.round)(quotient).clamp(-codes.last, codes.last);
            row.values.push(f64::from(code) * used);
        }
    }
    row
}

/// A stored row rounded to f16.
pub(super) fn rows_f16(row: &[f64]) -> Vec<f64> {
    row.iter().map(|value| Precision::F16.round(*value)).collect()
}

/// A stored row rounded to bf16.
pub(super) fn rows_bf16(row: &[f64]) -> Vec<f64> {
    row.iter().map(|value| Precision::BF16.round(*value)).collect()
}

/// A stored row rounded to tf32.
pub(super) fn rows_tf32(row: &[f64]) -> Vec<f64> {
    // 13 of the 23 bits behind the point of an f32 go, halves to even.
    let round = |value: &f64| {
        let bits = (*value as f32).to_bits();
        let rounded = bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff;
        f64::from(f32::from_bits(rounded))
    };
    row.iter().map(round).collect()
}

/// A stored row quantized to q8_0: blocks of 32, f16 scale, codes from the scale that is not rounded.
pub(super) fn rows_q8_0(row: &[f64]) -> Vec<f64> {
    Row::declared(row, Activations::Q8 { rounding: Rounding::HalfAway, scale_f16: true }).values
}
