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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_bits_of_rows() {
        for (len, columns) in [(1, 1), (8, 64), (9, 7), (130, 33)] {
            let x: Vec<f32> = (0..len * columns).map(|i| (i as f32).sin() * 3e7).collect();
            let mut sums = vec![0.0; columns];
            sum_columns(&x, len, columns, &mut sums);
            for (j, sum) in sums.iter().enumerate() {
                let column: Vec<f32> = x[j..].iter().step_by(columns).copied().collect();
                assert_eq!(sum.to_bits(), (sum_of(&column) as f32).to_bits(), "{len} elements, column {j}");
            }
        }
    }

    #[test]
    fn every_element_is_summed_once() {
        for len in [0, 1, 7, 8, 9, 257] {
            let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let last = f64::from(len as u32) - 1.0;
            assert_eq!(sum_of(&x), if len == 0 { 0.0 } else { last * (last + 1.0) / 2.0 });
            let expected: f64 = (0..len).map(|i| (f64::from(i as u32) - 2.0).powi(2)).sum();
            assert_eq!(squares(&x, 2.0), expected);
        }
    }
}
