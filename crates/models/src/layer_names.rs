//! Finds layers without tensors, and tensors of layers that do not exist. The names of such tensors differ from
//! expected names only in the layer index.

use std::collections::{BTreeMap, HashMap, HashSet};
use trueup_formats::{counted, quote};

/// The expected names of a model's tensors, split at the layer index.
pub struct LayerNames<'a> {
    /// Number of layers of each stack of layers, by the prefix of its names.
    layers: HashMap<&'a str, u64>,
    parts: HashSet<(&'a str, &'a str)>,
}

/// Tensors of one stack of layers whose layer does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherLayers {
    /// Prefix of the names, up to the layer index: `blk.`, `model.layers.`.
    pub stack: String,
    /// Number of layers of the model.
    pub layers: u64,
    /// Number of tensors of other layers.
    pub tensors: usize,
    /// The first of them.
    pub example: String,
}

/// Layers of one stack of layers that have no tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbsentLayers {
    /// Prefix of the names, up to the layer index: `blk.`, `model.layers.`.
    pub stack: String,
    /// Number of layers that the model should have.
    pub layers: u64,
    /// Indices of the layers without a tensor, in ascending order.
    pub numbers: Vec<u64>,
}

impl<'a> LayerNames<'a> {
    /// Reads the expected names of all tensors.
    pub fn new(expected: impl IntoIterator<Item = &'a str>) -> LayerNames<'a> {
        let mut names = LayerNames { layers: HashMap::new(), parts: HashSet::new() };
        for (stack, layer, rest) in expected.into_iter().filter_map(split) {
            let layers = names.layers.entry(stack).or_default();
            *layers = layer.saturating_add(1).max(*layers);
            names.parts.insert((stack, rest));
        }
        names
    }

    /// Whether a name is an expected one, except that the model does not have the layer.
    pub fn is_of_other_layer(&self, name: &str) -> bool {
        self.other_layer(name).is_some()
    }

    /// The tensors among these whose layer does not exist, for each stack of layers.
    pub fn others<'b>(&self, names: impl IntoIterator<Item = &'b str>) -> Vec<OtherLayers> {
        let mut found: BTreeMap<&str, OtherLayers> = BTreeMap::new();
        for name in names {
            let Some((stack, layers)) = self.other_layer(name) else { continue };
            let first = OtherLayers { stack: stack.to_owned(), layers, tensors: 0, example: quote(name) };
            let others = found.entry(stack).or_insert(first);
            others.tensors = others.tensors.saturating_add(1);
        }
        found.into_values().collect()
    }

    /// The layers for which no tensor name exists, by stack.
    pub fn absent<'b>(&self, names: impl IntoIterator<Item = &'b str>) -> Vec<AbsentLayers> {
        let present: HashSet<(&str, u64)> =
            names.into_iter().filter_map(split).map(|(stack, layer, _)| (stack, layer)).collect();
        let stacks: BTreeMap<&str, u64> = self.layers.iter().map(|(stack, layers)| (*stack, *layers)).collect();
        let of_stack = |(stack, layers): (&str, u64)| AbsentLayers {
            stack: stack.to_owned(),
            layers,
            numbers: (0..layers).filter(|layer| !present.contains(&(stack, *layer))).collect(),
        };
        stacks.into_iter().map(of_stack).filter(|absent| !absent.numbers.is_empty()).collect()
    }

    /// The stack of a name whose layer does not exist, and the number of its layers.
    fn other_layer<'b>(&self, name: &'b str) -> Option<(&'b str, u64)> {
        let (stack, layer, rest) = split(name)?;
        let layers = *self.layers.get(stack)?;
        (layer >= layers && self.parts.contains(&(stack, rest))).then_some((stack, layers))
    }
}

impl OtherLayers {
    /// `expected 1 layer (llama.block_count), found 9 tensors of other layers, such as blk.1.attn_norm.weight`; `key`
    /// says where the number of layers is from.
    pub fn problem(&self, key: &str) -> String {
        let (layers, tensors) = (counted(self.layers, "layer"), counted(self.tensors, "tensor"));
        format!("expected {layers} ({key}), found {tensors} of other layers, such as {}", self.example)
    }

    /// The key with the number of layers in a GGUF file of this architecture.
    pub fn gguf_key(&self, architecture: &str) -> String {
        count_key(&self.stack, architecture)
    }
}

impl AbsentLayers {
    /// The number of layers with tensors, if only the last layers are absent: then the expected number is probably
    /// wrong.
    pub fn probable_count(&self) -> Option<u64> {
        let first = *self.numbers.first()?;
        let absent = u64::try_from(self.numbers.len()).ok()?;
        (first > 0 && first.checked_add(absent) == Some(self.layers)).then_some(first)
    }

    /// The key with the number of layers in a GGUF file of this architecture.
    pub fn gguf_key(&self, architecture: &str) -> String {
        count_key(&self.stack, architecture)
    }
}

fn count_key(stack: &str, architecture: &str) -> String {
    let of_decoder = if stack.starts_with("dec.") { "decoder_" } else { "" };
    format!("{architecture}.{of_decoder}block_count")
}

/// The part of a name that all tensors of its layer share: `model.layers.2.`. `None` outside of the layers.
pub fn layer_prefix(name: &str) -> Option<&str> {
    let (_, _, rest) = split(name)?;
    name.get(..name.len().saturating_sub(rest.len()).saturating_add(1))
}

/// A name before, at and after its first component that is a number.
fn split(name: &str) -> Option<(&str, u64, &str)> {
    let mut start = 0_usize;
    for part in name.split('.') {
        let end = start.saturating_add(part.len());
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((name.get(..start)?, part.parse().ok()?, name.get(end..)?));
        }
        start = end.saturating_add(1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_other_layers_differ_in_the_number_only() {
        let expected = ["token_embd.weight", "enc.blk.0.q.weight", "enc.blk.1.q.weight", "dec.blk.0.q.weight"];
        let names = LayerNames::new(expected);
        let found =
            ["enc.blk.1.q.weight", "enc.blk.2.q.weight", "enc.blk.7.q.weight", "dec.blk.1.q.weight", "dec.blk.1.k"];
        let others = names.others(found);
        let shown: Vec<String> = others.iter().map(|others| others.problem(&others.gguf_key("t5"))).collect();
        assert_eq!(
            shown,
            [
                "expected 1 layer (t5.decoder_block_count), found 1 tensor of other layers, such as dec.blk.1.q.weight",
                "expected 2 layers (t5.block_count), found 2 tensors of other layers, such as enc.blk.2.q.weight",
            ]
        );
        assert_eq!(layer_prefix("enc.blk.12.q.weight"), Some("enc.blk.12."));
        assert_eq!((layer_prefix("norm.weight"), layer_prefix("h.2")), (None, None));
        for name in ["dec.blk.1.k", "blk.1.q.weight", "1.q.weight", "99999999999999999999.q", "enc.blk..q.weight", ""] {
            assert!(!names.is_of_other_layer(name), "{name}");
        }
    }
}
