//! The dense feed-forward.
//!
//! ```text
//! gated     down(f(gate(x)) * up(x))          ungated     down(f(up(x)))
//! ```

use crate::build::{Builder, Built};
use crate::tensor::TensorList;
use trueup_graph::ValueId;
use trueup_graph::op::{Gated, Unary};

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
        builder.project("ffn_out", "ffn_down", hidden, self.has_down_bias)
    }
}

impl Activation {
    fn build(self, builder: &mut Builder, x: ValueId) -> Built {
        match self {
            Activation::Silu => builder.node("ffn_silu", Unary::Silu, &[x]),
            Activation::Gelu => builder.node("ffn_gelu", Unary::Gelu, &[x]),
            Activation::GeluErf => builder.node("ffn_gelu", Unary::GeluErf, &[x]),
            Activation::Relu => builder.node("ffn_relu", Unary::Relu, &[x]),
        }
    }

    /// `f(gate) * up`; the name of the node starts with `stem`.
    pub fn build_gated(self, builder: &mut Builder, stem: &str, gate: ValueId, up: ValueId) -> Built {
        let op = match self {
            Activation::Silu => Gated::Swiglu,
            Activation::Gelu => Gated::Geglu,
            Activation::GeluErf => Gated::GegluErf,
            Activation::Relu => unreachable!("no architecture has a gate with this function"),
        };
        let kind = if self == Activation::Silu { "swiglu" } else { "geglu" };
        builder.node(&format!("{stem}_{kind}"), op, &[gate, up])
    }
}
