//! Activations and gated pairs: computed in f64 from the stored inputs, rounded once.
//!
//! | operator | formula |
//! |---|---|
//! | Silu | x / (1 + e^-x) |
//! | Gelu, GeluV2(1) | x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the page's form; a source of another project calls Gelu the erf form |
//! | GeluV2(0) | x/2 (1 + erf(x / sqrt 2)) |
//! | Hardswish, Hardsigmoid | x clamp(x + 3, 0, 6) / 6; clamp(x + 3, 0, 6) / 6 |
//! | SwiGlu | Silu(A) B of the halves A, B |
//! | GeGluV3 | Gelu(A) B, or A Gelu(B) |

use super::{
    Work,
    argument::{Scalar, Tensor},
    call::Call,
    elementwise::{Function, function, map},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{chip::Family, memory::Fault, status::Refusal};

const FLOATS: &str = "f16,f32,bf16";

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

fn gelu_erf(x: f64) -> f64 {
    // 1 + erf(a) = erfc(-a), which keeps its digits where erf is nearly -1.
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn hard_sigmoid(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

/// Max(x, 0) that keeps NaN.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

const fn float_function(kernel: &'static str, real: fn(f64) -> f64) -> Function {
    Function { kernel, pages: FLOATS, real, whole: None }
}

const SILU: Function = float_function("Swish", silu);
const GELU: Function = float_function("Gelu", gelu_tanh);
const RELU: Function =
    Function { kernel: "Relu", pages: "f32,f16,i8,i32,i64,bf16", real: relu, whole: Some(|x| x.max(0)) };
const SIGMOID: Function = float_function("Sigmoid", |x| 1.0 / (1.0 + (-x).exp()));
const TANH: Function =
    Function { kernel: "Tanh", pages: "f32,f16,b,u8,i8,i16,i32,i64,bf16", real: f64::tanh, whole: None };
const HARD_SWISH: Function = float_function("HardSwish", |x| x * hard_sigmoid(x));
const HARD_SIGMOID: Function = float_function("HardSigmoid", hard_sigmoid);

/// A function whose result has the input's type.
fn same_type(call: &mut Call, of: Function, x: Tensor, out: Tensor) -> Result<Work, Refusal> {
    let made = function(call, of, &x, Some(&out))?;
    call.type_is(&out, x.ty())?;
    Ok(made)
}

fn gelu_of_form(call: &mut Call, x: Tensor, approximate: i64, y: Tensor) -> Result<Work, Refusal> {
    call.require((0..=1).contains(&approximate), "approximate", || {
        format!("is {approximate}, 0 (erf) or 1 (tanh) is expected")
    })?;
    same_type(call, float_function("GeluV2", if approximate == 0 { gelu_erf } else { gelu_tanh }), x, y)
}

/// A function with numbers of the host in it.
fn with_numbers(
    call: &mut Call,
    kernel: &str,
    x: Tensor,
    out: Tensor,
    real: impl Fn(f64) -> f64 + Send + Sync + 'static,
) -> Result<Work, Refusal> {
    call.kernel(&x, kernel, FLOATS)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    let ty = x.ty();
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| map(stage, x, out, ty, &real, None))
}

fn leaky_relu(call: &mut Call, x: Tensor, slope: Scalar, out: Tensor) -> Result<Work, Refusal> {
    let slope = slope.value.real;
    with_numbers(call, "LeakyRelu", x, out, move |x| if x < 0.0 { x * slope } else { x })
}

fn elu(
    call: &mut Call,
    x: Tensor,
    alpha: Scalar,
    scale: Scalar,
    input_scale: Scalar,
    out: Tensor,
) -> Result<Work, Refusal> {
    let (alpha, scale, input_scale) = (alpha.value.real, scale.value.real, input_scale.value.real);
    with_numbers(
        call,
        "Elu",
        x,
        out,
        move |x| {
            if x > 0.0 { x * scale } else { (x * input_scale).exp_m1() * alpha * scale }
        },
    )
}

fn softplus(call: &mut Call, x: Tensor, beta: Scalar, threshold: Scalar, out: Tensor) -> Result<Work, Refusal> {
    let (beta, threshold) = (beta.value.real, threshold.value.real);
    call.require(beta != 0.0, "beta", || "is 0".to_owned())?;
    with_numbers(
        call,
        "SoftplusV2",
        x,
        out,
        move |x| if x * beta > threshold { x } else { (x * beta).exp().ln_1p() / beta },
    )
}

/// The shape of a half along an axis.
fn halved(call: &Call, x: &Tensor, axis: usize) -> Result<Vec<u64>, Refusal> {
    let mut shape = x.shape().to_vec();
    call.require(axis < shape.len() && shape[axis].is_multiple_of(2), x.argument, || {
        "has an odd size on the split axis".to_owned()
    })?;
    shape[axis] /= 2;
    Ok(shape)
}

fn swiglu(call: &mut Call, x: Tensor, dim: i64, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "SwiGlu", FLOATS)?;
    call.packed(&x)?;
    call.packed(&out)?;
    let axis = call.axis(&x, dim, "dim")?;
    let shape = halved(call, &x, axis)?;
    call.shape(&out, &shape)?;
    call.type_is(&out, x.ty())?;
    if call.chip.family == Family::Ascend310p {
        let bytes = x.ty().bytes(shape[axis]);
        call.require(bytes.is_multiple_of(64), "x", || {
            format!("has halves of {bytes} bytes, 310P needs multiples of 64")
        })?;
        call.require(x.view.count() > 0, "x", || "is empty, which 310P does not support".to_owned())?;
    }
    let (x, out) = (call.input(&x), call.output(&out));
    call.asks(1024);
    work(move |stage| {
        let (a, b) = halves(stage, x, axis)?;
        let values: Vec<f32> = a.iter().zip(b).map(|(&a, b)| (silu(a.into()) * f64::from(b)) as f32).collect();
        stage.write(out, &values)
    })
}

fn halves(stage: &Stage, x: Slot, axis: usize) -> Result<(Vec<f32>, Vec<f32>), Fault> {
    let view = stage.view(x);
    let half = view.shape[axis] / 2;
    Ok((stage.read_view(&view.part(axis, 0, half, 1))?, stage.read_view(&view.part(axis, half, half, 1))?))
}

fn geglu(
    call: &mut Call,
    x: Tensor,
    dim: i64,
    approximate: i64,
    activate_left: bool,
    out: Tensor,
    gelu: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "GeGluV2", FLOATS)?;
    call.require((0..=1).contains(&approximate), "approximate", || {
        format!("is {approximate}, 0 (erf) or 1 (tanh) is expected")
    })?;
    let axis = call.axis(&x, dim, "dim")?;
    let shape = halved(call, &x, axis)?;
    for target in [&out, &gelu] {
        call.shape(target, &shape)?;
        call.type_is(target, x.ty())?;
    }
    let ty = x.ty();
    let (x, out, gelu) = (call.input(&x), call.output(&out), call.output(&gelu));
    call.asks(1024);
    work(move |stage| {
        let (left, right) = halves(stage, x, axis)?;
        let (acting, other) = if activate_left { (left, right) } else { (right, left) };
        let form = if approximate == 0 { gelu_erf } else { gelu_tanh };
        let acted: Vec<f64> = acting.iter().map(|&value| form(value.into())).collect();
        stage.write(gelu, &acted.iter().map(|&value| value as f32).collect::<Vec<_>>())?;
        let values: Vec<f32> =
            acted.iter().zip(&other).map(|(acted, &other)| (acted * f64::from(other)) as f32).collect();
        super::elementwise::write_through(stage, out, values, ty)
    })
}

type C<'a> = &'a mut Call;

operators! {
    "Silu"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, SILU, x, out);
    "Gelu"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, GELU, x, out);
    "GeluV2"(x: Tensor, approximate: i64, y: Tensor) => gelu_of_form;
    "Relu"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, RELU, x, out);
    "InplaceRelu"(selfRef: Tensor) => |call: C, x: Tensor| function(call, RELU, &x, None);
    "LeakyRelu"(self_: Tensor, negativeSlope: Scalar, out: Tensor) => leaky_relu;
    "Sigmoid"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, SIGMOID, x, out);
    "Tanh"(self_: Tensor, out: Tensor) => |call: C, x: Tensor, out: Tensor| function(call, TANH, &x, Some(&out));
    "Hardswish"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, HARD_SWISH, x, out);
    "Hardsigmoid"(self_: Tensor, out: Tensor) => |call: C, x, out| same_type(call, HARD_SIGMOID, x, out);
    "Elu"(self_: Tensor, alpha: Scalar, scale: Scalar, inputScale: Scalar, out: Tensor) => elu;
    "Softplus"(self_: Tensor, beta: Scalar, threshold: Scalar, out: Tensor) => softplus;
    "SwiGlu"(x: Tensor, dim: i64, out: Tensor) => swiglu;
    "GeGluV3"(self_: Tensor, dim: i64, approximate: i64, activateLeft: bool, out: Tensor, outGelu: Tensor) => geglu;
}
