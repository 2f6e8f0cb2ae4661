//! Compares the experts of a description with those of a checkpoint's tensors, so that a message names the key that is
//! wrong instead of every tensor.

use crate::config::Object;
use crate::part::experts::ROUTER;
use crate::source_names::SourceNames;
use crate::spec::{FeedForward, ModelSpec};
use std::collections::BTreeMap;
use trueup_formats::counted;

/// The tensor of a layer without experts that is looked for.
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
        let [described, found] = match has_experts(spec, layer) {
            true => ["experts", "a dense feed-forward"],
            false => ["a dense feed-forward", "experts"],
        };
        let keys = present(&LAYERS, config);
        let keys = if keys.is_empty() { "config.json".to_owned() } else { keys.join(", ") };
        return Some(format!("{keys}: layer {layer} is described with {described}, but its tensors are {found}"));
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
    if counts.into_values().any(|count| count != each) {
        // Some tensors are missing or too many, not whole experts.
        return None;
    }
    let key = present(&COUNTS, config).first().copied().unwrap_or(COUNTS[0]);
    (found != experts.count).then(|| {
        let found = counted(found, "expert");
        format!("{key}: expected the number of experts in the tensors ({found}), found {}", experts.count)
    })
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
