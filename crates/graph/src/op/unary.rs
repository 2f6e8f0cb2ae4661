use super::{Rule, exactly, expect, expect_activation};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y = f(x)` for each element; NaN where `f` has no value.
///
/// Input: `x` an activation. Output: its type. Formulas of activations are those of PyTorch.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Unary {
    /// `x^2`.
    Sqr,
    /// The square root.
    Sqrt,
    /// `e^x`.
    Exp,
    /// The natural logarithm; -inf at 0.
    Log,
    /// `sin x`, in radians.
    Sin,
    /// `cos x`, in radians.
    Cos,
    /// `-x`.
    Neg,
    /// `|x|`.
    Abs,
    /// 1 where `x > 0`, else 0.
    Step,
    /// `max(x, 0)`.
    Relu,
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2` (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x (1 + erf(x / sqrt 2)) / 2` (Hendrycks and Gimpel 2016).
    GeluErf,
    /// `x / (1 + e^(-1.702 x))` (Hendrycks and Gimpel 2016).
    GeluQuick,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    Hardsigmoid,
    /// `x min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    Hardswish,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `factor x + bias`.
    Scale {
        /// Multiplies.
        factor: f32,
        /// Is added.
        bias: f32,
    },
    /// `min(max(x, min), max)`.
    Clamp {
        /// The smallest result; may be -inf.
        #[serde(with = "crate::infinite")]
        min: f32,
        /// The largest result, not below `min`; may be inf.
        #[serde(with = "crate::infinite")]
        max: f32,
    },
    /// `x^exponent`; NaN for negative `x` and fractional exponents, 1 for the exponent 0.
    PowScalar {
        /// The power.
        exponent: f32,
    },
    /// `x` where positive, else `slope x`.
    LeakyRelu {
        /// Multiplies what is negative.
        slope: f32,
    },
    /// `x` where positive, else `alpha (e^x - 1)` (Clevert et al. 2015).
    Elu {
        /// Minus the limit at -inf.
        alpha: f32,
    },
}

impl Unary {
    /// The members without parameters, in the order of their names.
    pub const PLAIN: [Unary; 19] = [
        Unary::Sqr,
        Unary::Sqrt,
        Unary::Exp,
        Unary::Log,
        Unary::Sin,
        Unary::Cos,
        Unary::Neg,
        Unary::Abs,
        Unary::Step,
        Unary::Relu,
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluErf,
        Unary::GeluQuick,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Hardsigmoid,
        Unary::Hardswish,
        Unary::Softplus,
    ];

    fn expect_parameters(&self) -> Result<(), String> {
        let finite =
            |what: &str, value: f32| expect(value.is_finite(), || format!("{what} must be finite, not {value}"));
        match self {
            Unary::Scale { factor, bias } => finite("factor", *factor).and(finite("bias", *bias)),
            // A comparison with NaN is false.
            Unary::Clamp { min, max } => {
                expect(min <= max, || format!("min {min} must be a number not above max {max}"))
            }
            Unary::PowScalar { exponent } => finite("exponent", *exponent),
            Unary::LeakyRelu { slope } => finite("slope", *slope),
            Unary::Elu { alpha } => finite("alpha", *alpha),
            Unary::Sqr | Unary::Sqrt | Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos | Unary::Neg => Ok(()),
            Unary::Abs | Unary::Step | Unary::Relu | Unary::Silu | Unary::Gelu | Unary::GeluErf => Ok(()),
            Unary::GeluQuick | Unary::Sigmoid | Unary::Tanh | Unary::Hardsigmoid => Ok(()),
            Unary::Hardswish | Unary::Softplus => Ok(()),
        }
    }
}

impl Rule for Unary {
    const NAMES: &'static [&'static str] = &[
        "sqr",
        "sqrt",
        "exp",
        "log",
        "sin",
        "cos",
        "neg",
        "abs",
        "step",
        "relu",
        "silu",
        "gelu",
        "gelu_erf",
        "gelu_quick",
        "sigmoid",
        "tanh",
        "hardsigmoid",
        "hardswish",
        "softplus",
        "scale",
        "clamp",
        "pow_scalar",
        "leaky_relu",
        "elu",
    ];

    fn name(&self) -> &'static str {
        match self {
            Unary::Sqr => "sqr",
            Unary::Sqrt => "sqrt",
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Neg => "neg",
            Unary::Abs => "abs",
            Unary::Step => "step",
            Unary::Relu => "relu",
            Unary::Silu => "silu",
            Unary::Gelu => "gelu",
            Unary::GeluErf => "gelu_erf",
            Unary::GeluQuick => "gelu_quick",
            Unary::Sigmoid => "sigmoid",
            Unary::Tanh => "tanh",
            Unary::Hardsigmoid => "hardsigmoid",
            Unary::Hardswish => "hardswish",
            Unary::Softplus => "softplus",
            Unary::Scale { .. } => "scale",
            Unary::Clamp { .. } => "clamp",
            Unary::PowScalar { .. } => "pow_scalar",
            Unary::LeakyRelu { .. } => "leaky_relu",
            Unary::Elu { .. } => "elu",
        }
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect_activation("x", &x)?;
        self.expect_parameters()?;
        Ok(x)
    }

    fn cases() -> Vec<Case> {
        let members = Unary::PLAIN.into_iter().map(|member| (member, &SHAPES[..]));
        members.chain(PARAMETERS.into_iter().map(|member| (member, &FEW[..]))).flat_map(cases_of).collect()
    }
}

/// Parameters that take each branch.
const PARAMETERS: [Unary; 19] = [
    Unary::Scale { factor: 0.3, bias: 0.0 },
    Unary::Scale { factor: -2.0, bias: 1.7 },
    Unary::Scale { factor: 0.0, bias: -3.0 },
    Unary::Clamp { min: -1.0, max: 1.5 },
    Unary::Clamp { min: 0.25, max: 0.25 },
    Unary::Clamp { min: f32::NEG_INFINITY, max: 0.5 },
    Unary::Clamp { min: -0.5, max: f32::INFINITY },
    Unary::PowScalar { exponent: 0.0 },
    Unary::PowScalar { exponent: 0.5 },
    Unary::PowScalar { exponent: 2.0 },
    Unary::PowScalar { exponent: 3.0 },
    Unary::PowScalar { exponent: -1.0 },
    Unary::PowScalar { exponent: 2.7 },
    Unary::LeakyRelu { slope: 0.01 },
    Unary::LeakyRelu { slope: -0.5 },
    Unary::LeakyRelu { slope: 0.0 },
    Unary::Elu { alpha: 1.0 },
    Unary::Elu { alpha: 0.4 },
    Unary::Elu { alpha: -2.0 },
];

/// From one element to a layer.
const SHAPES: [&[usize]; 9] =
    [&[1], &[31], &[33], &[257, 3], &[64, 1, 5], &[7, 5, 3, 2], &[0, 3], &[1, 4097], &[2048, 64]];

/// Shapes for each of many parameters.
const FEW: [&[usize]; 5] = [&[33], &[257, 3], &[7, 5, 3, 2], &[0, 3], &[2048, 64]];

/// Ranges that take each branch and both ends of the function.
fn fills(member: Unary) -> [Fill; 3] {
    let all = [Fill::Normal(2.0), Fill::Uniform(-130.0, 130.0), Fill::Uniform(-1e-3, 1e-3)];
    match member {
        Unary::Sqr | Unary::Neg | Unary::Abs | Unary::Step | Unary::Relu => {
            [Fill::Normal(2.0), Fill::Normal(1e25), Fill::Integers(-1, 1)]
        }
        Unary::Sqrt | Unary::Log | Unary::PowScalar { .. } => {
            [Fill::Uniform(0.0, 50.0), Fill::Uniform(0.9, 1.1), Fill::Integers(-2, 2)]
        }
        Unary::Sin | Unary::Cos => [Fill::Normal(2.0), Fill::Uniform(-1e5, 1e5), Fill::Uniform(-1e-3, 1e-3)],
        Unary::Hardsigmoid | Unary::Hardswish => [Fill::Normal(2.0), Fill::Uniform(-5.0, 5.0), Fill::Integers(-4, 4)],
        Unary::Exp | Unary::Silu | Unary::Gelu | Unary::GeluErf | Unary::GeluQuick | Unary::Sigmoid => all,
        Unary::Tanh | Unary::Softplus | Unary::Scale { .. } | Unary::Clamp { .. } => all,
        Unary::LeakyRelu { .. } | Unary::Elu { .. } => all,
    }
}

/// Whether no result of small integers is rounded.
fn is_exact(member: Unary) -> bool {
    match member {
        Unary::Sqr | Unary::Neg | Unary::Abs | Unary::Step | Unary::Relu | Unary::Clamp { .. } => true,
        Unary::Scale { factor, bias } => factor.fract() == 0.0 && bias.fract() == 0.0,
        Unary::LeakyRelu { slope } => (2.0 * slope).fract() == 0.0,
        Unary::PowScalar { exponent } => exponent >= 0.0 && exponent.fract() == 0.0,
        Unary::Sqrt | Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos | Unary::Silu | Unary::Gelu => false,
        Unary::GeluErf | Unary::GeluQuick | Unary::Sigmoid | Unary::Tanh | Unary::Hardsigmoid => false,
        Unary::Hardswish | Unary::Softplus | Unary::Elu { .. } => false,
    }
}

fn cases_of((member, shapes): (Unary, &[&[usize]])) -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in shapes {
        let ty = TensorType::new(DType::F32, sizes);
        cases.extend(fills(member).map(|fill| Case::new(member, &[(ty, fill)])));
        if is_exact(member) {
            cases.push(Case::probe(member, &[(ty, Fill::Integers(-99, 99))]));
        }
    }
    for value in [0.0, -0.0] {
        cases.push(Case::new(member, &[(TensorType::new(DType::F32, &[3]), Fill::Constant(value))]));
    }
    cases
}
