//! The names of a checkpoint's tensors, which may lack or add the prefix of a base model or a wrapper.
//!
//! ```text
//! model.layers.0.mlp.up_proj.weight             as in the table of the architecture
//! layers.0.mlp.up_proj.weight                   saved from the base model
//! module.model.layers.0.mlp.up_proj.weight      saved inside a wrapper: DataParallel, torch.compile, PEFT
//! ```
//!
//! The name of the token embedding shows the prefix, or those of the first layer if there is no embedding. The prefix
//! applies to all tensors.

use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::tensor::{OUTPUT, TOKEN_EMBEDDING};
use std::borrow::Cow;
use std::collections::HashSet;

/// Names of tensors that old checkpoints store although they follow from the description.
const BUFFERS: [&str; 8] = [
    "rotary_emb.inv_freq",
    "rotary_pos_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "attn.causal_mask",
    "attention.causal_mask",
];

/// Stands for the number of a multi-token prediction layer, which follows the last layer of the model.
const EXTRA_LAYER: &str = "{extra}";

/// A tensor that only multi-token prediction layers have.
const PREDICTION: &str = "eh_proj.weight";

/// The parameters of norms as checkpoints converted from TensorFlow name them.
const OLDER: [(&str, &str); 2] = [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];

/// The names of a checkpoint's tensors, found by the names in the tables of its architecture.
#[derive(Debug)]
pub struct SourceNames<'a> {
    architecture: &'static Architecture,
    /// `None` if any name exists, because there is no checkpoint.
    names: Option<HashSet<&'a str>>,
    /// Prefix of every name, or of every name of the base model.
    added: String,
    /// The prefix of the base model, without which the names are stored; empty if they have it.
    removed: &'static str,
}

impl<'a> SourceNames<'a> {
    /// The names of a checkpoint.
    pub fn new(architecture: &'static Architecture, names: impl Iterator<Item = &'a str>) -> SourceNames<'a> {
        let names: HashSet<&str> = names.collect();
        let (added, removed) = prefix(architecture, &names).unwrap_or_default();
        SourceNames { architecture, names: Some(names), added: added.to_owned(), removed }
    }

    /// The names in the tables, for a model that does not come from a checkpoint.
    pub fn of_tables(architecture: &'static Architecture) -> SourceNames<'static> {
        SourceNames { architecture, names: None, added: String::new(), removed: "" }
    }

    /// The architecture whose tables have the names.
    pub(crate) fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// The name of the tensor that the tables call `table`; `None` if the checkpoint does not have it.
    pub fn find(&self, table: &str) -> Option<String> {
        let Some(names) = &self.names else { return Some(table.to_owned()) };
        let inner = table.strip_prefix(self.removed).unwrap_or(table);
        let name = format!("{}{inner}", self.added);
        if let Some(found) = [name.as_str(), table].into_iter().find(|name| names.contains(name)) {
            return Some(found.to_owned());
        }
        let older = OLDER.iter().find_map(|(now, older)| Some(format!("{}{older}", name.strip_suffix(now)?)));
        older.filter(|older| names.contains(older.as_str()))
    }

    /// Whether there is a checkpoint that has the tensor that the tables call `table`.
    pub fn has(&self, table: &str) -> bool {
        self.names.is_some() && self.find(table).is_some()
    }

    /// The name of the tensor that the tables call `table`; if the checkpoint does not have it, the name that it would
    /// have there.
    pub fn stored(&self, table: &str) -> String {
        let expected = || match table.strip_prefix(self.removed) {
            Some(inner) => format!("{}{inner}", self.added),
            None => table.to_owned(),
        };
        self.find(table).unwrap_or_else(expected)
    }

    /// The name of a tensor outside of the layers, by its GGUF name; if the checkpoint does not have it, the name that
    /// it would have there.
    pub fn source_of(&self, gguf_name: &str) -> Option<String> {
        let mut tables = self.architecture.source_names(gguf_name);
        let first = self.architecture.source_names(gguf_name).next();
        tables.find_map(|table| self.find(&table)).or_else(|| Some(self.stored(&first?)))
    }

    /// The name of an output head other than the token embedding, if the checkpoint has one.
    pub fn head(&self) -> Option<String> {
        let embeddings: Vec<String> = self.architecture.source_names(TOKEN_EMBEDDING).collect();
        let mut heads = self.architecture.source_names(OUTPUT).filter(|name| !embeddings.contains(name));
        heads.find_map(|name| self.find(&name))
    }

    /// The name in the tables of the tensor that the checkpoint calls `name`.
    pub fn in_tables<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let inner = name.strip_prefix(&self.added).unwrap_or(name);
        let is_outside = || {
            let outside = self.architecture.rules().filter(|rule| !rule.source.starts_with(self.removed));
            outside.map(|rule| rule.source).any(|source| inner.starts_with(source))
        };
        match self.removed.is_empty() || is_outside() {
            true => Cow::Borrowed(inner),
            false => Cow::Owned(format!("{}{inner}", self.removed)),
        }
    }

    /// Whether the names lack the prefix of the base model.
    pub fn is_base_model(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Whether a tensor that no rule uses follows from the description, by its name. `sources` are the names of the
    /// tensors that rules use.
    pub fn is_buffer<'s>(&self, name: &str, mut sources: impl Iterator<Item = &'s str>) -> bool {
        let starts = BUFFERS.iter().filter_map(|end| name.strip_suffix(end));
        match starts.filter(|start| start.is_empty() || start.ends_with('.')).max_by_key(|start| start.len()) {
            Some(start) => sources.any(|source| source.starts_with(start)),
            None => false,
        }
    }

    /// Describes an unused tensor of a model with this many layers; `None` if the tensor is used.
    pub fn unused_part(&self, name: &str, layers: usize) -> Option<&'static str> {
        let is_prefix = |start: &str| start.is_empty() || self.added.starts_with(start) && start.ends_with('.');
        let begins = |start: &str| {
            let (fixed, numbered) = start.split_once(EXTRA_LAYER).map_or((start, false), |(fixed, _)| (fixed, true));
            name.match_indices(fixed).any(|(at, _)| {
                let rest = name.get(at.saturating_add(fixed.len())..).and_then(|rest| rest.split('.').next());
                let layer = rest.and_then(|number| number.parse().ok());
                let is_extra = |layer: usize| layer >= layers && self.has(&format!("{fixed}{layer}.{PREDICTION}"));
                name.get(..at).is_some_and(is_prefix) && (!numbered || layer.is_some_and(is_extra))
            })
        };
        self.architecture.unused.iter().find(|(start, _)| begins(start)).map(|(_, what)| *what)
    }

    /// A sentence about the prefix, if names lack or add one.
    pub fn note(&self) -> Option<String> {
        let class = self.architecture.classes.first().copied().unwrap_or_default();
        let added = self.added.strip_suffix(self.architecture.base_prefix).unwrap_or(&self.added);
        match (self.removed, added) {
            ("", "") => None,
            (removed, "") => {
                Some(format!("tensor names lack the prefix `{removed}`: this is the base model of {class}"))
            }
            ("", added) => Some(format!("tensor names have the additional prefix `{added}`, which is ignored")),
            (removed, added) => Some(format!("tensor names have the prefix `{added}` instead of `{removed}`")),
        }
    }
}

/// Prefix of the names of a checkpoint, and the prefix that they lack; `None` if there are several to choose from.
fn prefix<'a>(architecture: &'static Architecture, names: &HashSet<&'a str>) -> Option<(&'a str, &'static str)> {
    let is_embedding = |rule: &&TensorRule| rule.source_of(TOKEN_EMBEDDING, None).is_some();
    let in_layers = |rule: &&TensorRule| rule.source.contains("{l}") && !rule.source.contains("{e}");
    let mut found = prefixes(architecture.rules().filter(is_embedding), names);
    if found.is_empty() {
        found = prefixes(architecture.rules().filter(in_layers), names);
    }
    let only = found.len() == 1;
    found.into_iter().next().filter(|_| only)
}

/// Prefixes of the names of these tensors (of the first layer), and the prefix that the names lack.
fn prefixes<'a>(
    rules: impl Iterator<Item = &'static TensorRule>,
    names: &HashSet<&'a str>,
) -> HashSet<(&'a str, &'static str)> {
    let mut found = HashSet::new();
    for rule in rules {
        let whole = format!("{}.weight", rule.source.replace("{l}", "0"));
        if names.contains(whole.as_str()) {
            return HashSet::from([("", "")]);
        }
        let base = rule.source.split_once('.').and_then(|(base, _)| rule.source.get(..=base.len())).unwrap_or("");
        let inner = whole.strip_prefix(base).unwrap_or(&whole);
        for name in names {
            let start = |end: &str| name.strip_suffix(end).filter(|start| start.is_empty() || start.ends_with('.'));
            found.extend(start(&whole).map(|added| (added, "")).or_else(|| start(inner).map(|added| (added, base))));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_other_prefixes() {
        let llama = Architecture::from_gguf_name("llama").unwrap();
        let table = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"];
        type Rename = fn(&str) -> String;
        let cases: [(Rename, &str); 5] = [
            (str::to_owned, ""),
            (|name| format!("module.{name}"), "additional prefix `module.`"),
            (|name| name.replace("model.", ""), "lack the prefix `model.`"),
            (|name| format!("_orig_mod.{}", name.replace("model.", "")), "`_orig_mod.` instead of `model.`"),
            (|name| name.replace("model.", "model.text."), "`model.text.` instead of `model.`"),
        ];
        for (rename, note) in cases {
            let stored = table.map(rename);
            let names = SourceNames::new(llama, stored.iter().map(String::as_str));
            for (table, stored) in table.iter().zip(&stored) {
                assert_eq!((names.find(table).as_ref(), names.in_tables(stored).as_ref()), (Some(stored), *table));
            }
            let said = names.note().unwrap_or_default();
            assert!(said.contains(note) && said.is_empty() == note.is_empty(), "{said}");
        }
        // PEFT's wrapper, and the same without the embedding.
        let wrapped = table.map(|name| format!("base_model.model.{name}"));
        for first in 0..2 {
            let names = SourceNames::new(llama, wrapped.iter().skip(first).map(String::as_str));
            assert_eq!(names.stored(table[0]), wrapped[0]);
            assert_eq!(names.source_of("output_norm.weight").as_deref(), Some("base_model.model.model.norm.weight"));
        }
        let two = ["a.embed_tokens.weight", "b.embed_tokens.weight"];
        assert_eq!(SourceNames::new(llama, two.into_iter()).note(), None);
    }

    #[test]
    fn buffers_belong_to_a_module_of_the_model() {
        let llama = Architecture::from_gguf_name("llama").unwrap();
        let names = SourceNames::of_tables(llama);
        let is_buffer = |name: &str| names.is_buffer(name, ["model.layers.0.self_attn.q_proj.weight"].into_iter());
        assert!(is_buffer("model.layers.0.self_attn.rotary_emb.inv_freq") && is_buffer("model.layers.0.attn.bias"));
        assert!(!is_buffer("model.layers.x.self_attn.rotary_emb.inv_freq") && !is_buffer("model.layers.0.c_attn.bias"));
    }
}
