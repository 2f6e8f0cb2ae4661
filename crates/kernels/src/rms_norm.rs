//! Root mean square normalisation of one row.

use super::kernel;
use super::lanes::{LANES, sum};
#[cfg(feature = "samples")]
use super::samples::numbers;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

kernel! {
    /// `y[i] = x[i] / sqrt(mean(x^2) + epsilon) * w[i]`. Squares are summed in eight lanes; the factor of the row is
    /// found in f64 and rounded once.
    fn rms_norm(x: &[f32], w: &[f32], epsilon: f32, y: &mut [f32]) {
        avx512 => recompiled_wider,
        avx2 => recompiled,
        scalar => normalise,
    }
    rms_norm_samples on samples
}

#[inline(always)]
fn normalise(x: &[f32], w: &[f32], epsilon: f32, y: &mut [f32]) {
    assert_eq!((x.len(), x.len()), (w.len(), y.len()), "rows of one length");
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut squares = [0.0; LANES];
    for chunk in chunks {
        for (sum, x) in squares.iter_mut().zip(chunk) {
            *sum = x.mul_add(*x, *sum);
        }
    }
    for (sum, x) in squares.iter_mut().zip(rest) {
        *sum = x.mul_add(*x, *sum);
    }
    let mean = f64::from(sum(squares)) / x.len() as f64;
    let factor = (1.0 / (mean + f64::from(epsilon)).sqrt()) as f32;
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = x * factor * w;
    }
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    for len in [1, 7, 8, 31, 33, 64, 257] {
        let mut y = vec![f32::NAN; len];
        rms_norm(instructions, &numbers(len, 3), &numbers(len, 4), 1e-5, &mut y);
        results.extend(y);
    }
    results
}
