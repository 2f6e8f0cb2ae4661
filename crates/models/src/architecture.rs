//! An architecture: its names, the functions that read its descriptions, and the names of its tensors.
//!
//! Markers select between architectures that share a class name: keys of `config.json` that are present or true, never
//! a path and never the class name alone.

use crate::checkpoint::TensorRule;
use crate::compatibility::{convolution_note, head_size_note, long_factors_note, rope_factors_note, yarn_note};
use crate::config::{Config, Object};
use crate::metadata::{KeyWriter, Keys};
use crate::spec::ModelSpec;
use serde_json::Value;

pub use crate::arch::ARCHITECTURES;

/// What to do if an architecture is not supported. The list itself is too long for a message.
pub(crate) const SUPPORTED_HELP: &str = "`trueup convert --help` lists the supported models";

/// One architecture.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture` in a GGUF file, and the prefix of its keys.
    pub gguf_name: &'static str,
    /// Class names in `architectures` of `config.json` that select this architecture.
    pub classes: &'static [&'static str],
    /// Whether the class name is internal, used only by readers of other formats; it is never suggested to the user.
    pub is_internal: bool,
    /// Markers that select this architecture when several share a class name; any of them is enough. The one without
    /// markers is the default.
    pub selected_by: &'static [Marker],
    /// FastLLM's `model_type` for models with these tensor names; `None` if no `.flm` file can be written.
    pub flm_name: Option<&'static str>,
    /// Reads `config.json`.
    pub(crate) from_config: fn(&mut Config) -> ModelSpec,
    /// Reads the keys of a GGUF file.
    pub(crate) from_metadata: fn(&mut Keys) -> ModelSpec,
    /// A description that `from_config` reads as the same model; `None` if there is none.
    pub(crate) to_config: fn(&ModelSpec) -> Option<Object>,
    /// Keys that a `.flm` file needs in addition to those of `config.json`.
    pub(crate) flm_keys: fn(&ModelSpec) -> Vec<(String, Value)>,
    /// Writes GGUF keys beyond those of the parts.
    pub(crate) more_keys: fn(&ModelSpec, &mut KeyWriter),
    /// Notes on compatibility with other GGUF programs, one sentence each.
    pub(crate) compatibility: fn(&ModelSpec) -> Vec<String>,
    /// Names of tensors in a checkpoint. The first rule that fits a tensor applies, so an architecture can put special
    /// rules before a shared table.
    pub tensors: &'static [&'static [TensorRule]],
    /// Prefix of tensor names in classes that contain the base model, such as `bert.`.
    pub(crate) base_prefix: &'static str,
    /// Tensors of old checkpoints whose values follow from the description.
    pub ignorable: &'static [&'static str],
    /// Whether llama.cpp does not load files without an output head. Conversion writes the embedding as the head of
    /// models that share them.
    pub(crate) needs_head: bool,
    /// Whether llama.cpp loads models whose heads do not add up to the hidden size.
    pub(crate) has_free_head_size: bool,
    /// Supported values of `quant_method` in quantized checkpoints; all others are rejected.
    pub quantization_methods: &'static [&'static str],
    /// Checkpoint names of copies of the token embedding; the class uses the embedding in their place.
    pub copies: &'static [&'static str],
    /// Tensors that no result of the model depends on: prefixes of their names, and descriptions. `{extra}` stands for
    /// the number of a multi-token prediction layer after the last layer.
    pub unused: &'static [(&'static str, &'static str)],
    /// Tensors of GGUF files that no result of the model depends on: names, such as `blk.{l}.attn_q.weight`, and
    /// descriptions.
    pub(crate) unused_in_gguf: &'static [(&'static str, &'static str)],
}

impl Architecture {
    /// Default values of an architecture.
    pub(crate) const BASE: Architecture = Architecture {
        gguf_name: "",
        classes: &[],
        is_internal: false,
        selected_by: &[],
        flm_name: None,
        from_config: |_| unreachable!("every architecture has a reader of config.json"),
        from_metadata: |_| unreachable!("every architecture has a reader of GGUF keys"),
        to_config: |_| None,
        flm_keys: |_| Vec::new(),
        more_keys: |_, _| {},
        compatibility: |_| Vec::new(),
        tensors: &[],
        base_prefix: "",
        ignorable: &[],
        needs_head: false,
        has_free_head_size: false,
        quantization_methods: &[],
        copies: &[],
        unused: &[],
        unused_in_gguf: &[],
    };

    /// Describes an unused tensor of a GGUF file, or returns `None` if the name is not listed as unused.
    pub fn unused_in_gguf(&self, name: &str) -> Option<&'static str> {
        let is_one = |pattern: &str| match pattern.split_once("{l}") {
            None => pattern == name,
            Some((start, end)) => {
                let layer = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
                layer.is_some_and(|layer| !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit()))
            }
        };
        self.unused_in_gguf.iter().find(|(pattern, _)| is_one(pattern)).map(|(_, what)| *what)
    }
}

impl PartialEq for Architecture {
    fn eq(&self, other: &Architecture) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A key of a description that selects an architecture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Marker {
    /// The key is present and not null.
    Present(&'static str),
    /// The key is true, or 1.
    True(&'static str),
}

impl Architecture {
    /// The architecture that reads GGUF files with this `general.architecture`.
    pub fn from_gguf_name(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().copied().find(|architecture| architecture.gguf_name == name)
    }

    /// The architectures of this class name in `config.json`, those with markers first. The class name of a base model,
    /// such as `LlamaModel`, is treated as that of the whole model.
    pub(crate) fn of_class(class: &str) -> impl Iterator<Item = &'static Architecture> {
        let is_exact = ARCHITECTURES.iter().any(|architecture| architecture.classes.contains(&class));
        let base = class.strip_suffix("Model").filter(|_| !is_exact);
        let whole = base.map(|base| ["ForCausalLM", "LMHeadModel"].map(|end| format!("{base}{end}")));
        let names: Vec<String> = whole.map_or_else(|| vec![class.to_owned()], Vec::from);
        marked_first(move |architecture| names.iter().any(|name| architecture.classes.contains(&name.as_str())))
    }

    /// The architecture of a FastLLM description, which has a `model_type` but no class names.
    pub(crate) fn of_flm_description(config: &Object) -> Option<&'static Architecture> {
        let has_classes = config.contains_key("architectures");
        let kind = config.get("model_type").and_then(Value::as_str).filter(|_| !has_classes)?;
        let mut of_kind = marked_first(move |architecture| architecture.flm_name == Some(kind));
        of_kind.find(|architecture| architecture.is_selected_by(config))
    }

    /// Whether a description has one of this architecture's markers, or the architecture has none.
    pub(crate) fn is_selected_by(&self, config: &Object) -> bool {
        self.selected_by.is_empty() || self.selected_by.iter().any(|marker| marker.is_in(config))
    }

    /// The classes that a `config.json` may name, each with its GGUF architecture, in alphabetical order.
    pub fn supported() -> Vec<(&'static str, &'static str)> {
        let offered = ARCHITECTURES.iter().filter(|architecture| !architecture.is_internal);
        let mut pairs: Vec<(&str, &str)> = offered
            .flat_map(|architecture| architecture.classes.iter().map(|class| (*class, architecture.gguf_name)))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    /// All rules of its tables, in order.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &'static TensorRule> {
        self.tensors.iter().copied().flatten()
    }

    /// The names that a checkpoint may have for a tensor outside of the layers, by its GGUF name.
    pub(crate) fn source_names(&self, name: &str) -> impl Iterator<Item = String> {
        let rules = self.rules().filter_map(|rule| rule.source_of(name, None));
        rules.filter(|source| !source.contains('{'))
    }
}

/// The architectures that fit, those with markers first.
fn marked_first(fits: impl Fn(&Architecture) -> bool) -> impl Iterator<Item = &'static Architecture> {
    let is_marked = |marked: bool| move |architecture: &&&Architecture| architecture.selected_by.is_empty() != marked;
    let all = ARCHITECTURES.iter().filter(is_marked(true)).chain(ARCHITECTURES.iter().filter(is_marked(false)));
    all.copied().filter(move |architecture| fits(architecture))
}

impl ModelSpec {
    /// A description that [`ModelSpec::from_config`] reads as this model, for a model read from a GGUF file; `None` if
    /// there is none.
    pub fn to_config(&self) -> Option<Object> {
        (self.architecture.to_config)(self)
    }

    /// Keys that a `.flm` file needs in addition to those of `config.json`.
    pub fn flm_keys(&self) -> Vec<(String, Value)> {
        (self.architecture.flm_keys)(self)
    }

    /// Notes on compatibility with other GGUF programs, one sentence each.
    pub fn compatibility_notes(&self) -> Vec<String> {
        let mut notes = (self.architecture.compatibility)(self);
        notes.extend(rope_factors_note(self));
        notes.extend(yarn_note(self));
        notes.extend(convolution_note(self));
        notes.extend(long_factors_note(self));
        notes.extend(head_size_note(self));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unambiguous() {
        let without_markers = ARCHITECTURES.iter().filter(|a| a.selected_by.is_empty());
        let mut classes: Vec<&str> = without_markers.flat_map(|a| a.classes).copied().collect();
        classes.sort_unstable();
        let count = classes.len();
        classes.dedup();
        assert_eq!(classes.len(), count);
        assert!(ARCHITECTURES.iter().all(|a| !a.gguf_name.is_empty() && !a.classes.is_empty()));
        for name in ["llama", "qwen2", "qwen3", "baichuan", "chatglm", "chatglm1", "moss"] {
            assert!(Architecture::from_gguf_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn each_table_names_a_tensor_once() {
        for architecture in ARCHITECTURES {
            for table in architecture.tensors {
                for (index, rule) in table.iter().enumerate() {
                    for other in &table[..index] {
                        assert_ne!((rule.name, rule.source), (other.name, other.source), "{}", architecture.classes[0]);
                    }
                    assert_eq!(rule.source.contains("{l}"), rule.name.contains("blk.{l}."), "{}", rule.source);
                }
            }
        }
    }
}
