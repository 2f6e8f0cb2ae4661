//! Tensors whose weights are on the grid of a block type.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use super::scan::Summary;
use std::collections::BTreeMap;
use trueup_formats::{Result, TensorInfo, counted};
use trueup_quantize::exact_types;

pub(super) const RULES: &[&Rule] = &[&ON_GRID];

static ON_GRID: Rule = Rule::note(
    "weights-on-grid",
    "the weights were trained for this type, or decoded from it; other types of similar size change them",
    "to quantize without loss, use this type for the tensors: `--type TYPE`, or a `--rule`",
);

pub(super) fn look(patient: &Patient, seen: &[Summary], findings: &mut Findings) -> Result<()> {
    let mut on_grid: BTreeMap<&'static str, Vec<&TensorInfo>> = BTreeMap::new();
    let checkpoint = patient.checkpoint();
    for (number, (tensor, summary)) in checkpoint.tensors().iter().zip(seen).enumerate() {
        let is_plain = summary.is_read && !summary.is_zero && summary.not_finite == 0;
        if !is_plain || !tensor.dtype.is_float() || tensor.shape.iter().filter(|size| **size > 1).count() < 2 {
            continue;
        }
        if let Some(dtype) = exact_types(checkpoint, number, None, None)?.smallest() {
            on_grid.entry(dtype.name()).or_default().push(tensor);
        }
    }
    for (name, tensors) in on_grid {
        let Some(first) = tensors.first() else { continue };
        let place = Place::file(patient.file_of(&first.name)).tensor(&first.name);
        let others = match tensors.len() - 1 {
            0 => String::new(),
            count => format!("; the same applies to {}", counted(count, "other tensor")),
        };
        findings.add(&ON_GRID, place, format!("{name} stores all weights without loss{others}"));
    }
    Ok(())
}
