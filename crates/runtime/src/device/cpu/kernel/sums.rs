//! Sums of rows in f64: every product of two f32 is exact there. Element k goes to lane k mod 8, and the lanes are
//! added in order; no instruction set changes that.

use super::lanes::LANES;

/// `sum x`.
pub fn sum_of(x: &[f32]) -> f64 {
    in_lanes(x, |x| x)
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
