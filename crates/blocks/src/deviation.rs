//! How far decoded weights are from their source: the numbers of a quantization report.
//!
//! ```text
//!  source  ┐            ┌ lane 0: sums of (s-d)^2, s*d, s*s, d*d, largest |s-d| ┐
//!  decoded ┴─element i─▶│ ...            i modulo 8                             ├─in order─▶ rmse, cosine, max_abs
//!                       └ lane 7                                                ┘
//! ```
//!
//! Sums are f64. Their order is fixed by the calls alone: sums over rows that several threads took are the same as long as
//! rows are added, or merged, in the same order.

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
    /// Weights that are NaN or infinite on either side. They are in no other number here: unless this is 0, the others
    /// describe only the rest.
    pub not_finite: u64,
}

/// Running sums over any number of rows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DeviationSums {
    lanes: [Lane; LANES],
    count: u64,
    not_finite: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Lane {
    squared_error: f64,
    product: f64,
    source_squared: f64,
    decoded_squared: f64,
    max_abs: f64,
}

impl Lane {
    #[inline(always)]
    fn add(&mut self, source: f32, decoded: f32) {
        let finite = source.is_finite() & decoded.is_finite();
        let source = f64::from(if finite { source } else { 0.0 });
        let decoded = f64::from(if finite { decoded } else { 0.0 });
        let error = source - decoded;
        self.squared_error += error * error;
        self.product += source * decoded;
        self.source_squared += source * source;
        self.decoded_squared += decoded * decoded;
        self.max_abs = if error.abs() > self.max_abs { error.abs() } else { self.max_abs };
    }

    fn merge(&mut self, other: &Lane) {
        self.squared_error += other.squared_error;
        self.product += other.product;
        self.source_squared += other.source_squared;
        self.decoded_squared += other.decoded_squared;
        self.max_abs = self.max_abs.max(other.max_abs);
    }
}

impl DeviationSums {
    /// Adds the weights of one or more rows; both slices have the same length, else this panics.
    pub fn add(&mut self, source: &[f32], decoded: &[f32]) {
        assert_eq!(source.len(), decoded.len(), "source and decoded differ in length");
        let (sources, source_rest) = source.as_chunks::<LANES>();
        let (decodeds, decoded_rest) = decoded.as_chunks::<LANES>();
        let mut lanes = self.lanes;
        for (sources, decodeds) in sources.iter().zip(decodeds) {
            for ((lane, &source), &decoded) in lanes.iter_mut().zip(sources).zip(decodeds) {
                lane.add(source, decoded);
            }
        }
        for ((lane, &source), &decoded) in lanes.iter_mut().zip(source_rest).zip(decoded_rest) {
            lane.add(source, decoded);
        }
        self.lanes = lanes;
        self.count += source.len() as u64;
        let both_finite = |(source, decoded): (&f32, &f32)| source.is_finite() & decoded.is_finite();
        self.not_finite += source.iter().zip(decoded).map(|pair| u64::from(!both_finite(pair))).sum::<u64>();
    }

    /// Adds the sums of `other`, which stand for rows after these.
    pub fn merge(&mut self, other: &DeviationSums) {
        for (lane, other) in self.lanes.iter_mut().zip(&other.lanes) {
            lane.merge(other);
        }
        self.count += other.count;
        self.not_finite += other.not_finite;
    }

    /// The numbers so far; all zero and cosine 1 before the first weight.
    pub fn deviation(&self) -> Deviation {
        let mut total = Lane::default();
        for lane in &self.lanes {
            total.merge(lane);
        }
        let finite = self.count - self.not_finite;
        let rmse = if finite == 0 { 0.0 } else { (total.squared_error / finite as f64).sqrt() };
        let cosine = match (total.source_squared == 0.0, total.decoded_squared == 0.0) {
            (true, true) => 1.0,
            (true, false) | (false, true) => 0.0,
            (false, false) => total.product / (total.source_squared.sqrt() * total.decoded_squared.sqrt()),
        };
        Deviation { rmse, cosine, max_abs: total.max_abs, not_finite: self.not_finite }
    }
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
    fn merging_rows_in_order_is_adding_them() {
        let source: Vec<f32> = (0..96).map(|i| (i as f32 * 0.37).sin()).collect();
        let decoded: Vec<f32> = source.iter().map(|weight| (weight * 8.0).round() / 8.0).collect();
        let mut merged = DeviationSums::default();
        for (source, decoded) in source.chunks(32).zip(decoded.chunks(32)) {
            let mut row = DeviationSums::default();
            row.add(source, decoded);
            merged.merge(&row);
        }
        let (merged, added) = (merged.deviation(), deviation(&source, &decoded));
        assert!((merged.rmse - added.rmse).abs() < 1e-15 && (merged.cosine - added.cosine).abs() < 1e-15);
        assert_eq!(merged.max_abs, added.max_abs);
    }
}
