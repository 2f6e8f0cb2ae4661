//! Sums of rows in f64: every product of two f32 is exact there. Element k goes to lane k mod 8, and the lanes are
//! added in order; no instruction set changes that.

use super::lanes::LANES;

/// `sum x`.
pub fn sum_of(x: &[f32]) -> f64 {
    in_lanes(x, |x| x)
}

/// Columns that are summed together.
pub const SUMMED_COLUMNS: usize = 64;

/// `y[j] = sum_k x[j + step * k]` over `len` elements, each with the bits of [`sum_of`], for at most
/// [`SUMMED_COLUMNS`] columns. Panics if a column ends after the end of `x`.
pub fn sum_columns(x: &[f32], len: usize, step: usize, y: &mut [f32]) {
    let mut lanes = [[0.0f64; SUMMED_COLUMNS]; LANES];
    for k in 0..len {
        let row = &x[step * k..][..y.len()];
        for (sum, x) in lanes[k % LANES].iter_mut().zip(row) {
            *sum += f64::from(*x);
        }
    }
    for (j, y) in y.iter_mut().enumerate() {
        *y = lanes.iter().fold(0.0, |sum, lane| sum + lane[j]) as f32;
    }
}

/// `sum (x - shift)^2`.
pub fn squares(x: &[f32], shift: f64) -> f64 {
    in_lanes(x, |x| (x - shift) * (x - shift))
}

#[inline(always)]
fn in_lanes(x: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += term(f64::from(*x));
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += term(f64::from(*x));
    }
    lanes.iter().fold(0.0, |sum, lane| sum + lane)
}
