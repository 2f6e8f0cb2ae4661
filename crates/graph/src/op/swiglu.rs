use super::{Rule, exactly, expect, expect_activation};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};

/// `y[i] = gate[i] / (1 + exp(-gate[i])) * up[i]`: the gated feed-forward's activation (Shazeer 2020, equation 6).
///
/// Inputs: `gate` and `up`, activations of one type. Output: that type.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Swiglu;

impl Rule for Swiglu {
    const NAMES: &'static [&'static str] = &["swiglu"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [gate, up] = exactly(inputs)?;
        expect_activation("gate", &gate)?;
        expect(gate == up, || format!("gate {gate} and up {up} must have one type"))?;
        Ok(gate)
    }
}
