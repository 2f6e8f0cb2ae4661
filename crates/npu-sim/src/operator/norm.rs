//! Norms and softmax: f32 inside, rounded once.
//!
//! | operator | formula, over the normed axes |
//! |---|---|
//! | RmsNorm | y = x rstd gamma, rstd = 1 / sqrt(mean(x^2) + eps) |
//! | AddRmsNorm | the same of x = x1 + x2, rounded to the inputs' type |
//! | LayerNorm, GroupNorm | y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(mean((x - mean)^2) + eps) |
//! | Norm | (sum abs(x)^p)^(1/p); p infinite: the largest |
//! | Softmax, LogSoftmax | e^(x - max) / sum of it; x - max - ln(sum) |

use super::{
    Work,
    argument::{Ints, Scalar, Tensor},
    call::{Call, sizes},
    elementwise::write_through,
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{
    chip::Family,
    element::{Form, Type},
    memory::Fault,
    status::Refusal,
    view::View,
};

const FLOATS: &str = "f32,f16,bf16";

/// The reciprocal root of a mean square, as f32.
fn reciprocal_root(mean: f32, epsilon: f64) -> f32 {
    1.0 / (mean + epsilon as f32).sqrt()
}

fn mean_square(stage: &Stage, row: &[f32], spare: &mut Vec<f32>) -> f32 {
    spare.clear();
    spare.extend(row.iter().map(|x| x * x));
    stage.sum(spare) / row.len() as f32
}

/// The rules of RmsNorm for gamma and the reciprocal roots; gives the length of a row.
fn judge_rms(call: &Call, x: &Tensor, gamma: &Tensor, y: &Tensor, rstd: &Tensor) -> Result<usize, Refusal> {
    call.rank(x, 1..=8)?;
    call.plain(gamma)?;
    call.type_is(y, x.ty())?;
    call.shape(y, x.shape())?;
    let mixed = gamma.ty() != x.ty();
    let may_mix = gamma.ty() == Type::F32 && call.chip.is_c220();
    call.require(!mixed || may_mix, "gamma", || format!("is {} for x of {}", gamma.ty(), x.ty()))?;
    let outer = x.rank().saturating_sub(gamma.rank());
    let trailing = gamma.rank() >= 1 && gamma.rank() <= x.rank() && x.shape()[outer..] == *gamma.shape();
    call.require(trailing, "gamma", || {
        format!("has the shape {}, trailing sizes of {} are expected", sizes(gamma.shape()), sizes(x.shape()))
    })?;
    call.type_is(rstd, Type::F32)?;
    let normed: Vec<u64> =
        x.shape().iter().enumerate().map(|(axis, &size)| if axis < outer { size } else { 1 }).collect();
    call.shape(rstd, &normed)?;
    if call.chip.family == Family::Ascend310p {
        let bytes = x.ty().bytes(x.view.last());
        call.require(bytes >= 32, "x", || format!("has a last axis of {bytes} bytes, 310P needs at least 32"))?;
    }
    Ok(gamma.view.count() as usize)
}

/// Rows of x become rows of y; gives the reciprocal roots.
fn rms_rows(stage: &Stage, x: &mut [f32], gamma: &[f32], epsilon: f64) -> Vec<f32> {
    let mut spare = Vec::new();
    let mut roots = Vec::new();
    for row in x.chunks_mut(gamma.len().max(1)) {
        let root = reciprocal_root(mean_square(stage, row, &mut spare), epsilon);
        row.iter_mut().zip(gamma).for_each(|(x, gamma)| *x = *x * root * gamma);
        roots.push(root);
    }
    roots
}

fn rms_norm(call: &mut Call, x: Tensor, gamma: Tensor, epsilon: f64, y: Tensor, rstd: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "RmsNorm", FLOATS)?;
    judge_rms(call, &x, &gamma, &y, &rstd)?;
    let strict = call.chip.family == Family::Ascend310p;
    call.asks(1024);
    call.traps = strict;
    let (x, gamma, y, rstd) = (call.input(&x), call.input(&gamma), call.output(&y), call.output(&rstd));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        if strict && values.iter().any(|value| !value.is_finite()) {
            let fault = stage.trap(x, "contains Inf or NaN, which 310P does not support");
            return Err(Fault { code: crate::status::VECTOR_CORE_EXCEPTION, ..fault });
        }
        let gamma: Vec<f32> = stage.read(gamma)?;
        let roots = rms_rows(stage, &mut values, &gamma, epsilon);
        stage.write(y, &values)?;
        stage.write(rstd, &roots)
    })
}

#[allow(clippy::too_many_arguments)]
fn add_rms_norm(
    call: &mut Call,
    x1: Tensor,
    x2: Tensor,
    gamma: Tensor,
    epsilon: f64,
    y: Tensor,
    rstd: Tensor,
    sum: Option<Tensor>,
) -> Result<Work, Refusal> {
    call.kernel(&x1, "AddRmsNorm", FLOATS)?;
    call.type_is(&x2, x1.ty())?;
    call.type_is(&gamma, x1.ty())?;
    call.shape(&x2, x1.shape())?;
    judge_rms(call, &x1, &gamma, &y, &rstd)?;
    if let Some(sum) = &sum {
        call.type_is(sum, x1.ty())?;
        call.shape(sum, x1.shape())?;
    }
    call.asks(1024);
    let ty = x1.ty();
    let (x1, x2, gamma) = (call.input(&x1), call.input(&x2), call.input(&gamma));
    let (y, rstd, sum) = (call.output(&y), call.output(&rstd), sum.map(|sum| call.output(&sum)));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x1)?;
        let other: Vec<f32> = stage.read(x2)?;
        values.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        super::stage::round_to(&mut values, ty, stage.chip);
        if let Some(sum) = sum {
            stage.write(sum, &values)?;
        }
        let gamma: Vec<f32> = stage.read(gamma)?;
        let roots = rms_rows(stage, &mut values, &gamma, epsilon);
        stage.write(y, &values)?;
        stage.write(rstd, &roots)
    })
}

/// Mean and reciprocal root of a row.
fn moments(stage: &Stage, row: &[f32], epsilon: f64, spare: &mut Vec<f32>) -> (f32, f32) {
    let mean = stage.sum(row) / row.len() as f32;
    spare.clear();
    spare.extend(row.iter().map(|x| (x - mean) * (x - mean)));
    (mean, reciprocal_root(stage.sum(spare) / row.len() as f32, epsilon))
}

/// The optional results and the affine part of a norm by mean.
#[derive(Clone, Copy)]
struct MeanNorm {
    x: Slot,
    gamma: Option<Slot>,
    beta: Option<Slot>,
    out: Slot,
    mean: Option<Slot>,
    rstd: Option<Slot>,
    epsilon: f64,
}

impl MeanNorm {
    /// Rows of `length`; `channel` gives the place of an element (row, index in the row) in gamma and beta.
    fn run(&self, stage: &Stage, length: usize, channel: impl Fn(usize, usize) -> usize) -> Result<(), Fault> {
        let optional = |slot: Option<Slot>| slot.map(|slot| stage.read::<f32>(slot)).transpose();
        let mut values: Vec<f32> = stage.read(self.x)?;
        let (gamma, beta) = (optional(self.gamma)?, optional(self.beta)?);
        let (mut means, mut roots, mut spare) = (Vec::new(), Vec::new(), Vec::new());
        for (number, row) in values.chunks_mut(length.max(1)).enumerate() {
            let (mean, root) = moments(stage, row, self.epsilon, &mut spare);
            for (index, x) in row.iter_mut().enumerate() {
                let place = channel(number, index);
                let scaled = (*x - mean) * root * gamma.as_ref().map_or(1.0, |gamma| gamma[place]);
                *x = scaled + beta.as_ref().map_or(0.0, |beta| beta[place]);
            }
            means.push(mean);
            roots.push(root);
        }
        stage.write(self.out, &values)?;
        self.mean.map_or(Ok(()), |mean| stage.write(mean, &means))?;
        self.rstd.map_or(Ok(()), |rstd| stage.write(rstd, &roots))
    }
}

#[allow(clippy::too_many_arguments)]
fn layer_norm(
    call: &mut Call,
    x: Tensor,
    normalized: Ints,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    epsilon: f64,
    out: Tensor,
    mean: Option<Tensor>,
    rstd: Option<Tensor>,
) -> Result<Work, Refusal> {
    call.kernel(&x, "LayerNormV3", FLOATS)?;
    call.rank(&x, 1..=8)?;
    let outer = x.rank().saturating_sub(normalized.len());
    let trailing = (1..=x.rank()).contains(&normalized.len())
        && x.shape()[outer..].iter().zip(&normalized).all(|(&a, &b)| a as i64 == b);
    call.require(trailing, "normalizedShape", || {
        format!("is {normalized:?}, trailing sizes of {} are expected", sizes(x.shape()))
    })?;
    for part in [&weight, &bias].into_iter().flatten() {
        call.typed(part, FLOATS)?;
        call.shape(part, &x.shape()[outer..])?;
        let fits = part.ty() == x.ty() || part.ty() == Type::F32;
        call.require(fits, part.argument, || format!("is {} for an input of {}", part.ty(), x.ty()))?;
    }
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    let normed: Vec<u64> =
        x.shape().iter().enumerate().map(|(axis, &size)| if axis < outer { size } else { 1 }).collect();
    for part in [&mean, &rstd].into_iter().flatten() {
        call.type_is(part, x.ty())?;
        call.shape(part, &normed)?;
    }
    call.asks(1024);
    let length = x.shape()[outer..].iter().product::<u64>() as usize;
    let norm = MeanNorm {
        x: call.input(&x),
        gamma: call.optional(weight.as_ref()),
        beta: call.optional(bias.as_ref()),
        out: call.output(&out),
        mean: mean.map(|mean| call.output(&mean)),
        rstd: rstd.map(|rstd| call.output(&rstd)),
        epsilon,
    };
    work(move |stage| norm.run(stage, length, |_, index| index))
}

#[allow(clippy::too_many_arguments)]
fn group_norm(
    call: &mut Call,
    x: Tensor,
    gamma: Option<Tensor>,
    beta: Option<Tensor>,
    batches: i64,
    channels: i64,
    pixels: i64,
    groups: i64,
    epsilon: f64,
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "GroupNorm", FLOATS)?;
    call.rank(&x, 2..=8)?;
    let positive = [batches, channels, pixels, groups].iter().all(|&size| (1..1 << 40).contains(&size));
    call.require(positive, "N, C, HxW or group", || "is not positive".to_owned())?;
    let count = batches.checked_mul(channels).and_then(|count| count.checked_mul(pixels));
    let fits =
        count == Some(x.view.count() as i64) && x.shape()[0] == batches as u64 && x.shape()[1] == channels as u64;
    call.require(fits, "self", || {
        format!("has the shape {}, expected N {batches}, C {channels}, HxW {pixels}", sizes(x.shape()))
    })?;
    call.require(channels % groups == 0, "group", || format!("is {groups}, which does not divide C {channels}"))?;
    call.require(epsilon > 0.0, "eps", || format!("is {epsilon}, more than 0 is expected"))?;
    for part in [&gamma, &beta].into_iter().flatten() {
        call.type_is(part, x.ty())?;
        call.shape(part, &[channels as u64])?;
    }
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    for part in [&mean, &rstd] {
        call.type_is(part, x.ty())?;
        call.shape(part, &[batches as u64, groups as u64])?;
    }
    call.asks(1024);
    let (in_group, pixels, groups) = ((channels / groups) as usize, pixels as usize, groups as usize);
    let norm = MeanNorm {
        x: call.input(&x),
        gamma: call.optional(gamma.as_ref()),
        beta: call.optional(beta.as_ref()),
        out: call.output(&out),
        mean: Some(call.output(&mean)),
        rstd: Some(call.output(&rstd)),
        epsilon,
    };
    work(move |stage| norm.run(stage, in_group * pixels, |row, index| row % groups * in_group + index / pixels))
}

/// The shape without some axes, or with them as ones.
pub fn reduced(shape: &[u64], axes: &[usize], keep: bool) -> Vec<u64> {
    let sizes = shape.iter().enumerate();
    sizes
        .filter(|(axis, _)| keep || !axes.contains(axis))
        .map(|(axis, &size)| if axes.contains(&axis) { 1 } else { size })
        .collect()
}

/// The view with some axes moved to the end.
pub fn axes_last(view: &View, axes: &[usize]) -> View {
    let mut order: Vec<usize> = (0..view.rank()).filter(|axis| !axes.contains(axis)).collect();
    order.extend(axes);
    view.permuted(&order)
}

fn norm(call: &mut Call, x: Tensor, p: Scalar, dims: Ints, keep: bool, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "LpNormV2", FLOATS)?;
    let mut axes = call.axes(&x, &dims, "dim")?;
    if axes.is_empty() {
        axes = (0..x.rank()).collect();
    }
    call.typed(&out, FLOATS)?;
    call.shape(&out, &reduced(x.shape(), &axes, keep))?;
    let p = p.value.real;
    let length = axes.iter().map(|&axis| x.shape()[axis]).product::<u64>() as usize;
    call.asks(1024);
    let (ty, source, out) = (x.ty(), call.input(&x), call.output(&out));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read_view(&axes_last(stage.view(source), &axes))?;
        values.iter_mut().for_each(|x| *x = if p == 2.0 { *x * *x } else { x.abs() });
        let of_row = |row: &[f32]| {
            if p.is_infinite() {
                return row.iter().fold(if p > 0.0 { 0.0 } else { f32::INFINITY }, |best, &x| {
                    if p > 0.0 { best.max(x) } else { best.min(x) }
                });
            }
            if p == 2.0 {
                return stage.sum(row).sqrt();
            }
            if p == 0.0 {
                return row.iter().filter(|&&x| x != 0.0).count() as f32;
            }
            let powers: Vec<f32> = row.iter().map(|&x| f64::from(x).powf(p) as f32).collect();
            f64::from(stage.sum(&powers)).powf(1.0 / p) as f32
        };
        let count = stage.view(out).count() as usize;
        let norms = if length == 0 { vec![0.0; count] } else { values.chunks(length).map(of_row).collect() };
        write_through(stage, out, norms, ty)
    })
}

fn softmax_row(stage: &Stage, row: &mut [f64], logarithm: bool, spare: &mut Vec<f32>) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponent = |x: f64| (x - largest).exp();
    spare.clear();
    spare.extend(row.iter().map(|&x| exponent(x) as f32));
    let sum = f64::from(stage.sum(spare));
    row.iter_mut().for_each(|x| *x = if logarithm { *x - largest - sum.ln() } else { exponent(*x) / sum });
}

/// Softmax with its sum in f64, for f64.
fn softmax_row_double(row: &mut [f64], logarithm: bool) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
    row.iter_mut().for_each(|x| *x = if logarithm { *x - largest - sum.ln() } else { (*x - largest).exp() / sum });
}

fn softmax(call: &mut Call, x: Tensor, dim: i64, out: Tensor, logarithm: bool) -> Result<Work, Refusal> {
    call.kernel(&x, "SoftmaxV2", "f16,f32,f64,bf16")?;
    let axis = call.axis(&x, dim, "dim")?;
    call.converts(x.ty(), &out)?;
    call.shape(&out, x.shape())?;
    let axes: Vec<usize> = if x.rank() == 0 { Vec::new() } else { vec![axis] };
    let length = axes.first().map_or(1, |&axis| x.shape()[axis]) as usize;
    let double = x.ty().form() == Form::Double;
    call.asks(4096);
    let (ty, source, out) = (x.ty(), call.input(&x), call.output(&out));
    work(move |stage| {
        let mut values: Vec<f64> = match double {
            true => stage.read_view(&axes_last(stage.view(source), &axes))?,
            false => {
                stage.read_view::<f32>(&axes_last(stage.view(source), &axes))?.into_iter().map(f64::from).collect()
            }
        };
        let mut spare = Vec::new();
        for row in values.chunks_mut(length.max(1)) {
            if double { softmax_row_double(row, logarithm) } else { softmax_row(stage, row, logarithm, &mut spare) }
        }
        if !double {
            super::stage::round_doubles(&mut values, ty, stage.chip);
        }
        stage.write_view(&axes_last(stage.view(out), &axes), &values)
    })
}

fn cross_entropy(
    call: &mut Call,
    features: Tensor,
    labels: Tensor,
    loss: Tensor,
    backprop: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&features, "SoftmaxCrossEntropyWithLogits", FLOATS)?;
    call.rank(&features, 2..=2)?;
    call.type_is(&labels, features.ty())?;
    call.shape(&labels, features.shape())?;
    call.type_is(&loss, features.ty())?;
    call.shape(&loss, &features.shape()[..1])?;
    call.type_is(&backprop, features.ty())?;
    call.shape(&backprop, features.shape())?;
    call.asks(1024);
    let columns = features.shape()[1] as usize;
    let (features, labels, loss, backprop) =
        (call.input(&features), call.input(&labels), call.output(&loss), call.output(&backprop));
    work(move |stage| {
        let mut x: Vec<f64> = stage.read::<f32>(features)?.into_iter().map(f64::from).collect();
        let labels: Vec<f32> = stage.read(labels)?;
        let mut losses = vec![0f32; stage.view(loss).count() as usize];
        let mut spare = Vec::new();
        for ((row, labels), loss) in x.chunks_mut(columns.max(1)).zip(labels.chunks(columns.max(1))).zip(&mut losses) {
            softmax_row(stage, row, true, &mut spare);
            *loss = -row.iter().zip(labels).map(|(x, &label)| x * f64::from(label)).sum::<f64>() as f32;
            row.iter_mut().zip(labels).for_each(|(x, &label)| *x = x.exp() - f64::from(label));
        }
        stage.write(loss, &losses)?;
        stage.write(backprop, &x)
    })
}

type C<'a> = &'a mut Call;

operators! {
    "RmsNorm"(x: Tensor, gamma: Tensor, epsilon: f64, yOut: Tensor, rstdOut: Tensor) => rms_norm;
    "AddRmsNorm"(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: f64, yOut: Tensor, rstdOut: Tensor, xOut: Option<Tensor>) => add_rms_norm;
    "LayerNorm"(input: Tensor, normalizedShape: Ints, weightOptional: Option<Tensor>, biasOptional: Option<Tensor>, eps: f64, out: Tensor, meanOutOptional: Option<Tensor>, rstdOutOptional: Option<Tensor>) => layer_norm;
    "GroupNorm"(self_: Tensor, gamma: Option<Tensor>, beta: Option<Tensor>, N: i64, C: i64, HxW: i64, group: i64, eps: f64, out: Tensor, meanOut: Tensor, rstdOut: Tensor) => group_norm;
    "Norm"(self_: Tensor, pScalar: Scalar, dim: Ints, keepdim: bool, out: Tensor) => norm;
    "Softmax"(self_: Tensor, dim: i64, out: Tensor) => |call: C, x, dim, out| softmax(call, x, dim, out, false);
    "LogSoftmax"(self_: Tensor, dim: i64, out: Tensor) => |call: C, x, dim, out| softmax(call, x, dim, out, true);
    "SoftmaxCrossEntropyWithLogits"(features: Tensor, labels: Tensor, loss: Tensor, backprop: Tensor) => cross_entropy;
}
