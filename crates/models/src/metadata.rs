//! Hyper-parameters in the key-value section of a GGUF file, read and written under the keys that all its programs
//! know.
//!
//! ```text
//! general.architecture = "llama"
//! llama.block_count = 32        llama.rope.freq_base = 500000.0        llama.attention.sliding_window = 4096 ...
//! ```

use crate::Condition;
use crate::architecture::Architecture;
use crate::faults::Faults;
use crate::field::{Field, one_count};
use crate::hyper::{Conditions, Draft, DraftWindow, Hyper, Prefix, WindowLayers};
use crate::number::{nearest_f32, wide};
use crate::other_kind::OtherKind;
use crate::rope::{RopeDescription, yarn_magnitude};
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::gguf::{Metadata, MetadataError, Value};
use trueup_formats::{Error, Result, TensorInfo, quote};
use trueup_graph::op::RopeScaling;

/// The key with the architecture's name.
const ARCHITECTURE: &str = "general.architecture";

/// Where the tokens stand; as many as rows of the embedding.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// The largest exponent of ALiBi's slopes, 0 where positions rotate heads.
const MAX_ALIBI_BIAS: &str = "attention.max_alibi_bias";

/// Tokens that divide a text whose beginning sees itself: the first one behind the beginning, the one whose position
/// the others have, and the one that is looked for where that is missing.
const PREFIX: [&str; 3] = ["prefix.end_token_id", "prefix.mark_token_id", "prefix.other_mark_token_id"];

/// Keys behind the architecture's name that change what is computed, with the only value that is supported.
const NEUTRAL: &[(&str, &[&str])] = &[
    ("expert_count", &["0"]),
    ("attention.causal", &["true"]),
    ("attention.scale", &[]),
    ("attention.clamp_kqv", &["0"]),
    ("attn_logit_softcapping", &["0"]),
    ("final_logit_softcapping", &["0"]),
    ("logit_scale", &[]),
    ("embedding_scale", &[]),
    ("residual_scale", &[]),
    ("rope.scaling.yarn_ext_factor", &["1"]),
    ("rope.scaling.yarn_attn_factor", &["1"]),
];

impl Architecture {
    /// The architecture of a GGUF file.
    pub fn of_metadata(metadata: &Metadata, path: &Path) -> Result<&'static Architecture> {
        if let Some(kind) = OtherKind::of_metadata(metadata) {
            return Err(kind.error(path));
        }
        let name = metadata.string(ARCHITECTURE).map_err(|error| error.in_file(path))?;
        Architecture::from_gguf_name(name).ok_or_else(|| {
            Error::new(path, format!("expected a supported architecture, found \"{}\"", quote(name)))
                .at(format!("key {ARCHITECTURE}"))
                .help(format!("supported are {}", Architecture::gguf_names()))
        })
    }
}

impl Hyper {
    /// Reads the keys of a GGUF file; `tensors` tell how many layers there can be and which optional tensors there are.
    /// The error names all faults.
    pub fn from_metadata(
        architecture: &'static Architecture,
        metadata: &Metadata,
        tensors: &[TensorInfo],
        path: &Path,
    ) -> Result<Hyper> {
        let mut reader = MetadataReader { architecture, metadata, faults: Faults::default() };
        reader.check_neutral();
        let rows = embedding_rows(tensors);
        let draft = reader.draft(rows);
        let mut faults = reader.faults;
        let mut hyper = None;
        if faults.list().is_empty() {
            hyper = Hyper::new(draft, tensors.len(), Conditions::default(), &mut faults);
        }
        faults.check(path, "metadata", "the model is not supported, or the file is damaged")?;
        let hyper = hyper.ok_or_else(|| Error::new(path, "numbers are too large for this machine").at("metadata"))?;
        let mut conditions = conditions_of(architecture, &hyper, tensors);
        conditions.set(Condition::Alibi, hyper.alibi().is_some());
        Ok(hyper.with_conditions(conditions))
    }

    /// Writes the keys of a GGUF file. What follows from the tensors (ties, biases, factors) has no key.
    pub fn write_metadata(&self, architecture: &Architecture, metadata: &mut Metadata) {
        metadata.insert(ARCHITECTURE, architecture.gguf_name);
        let mut writer = MetadataWriter { architecture, metadata };
        writer.count(Field::Vocabulary.gguf_key(), self.vocabulary());
        writer.count(Field::Context.gguf_key(), self.context());
        writer.count(Field::Width.gguf_key(), self.width());
        writer.count(Field::Layers.gguf_key(), self.layers());
        writer.count(Field::Ffn.gguf_key(), self.ffn());
        writer.count(Field::Heads.gguf_key(), self.heads());
        writer.count(Field::KvHeads.gguf_key(), self.kv_heads());
        writer.count(Field::HeadSize.gguf_key(), self.head_size());
        writer.count("attention.value_length", self.head_size());
        writer.value(Field::Epsilon.gguf_key(), self.epsilon());
        if architecture.parts.alibi.is_some() {
            writer.value(MAX_ALIBI_BIAS, self.alibi().unwrap_or(0.0));
        }
        if self.alibi().is_none() {
            writer.count("rope.dimension_count", self.rope().dimensions);
            writer.value(Field::RopeBase.gguf_key(), self.rope().base);
            writer.scaling(&self.rope().scaling);
        }
        if let Some(prefix) = self.prefix() {
            let ids = [prefix.end, prefix.mark, prefix.other_mark];
            PREFIX.iter().zip(ids).for_each(|(key, id)| writer.value(key, id));
        }
        if let Some(window) = self.window() {
            writer.count("attention.sliding_window", window.size());
            if window.layers().contains(&false) {
                writer.value("attention.sliding_window_pattern", window.layers().to_vec());
            }
        }
    }
}

/// Reads keys, notes what is wrong and goes on with a number that means nothing: faults end in an error later.
struct MetadataReader<'a> {
    architecture: &'static Architecture,
    metadata: &'a Metadata,
    faults: Faults,
}

impl<'a> MetadataReader<'a> {
    fn draft(&mut self, rows: Option<u64>) -> Draft {
        let (width, heads) = (self.count(Field::Width, None), self.count(Field::Heads, None));
        let kv_heads = self.count(Field::KvHeads, Some(heads));
        let size = width.checked_div(heads).filter(|_| width.is_multiple_of(heads));
        let head_size = self.count(Field::HeadSize, size);
        let values = self.per_layer(&self.key("attention.value_length"));
        if let Some(values) = values.filter(|&values| values != head_size) {
            self.faults
                .add(format!("heads with values of {values} elements but keys of {head_size} are not supported"));
        }
        let context = self.count(Field::Context, None);
        Draft {
            width,
            heads,
            kv_heads,
            head_size,
            context,
            layers: self.count(Field::Layers, None),
            ffn: self.count(Field::Ffn, None),
            vocabulary: self.vocabulary(rows),
            epsilon: self.number(Field::Epsilon.gguf_key(), None),
            rope: self.rope(head_size, context),
            window: self.window(),
            alibi: self.alibi(),
            prefix: self.prefix(),
        }
    }

    fn vocabulary(&mut self, rows: Option<u64>) -> u64 {
        let count = self.count(Field::Vocabulary, rows);
        match self.optional(TOKENS, Metadata::array) {
            Some(tokens) if wide(tokens.len()) != count => {
                self.faults.add(format!("{TOKENS} has {} tokens, expected {count}", tokens.len()));
            }
            _ => {}
        }
        count
    }

    fn rope(&mut self, head_size: u64, context: u64) -> RopeDescription {
        let dimensions = self.per_layer(&self.key("rope.dimension_count")).unwrap_or(head_size);
        let base = self.number(Field::RopeBase.gguf_key(), Some(10_000.0));
        let scaling = self.scaling(context);
        RopeDescription {
            dimensions: usize::try_from(dimensions).unwrap_or(0),
            base: nearest_f32(base),
            scaling,
            llama3: None,
        }
    }

    fn scaling(&mut self, context: u64) -> RopeScaling {
        let old = self.optional(&self.key("rope.scale_linear"), Metadata::f64);
        let factor = self.optional(&self.key("rope.scaling.factor"), Metadata::f64).or(old);
        let kind = self.optional(&self.key("rope.scaling.type"), Metadata::string);
        match (kind.unwrap_or("linear"), factor) {
            ("none", _) | ("linear", None) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor: nearest_f32(factor) },
            ("yarn", factor) => self.yarn(factor, context),
            (kind, _) => {
                self.wrong("rope.scaling.type", &format!("expected none, linear or yarn, found \"{}\"", quote(kind)));
                RopeScaling::None
            }
        }
    }

    /// The magnitude is `attn_factor (1 + 0.1 ln factor)`, divided by `1 + 0.1 m ln factor` where a log multiplier `m`
    /// is given, as programs that run such files compute it.
    fn yarn(&mut self, factor: Option<f64>, context: u64) -> RopeScaling {
        let factor = factor.unwrap_or_else(|| {
            self.wrong("rope.scaling.factor", "expected a float, found no such key");
            1.0
        });
        let multiplier = self.number("rope.scaling.yarn_log_multiplier", Some(0.0));
        let attention = self.number("rope.scaling.attn_factor", Some(1.0));
        let divisor = if multiplier == 0.0 { 1.0 } else { yarn_magnitude(factor, multiplier) };
        let original = self.optional(&self.key("rope.scaling.original_context_length"), Metadata::u64);
        RopeScaling::Yarn {
            factor: nearest_f32(factor),
            original_context: u32::try_from(original.unwrap_or(context)).unwrap_or(0),
            beta_fast: nearest_f32(self.number("rope.scaling.yarn_beta_fast", Some(32.0))),
            beta_slow: nearest_f32(self.number("rope.scaling.yarn_beta_slow", Some(1.0))),
            magnitude: nearest_f32(attention * yarn_magnitude(factor, 1.0) / divisor),
        }
    }

    fn window(&mut self) -> Option<DraftWindow> {
        let size = self.optional(&self.key("attention.sliding_window"), Metadata::u64).filter(|&size| size > 0)?;
        let listed = self.optional(&self.key("attention.sliding_window_pattern"), Metadata::bools);
        let layers = listed.map_or(WindowLayers::From(0), |list| WindowLayers::Listed(list.to_vec()));
        Some(DraftWindow { size, layers })
    }

    /// The largest exponent of ALiBi: as the key says, else by the number of layers, as programs that have no such key
    /// know it.
    fn alibi(&mut self) -> Option<f64> {
        let rule = self.architecture.parts.alibi?;
        let said = self.optional(&self.key(MAX_ALIBI_BIAS), Metadata::f64);
        let layers = self.optional(&self.key(Field::Layers.gguf_key()), Metadata::u64);
        let usual = if layers == Some(wide(rule.layers)) { rule.max_bias.into() } else { 0.0 };
        Some(said.unwrap_or(usual)).filter(|exponent| *exponent != 0.0)
    }

    fn prefix(&mut self) -> Option<Prefix> {
        self.architecture.parts.prefix?;
        let [end, mark, other_mark] = PREFIX.map(|key| self.token(key));
        Some(Prefix { end, mark, other_mark })
    }

    /// The id of a token, which must be there.
    fn token(&mut self, key: &str) -> u32 {
        match self.optional(&self.key(key), Metadata::u64) {
            Some(id) => u32::try_from(id).unwrap_or(u32::MAX),
            None => {
                self.missing(key, "the id of a token");
                0
            }
        }
    }

    fn check_neutral(&mut self) {
        for (key, allowed) in NEUTRAL {
            let found = self.metadata.value(&self.key(key)).map(Value::to_string);
            if let Some(found) = found.filter(|found| !allowed.contains(&found.as_str())) {
                self.wrong(key, &format!("the value {found} is not supported"));
            }
        }
    }

    fn count(&mut self, field: Field, missing: Option<u64>) -> u64 {
        let key = self.key(field.gguf_key());
        let found = if field.is_per_layer() { self.per_layer(&key) } else { self.optional(&key, Metadata::u64) };
        match found.or(missing) {
            Some(count) => count,
            None => {
                self.missing(field.gguf_key(), "an integer that is not negative");
                1
            }
        }
    }

    /// A count, or an array with the same count for each layer.
    fn per_layer(&mut self, key: &str) -> Option<u64> {
        if !matches!(self.metadata.value(key), Some(Value::Array(_))) {
            return self.optional(key, Metadata::u64);
        }
        let counts = self.optional(key, Metadata::u64s)?;
        let layers = self.metadata.u64(&self.key(Field::Layers.gguf_key())).ok();
        one_count(&counts, layers).map_err(|problem| self.faults.add(format!("key {key}: {problem}"))).ok()
    }

    fn number(&mut self, key: &str, missing: Option<f64>) -> f64 {
        match self.optional(&self.key(key), Metadata::f64).or(missing) {
            Some(number) => number,
            None => {
                self.missing(key, "a float");
                1.0
            }
        }
    }

    /// The value of a key that may be absent; a value of another type is a fault.
    fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'a Metadata, &str) -> std::result::Result<T, MetadataError>,
    ) -> Option<T> {
        if !self.metadata.contains(key) {
            return None;
        }
        read(self.metadata, key).map_err(|error| self.faults.add(error.to_string())).ok()
    }

    /// A key that is needed has no value; one of another type was told.
    fn missing(&mut self, key: &str, expected: &str) {
        if !self.metadata.contains(&self.key(key)) {
            self.wrong(key, &format!("expected {expected}, found no such key"));
        }
    }

    fn wrong(&mut self, key: &str, problem: &str) {
        self.faults.add(format!("key {}: {problem}", self.key(key)));
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.gguf_name)
    }
}

/// Writes keys behind the architecture's name.
struct MetadataWriter<'a> {
    architecture: &'a Architecture,
    metadata: &'a mut Metadata,
}

impl MetadataWriter<'_> {
    fn value(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.insert(format!("{}.{key}", self.architecture.gguf_name), value);
    }

    /// A count, below 2^32 by [`Field::count_max`].
    fn count(&mut self, key: &str, count: usize) {
        self.value(key, u32::try_from(count).unwrap_or_else(|_| unreachable!("{key} of {count} was refused")));
    }

    fn scaling(&mut self, scaling: &RopeScaling) {
        match *scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                self.value("rope.scaling.type", "linear");
                self.value("rope.scaling.factor", factor);
            }
            RopeScaling::Long { magnitude } => {
                self.value("rope.scaling.type", "longrope");
                self.value("rope.scaling.attn_factor", magnitude);
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                self.value("rope.scaling.type", "yarn");
                self.value("rope.scaling.factor", factor);
                self.value("rope.scaling.original_context_length", original_context);
                let usual = yarn_magnitude(f64::from(factor), 1.0);
                for (key, value, default) in [
                    ("rope.scaling.attn_factor", nearest_f32(f64::from(magnitude) / usual), 1.0),
                    ("rope.scaling.yarn_beta_fast", beta_fast, 32.0),
                    ("rope.scaling.yarn_beta_slow", beta_slow, 1.0),
                ] {
                    if value != default {
                        self.value(key, value);
                    }
                }
            }
        }
    }
}

/// Rows of the embedding, which say the size of the vocabulary where no key does.
fn embedding_rows(tensors: &[TensorInfo]) -> Option<u64> {
    let embedding = tensors.iter().find(|tensor| tensor.name == crate::Role::TokenEmbedding.pattern())?;
    embedding.shape.get(1).copied()
}

/// A condition holds when one of its tensors is there; whether all are is checked with the names.
fn conditions_of(architecture: &Architecture, hyper: &Hyper, tensors: &[TensorInfo]) -> Conditions {
    let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut conditions = Conditions::default();
    for rule in architecture.tensors.iter().filter(|rule| rule.when != Condition::Always) {
        let layers = if rule.role.is_per_layer() { hyper.layers() } else { 1 };
        if (0..layers).any(|layer| names.contains(rule.role.name(layer).as_str())) {
            conditions.set(rule.when, true);
        }
    }
    conditions
}
