//! `config.json` against the weights beside it.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use serde_json::Value;
use trueup_blocks::DType;
use trueup_formats::quote;

pub(super) const RULES: &[&Rule] = &[&DTYPE_DIFFERS];

static DTYPE_DIFFERS: Rule = Rule::note(
    "stored-type-differs",
    "programs that take the type from config.json convert the weights when they load them",
    "nothing, or set the type with `trueup convert --type`",
);

/// Types by the names of PyTorch.
const TORCH: [(&str, DType); 4] =
    [("float32", DType::F32), ("float16", DType::F16), ("bfloat16", DType::Bf16), ("float64", DType::F64)];

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    let Some(config) = patient.config() else { return };
    let said =
        ["dtype", "torch_dtype"].into_iter().find_map(|key| Some((key, config.get(key).and_then(Value::as_str)?)));
    let Some((key, text)) = said else { return };
    let name = text.strip_prefix("torch.").unwrap_or(text);
    let Some((_, expected)) = TORCH.iter().find(|(known, _)| *known == name) else { return };
    let matrices =
        patient.checkpoint().tensors().iter().filter(|tensor| tensor.shape.len() > 1 && tensor.dtype.is_float());
    let others: Vec<_> = matrices.filter(|tensor| tensor.dtype != *expected).collect();
    if let Some(first) = others.first() {
        let place = Place::file(&patient.path).key(key);
        let found = match others.len() {
            1 => format!("1 matrix ({})", quote(&first.name)),
            count => format!("{count} matrices, first {}", quote(&first.name)),
        };
        findings.add(&DTYPE_DIFFERS, place, format!("expected {expected}, found {} in {found}", first.dtype));
    }
}
