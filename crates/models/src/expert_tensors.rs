//! Compares the experts of a description with those of a checkpoint's tensors, so that a message names the key that is
//! wrong instead of every tensor.

use crate::config::Object;
use crate::part::experts::ROUTER;
use crate::source_names::SourceNames;
use crate::spec::{FeedForward, ModelSpec};
use std::collections::BTreeMap;

/// The tensor that identifies a dense layer.
const DENSE: &str = "ffn_down";

/// Keys that give the number of experts.
const COUNTS: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];

/// Keys that decide which layers have experts.
const LAYERS: [&str; 4] = ["decoder_sparse_step", "mlp_only_layers", "first_k_dense_replace", "moe_layer_freq"];

/// How the experts of the tensors differ from those of the description; `None` if they do not, or if there are none.
pub fn unlike_experts(
    spec: &ModelSpec,
    names: &SourceNames,
    config: &Object,
    tensors: &mut dyn Iterator<Item = &str>,
) -> Option<String> {
    let is_other = |layer: &usize| {
        let missing = if has_experts(spec, *layer) { ROUTER } else { DENSE };
        let instead = if has_experts(spec, *layer) { DENSE } else { ROUTER };
        !has_tensor(names, *layer, missing) && has_tensor(names, *layer, instead)
    };
    if let Some(layer) = (0..spec.layers.len()).find(is_other) {
        let [dense, experts] = ["a dense feed-forward layer", "experts"];
        let (found, expected) = if has_experts(spec, layer) { (experts, dense) } else { (dense, experts) };
        let keys = present(&LAYERS, config);
        let keys = if keys.is_empty() { String::new() } else { keys.join(", ") + ": " };
        return Some(format!("{keys}layer {layer}: expected {expected}, as in the tensors, found {found}"));
    }
    let experts = spec.experts()?;
    let number = |name: &str| name.split(".experts.").nth(1)?.split('.').next()?.parse::<usize>().ok();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for expert in tensors.filter_map(number) {
        let count = counts.entry(expert).or_default();
        *count = count.saturating_add(1);
    }
    let each = *counts.first_key_value()?.1;
    let found = counts.len();
    let is_complete = counts.keys().zip(0..).all(|(expert, place)| *expert == place);
    if !is_complete || counts.into_values().any(|count| count != each) {
        // Single tensors are missing or extra, not whole experts.
        return None;
    }
    let key = present(&COUNTS, config).first().copied().unwrap_or(COUNTS[0]);
    (found != experts.count)
        .then(|| format!("{key}: expected {found} (the number of experts in the tensors), found {}", experts.count))
}

fn has_experts(spec: &ModelSpec, layer: usize) -> bool {
    spec.layers.get(layer).is_some_and(|layer| matches!(layer.feed_forward, FeedForward::Experts(_)))
}

fn has_tensor(names: &SourceNames, layer: usize, stem: &str) -> bool {
    let rules = names.architecture().rules();
    let mut sources = rules.filter_map(|rule| rule.source_of(&format!("blk.{layer}.{stem}.weight"), Some(layer)));
    sources.any(|source| names.has(&source))
}

fn present<'k>(keys: &[&'k str], config: &Object) -> Vec<&'k str> {
    keys.iter().copied().filter(|key| config.get(*key).is_some_and(|value| !value.is_null())).collect()
}
