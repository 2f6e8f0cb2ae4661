//! Element by element: two operands that stretch to a common shape, or one.
//!
//! Two tensors meet in the promoted type (ABI 4.3). f16, bf16 and f32 are computed in f32 and rounded once to the
//! promoted type; an output of another type is a cast of that. Functions such as exp are computed in f64 and rounded: a
//! card may differ in the last bit. Division is true division: integers become f32.

use super::{
    Work,
    argument::{Scalar, Tensor},
    call::{Call, broadcast, sizes},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{
    element::{Form, Number, Type, through_bf16, through_f16},
    memory::Fault,
    object::ScalarObject,
    status::Refusal,
};

/// Types of the pages for arithmetic of two operands.
const ARITHMETIC: &str = "f32,f16,f64,i32,i64,i16,i8,u8,b,bf16";
/// Types of the pages for powers.
const POWERS: &str = "f32,f16,f64,i16,b,i32,i64,i8,u8,bf16";

/// What becomes of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Add,
    Subtract,
    Multiply,
    Divide,
    Maximum,
    Minimum,
    Power,
    Equal,
    Greater,
}

/// The arithmetic of one form; that of integers wraps.
pub trait Arithmetic: Number {
    /// The sum.
    fn add(self, other: Self) -> Self;
    /// The difference.
    fn subtract(self, other: Self) -> Self;
    /// The product.
    fn multiply(self, other: Self) -> Self;
    /// The quotient; of integers by 0 it is 0.
    fn divide(self, other: Self) -> Self;
    /// The power; of integers by a negative exponent it is 0.
    fn power(self, other: Self) -> Self;
}

macro_rules! float_arithmetic {
    ($float:ty) => {
        impl Arithmetic for $float {
            fn add(self, other: Self) -> Self {
                self + other
            }
            fn subtract(self, other: Self) -> Self {
                self - other
            }
            fn multiply(self, other: Self) -> Self {
                self * other
            }
            fn divide(self, other: Self) -> Self {
                self / other
            }
            fn power(self, other: Self) -> Self {
                f64::from(self).powf(f64::from(other)) as Self
            }
        }
    };
}

float_arithmetic!(f32);
float_arithmetic!(f64);

impl Arithmetic for i64 {
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn subtract(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn divide(self, other: Self) -> Self {
        self.checked_div(other).unwrap_or(0)
    }
    fn power(self, other: Self) -> Self {
        u32::try_from(other).map_or(0, |exponent| self.wrapping_pow(exponent))
    }
}

/// NaN wins over a number, as in the pages' examples of frameworks.
fn extreme<T: Number>(a: T, b: T, takes_b: bool) -> T {
    let nan = a.partial_cmp(&a).is_none();
    if nan || !(takes_b || b.partial_cmp(&b).is_none()) { a } else { b }
}

fn apply<T: Arithmetic>(rule: Rule, a: &mut [T], b: &[T]) {
    fn each<T: Copy>(a: &mut [T], b: &[T], rule: impl Fn(T, T) -> T) {
        for (a, &b) in a.iter_mut().zip(b) {
            *a = rule(*a, b);
        }
    }
    match rule {
        Rule::Add => each(a, b, T::add),
        Rule::Subtract => each(a, b, T::subtract),
        Rule::Multiply => each(a, b, T::multiply),
        Rule::Divide => each(a, b, T::divide),
        Rule::Power => each(a, b, T::power),
        Rule::Maximum => each(a, b, |a, b| extreme(a, b, b > a)),
        Rule::Minimum => each(a, b, |a, b| extreme(a, b, b < a)),
        Rule::Equal => each(a, b, |a, b| T::of_i64((a == b).into())),
        Rule::Greater => each(a, b, |a, b| T::of_i64((a > b).into())),
    }
}

/// An operand of the rule: a tensor, or a number for all elements.
#[derive(Clone, Copy)]
enum Source {
    Tensor(Slot),
    Number(ScalarObject),
}

fn number<T: Number>(scalar: ScalarObject, form: Form) -> T {
    if form == Form::Whole { T::of_i64(scalar.whole) } else { T::of_f64(scalar.real) }
}

/// One application of a rule.
#[derive(Clone)]
struct Plan {
    rule: Rule,
    a: Source,
    b: Source,
    alpha: Option<ScalarObject>,
    out: Slot,
    shape: Vec<u64>,
    meeting: Type,
}

impl Plan {
    fn read<T: Number>(&self, stage: &Stage, source: Source) -> Result<Vec<T>, Fault> {
        match source {
            Source::Tensor(slot) => stage.read_as(slot, &self.shape),
            Source::Number(scalar) => {
                let count = self.shape.iter().product::<u64>() as usize;
                Ok(vec![number(scalar, self.meeting.form()); count])
            }
        }
    }

    fn run_in<T: Arithmetic>(&self, stage: &Stage) -> Result<(), Fault> {
        let mut a: Vec<T> = self.read(stage, self.a)?;
        let mut b: Vec<T> = self.read(stage, self.b)?;
        if let Some(alpha) = self.alpha {
            let alpha: T = number(alpha, self.meeting.form());
            b.iter_mut().for_each(|b| *b = b.multiply(alpha));
        }
        apply(self.rule, &mut a, &b);
        write_through(stage, self.out, a, self.meeting)
    }

    fn run(&self, stage: &Stage) -> Result<(), Fault> {
        match self.meeting.form() {
            Form::Single => self.run_in::<f32>(stage),
            Form::Double => self.run_in::<f64>(stage),
            Form::Whole => self.run_in::<i64>(stage),
        }
    }
}

/// Writes results that are of a type by rule: an output of another type gets them after that type's rounding.
pub fn write_through<T: Number>(stage: &Stage, out: Slot, values: Vec<T>, ty: Type) -> Result<(), Fault> {
    let target = stage.view(out).ty;
    if ty == target || !matches!(ty, Type::F16 | Type::Bf16) {
        return stage.write(out, &values);
    }
    let mut rounded: Vec<f32> = values.iter().map(|value| value.f32()).collect();
    match ty {
        Type::F16 => through_f16(&mut rounded, stage.chip.f16_saturates),
        _ => through_bf16(&mut rounded),
    }
    stage.write(out, &rounded)
}

fn kernel_of(rule: Rule) -> &'static str {
    match rule {
        Rule::Add => "Add",
        Rule::Subtract => "Sub",
        Rule::Multiply => "Mul",
        Rule::Divide => "RealDiv",
        Rule::Maximum | Rule::Minimum => "Maximum",
        Rule::Power => "Pow",
        Rule::Equal => "Equal",
        Rule::Greater => "Greater",
    }
}

fn pages_of(rule: Rule) -> &'static str {
    match rule {
        Rule::Power => POWERS,
        Rule::Equal => "f64,f16,f32,bf16,i64,i32,i8,u8,b,i16,u32",
        Rule::Greater => "f64,bf16,f16,f32,i32,u32,i64,i16,u16,i8,u8,b",
        _ => ARITHMETIC,
    }
}

/// The type that a rule computes in, from the type that its operands meet in.
fn computed(rule: Rule, meeting: Type) -> Type {
    if rule == Rule::Divide && meeting.form() == Form::Whole { Type::F32 } else { meeting }
}

/// The type that comes out.
fn resulting(rule: Rule, meeting: Type) -> Type {
    if matches!(rule, Rule::Equal | Rule::Greater) { Type::Bool } else { meeting }
}

fn judge_alpha(call: &Call, alpha: Option<&Scalar>, meeting: Type) -> Result<(), Refusal> {
    let loses = alpha.is_some_and(|alpha| alpha.value.ty.is_float()) && meeting.form() == Form::Whole;
    call.require(!loses, "alpha", || format!("is a float, but the common type of the operands is {meeting}"))
}

fn tensors(
    call: &mut Call,
    rule: Rule,
    a: &Tensor,
    b: &Tensor,
    alpha: Option<Scalar>,
    out: Option<&Tensor>,
) -> Result<Work, Refusal> {
    call.kernel(a, kernel_of(rule), pages_of(rule))?;
    call.typed(b, pages_of(rule))?;
    let meeting = computed(rule, call.promoted(a, b)?);
    judge_alpha(call, alpha.as_ref(), meeting)?;
    let shape = broadcast(a.shape(), b.shape()).ok_or_else(|| {
        call.refusal(
            b.argument,
            format!(
                "has the shape {}, which cannot be broadcast with {} of {}",
                sizes(b.shape()),
                sizes(a.shape()),
                a.argument
            ),
        )
    })?;
    let target = out.unwrap_or(a);
    call.converts(resulting(rule, meeting), target)?;
    call.shape(target, &shape)?;
    let first = if out.is_some() { call.input(a) } else { call.in_place(a) };
    let second = call.input(b);
    let out = out.map_or(first, |out| call.output(out));
    let alpha = alpha.map(|alpha| alpha.value);
    let plan = Plan { rule, a: Source::Tensor(first), b: Source::Tensor(second), alpha, out, shape, meeting };
    work(move |stage| plan.run(stage))
}

fn with_scalar(
    call: &mut Call,
    rule: Rule,
    a: &Tensor,
    other: Scalar,
    alpha: Option<Scalar>,
    out: Option<&Tensor>,
) -> Result<Work, Refusal> {
    let kernel = if rule == Rule::Multiply { "Muls" } else { kernel_of(rule) };
    call.kernel(a, kernel, pages_of(rule))?;
    let meeting = computed(rule, a.ty().with_scalar(other.value.ty));
    judge_alpha(call, alpha.as_ref(), meeting)?;
    let target = out.unwrap_or(a);
    call.converts(resulting(rule, meeting), target)?;
    call.shape(target, a.shape())?;
    let first = if out.is_some() { call.input(a) } else { call.in_place(a) };
    let shape = a.shape().to_vec();
    let out = out.map_or(first, |out| call.output(out));
    let alpha = alpha.map(|alpha| alpha.value);
    let plan = Plan { rule, a: Source::Tensor(first), b: Source::Number(other.value), alpha, out, shape, meeting };
    work(move |stage| plan.run(stage))
}

fn power_by_scalar(call: &mut Call, a: Tensor, exponent: Scalar, out: Tensor) -> Result<Work, Refusal> {
    let whole = a.ty().with_scalar(exponent.value.ty).form() == Form::Whole;
    call.require(!whole || exponent.value.whole >= 0, "exponent", || "is negative for an integer".to_owned())?;
    let both_bool = a.ty() == Type::Bool && exponent.value.ty == Type::Bool;
    call.require(!both_bool, "exponent", || "is bool for a bool base".to_owned())?;
    with_scalar(call, Rule::Power, &a, exponent, None, Some(&out))
}

fn power_of_scalar(call: &mut Call, base: Scalar, exponent: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&exponent, "Pow", "f32,f16,f64,i16,i32,i64,i8,u8,bf16")?;
    let meeting = exponent.ty().with_scalar(base.value.ty);
    call.converts(meeting, &out)?;
    call.shape(&out, exponent.shape())?;
    let shape = exponent.shape().to_vec();
    let (b, out) = (call.input(&exponent), call.output(&out));
    let plan = Plan {
        rule: Rule::Power,
        a: Source::Number(base.value),
        b: Source::Tensor(b),
        alpha: None,
        out,
        shape,
        meeting,
    };
    work(move |stage| plan.run(stage))
}

/// A function of one number.
#[derive(Clone, Copy)]
pub struct Function {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Types of the pages.
    pub pages: &'static str,
    /// Of a float, in f64.
    pub real: fn(f64) -> f64,
    /// Of an integer; none where integers become f32 first.
    pub whole: Option<fn(i64) -> i64>,
}

/// Judges and makes the application of a function; in place without `out`.
pub fn function(call: &mut Call, of: Function, a: &Tensor, out: Option<&Tensor>) -> Result<Work, Refusal> {
    call.kernel(a, of.kernel, of.pages)?;
    let whole = of.whole.filter(|_| a.ty().form() == Form::Whole);
    let meeting = if a.ty().form() == Form::Whole && whole.is_none() { Type::F32 } else { a.ty() };
    let target = out.unwrap_or(a);
    call.converts(meeting, target)?;
    call.shape(target, a.shape())?;
    let source = if out.is_some() { call.input(a) } else { call.in_place(a) };
    let out = out.map_or(source, |out| call.output(out));
    work(move |stage| map(stage, source, out, meeting, of.real, whole))
}

/// Applies a function to all elements of an operand that count as `meeting`.
pub fn map(
    stage: &Stage,
    source: Slot,
    out: Slot,
    meeting: Type,
    real: impl Fn(f64) -> f64,
    whole: Option<fn(i64) -> i64>,
) -> Result<(), Fault> {
    match (meeting.form(), whole) {
        (Form::Whole, Some(whole)) => {
            let mut values: Vec<i64> = stage.read(source)?;
            values.iter_mut().for_each(|value| *value = whole(*value));
            stage.write(out, &values)
        }
        (Form::Double, _) => {
            let mut values: Vec<f64> = stage.read(source)?;
            values.iter_mut().for_each(|value| *value = real(*value));
            stage.write(out, &values)
        }
        _ => {
            let mut values: Vec<f32> = stage.read(source)?;
            values.iter_mut().for_each(|value| *value = real(f64::from(*value)) as f32);
            write_through(stage, out, values, meeting)
        }
    }
}

const EXP: Function = Function { kernel: "Exp", pages: "f32,f16,f64,b,i64,bf16", real: f64::exp, whole: None };
const LOG: Function =
    Function { kernel: "Log", pages: "b,i64,i32,i16,i8,u8,f32,f16,f64,bf16", real: f64::ln, whole: None };
const COS: Function =
    Function { kernel: "Cos", pages: "i8,i16,i32,i64,u8,b,f32,f16,f64,bf16", real: f64::cos, whole: None };
const SIN: Function =
    Function { kernel: "Sin", pages: "i8,i16,i32,i64,u8,b,f32,f16,f64,bf16", real: f64::sin, whole: None };
const SQRT: Function =
    Function { kernel: "Sqrt", pages: "f32,f16,bf16,f64,i32,i64,i16,i8,u8,b", real: f64::sqrt, whole: None };
const RSQRT: Function = Function {
    kernel: "Rsqrt",
    pages: "f32,f16,f64,u8,i8,i16,i32,i64,b,bf16",
    real: |x| x.sqrt().recip(),
    whole: None,
};
const NEG: Function =
    Function { kernel: "Neg", pages: "i8,i32,i64,f16,bf16,f32,f64", real: |x| -x, whole: Some(i64::wrapping_neg) };
const ABS: Function = Function {
    kernel: "Abs",
    pages: "f32,f16,f64,bf16,i8,i16,i32,i64,u8,b",
    real: f64::abs,
    whole: Some(i64::wrapping_abs),
};
const SIGN: Function =
    Function { kernel: "Sign", pages: "f32,f16,bf16,i32,i64,f64", real: sign, whole: Some(i64::signum) };
const RECIPROCAL: Function =
    Function { kernel: "Reciprocal", pages: "f64,f32,f16,bf16,i8,i16,i32,i64,u8,b", real: f64::recip, whole: None };

fn sign(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() { value } else { value.signum() }
}

fn logical_not(call: &mut Call, a: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&a, "LogicalNot", "b,u8,i8,i16,i32,i64,f32,f16,f64,bf16")?;
    call.typed(&out, "b,u8,i8,i16,i32,i64,f32,f16,f64,bf16")?;
    call.shape(&out, a.shape())?;
    let (a, out) = (call.input(&a), call.output(&out));
    work(move |stage| {
        let values: Vec<f64> = stage.read(a)?;
        let not: Vec<i64> = values.iter().map(|&value| i64::from(value == 0.0)).collect();
        stage.write(out, &not)
    })
}

fn clamp(
    call: &mut Call,
    a: &Tensor,
    low: Option<Scalar>,
    high: Option<Scalar>,
    out: Option<&Tensor>,
) -> Result<Work, Refusal> {
    call.kernel(a, "ClipByValueV2", "f16,f32,f64,i8,u8,i16,i32,i64,bf16")?;
    call.require(low.is_some() || high.is_some(), "clipValueMin", || "and clipValueMax are both null".to_owned())?;
    let target = out.unwrap_or(a);
    call.converts(a.ty(), target)?;
    call.shape(target, a.shape())?;
    // The limits are numbers of the result's type.
    let (ty, limits) = (target.ty(), (low.map(|low| low.value), high.map(|high| high.value)));
    let source = if out.is_some() { call.input(a) } else { call.in_place(a) };
    let out = out.map_or(source, |out| call.output(out));
    let real = move |x: f64| {
        let raised = limits.0.map_or(x, |low| if x < low.real { low.real } else { x });
        limits.1.map_or(raised, |high| if raised > high.real { high.real } else { raised })
    };
    work(move |stage| match ty.form() {
        Form::Whole => {
            let bounds = (limits.0.map_or(i64::MIN, |low| low.whole), limits.1.map_or(i64::MAX, |high| high.whole));
            let values: Vec<i64> = stage.read(source)?;
            stage.write(out, &values.iter().map(|value| *value.max(&bounds.0).min(&bounds.1)).collect::<Vec<_>>())
        }
        _ => map(stage, source, out, ty, real, None),
    })
}

fn at_threshold(call: &mut Call, a: Tensor, threshold: Scalar, value: Scalar) -> Result<Work, Refusal> {
    call.kernel(&a, "ThresholdV2", "bf16,f16,f32,i32,i8,u8,i16,i64")?;
    let ty = a.ty();
    let slot = call.in_place(&a);
    work(move |stage| {
        let real = |x: f64| if x <= threshold.value.real { value.value.real } else { x };
        if ty.form() != Form::Whole {
            return map(stage, slot, slot, ty, real, None);
        }
        let mut values: Vec<i64> = stage.read(slot)?;
        values.iter_mut().filter(|x| **x <= threshold.value.whole).for_each(|x| *x = value.value.whole);
        stage.write(slot, &values)
    })
}

fn masked_fill(call: &mut Call, a: Tensor, mask: Tensor, value: Scalar) -> Result<Work, Refusal> {
    call.kernel(&a, "MaskedFill", "b,i8,i32,i64,f32,f16,bf16")?;
    call.type_is(&mask, Type::Bool)?;
    let fits = broadcast(a.shape(), mask.shape()).is_some_and(|shape| shape == a.shape());
    call.require(fits, "mask", || {
        format!("has the shape {}, which cannot be broadcast to {}", sizes(mask.shape()), sizes(a.shape()))
    })?;
    let shape = a.shape().to_vec();
    let (a, mask) = (call.in_place(&a), call.input(&mask));
    work(move |stage| {
        let mask: Vec<i64> = stage.read_as(mask, &shape)?;
        match stage.view(a).ty {
            ty if ty.form() == Form::Whole && ty != Type::Bool => fill_where(stage, a, &mask, value.value.whole),
            _ => fill_where(stage, a, &mask, value.value.real),
        }
    })
}

fn fill_where<T: Number>(stage: &Stage, target: Slot, mask: &[i64], value: T) -> Result<(), Fault> {
    let mut values: Vec<T> = stage.read(target)?;
    values.iter_mut().zip(mask).filter(|(_, mask)| **mask != 0).for_each(|(x, _)| *x = value);
    stage.write(target, &values)
}

fn choose(call: &mut Call, condition: Tensor, a: Tensor, b: Tensor, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&condition, "SelectV2", "b")?;
    call.typed(&a, ARITHMETIC)?;
    call.typed(&b, ARITHMETIC)?;
    let meeting = call.promoted(&a, &b)?;
    let shape = broadcast(a.shape(), b.shape()).and_then(|shape| broadcast(&shape, condition.shape()));
    let shape = shape.ok_or_else(|| call.refusal("condition", "and the operands cannot be broadcast to one shape"))?;
    call.type_is(&out, meeting)?;
    call.shape(&out, &shape)?;
    let (condition, a, b, out) = (call.input(&condition), call.input(&a), call.input(&b), call.output(&out));
    work(move |stage| {
        let condition: Vec<i64> = stage.read_as(condition, &shape)?;
        if meeting.form() == Form::Whole {
            let (mut a, b): (Vec<i64>, Vec<i64>) = (stage.read_as(a, &shape)?, stage.read_as(b, &shape)?);
            condition
                .iter()
                .zip(a.iter_mut().zip(b))
                .filter(|(chosen, _)| **chosen == 0)
                .for_each(|(_, (a, b))| *a = b);
            return stage.write(out, &a);
        }
        let (mut a, b): (Vec<f64>, Vec<f64>) = (stage.read_as(a, &shape)?, stage.read_as(b, &shape)?);
        condition.iter().zip(a.iter_mut().zip(b)).filter(|(chosen, _)| **chosen == 0).for_each(|(_, (a, b))| *a = b);
        stage.write(out, &a)
    })
}

type C<'a> = &'a mut Call;

operators! {
    "Add"(self_: Tensor, other: Tensor, alpha: Scalar, out: Tensor) => |call: C, a: Tensor, b, alpha, out: Tensor| tensors(call, Rule::Add, &a, &b, Some(alpha), Some(&out));
    "InplaceAdd"(selfRef: Tensor, other: Tensor, alpha: Scalar) => |call: C, a: Tensor, b, alpha| tensors(call, Rule::Add, &a, &b, Some(alpha), None);
    "Adds"(self_: Tensor, other: Scalar, alpha: Scalar, out: Tensor) => |call: C, a: Tensor, b, alpha, out: Tensor| with_scalar(call, Rule::Add, &a, b, Some(alpha), Some(&out));
    "InplaceAdds"(selfRef: Tensor, other: Scalar, alpha: Scalar) => |call: C, a: Tensor, b, alpha| with_scalar(call, Rule::Add, &a, b, Some(alpha), None);
    "Sub"(self_: Tensor, other: Tensor, alpha: Scalar, out: Tensor) => |call: C, a: Tensor, b, alpha, out: Tensor| tensors(call, Rule::Subtract, &a, &b, Some(alpha), Some(&out));
    "InplaceSub"(selfRef: Tensor, other: Tensor, alpha: Scalar) => |call: C, a: Tensor, b, alpha| tensors(call, Rule::Subtract, &a, &b, Some(alpha), None);
    "Subs"(self_: Tensor, other: Scalar, alpha: Scalar, out: Tensor) => |call: C, a: Tensor, b, alpha, out: Tensor| with_scalar(call, Rule::Subtract, &a, b, Some(alpha), Some(&out));
    "InplaceSubs"(selfRef: Tensor, other: Scalar, alpha: Scalar) => |call: C, a: Tensor, b, alpha| with_scalar(call, Rule::Subtract, &a, b, Some(alpha), None);
    "Mul"(self_: Tensor, other: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Multiply, &a, &b, None, Some(&out));
    "InplaceMul"(selfRef: Tensor, other: Tensor) => |call: C, a: Tensor, b| tensors(call, Rule::Multiply, &a, &b, None, None);
    "Muls"(self_: Tensor, other: Scalar, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| with_scalar(call, Rule::Multiply, &a, b, None, Some(&out));
    "InplaceMuls"(selfRef: Tensor, other: Scalar) => |call: C, a: Tensor, b| with_scalar(call, Rule::Multiply, &a, b, None, None);
    "Div"(self_: Tensor, other: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Divide, &a, &b, None, Some(&out));
    "InplaceDiv"(selfRef: Tensor, other: Tensor) => |call: C, a: Tensor, b| tensors(call, Rule::Divide, &a, &b, None, None);
    "Divs"(self_: Tensor, other: Scalar, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| with_scalar(call, Rule::Divide, &a, b, None, Some(&out));
    "InplaceDivs"(selfRef: Tensor, other: Scalar) => |call: C, a: Tensor, b| with_scalar(call, Rule::Divide, &a, b, None, None);
    "Maximum"(self_: Tensor, other: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Maximum, &a, &b, None, Some(&out));
    "Minimum"(self_: Tensor, other: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Minimum, &a, &b, None, Some(&out));
    "PowTensorTensor"(self_: Tensor, exponent: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Power, &a, &b, None, Some(&out));
    "InplacePowTensorTensor"(selfRef: Tensor, exponent: Tensor) => |call: C, a: Tensor, b| tensors(call, Rule::Power, &a, &b, None, None);
    "PowTensorScalar"(self_: Tensor, exponent: Scalar, out: Tensor) => power_by_scalar;
    "PowScalarTensor"(base: Scalar, exponent: Tensor, out: Tensor) => power_of_scalar;
    "EqTensor"(self_: Tensor, other: Tensor, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| tensors(call, Rule::Equal, &a, &b, None, Some(&out));
    "GtScalar"(self_: Tensor, other: Scalar, out: Tensor) => |call: C, a: Tensor, b, out: Tensor| with_scalar(call, Rule::Greater, &a, b, None, Some(&out));
    "Exp"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, EXP, &a, Some(&out));
    "InplaceExp"(selfRef: Tensor) => |call: C, a: Tensor| function(call, EXP, &a, None);
    "Log"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, LOG, &a, Some(&out));
    "Cos"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, COS, &a, Some(&out));
    "InplaceCos"(selfRef: Tensor) => |call: C, a: Tensor| function(call, COS, &a, None);
    "Sin"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, SIN, &a, Some(&out));
    "InplaceSin"(selfRef: Tensor) => |call: C, a: Tensor| function(call, SIN, &a, None);
    "Sqrt"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, SQRT, &a, Some(&out));
    "Rsqrt"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, RSQRT, &a, Some(&out));
    "Neg"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, NEG, &a, Some(&out));
    "Abs"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, ABS, &a, Some(&out));
    "Sign"(self_: Tensor, result: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, SIGN, &a, Some(&out));
    "Reciprocal"(self_: Tensor, out: Tensor) => |call: C, a: Tensor, out: Tensor| function(call, RECIPROCAL, &a, Some(&out));
    "LogicalNot"(self_: Tensor, out: Tensor) => logical_not;
    "Clamp"(self_: Tensor, clipValueMin: Option<Scalar>, clipValueMax: Option<Scalar>, out: Tensor) => |call: C, a: Tensor, low, high, out: Tensor| clamp(call, &a, low, high, Some(&out));
    "ClampMin"(self_: Tensor, clipValueMin: Scalar, out: Tensor) => |call: C, a: Tensor, low, out: Tensor| clamp(call, &a, Some(low), None, Some(&out));
    "ClampMax"(self_: Tensor, clipValueMax: Scalar, out: Tensor) => |call: C, a: Tensor, high, out: Tensor| clamp(call, &a, None, Some(high), Some(&out));
    "InplaceClampMax"(selfRef: Tensor, clipValueMax: Scalar) => |call: C, a: Tensor, high| clamp(call, &a, None, Some(high), None);
    "InplaceThreshold"(selfRef: Tensor, threshold: Scalar, value: Scalar) => at_threshold;
    "InplaceMaskedFillScalar"(selfRef: Tensor, mask: Tensor, value: Scalar) => masked_fill;
    "SWhere"(condition: Tensor, self_: Tensor, other: Tensor, out: Tensor) => choose;
}
