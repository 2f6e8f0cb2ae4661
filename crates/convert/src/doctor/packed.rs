//! Ternary values that a checkpoint packs into bytes, four to a byte, and their scales.
//!
//! ```text
//! bits of a byte   7 6 │ 5 4 │ 3 2 │ 1 0       a pair is 0, 1 or 2 for -1, 0 or 1; 3 has no meaning
//! scale            one number per matrix
//! ```

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use super::scan::Summary;
use trueup_blocks::DType;
use trueup_formats::{Result, counted, significant};
use trueup_models::{ExpectedTensor, ValueChange, expected_tensors};
use trueup_quantize::decode_exact;

pub(super) const RULES: &[&Rule] = &[&CODE, &SCALE, &SCALE_FAR_OUT, &ONE_VALUE];

const AGAIN: &str = "get the file again from its source, and compare its size and hash";

static CODE: Rule = Rule::error("packed-code-invalid", "the code has no value: the model cannot be converted", AGAIN);
static SCALE: Rule =
    Rule::error("packed-scale-invalid", "every value of the matrix becomes zero, NaN or infinite", AGAIN);
static SCALE_FAR_OUT: Rule = Rule::warning(
    "packed-scale-far-out",
    "matrices of a model have similar scales: it looks like a flipped exponent bit, or the scale is from another model",
    AGAIN,
);
static ONE_VALUE: Rule = Rule::warning("packed-one-value", "the values were lost, or never trained", AGAIN);

/// How far a scale may be from the median of all scales: 2^8.
const OUT_OF_SCALE: f32 = 256.0;
/// Scales below which a median says nothing.
const SCALES_MIN: usize = 4;

/// A packed matrix: the numbers of its tensors in the checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Packed {
    pub codes: usize,
    scale: usize,
    /// Whether values are divided by the scale.
    is_divided: bool,
}

/// The packed matrices of a checkpoint whose tensors exist and have their types.
pub(super) fn matrices(patient: &Patient) -> Vec<Packed> {
    let (Some(spec), Some(_)) = (patient.valid_spec(), patient.config()) else { return Vec::new() };
    let names = patient.source_names(spec.architecture());
    let packed = |expected: ExpectedTensor| {
        let ValueChange::PackedTernary { is_divided } = expected.transform.values else { return None };
        let [codes, scale] = expected.sources.as_slice() else { return None };
        let ((codes, of_codes), (scale, of_scale)) = (patient.tensor(&codes.name)?, patient.tensor(&scale.name)?);
        let fits = of_codes.dtype == DType::I8 && of_scale.dtype.is_float() && of_scale.elements() == 1;
        fits.then_some(Packed { codes, scale, is_divided })
    };
    expected_tensors(spec, &names).into_iter().filter_map(packed).collect()
}

pub(super) fn look(patient: &Patient, seen: &[Summary], findings: &mut Findings) -> Result<()> {
    let packed = matrices(patient);
    let tensors = patient.checkpoint().tensors();
    let place = |number: usize| {
        let name = &tensors[number].name;
        Place::file(patient.file_of(name)).tensor(name)
    };
    let mut scales = Vec::with_capacity(packed.len());
    for matrix in &packed {
        let (info, seen) = (&tensors[matrix.codes], &seen[matrix.codes]);
        if !seen.is_read {
            continue;
        }
        if let Some((first, byte)) = seen.codes.first_invalid {
            let columns = info.shape.first().copied().unwrap_or(1).max(1);
            let found = format!(
                "expected 0, 1 or 2 in each pair of bits, found {byte:#04x} in the first of {}",
                counted(seen.codes.invalid, "byte")
            );
            findings.add(&CODE, place(matrix.codes).element(vec![first % columns, first / columns]), found);
        } else if let Some(value) = seen.codes.only_value() {
            let found = format!("all {} are {value}", counted(info.elements().saturating_mul(4), "value"));
            findings.add(&ONE_VALUE, place(matrix.codes), found);
        }
        let scale = read_scale(patient, matrix.scale)?;
        let factor = if matrix.is_divided { 1.0 / scale } else { scale };
        if factor.is_finite() && factor != 0.0 {
            scales.push((matrix.scale, scale.abs()));
        } else {
            findings.add(&SCALE, place(matrix.scale), format!("expected a finite scale other than 0, found {scale}"));
        }
    }
    let mut magnitudes: Vec<f32> = scales.iter().map(|(_, scale)| *scale).collect();
    magnitudes.sort_by(f32::total_cmp);
    let Some(usual) = magnitudes.get(magnitudes.len() / 2).filter(|_| magnitudes.len() >= SCALES_MIN) else {
        return Ok(());
    };
    for (number, scale) in &scales {
        if (scale / usual).max(usual / scale) > OUT_OF_SCALE {
            let found = format!(
                "a scale of magnitude {}; the median of the {} is {}",
                significant(f64::from(*scale), 3),
                counted(scales.len() as u64, "scale"),
                significant(f64::from(*usual), 3)
            );
            findings.add(&SCALE_FAR_OUT, place(*number), found);
        }
    }
    Ok(())
}

/// The number in a tensor with one element.
fn read_scale(patient: &Patient, number: usize) -> Result<f32> {
    let checkpoint = patient.checkpoint();
    let info = &checkpoint.tensors()[number];
    let mut bytes = vec![0; info.bytes as usize];
    checkpoint.read(number, 0, &mut bytes)?;
    Ok(decode_exact(info.dtype, &bytes).first().map_or(f32::NAN, |value| *value as f32))
}
