//! Several measurements of one thing.

use serde::Serialize;

/// The middle and the ends of several numbers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these numbers; zeros where there are none.
    pub fn of(numbers: &[f64]) -> Spread {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
        let (last, middle) = (sorted.len().saturating_sub(1), sorted.len() / 2);
        Spread { median: (at(last / 2) + at(middle)) / 2.0, min: at(0), max: at(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_middle_of_even_and_odd_numbers() {
        let cases = [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0, 2.0, 3.0], 2.5), (&[7.0], 7.0), (&[], 0.0)];
        for (numbers, median) in cases {
            assert_eq!(Spread::of(numbers).median, median, "{numbers:?}");
        }
        let spread = Spread::of(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!((spread.min, spread.max), (1.0, 4.0));
    }
}
