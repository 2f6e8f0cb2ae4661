//! What the values of a tensor say: numbers that are none, zeros where none should be, magnitudes that do not fit.
//!
//! Magnitudes are compared with medians, which a few wrong values do not move: within a tensor, and between the layers
//! of a model. The thresholds are far from what healthy models have; docs/doctor.md has the measurements.

use super::finding::{Findings, Place, Rule};
use super::patient::{Patient, is_readable};
use super::scan::Summary;
use std::collections::BTreeMap;
use trueup_blocks::DType;
use trueup_formats::{Result, TensorInfo, counted, element_indices, significant};
use trueup_models::ROPE_FACTORS;
use trueup_tokenizer::TokenKind;

pub(super) const RULES: &[&Rule] = &[
    &NOT_FINITE,
    &UNUSED_CODE,
    &ROPE_FACTOR,
    &ZERO_TENSOR,
    &ZERO_BIAS,
    &ZERO_ROWS,
    &ZERO_TOKENS,
    &SUBNORMAL_VALUES,
    &SUBNORMAL_SCALES,
    &VALUE_FAR_OUT,
    &LAYER_OUT_OF_SCALE,
    &NOT_READ,
    &HOLE,
];

/// How far above the median magnitude of its matrix a value may be, and how large one of a vector: 2^16. The largest of
/// the trained model among the fixtures is 10 times the median, of any random one 7 times; the highest bit of an
/// exponent makes a weight 2^128 times as large.
const FAR_OUT: f32 = 65_536.0;
/// How far a layer's median may be from that of all layers of the kind: 2^8. In the trained model among the fixtures it
/// is 1.4.
const OUT_OF_SCALE: f32 = 256.0;
/// Layers below which a median of layers says nothing.
const LAYERS_MIN: usize = 4;
/// The share of rows of zeros that a matrix may have, in percent.
const ZERO_ROWS_PERCENT: u64 = 5;
/// The share of tokens of text whose rows may be zeros, in percent.
const ZERO_TOKENS_PERCENT: u64 = 1;
/// Samples below which a share of them says nothing.
const SAMPLES_MIN: u64 = 8;

/// What helps where weights are wrong.
const AGAIN: &str = "compare it with the original model (`trueup diff`), then get or convert the model again";

static NOT_FINITE: Rule =
    Rule::error("not-finite", "every result computed from it is NaN: the output is meaningless", AGAIN);
static UNUSED_CODE: Rule = Rule::warning(
    "unused-code",
    "no encoder writes such a byte: the weights were damaged after they were quantized",
    AGAIN,
);
static ROPE_FACTOR: Rule =
    Rule::error("rope-factor-invalid", "rope frequencies are divided by it", "convert the model again");
static ZERO_TENSOR: Rule = Rule::warning("zero-tensor", "the values were lost, or never trained", AGAIN);
static ZERO_BIAS: Rule =
    Rule::note("zero-bias", "it has no effect; some checkpoints contain biases that were never trained", "nothing");
static ZERO_ROWS: Rule =
    Rule::warning("zero-rows", "these outputs are always zero: part of the tensor was lost or pruned", AGAIN);
static ZERO_TOKENS: Rule = Rule::warning(
    "zero-token-rows",
    "text tokens have no embedding: the model cannot tell them apart",
    "compare the tensor and the vocabulary with those of the original model",
);
static SUBNORMAL_VALUES: Rule = Rule::warning(
    "subnormal-values",
    "such numbers have lost precision, and some devices treat them as zero",
    "keep the tensor in f32 or bf16 with a `--rule`",
);
static SUBNORMAL_SCALES: Rule = Rule::warning(
    "subnormal-scales",
    "imprecise scales make all weights of their blocks imprecise, and some devices treat them as zero",
    "quantize the model again, and keep the tensor in f32 or bf16 with a `--rule`",
);
static VALUE_FAR_OUT: Rule = Rule::warning(
    "value-far-out",
    "no known trained model has such a weight: it looks like a flipped exponent bit",
    AGAIN,
);
static LAYER_OUT_OF_SCALE: Rule = Rule::warning(
    "layer-out-of-scale",
    "layers of a model have similar magnitudes: a scale was lost or applied twice, or the tensor is from another model",
    AGAIN,
);
static NOT_READ: Rule =
    Rule::note("values-not-read", "damage in these values is not detected", "check the original model");

static HOLE: Rule = Rule::warning(
    "file-sparse",
    "unwritten bytes read as zeros, as after an incomplete download; the values were not checked",
    "get the file again from its source, and compare its size and hash",
);

/// How the values of one tensor lie.
struct Tensor<'a> {
    info: &'a TensorInfo,
    seen: &'a Summary,
}

impl Tensor<'_> {
    fn is_matrix(&self) -> bool {
        self.info.shape.len() > 1
    }

    /// A place inside, as an index for each dimension.
    fn element(&self, place: u64) -> Vec<u64> {
        element_indices(place, &self.info.shape)
    }

    /// What a value of it is, for people.
    fn unit(&self) -> &'static str {
        if self.info.dtype.scale_places().is_some() { "scale" } else { "value" }
    }
}

pub(super) fn look(patient: &Patient, seen: &[Summary], findings: &mut Findings) -> Result<()> {
    let all = patient.checkpoint().tensors();
    let tensors: Vec<Tensor> = all.iter().zip(seen).map(|(info, seen)| Tensor { info, seen }).collect();
    for tensor in tensors.iter().filter(|tensor| tensor.seen.is_read) {
        let place = Place::file(patient.file_of(&tensor.info.name)).tensor(&tensor.info.name);
        look_at_finite(tensor, &place, findings);
        look_at_codes(tensor, &place, findings);
        look_at_zeros(patient, tensor, &place, findings);
        look_at_magnitudes(tensor, &place, findings);
    }
    look_at_layers(patient, &tensors, findings);
    look_at_factors(patient, findings)?;
    look_at_unread(patient, &tensors, findings);
    if let Some(bytes) = patient.hole() {
        let found = format!("the disk holds less than a sixteenth of the {bytes} bytes of its tensors");
        findings.add(&HOLE, Place::file(&patient.path), found);
    }
    Ok(())
}

fn look_at_finite(tensor: &Tensor, place: &Place, findings: &mut Findings) {
    let Some(first) = tensor.seen.first_not_finite else { return };
    let count = tensor.seen.not_finite;
    let what = match tensor.info.dtype.scale_places().is_some() {
        true => format!("the scales of {} are NaN or infinite", counted(count, "block")),
        false if count == 1 => "the value is NaN or infinite".to_owned(),
        false => format!("first of {count} NaN or infinite values"),
    };
    findings.add(&NOT_FINITE, place.clone().element(tensor.element(first)), what);
}

fn look_at_codes(tensor: &Tensor, place: &Place, findings: &mut Findings) {
    let dtype = tensor.info.dtype;
    if let Some((first, byte)) = tensor.seen.codes.first_invalid.filter(|_| dtype.is_quantized()) {
        let blocks = counted(tensor.seen.codes.invalid, "block");
        let found = format!("{blocks} with bytes that are not valid in {dtype}, the first of them {byte:#04x}");
        findings.add(&UNUSED_CODE, place.clone().element(tensor.element(first)), found);
    }
}

fn look_at_zeros(patient: &Patient, tensor: &Tensor, place: &Place, findings: &mut Findings) {
    let name = &tensor.info.name;
    if tensor.seen.is_zero {
        let rule = if name.ends_with(".bias") { &ZERO_BIAS } else { &ZERO_TENSOR };
        let found = format!("all {} are zero", counted(tensor.info.elements(), "value"));
        return findings.add(rule, place.clone(), found);
    }
    let Some(first) = tensor.seen.first_zero_row else { return };
    let rows = tensor.info.elements() / tensor.info.shape.first().copied().unwrap_or(1).max(1);
    let is_of_tokens = patient.names_of_token_rows().contains(name);
    let (rule, count, percent) = match patient.valid_vocabulary().filter(|_| is_of_tokens) {
        None if is_of_tokens => return,
        None => (&ZERO_ROWS, tensor.seen.zero_rows, ZERO_ROWS_PERCENT),
        Some(vocabulary) => {
            let kind = |row: &&u64| vocabulary.tokens().get(**row as usize).map(|token| token.kind);
            let zero = tensor.seen.listed_zero_rows.iter();
            let of_text = zero.filter(|row| matches!(kind(row), Some(TokenKind::Normal | TokenKind::Byte)));
            (&ZERO_TOKENS, of_text.count() as u64, ZERO_TOKENS_PERCENT)
        }
    };
    if count.saturating_mul(100) > rows.saturating_mul(percent) {
        let verb = if count == 1 { "holds" } else { "hold" };
        let found = format!("{count} of {} {verb} only zeros, the first is row {first}", counted(rows, "row"));
        findings.add(rule, place.clone().element(vec![0, first]), found);
    }
}

fn look_at_magnitudes(tensor: &Tensor, place: &Place, findings: &mut Findings) {
    let (samples, unit) = (tensor.seen.samples, tensor.unit());
    if samples >= SAMPLES_MIN && 2 * tensor.seen.subnormal > samples {
        let quantized = tensor.info.dtype.is_quantized();
        let rule = if quantized { &SUBNORMAL_SCALES } else { &SUBNORMAL_VALUES };
        let share = 100 * tensor.seen.subnormal / samples;
        let found = match quantized {
            true => {
                format!("{share}% of the nonzero scales are below 2^-19, where f16 has at most five bits of precision")
            }
            false => format!("{share}% of the nonzero values are subnormal in {}", tensor.info.dtype),
        };
        findings.add(rule, place.clone(), found);
    }
    let (Some(median), largest) = (tensor.seen.median, tensor.seen.largest) else { return };
    // A norm or a bias multiplies or moves every token, whatever its other values are.
    let usual = if tensor.is_matrix() { median } else { 1.0 };
    if largest / usual > FAR_OUT {
        let [largest, median] = [largest, median].map(|value| significant(f64::from(value), 3));
        let found = format!("a {unit} of magnitude {largest} among {unit}s whose median is about {median}");
        findings.add(&VALUE_FAR_OUT, place.clone().element(tensor.element(tensor.seen.largest_at)), found);
    }
}

/// The pattern of a name in which each layer has a tensor: its first number between dots stands for the layer.
fn pattern(name: &str) -> Option<String> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let layer = name.split('.').find(is_number)?;
    Some(name.replacen(&format!(".{layer}."), ".{l}.", 1))
}

/// The medians of matrices of one kind and type against the median of these.
fn look_at_layers(patient: &Patient, tensors: &[Tensor], findings: &mut Findings) {
    let mut kinds: BTreeMap<(String, DType), Vec<(&Tensor, f32)>> = BTreeMap::new();
    for tensor in tensors.iter().filter(|tensor| tensor.is_matrix()) {
        if let (Some(pattern), Some(median)) = (pattern(&tensor.info.name), tensor.seen.median) {
            kinds.entry((pattern, tensor.info.dtype)).or_default().push((tensor, median));
        }
    }
    for layers in kinds.values().filter(|layers| layers.len() >= LAYERS_MIN) {
        let mut medians: Vec<f32> = layers.iter().map(|(_, median)| *median).collect();
        medians.sort_by(f32::total_cmp);
        let usual = medians[medians.len() / 2];
        for (tensor, median) in layers.iter().filter(|(_, median)| (median / usual).max(usual / median) > OUT_OF_SCALE)
        {
            let name = &tensor.info.name;
            let place = Place::file(patient.file_of(name)).tensor(name);
            let found = format!(
                "median magnitude {}; the median of the {} of this kind is {}",
                significant(f64::from(*median), 3),
                counted(layers.len(), "layer"),
                significant(f64::from(usual), 3)
            );
            findings.add(&LAYER_OUT_OF_SCALE, place, found);
        }
    }
}

/// Factors of the rotation: small enough to be read as a whole.
fn look_at_factors(patient: &Patient, findings: &mut Findings) -> Result<()> {
    const FACTORS_MAX: u64 = 1 << 16;
    let name = ROPE_FACTORS;
    let Some((number, info)) = patient.tensor(name).filter(|(_, info)| info.dtype == DType::F32) else {
        return Ok(());
    };
    if info.elements() > FACTORS_MAX {
        return Ok(());
    }
    let mut bytes = vec![0; info.bytes as usize];
    patient.checkpoint().read(number, 0, &mut bytes)?;
    let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let bad: Vec<(usize, f32)> = values.enumerate().filter(|(_, factor)| factor.is_nan() || *factor <= 0.0).collect();
    if let Some((place, factor)) = bad.first() {
        let found = format!("expected a factor above 0, found {factor}");
        let place = Place::file(patient.file_of(name)).tensor(name).element(vec![*place as u64]);
        findings.add_many(&ROPE_FACTOR, place, found, bad.len() as u64 - 1);
    }
    Ok(())
}

fn look_at_unread(patient: &Patient, all: &[Tensor], findings: &mut Findings) {
    let is_unread = |tensor: &&Tensor| !tensor.seen.is_read && !is_readable(tensor.info.dtype);
    let unread: Vec<&TensorInfo> = all.iter().filter(is_unread).map(|tensor| tensor.info).collect();
    if let Some(first) = unread.first() {
        let place = Place::file(patient.file_of(&first.name)).tensor(&first.name);
        let found = format!("values of type {} are not checked", first.dtype);
        findings.add_many(&NOT_READ, place, found, unread.len() as u64 - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn a_pattern_stands_for_all_layers() {
        assert_eq!(pattern("blk.10.attn_q.weight").as_deref(), Some("blk.{l}.attn_q.weight"));
        assert_eq!(
            pattern("model.layers.3.mlp.up_proj.weight").as_deref(),
            Some("model.layers.{l}.mlp.up_proj.weight")
        );
        assert_eq!(pattern("output.weight"), None);
    }
}
