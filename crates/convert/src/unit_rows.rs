//! Normalizes the rows of a matrix to length one. Baichuan2 does this with its output head before each product;
//! conversion does it once.

/// The shortest length that a row is divided by (PyTorch's `torch.nn.functional.normalize`).
const LENGTH_MIN: f64 = 1e-12;
/// A row whose length differs from 1 by no more was divided before and stays as it is.
const NEAR_ONE: f64 = 1.0 / (1 << 22) as f64;

/// The length of a row, piece by piece.
#[derive(Clone, Copy, Default)]
pub(crate) struct Length {
    squares: f64,
}

impl Length {
    /// Goes on with the row's next elements.
    pub fn add(&mut self, piece: &[f32]) {
        self.squares += piece.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>();
    }

    /// Divides elements of the row.
    pub fn divide(self, elements: &mut [f32]) {
        let length = self.squares.sqrt().max(LENGTH_MIN);
        if (length - 1.0).abs() > NEAR_ONE {
            elements.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
    }
}

/// Divides each of the rows, which are all there, by its length.
pub(crate) fn divide_rows(values: &mut [f32], row: usize) {
    for row in values.chunks_mut(row.max(1)) {
        let mut length = Length::default();
        length.add(row);
        length.divide(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_the_length_one_and_keep_it() {
        let mut values = vec![3.0, 4.0, 0.0, 0.0, 0.0, -2.0, 1e-20, 1e-20];
        divide_rows(&mut values, 2);
        assert_eq!(values[..6], [0.6, 0.8, 0.0, 0.0, 0.0, -1.0]);
        // Shorter than what is divided by: 1e-20 / 1e-12.
        assert!((f64::from(values[6]) / 1e-8 - 1.0).abs() < 1e-6);
        let once: Vec<f32> = (0..999).map(|index| ((index * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let (mut once, mut twice) = (once.clone(), once);
        divide_rows(&mut once, 333);
        divide_rows(&mut twice, 333);
        divide_rows(&mut twice, 333);
        assert_eq!(once, twice);
    }
}
