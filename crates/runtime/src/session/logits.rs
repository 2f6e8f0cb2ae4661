//! The result of a computation: a row for each token whose logits were requested.

/// Logits of the tokens for which they were requested. An encoder returns rows of its hidden states, or one row for
/// each text.
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

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// The logits after the `index`-th token whose logits were requested, one for each ID.
    pub fn row(&self, index: usize) -> &[f64] {
        &self.values[self.width * index..self.width * (index + 1)]
    }
}
