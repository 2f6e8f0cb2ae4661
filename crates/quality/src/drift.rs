//! The error of a model's hidden states compared with those of a reference, layer by layer.

use serde::Serialize;
use std::collections::BTreeMap;
use trueup_graph::Node;
use trueup_runtime::{Observer, Result, Seen};

/// The result of a layer in every model.
const LAYER_RESULT: &str = "l_out";

/// The growth from one layer to the next that counts as drift.
const JUMP: f64 = 10.0;

/// The error that counts as drift in the first layer.
const FIRST_ERROR: f64 = 0.1;

/// The smallest error that counts as drift in a later layer.
///
/// An NMSE of 1e-6 is a relative error of 0.1%. Rounding to bf16 causes an error of this size (2^-9 at most for each
/// number); q8_0, the most accurate block type, causes a larger error. Errors below this limit, such as those between
/// f16 and bf16 copies of the same weights, are rounding noise, so their ratio between layers has no meaning.
const ERROR_MIN: f64 = 1e-6;

/// The error of the hidden states after one layer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LayerDrift {
    /// The layer, from 0.
    pub layer: usize,
    /// Normalized mean squared error: the sum of squared differences, divided by that of the reference's squares.
    pub nmse: f64,
}

/// The first layer that drifts: the error is at least 1e-6 and at least 10 times that of the layer before. The first
/// layer of the model drifts if its error is at least 0.1.
pub fn first_drift(layers: &[LayerDrift]) -> Option<usize> {
    let first = layers.first().filter(|first| first.nmse >= FIRST_ERROR).map(|first| first.layer);
    let jump = || layers.windows(2).find(|pair| pair[1].nmse >= ERROR_MIN.max(JUMP * pair[0].nmse));
    first.or_else(|| jump().map(|pair| pair[1].layer))
}

/// Keeps the result of every layer of a batch.
#[derive(Default)]
pub struct LayerResults(BTreeMap<usize, Vec<f64>>);

impl Observer for LayerResults {
    fn wants(&self, node: &Node) -> bool {
        node.layer.is_some_and(|layer| node.name == format!("{LAYER_RESULT}-{layer}"))
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        if let Some(layer) = seen.node().layer {
            self.0.entry(layer).or_default().extend(seen.output()?.values().iter());
        }
        Ok(())
    }

    fn poisons(&self) -> bool {
        false
    }
}

/// Sums of squares for each layer.
#[derive(Default)]
pub struct Drift {
    sums: BTreeMap<usize, [f64; 2]>,
    is_comparable: Option<bool>,
}

impl Drift {
    /// Adds the hidden states of the same tokens in both models.
    pub fn add(&mut self, model: &LayerResults, reference: &LayerResults) {
        let shapes = |results: &LayerResults| results.0.iter().map(|(layer, x)| (*layer, x.len())).collect::<Vec<_>>();
        let same = shapes(model) == shapes(reference);
        self.is_comparable = Some(self.is_comparable.unwrap_or(true) && same);
        for ((layer, own), other) in model.0.iter().zip(reference.0.values()).filter(|_| same) {
            let sums = self.sums.entry(*layer).or_default();
            for (x, y) in own.iter().zip(other) {
                sums[0] += (x - y) * (x - y);
                sums[1] += y * y;
            }
        }
    }

    /// The error of each layer; `None` if nothing was observed or the models have different layers.
    pub fn layers(&self) -> Option<Vec<LayerDrift>> {
        let nmse = |[difference, reference]: [f64; 2]| if difference == 0.0 { 0.0 } else { difference / reference };
        let layers = self.sums.iter().map(|(layer, sums)| LayerDrift { layer: *layer, nmse: nmse(*sums) });
        (self.is_comparable == Some(true) && !self.sums.is_empty()).then(|| layers.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(errors: &[f64]) -> Vec<LayerDrift> {
        errors.iter().enumerate().map(|(layer, nmse)| LayerDrift { layer, nmse: *nmse }).collect()
    }

    #[test]
    fn drift_is_a_jump_between_layers_or_a_wrong_first_layer() {
        assert_eq!(first_drift(&layers(&[1e-4, 2e-4, 3e-3, 0.4])), Some(2));
        assert_eq!(first_drift(&layers(&[1e-4, 2e-4, 5e-4])), None);
        assert_eq!(first_drift(&layers(&[0.3, 0.4])), Some(0));
        assert_eq!(first_drift(&layers(&[0.0, 0.0, 1e-6])), Some(2));
        assert_eq!(first_drift(&layers(&[0.0, 0.0, 9e-7])), None);
        assert_eq!(first_drift(&layers(&[2.2e-16, 1e-10, 9e-7, 9e-6])), Some(3));
        assert_eq!(first_drift(&layers(&[0.0, 0.0])), None);
        assert_eq!(first_drift(&[]), None);
    }

    #[test]
    fn models_with_different_layers_have_no_drift() {
        let results = |layers: &[usize]| LayerResults(layers.iter().map(|layer| (*layer, vec![1.0, 2.0])).collect());
        let mut drift = Drift::default();
        drift.add(&LayerResults([(0, vec![1.0, 3.0])].into()), &results(&[0]));
        assert_eq!(drift.layers().unwrap(), layers(&[0.2]));
        drift.add(&results(&[0]), &results(&[0, 1]));
        assert_eq!(drift.layers(), None);
    }
}
