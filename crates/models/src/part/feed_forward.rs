//! The dense feed-forward.
//!
//! ```text
//! gated     down(f(gate(x)) * up(x))          ungated     down(f(up(x)))
//! ```
//!
//! Some models norm the hidden layer, which is the input of `down`.

use crate::build::{Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::part::norm::Norm;
use crate::tensor::TensorList;
use trueup_graph::ValueId;
use trueup_graph::op::{Arithmetic, Gated, Unary};

/// A dense feed-forward.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Dense {
    /// Elements of the hidden layer.
    pub size: usize,
    pub activation: Activation,
    pub storage: Storage,
    /// Whether gate and up have a bias.
    pub has_up_bias: bool,
    pub has_down_bias: bool,
    /// The norm of the hidden layer.
    pub hidden_norm: Option<Norm>,
}

/// The function between the two products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// By the hyperbolic tangent.
    Gelu,
    /// By the error function.
    GeluErf,
    /// `max(x, 0)`, without a gate.
    Relu,
    /// `max(x, 0)^2`.
    ReluSquared,
}

/// Which matrices there are, and how a GGUF file stores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Storage {
    /// Gate, up and down.
    Gated,
    /// Gate and up are the rows of one tensor, `ffn_up`.
    FusedGate,
    /// Up and down.
    Ungated,
}

/// The norm of the hidden layer.
const HIDDEN_NORM: &str = "ffn_sub_norm";

impl Dense {
    pub fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        let size = self.size;
        match self.storage {
            Storage::FusedGate => list.fused_matrix("ffn_up", hidden_size, &[("ffn_gate", size), ("ffn_up", size)]),
            Storage::Gated => self.projection("ffn_gate", [hidden_size, size], self.has_up_bias, list),
            Storage::Ungated => {}
        }
        if self.storage != Storage::FusedGate {
            self.projection("ffn_up", [hidden_size, size], self.has_up_bias, list);
        }
        if let Some(norm) = &self.hidden_norm {
            norm.tensors(HIDDEN_NORM, size, list);
        }
        self.projection("ffn_down", [size, hidden_size], self.has_down_bias, list);
    }

    fn projection(&self, stem: &str, [inputs, outputs]: [usize; 2], has_bias: bool, list: &mut TensorList) {
        list.matrix(stem, inputs, outputs);
        if has_bias {
            list.bias(stem, outputs);
        }
    }

    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        let hidden = if self.storage == Storage::Ungated {
            let up = builder.project("ffn_up", "ffn_up", x, self.has_up_bias)?;
            self.activation.build(builder, up)?
        } else {
            let gate = builder.project("ffn_gate", "ffn_gate", x, self.has_up_bias)?;
            let up = builder.project("ffn_up", "ffn_up", x, self.has_up_bias)?;
            self.activation.build_gated(builder, "ffn", gate, up)?
        };
        let hidden = match &self.hidden_norm {
            Some(norm) => norm.build(builder, HIDDEN_NORM, hidden, HIDDEN_NORM)?,
            None => hidden,
        };
        builder.project("ffn_out", "ffn_down", hidden, self.has_down_bias)
    }

    pub fn check(&self, diagnostics: &mut Diagnostics) {
        if let Some(norm) = &self.hidden_norm {
            norm.check(diagnostics);
        }
    }
}

impl Activation {
    fn build(self, builder: &mut Builder, x: ValueId) -> Built {
        match self {
            Activation::Silu => builder.node("ffn_silu", Unary::Silu, &[x]),
            Activation::Gelu => builder.node("ffn_gelu", Unary::Gelu, &[x]),
            Activation::GeluErf => builder.node("ffn_gelu", Unary::GeluErf, &[x]),
            Activation::Relu => builder.node("ffn_relu", Unary::Relu, &[x]),
            Activation::ReluSquared => relu_squared(builder, "ffn", x),
        }
    }

    /// `f(gate) * up`; the name of the node starts with `stem`.
    pub fn build_gated(self, builder: &mut Builder, stem: &str, gate: ValueId, up: ValueId) -> Built {
        if self == Activation::ReluSquared {
            let gate = relu_squared(builder, stem, gate)?;
            return builder.node(&format!("{stem}_gated"), Arithmetic::Mul, &[gate, up]);
        }
        let op = match self {
            Activation::Silu => Gated::Swiglu,
            Activation::Gelu => Gated::Geglu,
            Activation::GeluErf => Gated::GegluErf,
            Activation::Relu | Activation::ReluSquared => {
                unreachable!("no architecture has such a gate in one node")
            }
        };
        let kind = if self == Activation::Silu { "swiglu" } else { "geglu" };
        builder.node(&format!("{stem}_{kind}"), op, &[gate, up])
    }
}

/// `max(x, 0)^2`; the names of the nodes start with `stem`.
fn relu_squared(builder: &mut Builder, stem: &str, x: ValueId) -> Built {
    let positive = builder.node(&format!("{stem}_relu"), Unary::Relu, &[x])?;
    builder.node(&format!("{stem}_relu_sqr"), Unary::Sqr, &[positive])
}
