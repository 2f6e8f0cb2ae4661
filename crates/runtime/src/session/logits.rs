//! The result of a computation: a row for each token that wants logits.

/// Logits of the tokens that wanted them. An encoder gives rows of its hidden states, or one row for each text.
#[derive(Clone, PartialEq, Debug)]
pub struct Logits {
    pub(super) width: usize,
    pub(super) values: Vec<f64>,
}

impl Logits {
    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, one after the other, as f32.
    pub fn to_f32(&self) -> Vec<f32> {
        self.values.iter().map(|value| *value as f32).collect()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// The logits after the `index`-th token that wanted them, one for each id.
    pub fn row(&self, index: usize) -> &[f64] {
        &self.values[self.width * index..self.width * (index + 1)]
    }
}
