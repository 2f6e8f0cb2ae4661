//! Faults in the arithmetic itself: the node is computed here, wrongly, from the device's own inputs.

use super::bits::numbers;
use trueup_blocks::DType;
use trueup_graph::op::Unary;
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};

/// What is computed wrongly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ProductFault {
    F16,
    Half2,
    CentredNorm,
    SumOfAll,
    LateCap,
    Unchanged,
    Gelu,
}

/// An input's type and its bytes, laid out as in GGUF.
pub type Bytes = (TensorType, Vec<u8>);

impl ProductFault {
    /// Whether the inputs of the node mean what the fault is about.
    pub fn fits(self, graph: &Graph, node: &Node) -> bool {
        let is_tanh = |value: &ValueId| match graph.value(*value).origin {
            Origin::Node(place) => graph.nodes().get(place).is_some_and(|node| node.op == Op::Unary(Unary::Tanh)),
            _ => false,
        };
        self != ProductFault::LateCap || (node.inputs.len() == 2 && node.inputs.first().is_some_and(is_tanh))
    }

    /// What else the node needs, for a message.
    pub fn needs(self) -> &'static str {
        if self == ProductFault::LateCap { " of scores with a soft cap" } else { "" }
    }

    /// The wrong result.
    pub fn compute(self, op: &Op, inputs: &[Bytes]) -> Vec<f32> {
        match self {
            ProductFault::F16 => products(inputs, |w, x| sum_f16(w.iter().zip(x))),
            ProductFault::Half2 => products(inputs, |w, x| {
                let half = |odd: usize| sum_f16(w.iter().zip(x).skip(odd).step_by(2));
                half(0) + half(1)
            }),
            ProductFault::CentredNorm => centred_norm(op, inputs),
            ProductFault::SumOfAll => sum_of_all(op, inputs),
            ProductFault::LateCap => late_cap(op, inputs),
            ProductFault::Unchanged => values(&inputs[0]),
            ProductFault::Gelu => gated_by_gelu(inputs),
        }
    }
}

/// The values of a stored tensor.
fn values((ty, bytes): &Bytes) -> Vec<f32> {
    let mut values = vec![0.0; ty.shape.elements()];
    match ty.dtype.decoder() {
        Some(decoder) if ty.dtype != DType::F32 => (decoder.decode)(bytes, &mut values),
        Some(_) | None => values.copy_from_slice(&numbers(bytes)),
    }
    values
}

/// `y[m, t] = dot(w[:, m], x[:, t])` with the sum that is given.
fn products(inputs: &[Bytes], dot: impl Fn(&[f32], &[f32]) -> f32) -> Vec<f32> {
    let len = inputs[0].0.shape[0];
    let (w, x) = (values(&inputs[0]), values(&inputs[1]));
    x.chunks(len).flat_map(|x| w.chunks(len).map(|w| dot(w, x)).collect::<Vec<f32>>()).collect()
}

/// Products added one after the other, the sum rounded to f16 each time.
fn sum_f16<'a>(pairs: impl Iterator<Item = (&'a f32, &'a f32)>) -> f32 {
    pairs.fold(half::f16::ZERO, |sum, (w, x)| half::f16::from_f32(sum.to_f32() + w * x)).to_f32()
}

/// `(x - mean) / sqrt(variance + epsilon) * w`.
fn centred_norm(op: &Op, inputs: &[Bytes]) -> Vec<f32> {
    let epsilon = if let Op::RmsNorm(norm) = op { norm.epsilon } else { 0.0 };
    let (x, w) = (values(&inputs[0]), values(&inputs[1]));
    let row = |x: &[f32]| {
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (variance + epsilon).sqrt();
        x.iter().zip(&w).map(|(x, w)| (x - mean) * scale * w).collect::<Vec<f32>>()
    };
    x.chunks(w.len()).flat_map(row).collect()
}

/// Softmax whose sum takes masked positions as a score of the row's maximum less 10.
fn sum_of_all(op: &Op, inputs: &[Bytes]) -> Vec<f32> {
    let hidden = |scores: &[f32]| scores.iter().filter(|score| score.is_infinite()).count() as f32;
    soft_max(op, inputs, |scale, x, mask| scale * x + mask, |scores| hidden(scores) * (-10.0f32).exp())
}

/// Softmax of `cap tanh(score / cap + mask)`: the scale is the cap, `x` is `tanh(score / cap)`, and `tanh(-inf)` is -1.
fn late_cap(op: &Op, inputs: &[Bytes]) -> Vec<f32> {
    let capped = |scale: f32, x: f32, mask: f32| if mask == f32::NEG_INFINITY { -scale } else { scale * x + mask };
    soft_max(op, inputs, capped, |_| 0.0)
}

/// Softmax of scores made of the scale, `x` and the mask, with more in the sum of a row.
fn soft_max(op: &Op, inputs: &[Bytes], score: fn(f32, f32, f32) -> f32, more: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let scale = if let Op::SoftMax(soft_max) = op { soft_max.scale } else { 1.0 };
    let (x, mask) = (values(&inputs[0]), values(&inputs[1]));
    let [capacity, tokens, ..] = inputs[0].0.shape.sizes();
    let row = |(index, x): (usize, &[f32])| {
        let mask = &mask[index % tokens * capacity..][..capacity];
        let scores: Vec<f32> = x.iter().zip(mask).map(|(x, mask)| score(scale, *x, *mask)).collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum = more(&scores) + scores.iter().map(|score| (score - largest).exp()).sum::<f32>();
        scores.iter().map(|score| (score - largest).exp() / sum).collect::<Vec<f32>>()
    };
    x.chunks(capacity).enumerate().flat_map(row).collect()
}

/// `gelu(gate) * up`, by the tanh form.
fn gated_by_gelu(inputs: &[Bytes]) -> Vec<f32> {
    let gelu = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh());
    values(&inputs[0]).iter().zip(values(&inputs[1])).map(|(gate, up)| gelu(*gate) * up).collect()
}
