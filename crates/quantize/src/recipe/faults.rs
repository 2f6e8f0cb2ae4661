//! Errors of a recipe for a model: options and rules that cannot be followed.

use super::role::{Role, is_end};
use super::{Choice, ModelFacts, Recipe};
use std::collections::HashSet;
use trueup_blocks::DType;
use trueup_formats::{TensorInfo, quote};

impl Recipe {
    /// One sentence for each fault.
    pub(super) fn faults(&self, tensors: &[TensorInfo], choices: &[Choice], facts: &ModelFacts) -> Vec<String> {
        let idle = self.rules.iter().filter(|rule| !tensors.iter().any(|tensor| rule.pattern.is_match(&tensor.name)));
        let mut faults: Vec<String> =
            idle.map(|rule| format!("--rule {}={}: no tensor name matches", rule.pattern, rule.dtype)).collect();
        if let Some(last) = faults.last_mut() {
            last.push_str("; `trueup inspect` lists the names");
        }
        let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let unknown = self.assigned.keys().filter(|name| !names.contains(name.as_str()));
        faults
            .extend(unknown.map(|name| format!("tensor_types: {}: the model has no tensor of this name", quote(name))));
        let of = |role: Role| tensors.iter().filter(move |tensor| Role::of(&tensor.name) == role);
        let has = |role: Role| of(role).next().is_some();
        if let Some(dtype) = self.token_embedding {
            let option = format!("--token-embedding-type {dtype}");
            faults.extend(
                (!has(Role::TokenEmbedding))
                    .then(|| format!("{option}: expected a tensor token_embd.weight, found none; omit the option")),
            );
            faults.extend(of(Role::TokenEmbedding).filter_map(|tensor| misfit(&option, dtype, tensor)));
        }
        if let Some(dtype) = self.output {
            let option = format!("--output-tensor-type {dtype}");
            let is_idle = !has(Role::Output) && !has(Role::TokenEmbedding);
            faults.extend(
                is_idle.then(|| format!("{option}: expected a tensor output.weight, found none; omit the option")),
            );
            faults.extend(of(Role::Output).filter_map(|tensor| misfit(&option, dtype, tensor)));
        }
        if self.leave_output && !has(Role::Output) {
            faults.push(
                "--leave-output-tensor: expected a tensor output.weight, found none; use --token-embedding-type"
                    .to_owned(),
            );
        }
        faults.extend(self.lacks_importance(tensors, choices, facts));
        faults
    }

    /// The error of a scheme whose base type is too coarse for a tensor without an importance matrix.
    fn lacks_importance(&self, tensors: &[TensorInfo], choices: &[Choice], facts: &ModelFacts) -> Option<String> {
        let scheme = self.scheme.filter(|scheme| scheme.needs_importance && !facts.has_importance)?;
        let base = scheme.base;
        let is_coarse = |(tensor, choice): &(&TensorInfo, &Choice)| {
            choice.dtype == base && tensor.dtype != base && !is_end(&tensor.name)
        };
        let (tensor, _) = tensors.iter().zip(choices).find(is_coarse)?;
        let name = quote(&tensor.name);
        Some(format!(
            "{scheme} needs an importance matrix: {base} is too coarse for {name} without one; use --imatrix, or {base}"
        ))
    }
}

/// The error of an option whose type has blocks that do not divide the rows of its tensor.
fn misfit(option: &str, dtype: DType, tensor: &TensorInfo) -> Option<String> {
    let columns = tensor.shape.first().copied().unwrap_or(1);
    if dtype.row_bytes(columns).is_some() {
        return None;
    }
    let (name, length) = (&tensor.name, dtype.block_len());
    let other = if columns.is_multiple_of(32) { DType::Q8_0 } else { DType::F16 };
    Some(format!(
        "{option}: expected rows of {name} with a multiple of {length} elements, found {columns}; use {other}"
    ))
}
