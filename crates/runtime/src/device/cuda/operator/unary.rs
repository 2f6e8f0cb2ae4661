//! Functions of each element: a thread each.

use super::{Argument, Call, ELEMENTWISE, Grid, expect_f32};
use crate::profile::{Accumulator, Profile};
use trueup_graph::op::Unary;
use trueup_graph::{Op, TensorType};

/// Largest errors of the functions of f32, in units in the last place (CUDA C++ Programming Guide, mathematical
/// functions).
const EXP_ULP: f32 = 2.0;
const EXPM1_ULP: f32 = 1.0;
const ERFC_ULP: f32 = 4.0;
const LOG_ULP: f32 = 1.0;
const SIN_ULP: f32 = 2.0;
const TANH_ULP: f32 = 2.0;

pub fn profile(op: &Unary, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(declared(op))
}

/// How the kernels compute a function.
pub fn declared(op: &Unary) -> Profile {
    let function = |function_ulp| Profile { function_ulp, ..ELEMENTWISE };
    match op {
        Unary::Sqr | Unary::Sqrt | Unary::Neg | Unary::Abs | Unary::Step | Unary::Relu => ELEMENTWISE,
        Unary::Hardsigmoid | Unary::Hardswish | Unary::Scale { .. } | Unary::Clamp { .. } => ELEMENTWISE,
        Unary::LeakyRelu { .. } => ELEMENTWISE,
        // The logarithm behind it is more exact.
        Unary::Exp | Unary::Silu | Unary::Gelu | Unary::GeluQuick | Unary::Sigmoid | Unary::Softplus => {
            function(EXP_ULP)
        }
        Unary::Log => function(LOG_ULP),
        Unary::Sin | Unary::Cos => function(SIN_ULP),
        Unary::Tanh => function(TANH_ULP),
        Unary::GeluErf => function(ERFC_ULP),
        Unary::Elu { .. } => function(EXPM1_ULP),
        // In f64, rounded once.
        Unary::PowScalar { .. } => Profile { accumulator: Accumulator::F64, ..ELEMENTWISE },
    }
}

pub fn launch(op: &Unary, call: &mut Call) -> Result<(), String> {
    let mut arguments = vec![Argument::View(call.inputs[0].view), Argument::View(call.output.view)];
    arguments.extend(parameters(op).into_iter().flatten().map(Argument::Float));
    let grid = Grid::elements(call.output.ty.shape.elements())?;
    call.launch(&format!("{}_f32", Op::Unary(*op).name()), grid, &arguments)
}

/// What a function takes beside its element.
fn parameters(op: &Unary) -> [Option<f32>; 2] {
    match *op {
        Unary::Scale { factor, bias } => [Some(factor), Some(bias)],
        Unary::Clamp { min, max } => [Some(min), Some(max)],
        Unary::PowScalar { exponent } => [Some(exponent), None],
        Unary::LeakyRelu { slope } => [Some(slope), None],
        Unary::Elu { alpha } => [Some(alpha), None],
        Unary::Sqr | Unary::Sqrt | Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos | Unary::Neg => [None; 2],
        Unary::Abs | Unary::Step | Unary::Relu | Unary::Silu | Unary::Gelu | Unary::GeluErf => [None; 2],
        Unary::GeluQuick | Unary::Sigmoid | Unary::Tanh | Unary::Hardsigmoid => [None; 2],
        Unary::Hardswish | Unary::Softplus => [None; 2],
    }
}
