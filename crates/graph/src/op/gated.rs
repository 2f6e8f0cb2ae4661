use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::op::Unary;
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y = f(gate) up` for each element: the gated feed-forward's activation (Shazeer 2020, equations 5 and 6). `f` is a
/// [`Unary`] function.
///
/// Inputs: `gate` and `up`, activations of one type. Output: that type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Gated {
    /// By [`Unary::Relu`].
    Reglu,
    /// By [`Unary::Gelu`].
    Geglu,
    /// By [`Unary::GeluErf`].
    GegluErf,
    /// By [`Unary::GeluQuick`].
    GegluQuick,
    /// By [`Unary::Silu`].
    Swiglu,
}

impl Gated {
    /// All members, in the order of their names.
    pub const ALL: [Gated; 5] = [Gated::Reglu, Gated::Geglu, Gated::GegluErf, Gated::GegluQuick, Gated::Swiglu];

    /// The function of the gate.
    pub fn function(self) -> Unary {
        match self {
            Gated::Reglu => Unary::Relu,
            Gated::Geglu => Unary::Gelu,
            Gated::GegluErf => Unary::GeluErf,
            Gated::GegluQuick => Unary::GeluQuick,
            Gated::Swiglu => Unary::Silu,
        }
    }
}

impl Rule for Gated {
    const NAMES: &'static [&'static str] = &["reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu"];

    fn name(&self) -> &'static str {
        Self::NAMES[*self as usize]
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [gate, up] = exactly(inputs)?;
        expect_activation("gate", &gate)?;
        expect(gate == up, || format!("gate {gate} and up {up} must have one type"))?;
        Ok(gate)
    }

    fn cases() -> Vec<Case> {
        Gated::ALL.into_iter().flat_map(cases_of).collect()
    }
}

/// From one element to a layer.
const SHAPES: [&[usize]; 9] =
    [&[1], &[31], &[33, 5], &[257, 3], &[64, 1, 5], &[7, 5, 3, 2], &[0, 3], &[1, 4097], &[2048, 64]];

/// Both ends of the functions, and both branches at 0.
const FILLS: [(Fill, Fill); 3] = [
    (Fill::Normal(2.0), Fill::Normal(1.0)),
    (Fill::Uniform(-130.0, 130.0), Fill::Normal(30.0)),
    (Fill::Integers(-1, 1), Fill::Uniform(-1e-3, 1e-3)),
];

fn cases_of(member: Gated) -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in SHAPES {
        let ty = TensorType::new(DType::F32, sizes);
        cases.extend(FILLS.map(|(gate, up)| Case::new(member, &[(ty, gate), (ty, up)])));
        if member == Gated::Reglu {
            cases.push(Case::probe(member, &[(ty, Fill::Integers(-99, 99)), (ty, Fill::Integers(-99, 99))]));
        }
    }
    cases
}
