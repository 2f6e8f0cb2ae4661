//! The tensors that a model has, by its architecture's table and its numbers: their names, ours, shapes and transforms.

use crate::architecture::{Architecture, Condition, Transform};
use crate::hyper::Hyper;
use crate::role::Role;

/// One tensor that a model must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedTensor {
    /// What it is for.
    pub role: Role,
    /// Its layer; 0 where there is only one.
    pub layer: usize,
    /// Its name in a GGUF file.
    pub name: String,
    /// Its name in a checkpoint of the class; `None` when conversion computes it.
    pub theirs: Option<String>,
    /// Innermost first; the same on both sides.
    pub shape: Vec<u64>,
    /// What conversion does to its rows.
    pub transform: Transform,
}

/// All tensors of a model, in the order of computation: embedding, layers, head.
pub fn expected_tensors(architecture: &Architecture, hyper: &Hyper) -> Vec<ExpectedTensor> {
    let rules: Vec<_> = architecture.tensors.iter().filter(|rule| hyper.conditions().holds(rule.when)).collect();
    let expected = |rule: &crate::TensorRule, layer: usize| ExpectedTensor {
        role: rule.role,
        layer,
        name: rule.role.name(layer),
        theirs: rule.theirs.map(|theirs| theirs.replace("{l}", &layer.to_string())),
        shape: rule.role.shape(hyper),
        transform: match rule.transform {
            Transform::UnitRows if !hyper.conditions().holds(Condition::UnitHead) => Transform::None,
            transform => transform,
        },
    };
    let first = rules.iter().position(|rule| rule.role.is_per_layer()).unwrap_or(rules.len());
    let (before, rest) = rules.split_at(first);
    let (layered, after): (Vec<_>, Vec<_>) = rest.iter().copied().partition(|rule| rule.role.is_per_layer());
    let in_layer = |layer| layered.iter().map(move |rule| expected(rule, layer));
    let before = before.iter().map(|rule| expected(rule, 0));
    before.chain((0..hyper.layers()).flat_map(in_layer)).chain(after.iter().map(|rule| expected(rule, 0))).collect()
}
