//! Norms of the residual stream and of heads.

use crate::build::{Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::tensor::{TensorKind, TensorList};
use trueup_graph::ValueId;
use trueup_graph::op::{self, Arithmetic, NormRule, Reduce, Reduction, RmsNorm, Unary};

/// A norm with its weights.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Norm {
    pub kind: NormKind,
    /// Epsilon added to the mean of squares or to the variance.
    pub epsilon: f32,
}

/// A kind of norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NormKind {
    /// `w x / sqrt(mean(x^2) + epsilon)`.
    Rms,
    /// `w (x - mean) / sqrt(variance + epsilon) + b`, with the parts that the model has.
    Layer { has_weight: bool, has_bias: bool },
}

impl NormKind {
    /// A layer norm with weight and bias.
    pub const LAYER: NormKind = NormKind::Layer { has_weight: true, has_bias: true };
}

/// A norm, the name of its node and the stem of its tensors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct NamedNorm {
    pub norm: Norm,
    pub node: &'static str,
    pub tensor: &'static str,
}

impl NamedNorm {
    pub const fn new(norm: Norm, node: &'static str, tensor: &'static str) -> NamedNorm {
        NamedNorm { norm, node, tensor }
    }

    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        self.norm.build(builder, self.node, x, self.tensor)
    }
}

impl Norm {
    /// The GGUF key of its epsilon.
    pub fn epsilon_key(&self) -> &'static str {
        match self.kind {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer { .. } => "attention.layer_norm_epsilon",
        }
    }

    pub fn tensors(&self, stem: &str, size: usize, list: &mut TensorList) {
        self.tensors_of(stem, &[size], list);
    }

    /// Adds the weight and the bias that the norm has, with these sizes.
    pub fn tensors_of(&self, stem: &str, sizes: &[usize], list: &mut TensorList) {
        let (has_weight, has_bias) = self.parameters();
        if has_weight {
            list.add(stem, "weight", sizes, TensorKind::NormWeight);
        }
        if has_bias {
            list.add(stem, "bias", sizes, TensorKind::Bias);
        }
    }

    pub fn check(&self, diagnostics: &mut Diagnostics) {
        let epsilon = self.epsilon;
        if !(epsilon.is_finite() && epsilon > 0.0) {
            diagnostics.add(format!("norm epsilon: expected a finite number above 0, found {epsilon}"));
        }
    }

    fn parameters(&self) -> (bool, bool) {
        match self.kind {
            NormKind::Rms => (true, false),
            NormKind::Layer { has_weight, has_bias } => (has_weight, has_bias),
        }
    }

    /// The root mean square norm of each row of `x` `[size, rows, tokens]` with separate weights `[size, rows]`, which
    /// [`RmsNorm`] does not have; `node` names the result.
    pub fn build_each(&self, builder: &mut Builder, node: &str, x: ValueId, stem: &str) -> Built {
        let squares = builder.node(&format!("{node}_sqr"), Unary::Sqr, &[x])?;
        let mean = builder.node(&format!("{node}_mean"), Reduce { rule: Reduction::Mean }, &[squares])?;
        let bias = self.epsilon;
        let mean = builder.node(&format!("{node}_mean_eps"), Unary::Scale { factor: 1.0, bias }, &[mean])?;
        let root = builder.node(&format!("{node}_root"), Unary::Sqrt, &[mean])?;
        let plain = builder.node(&format!("{node}_plain"), Arithmetic::Div, &[x, root])?;
        let weight = builder.weight(stem, "weight");
        builder.node(node, Arithmetic::Mul, &[plain, weight])
    }

    /// The norm of each row of `x`; `node` names the result.
    pub fn build(&self, builder: &mut Builder, node: &str, x: ValueId, stem: &str) -> Built {
        let epsilon = self.epsilon;
        let NormKind::Layer { has_weight, has_bias } = self.kind else {
            let weight = builder.weight(stem, "weight");
            return builder.node(node, RmsNorm { epsilon }, &[x, weight]);
        };
        let rule = op::Norm { rule: NormRule::Layer, epsilon };
        if !has_weight && !has_bias {
            return builder.node(node, rule, &[x]);
        }
        let mut value = builder.node(&format!("{node}_plain"), rule, &[x])?;
        if has_weight {
            let name = if has_bias { format!("{node}_w") } else { node.to_owned() };
            let weight = builder.weight(stem, "weight");
            value = builder.node(&name, Arithmetic::Mul, &[value, weight])?;
        }
        if has_bias {
            let bias = builder.weight(stem, "bias");
            value = builder.node(node, Arithmetic::Add, &[value, bias])?;
        }
        Ok(value)
    }
}
