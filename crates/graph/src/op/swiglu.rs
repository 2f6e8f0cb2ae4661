use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

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

    fn cases() -> Vec<Case> {
        let shapes: [&[usize]; 10] =
            [&[1], &[31], &[33, 3], &[257], &[32, 5, 3], &[7, 3, 2, 2], &[0], &[64, 0], &[5632, 16], &[8192, 33]];
        // The third reaches where exp overflows or vanishes.
        let gates = [Fill::Normal(1.0), Fill::Normal(10.0), Fill::Uniform(-120.0, 120.0), Fill::Constant(0.0)];
        let mut cases = Vec::new();
        for (shape, gate) in shapes.into_iter().flat_map(|shape| gates.map(|gate| (shape, gate))) {
            let ty = TensorType::new(DType::F32, shape);
            cases.push(Case::new(Swiglu, &[(ty, gate), (ty, Fill::Normal(1.0))]));
        }
        cases
    }
}
