//! Means with standard errors, and percentiles.

use serde::Serialize;

/// A value and its standard error.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Its standard error; 0 if it cannot be estimated.
    pub error: f64,
}

impl Estimate {
    /// A value with an error.
    pub fn new(value: f64, error: f64) -> Estimate {
        Estimate { value, error }
    }
}

/// A percentile of the values of all positions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentile {
    /// The share of values below it, in percent.
    pub percent: f64,
    /// The value.
    pub value: f64,
}

/// Sums of values and of their squares.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Moments {
    sum: f64,
    sum_of_squares: f64,
}

impl Moments {
    /// Adds a value, whose square is rounded to f32 as in `llama-perplexity`.
    pub fn add(&mut self, value: f32) {
        self.sum += f64::from(value);
        self.sum_of_squares += f64::from(value * value);
    }

    /// The mean, with its standard error.
    pub fn mean(&self, count: usize) -> Estimate {
        let n = count as f64;
        let mean = self.sum / n;
        // Below 11 values the error is not estimated.
        let variance = (self.sum_of_squares / n - mean * mean) / (n - 1.0);
        Estimate::new(mean, if count > 10 && variance > 0.0 { variance.sqrt() } else { 0.0 })
    }

    /// The mean of the squares.
    pub fn mean_of_squares(&self, count: usize) -> f64 {
        self.sum_of_squares / count as f64
    }
}

/// The percentiles of values in ascending order, interpolated between adjacent values.
pub fn percentiles(sorted: &[f32], percents: &[f64]) -> Vec<Percentile> {
    let at = |percent: f64| {
        let place = (percent / 100.0) as f32 * sorted.len().saturating_sub(1) as f32;
        let below = place.floor() as usize;
        match (sorted.get(below), sorted.get(below + 1)) {
            (Some(low), Some(high)) => {
                let share = place - below as f32;
                (1.0 - share) * low + share * high
            }
            (Some(last), None) => *last,
            (None, _) => f32::NAN,
        }
    };
    percents.iter().map(|percent| Percentile { percent: *percent, value: f64::from(at(*percent)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_standard_errors_from_eleven_values_on() {
        let mut moments = Moments::default();
        (0..11).for_each(|i| moments.add(i as f32));
        let mean = moments.mean(11);
        // The variance of 0 to 10 is 10; its unbiased estimate 11.
        assert!((mean.value - 5.0).abs() < 1e-12 && (mean.error - 1.0).abs() < 1e-12, "{mean:?}");
        assert_eq!(moments.mean(10).error, 0.0);
    }

    #[test]
    fn percentiles_are_interpolated() {
        let values = percentiles(&[1.0, 2.0, 4.0], &[0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(values.map_values(), [1.0, 1.5, 2.0, 3.0, 4.0]);
    }

    trait Values {
        fn map_values(&self) -> Vec<f64>;
    }

    impl Values for Vec<Percentile> {
        fn map_values(&self) -> Vec<f64> {
            self.iter().map(|percentile| percentile.value).collect()
        }
    }
}
