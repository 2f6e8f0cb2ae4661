//! How far decoded weights are from their source: the numbers of a quantization report.
//!
//! ```text
//!  source  ┐            ┌ lane 0: sums of (s-d)^2, s*d, s*s, d*d, largest |s-d| ┐
//!  decoded ┴─element i─▶│ ...            i modulo 8                             ├─in order─▶ rmse, cosine, max_abs
//!                       └ lane 7                                                ┘
//! ```
//!
//! Sums are f64, and the calls alone fix their order: where every row is summed by itself and the rows are merged in
//! order, the numbers are the same for any number of threads and for any instruction set. The product of two f32 is
//! exact in f64, so a fused multiply-add gives the same result as a multiplication followed by an addition.

use crate::finite::all_finite;
use multiversion::{multiversion, target::target_cfg_f};

const LANES: usize = 8;

/// Distance of decoded weights from their source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Deviation {
    /// Square root of the mean of (source - decoded)^2, in the unit of the weights.
    pub rmse: f64,
    /// Cosine of the angle between both; 1 when both are zero, 0 when one is.
    pub cosine: f64,
    /// Largest |source - decoded|.
    pub max_abs: f64,
    /// Places that are NaN or infinite on either side. They are in no other number here: unless this is 0, the others
    /// describe only the rest.
    pub not_finite: u64,
}

/// Running sums over any number of rows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DeviationSums {
    squared_error: [f64; LANES],
    product: [f64; LANES],
    source_squared: [f64; LANES],
    decoded_squared: [f64; LANES],
    max_squared: [f64; LANES],
    count: u64,
    not_finite: u64,
}

impl DeviationSums {
    /// Adds the weights of one or more rows; both slices have the same length, else this panics.
    pub fn add(&mut self, source: &[f32], decoded: &[f32]) {
        assert_eq!(source.len(), decoded.len(), "source and decoded differ in length");
        match all_finite(source) && all_finite(decoded) {
            true => self.add_finite(source, decoded),
            false => add::<false>(self, source, decoded),
        }
    }

    /// The same of weights that are known to be finite on both sides: what is not makes the numbers NaN or infinite.
    pub fn add_finite(&mut self, source: &[f32], decoded: &[f32]) {
        assert_eq!(source.len(), decoded.len(), "source and decoded differ in length");
        add::<true>(self, source, decoded);
    }

    /// Whether everything that [`DeviationSums::add_finite`] was given is finite.
    pub fn is_finite(&self) -> bool {
        self.source_squared.iter().chain(&self.decoded_squared).all(|sum| sum.is_finite())
    }

    /// Adds one element a lane; `ALL_FINITE` says that each of them is finite on both sides, and `HAS_FMA` that the
    /// processor has a fused multiply-add.
    #[inline(always)]
    fn add_lanes<const ALL_FINITE: bool, const HAS_FMA: bool>(
        &mut self,
        source: &[f32; LANES],
        decoded: &[f32; LANES],
    ) {
        let plus_product = |sum: f64, a: f64, b: f64| if HAS_FMA { a.mul_add(b, sum) } else { sum + a * b };
        for lane in 0..LANES {
            let finite = ALL_FINITE || source[lane].is_finite() & decoded[lane].is_finite();
            let source = f64::from(if finite { source[lane] } else { 0.0 });
            let decoded = f64::from(if finite { decoded[lane] } else { 0.0 });
            let squared = (source - decoded) * (source - decoded);
            self.squared_error[lane] += squared;
            self.product[lane] = plus_product(self.product[lane], source, decoded);
            self.source_squared[lane] = plus_product(self.source_squared[lane], source, source);
            self.decoded_squared[lane] = plus_product(self.decoded_squared[lane], decoded, decoded);
            self.max_squared[lane] = if squared > self.max_squared[lane] { squared } else { self.max_squared[lane] };
            self.not_finite += u64::from(!finite);
        }
    }

    /// Adds the sums of `other`, which stand for rows after these.
    pub fn merge(&mut self, other: &DeviationSums) {
        for lane in 0..LANES {
            self.squared_error[lane] += other.squared_error[lane];
            self.product[lane] += other.product[lane];
            self.source_squared[lane] += other.source_squared[lane];
            self.decoded_squared[lane] += other.decoded_squared[lane];
            self.max_squared[lane] = self.max_squared[lane].max(other.max_squared[lane]);
        }
        self.count += other.count;
        self.not_finite += other.not_finite;
    }

    /// The numbers so far; all zero and cosine 1 before the first weight.
    pub fn deviation(&self) -> Deviation {
        let finite = self.count - self.not_finite;
        let total = |lanes: &[f64; LANES]| lanes.iter().sum::<f64>();
        let (source_squared, decoded_squared) = (total(&self.source_squared), total(&self.decoded_squared));
        let rmse = if finite == 0 { 0.0 } else { (total(&self.squared_error) / finite as f64).sqrt() };
        let cosine = match (source_squared == 0.0, decoded_squared == 0.0) {
            (true, true) => 1.0,
            (true, false) | (false, true) => 0.0,
            (false, false) => total(&self.product) / (source_squared.sqrt() * decoded_squared.sqrt()),
        };
        Deviation {
            rmse,
            cosine,
            // sqrt(x * x) == |x| in f64, unless x * x overflows or underflows.
            max_abs: self.max_squared.iter().copied().fold(0.0, f64::max).sqrt(),
            not_finite: self.not_finite,
        }
    }
}

/// [`DeviationSums::add`], compiled for each instruction set: lanes stay what they are, so the numbers are the same in
/// all of them.
#[multiversion(targets("x86_64+avx512f+avx512vl+fma", "x86_64+avx2+fma", "aarch64+neon"))]
fn add<const ALL_FINITE: bool>(total: &mut DeviationSums, source: &[f32], decoded: &[f32]) {
    const HAS_FMA: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let (sources, source_rest) = source.as_chunks::<LANES>();
    let (decodeds, decoded_rest) = decoded.as_chunks::<LANES>();
    // A copy, which the compiler keeps in registers over the loop.
    let mut sums = *total;
    for (source, decoded) in sources.iter().zip(decodeds) {
        sums.add_lanes::<ALL_FINITE, HAS_FMA>(source, decoded);
    }
    // Zeros in the lanes that have no weight any more add nothing.
    let (mut source, mut decoded) = ([0.0; LANES], [0.0; LANES]);
    source[..source_rest.len()].copy_from_slice(source_rest);
    decoded[..decoded_rest.len()].copy_from_slice(decoded_rest);
    sums.add_lanes::<ALL_FINITE, HAS_FMA>(&source, &decoded);
    sums.count += (LANES * sources.len() + source_rest.len()) as u64;
    *total = sums;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(source: &[f32], decoded: &[f32]) -> Deviation {
        let mut sums = DeviationSums::default();
        sums.add(source, decoded);
        sums.deviation()
    }

    #[test]
    fn small_cases_by_hand() {
        let cases = [
            (vec![3.0, 4.0], vec![3.0, 4.0], (0.0, 1.0, 0.0)),
            (vec![3.0, 4.0], vec![4.0, 3.0], (1.0, 24.0 / 25.0, 1.0)),
            (vec![1.0; 20], vec![-1.0; 20], (2.0, -1.0, 2.0)),
            (vec![0.0; 9], vec![0.0; 9], (0.0, 1.0, 0.0)),
            (vec![0.0; 9], vec![2.0; 9], (2.0, 0.0, 2.0)),
            (vec![], vec![], (0.0, 1.0, 0.0)),
        ];
        for (source, decoded, (rmse, cosine, max_abs)) in cases {
            let found = deviation(&source, &decoded);
            assert_eq!((found.rmse, found.max_abs, found.not_finite), (rmse, max_abs, 0), "{source:?} {decoded:?}");
            assert!((found.cosine - cosine).abs() < 1e-15, "{source:?} {decoded:?}: {}", found.cosine);
        }
    }

    #[test]
    fn weights_that_are_not_finite_are_counted_and_do_not_hide_the_rest() {
        let found = deviation(&[1.0, f32::NAN, 2.0, 5.0], &[1.5, 0.0, f32::INFINITY, 5.0]);
        assert_eq!(found.not_finite, 2);
        assert_eq!(found.max_abs, 0.5);
        assert_eq!(found.rmse, (0.25f64 / 2.0).sqrt());
    }

    #[test]
    fn what_is_not_finite_shows_in_the_sums_wherever_it_stands() {
        for len in [1, 8, 9, 100] {
            let weights = vec![f32::MAX; len];
            let mut sums = DeviationSums::default();
            (0..100).for_each(|_| sums.add_finite(&weights, &weights));
            assert!(sums.is_finite(), "squares of the largest f32 do not overflow");
            for place in 0..len {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut worse = weights.clone();
                    worse[place] = bad;
                    let (mut of_source, mut of_decoded) = (sums, sums);
                    of_source.add_finite(&worse, &weights);
                    of_decoded.add_finite(&weights, &worse);
                    assert!(!of_source.is_finite() && !of_decoded.is_finite(), "{bad} at {place} of {len}");
                }
            }
        }
    }

    #[test]
    fn a_fused_multiply_add_gives_the_same_numbers() {
        let number = |i: u32| f32::from_bits(i.wrapping_mul(2_654_435_761));
        let all: Vec<f32> = (1..100_000).map(number).filter(|number| number.is_finite()).collect();
        let (mut fused, mut plain) = (DeviationSums::default(), DeviationSums::default());
        for (source, decoded) in all.as_chunks::<LANES>().0.iter().zip(all.as_chunks::<LANES>().0.iter().rev()) {
            fused.add_lanes::<true, true>(source, decoded);
            plain.add_lanes::<true, false>(source, decoded);
            let largest = source.iter().zip(decoded).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
            let mut one = DeviationSums::default();
            one.add(source, decoded);
            assert_eq!(one.deviation().max_abs, largest.fold(0.0, f64::max));
        }
        assert_eq!(fused, plain);
    }

    #[test]
    fn merging_rows_in_order_is_adding_them() {
        let mut source: Vec<f32> = (0..96).map(|i| (i as f32 * 0.37).sin()).collect();
        (source[5], source[40], source[41]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let decoded: Vec<f32> = source.iter().map(|weight| (weight * 8.0).round() / 8.0).collect();
        let mut merged = DeviationSums::default();
        for (source, decoded) in source.chunks(32).zip(decoded.chunks(32)) {
            let mut row = DeviationSums::default();
            row.add(source, decoded);
            merged.merge(&row);
        }
        let (merged, added) = (merged.deviation(), deviation(&source, &decoded));
        assert!((merged.rmse - added.rmse).abs() < 1e-15 && (merged.cosine - added.cosine).abs() < 1e-15);
        assert_eq!((merged.max_abs, merged.not_finite), (added.max_abs, 3));
    }
}
