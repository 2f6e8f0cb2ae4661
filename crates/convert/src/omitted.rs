//! Tensors of a checkpoint that a file does not have, because something else stands for them: each is compared with it.
//!
//! ```text
//! lm_head.weight, tied    the embedding: equal values are omitted, others are kept as the head
//! rotary_emb.inv_freq     what the model's numbers give
//! attn.causal_mask        ones up to the diagonal; in other classes attn.bias
//! attn.masked_bias        a score far below all others
//! ```

use crate::check::Agreement;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::{Checkpoint, Result, TensorInfo};
use trueup_graph::op::RopeScaling;
use trueup_models::ModelSpec;
use trueup_quantize::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, decode_exact};

/// A tensor that the file does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OmittedTensor {
    /// Its number in the checkpoint.
    pub source: usize,
    /// What stands for it.
    pub stand_in: StandIn,
}

/// What stands for an omitted tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandIn {
    /// The embedding, which has the same values.
    Embedding,
    /// The frequencies of the rotation, computed from the model's numbers.
    Frequencies,
    /// The causal mask.
    CausalMask,
    /// The score of positions that the causal mask hides.
    HiddenScore,
    /// Nothing: no result of the model depends on the tensor, which is this part.
    Nothing(&'static str),
}

impl StandIn {
    /// What stands for a tensor whose name is that of a computed one; `None` if its shape is not.
    pub fn of_tensor(tensor: &TensorInfo) -> Option<StandIn> {
        let is_square = matches!(tensor.shape.as_slice(), [size, rows, ..] if size == rows);
        match tensor.name.as_str() {
            name if name.ends_with("causal_mask") => Some(StandIn::CausalMask),
            name if name.ends_with(".masked_bias") => (tensor.elements() == 1).then_some(StandIn::HiddenScore),
            name if name.ends_with(".bias") => is_square.then_some(StandIn::CausalMask),
            _ => Some(StandIn::Frequencies),
        }
    }

    /// Whether its values are computed from the model's numbers.
    pub fn is_computed(self) -> bool {
        matches!(self, StandIn::Frequencies | StandIn::CausalMask | StandIn::HiddenScore)
    }

    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            StandIn::Embedding => "token_embd.weight",
            StandIn::Frequencies => "(computed frequencies)",
            StandIn::CausalMask => "(causal mask)",
            StandIn::HiddenScore => "(score of masked positions)",
            StandIn::Nothing(_) => "(unused)",
        }
    }
}

/// The first element in which two tensors of a checkpoint differ; `None` when all values are equal. Tensors of other
/// shapes differ in their first element.
pub(crate) fn first_difference(source: &dyn Checkpoint, a: usize, b: usize) -> Result<Option<u64>> {
    let (first, second) = (&source.tensors()[a], &source.tensors()[b]);
    let is_known = |info: &TensorInfo| info.dtype.is_float();
    if first.shape != second.shape || !is_known(first) || !is_known(second) {
        return Ok(Some(0));
    }
    let read = |number: usize, info: &TensorInfo, elements: &std::ops::Range<u64>| -> Result<Vec<u8>> {
        let mut bytes = vec![0; bytes_of(elements.end - elements.start, info.dtype) as usize];
        source.read(number, bytes_of(elements.start, info.dtype), &mut bytes)?;
        Ok(bytes)
    };
    for elements in chunk_ranges(first.elements(), CHUNK_ELEMENTS) {
        let (a_bytes, b_bytes) = (read(a, first, &elements)?, read(b, second, &elements)?);
        if first.dtype == second.dtype && a_bytes == b_bytes {
            continue;
        }
        let (a_values, b_values) = (decode_exact(first.dtype, &a_bytes), decode_exact(second.dtype, &b_bytes));
        let differs = |(a, b): (&f64, &f64)| a != b && !(a.is_nan() && b.is_nan());
        if let Some(place) = a_values.iter().zip(&b_values).position(differs) {
            return Ok(Some(elements.start + place as u64));
        }
    }
    Ok(None)
}

/// Whether a tensor that is computed anyway has the values that are computed.
///
/// # Errors
/// I/O.
pub(crate) fn computed_agreement(
    source: &dyn Checkpoint,
    spec: &ModelSpec,
    omitted: OmittedTensor,
) -> Result<Agreement> {
    let info = &source.tensors()[omitted.source];
    let wrong = Agreement::Wrong { elements: info.elements() };
    let expected = match omitted.stand_in {
        StandIn::Embedding | StandIn::Nothing(_) => {
            unreachable!("a copy of the embedding is compared with the file, and an unused tensor with nothing")
        }
        StandIn::CausalMask => match info.shape.as_slice() {
            [size, rows, ..] if size == rows && info.elements() <= MASK_ELEMENTS_MAX => mask(*size, info.elements()),
            _ => return Ok(wrong),
        },
        StandIn::HiddenScore if info.elements() == 1 && info.dtype.is_float() => {
            let mut bytes = vec![0; info.bytes as usize];
            source.read(omitted.source, 0, &mut bytes)?;
            let hides = decode_exact(info.dtype, &bytes).iter().all(|score| *score <= HIDDEN_SCORE_MAX);
            return Ok(if hides { Agreement::Exact } else { wrong });
        }
        StandIn::HiddenScore => return Ok(wrong),
        StandIn::Frequencies => frequencies(spec, None),
    };
    if info.elements() != expected.len() as u64 {
        return Ok(wrong);
    }
    let mut bytes = vec![0; info.bytes as usize];
    source.read(omitted.source, 0, &mut bytes)?;
    let found = values(info.dtype, &bytes);
    let outside = |spans: &[Span]| {
        let bounds = spans.iter().map(|span| span.at(info.dtype));
        found.iter().zip(bounds).filter(|(value, (least, most))| !(least <= *value && *value <= most)).count()
    };
    // Models that scale the base at run time, such as ChatGLM2, store the table of the unscaled base.
    let unscaled = matches!(omitted.stand_in, StandIn::Frequencies).then(|| frequencies(spec, Some(BASE_UNSCALED)));
    let expected = unscaled.filter(|unscaled| outside(unscaled) == 0 && outside(&expected) > 0).unwrap_or(expected);
    let outside = outside(&expected);
    if outside > 0 {
        return Ok(Agreement::Wrong { elements: outside as u64 });
    }
    let narrowed = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value as f32).collect::<Vec<f32>>();
    let (found, nearest) =
        (narrowed(&mut found.iter().copied()), narrowed(&mut expected.iter().map(|range| range.high)));
    let mut sums = DeviationSums::default();
    sums.add(&nearest, &found);
    let deviation = sums.deviation();
    Ok(match deviation.max_abs == 0.0 {
        true => Agreement::Exact,
        false => Agreement::Rounded { rmse: deviation.rmse, max_abs: deviation.max_abs, cosine: deviation.cosine },
    })
}

/// A score of this or less has no weight next to those of trained models.
const HIDDEN_SCORE_MAX: f64 = -1e4;

/// Elements of the largest mask that is looked at.
const MASK_ELEMENTS_MAX: u64 = 1 << 28;

/// The values of a type that a computed table may have; integers stand for truth values.
fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype.is_float() { decode_exact(dtype, bytes) } else { bytes.iter().map(|byte| f64::from(*byte)).collect() }
}

/// Where an element may lie: between what scaling for long contexts makes of it and its plain value.
#[derive(Clone, Copy)]
struct Span {
    low: f64,
    high: f64,
}

impl Span {
    /// The bounds, with room for the rounding of a type.
    fn at(self, dtype: DType) -> (f64, f64) {
        // A checkpoint in another type may have been bf16 when the table was made.
        let relative = 1.0 / 128.0;
        // The least number of f16 is 2^-24.
        let absolute = if dtype == DType::F16 { 6e-8 } else { 0.0 };
        (self.low * (1.0 - relative) - absolute, self.high * (1.0 + relative) + absolute)
    }
}

/// Base of the rotation in the original rotary embedding (Su et al. 2021).
const BASE_UNSCALED: f64 = 10_000.0;

/// `base^(-2 i / n)` for each pair `i` of `n` rotated elements. Programs store the table before or after scaling.
fn frequencies(spec: &ModelSpec, base: Option<f64>) -> Vec<Span> {
    let Some(rope) = spec.rope() else { return Vec::new() };
    let base = base.unwrap_or(rope.base.into());
    let pairs = rope.dimensions / 2;
    let llama3 = rope.computed_factors();
    let divisor = |pair: usize| match rope.scaling {
        RopeScaling::Linear { factor } | RopeScaling::Yarn { factor, .. } => f64::from(factor),
        RopeScaling::None | RopeScaling::Long { .. } => llama3.as_ref().map_or(1.0, |factors| f64::from(factors[pair])),
    };
    let span = |pair: usize| {
        let high = base.powf(-2.0 * pair as f64 / rope.dimensions as f64);
        Span { low: high / divisor(pair).max(1.0), high }
    };
    (0..pairs).map(span).collect()
}

/// Ones up to the diagonal of each matrix of `size` rows.
fn mask(size: u64, elements: u64) -> Vec<Span> {
    let one = |place: u64| f64::from(u8::from(place % size <= place / size % size));
    (0..elements).map(|place| Span { low: one(place), high: one(place) }).collect()
}
