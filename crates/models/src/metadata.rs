//! Reads and writes the parameters of a model in the metadata of a GGUF file.
//!
//! ```text
//! general.architecture = "llama"
//! llama.block_count = 32        llama.rope.freq_base = 500000.0        llama.attention.sliding_window = 4096 ...
//! ```

use crate::architecture::{Architecture, SUPPORTED_HELP};
use crate::diagnostics::Diagnostics;
use crate::encoder::CAUSAL;
use crate::limit::{CONTEXT_MAX, COUNT_MAX, SIZE_MAX, VOCABULARY_MAX};
use crate::number::{nearest_f32, not_positive, wide};
use crate::other_kind::OtherKind;
use crate::rope::{LONG_FACTORS, LongFactors, RopeFactors, RopeSpec, yarn_magnitude};
use crate::spec::{FeedForward, LayerSpec, Mixer, ModelSpec, Prefix};
use crate::subject::key_in_metadata;
use crate::tensor::{ROPE_FACTORS, TOKEN_EMBEDDING};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use trueup_formats::gguf::{Metadata, MetadataError, Value};
use trueup_formats::{Error, Result, TensorInfo, quote};
use trueup_graph::op::{RopePairs, RopeScaling};

mod writer;

pub(crate) use writer::KeyWriter;

/// The key with the architecture's name.
const ARCHITECTURE: &str = "general.architecture";

/// What to do about keys that are wrong.
const HELP: &str =
    "get the file again or convert the model again; if the file is correct, trueup does not support this model";

/// The tokens, one for each row of the embedding.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// Special tokens of a prefix LM: `end` (the first token after the prefix), `mark` (whose position the tokens after the
/// prefix have), and the fallback for `mark`.
const PREFIX: [&str; 3] = ["prefix.end_token_id", "prefix.mark_token_id", "prefix.other_mark_token_id"];

/// Keys that change the computation, and the values that have no effect. An architecture that supports such a key reads
/// it; for other architectures, all other values are rejected.
const NEUTRAL: &[(&str, &[&str])] = &[
    ("expert_count", &["0"]),
    ("expert_group_count", &["0", "1"]),
    ("expert_group_used_count", &["0", "1"]),
    (CAUSAL, &["true"]),
    ("attention.kv_lora_rank", &[]),
    ("attention.max_alibi_bias", &["0"]),
    ("attention.scale", &[]),
    ("attention.shared_kv_layers", &["0"]),
    ("attention.clamp_kqv", &["0"]),
    ("attention.temperature_scale", &["0"]),
    ("attn_logit_softcapping", &["0"]),
    ("final_logit_softcapping", &["0"]),
    ("logit_scale", &[]),
    ("embedding_scale", &[]),
    ("residual_scale", &[]),
    ("nextn_predict_layers", &["0"]),
    ("rope.scaling.attn_factor", &["1"]),
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
                .help(SUPPORTED_HELP)
        })
    }
}

impl ModelSpec {
    /// Reads the keys of a GGUF file. Its tensors decide which optional parts the model has.
    ///
    /// # Errors
    /// All problems of the keys in one message.
    pub fn from_metadata(
        architecture: &'static Architecture,
        metadata: &Metadata,
        tensors: &[TensorInfo],
        path: &Path,
    ) -> Result<ModelSpec> {
        let mut keys = Keys {
            architecture,
            metadata,
            shapes: tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect(),
            diagnostics: Diagnostics::default(),
            read: HashSet::new(),
        };
        let mut spec = (architecture.from_metadata)(&mut keys);
        spec.architecture = architecture;
        keys.check_neutral();
        let mut diagnostics = keys.diagnostics;
        if diagnostics.list().is_empty() {
            spec.check(&mut diagnostics);
            let key = |problem: &str| key_in_metadata(problem, architecture.gguf_name, metadata);
            diagnostics = diagnostics.with_keys(key);
        }
        diagnostics.check(path, "metadata", HELP)?;
        Ok(spec)
    }

    /// Writes the keys of a GGUF file. Properties that follow from the tensors (ties, biases, factors) have no key.
    pub fn write_metadata(&self, metadata: &mut Metadata) {
        metadata.insert(ARCHITECTURE, self.architecture.gguf_name);
        let mut writer = KeyWriter { architecture: self.architecture, metadata };
        writer.count("vocab_size", self.vocabulary_size);
        writer.count("context_length", self.context_length);
        writer.count("embedding_length", self.hidden_size);
        writer.count("block_count", self.layers.len());
        self.write_feed_forwards(&mut writer);
        writer.per_layer("attention.head_count", self.attentions().map(|(_, attention)| attention.heads));
        writer.per_layer("attention.head_count_kv", self.attentions().map(|(_, attention)| attention.kv_heads));
        if let Some((_, attention)) = self.attentions().next() {
            writer.count("attention.key_length", attention.key_size);
            writer.count("attention.value_length", attention.value_size);
            if let Some(latent) = &attention.latent {
                latent.keys(&mut writer);
            }
        }
        let state_space = self.layers.iter().find_map(|layer| match &layer.mixer {
            Mixer::StateSpace(state_space) => Some(state_space),
            Mixer::Attention(_) => None,
        });
        state_space.iter().for_each(|state_space| state_space.write_keys(&mut writer));
        if let Some(norm) = self.outer_norm() {
            writer.value(norm.epsilon_key(), norm.epsilon);
        }
        writer.encoder(self);
        if let Some(rope) = self.rope() {
            writer.count("rope.dimension_count", rope.dimensions);
            writer.value("rope.freq_base", rope.base);
            if let Some(window) = self.window_rope().filter(|window| window.base != rope.base) {
                writer.value("rope.freq_base_swa", window.base);
            }
            writer.scaling(&rope.scaling);
            if let RopeFactors::Long(factors) = &rope.factors {
                writer.count("rope.scaling.original_context_length", factors.original_context);
            }
        }
        if let Some(prefix) = self.prefix() {
            let ids = [prefix.end, prefix.mark, prefix.other_mark];
            PREFIX.iter().zip(ids).for_each(|(key, id)| writer.value(key, id));
        }
        if let Some(window) = self.window() {
            writer.count("attention.sliding_window", window);
            let layers: Vec<bool> = self.attentions().map(|(_, attention)| attention.window.is_some()).collect();
            if layers.contains(&false) {
                writer.value("attention.sliding_window_pattern", layers);
            }
        }
        (self.architecture.more_keys)(self, &mut writer);
    }

    /// Writes the feed-forward lengths. Layers with experts have the length of a dense layer or, without one, of an
    /// expert.
    fn write_feed_forwards(&self, writer: &mut KeyWriter) {
        let dense = |layer: &LayerSpec| match &layer.feed_forward {
            FeedForward::Dense(dense) => Some(dense.size),
            FeedForward::Experts(_) => None,
            FeedForward::None => Some(0),
        };
        let experts = self.experts();
        let other = self.layers.iter().find_map(dense).or(experts.map(|experts| experts.size)).unwrap_or(1);
        writer.per_layer("feed_forward_length", self.layers.iter().map(|layer| dense(layer).unwrap_or(other)));
        if let Some(experts) = experts {
            experts.keys(writer);
        }
    }
}

/// A reader of the keys of a GGUF file, with the shapes of its tensors.
pub(crate) struct Keys<'a> {
    architecture: &'static Architecture,
    metadata: &'a Metadata,
    shapes: HashMap<&'a str, &'a [u64]>,
    diagnostics: Diagnostics,
    /// Keys that the architecture has read.
    read: HashSet<String>,
}

impl<'a> Keys<'a> {
    /// The architecture that reads them.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Whether the file has a tensor of this name; in a name with `{l}`, of any layer.
    pub fn has_tensor(&self, name: &str) -> bool {
        match name.split_once("{l}") {
            None => self.shapes.contains_key(name),
            Some((start, end)) => self.shapes.keys().any(|name| {
                name.strip_prefix(start)
                    .and_then(|rest| rest.strip_suffix(end))
                    .is_some_and(|layer| layer.bytes().all(|byte| byte.is_ascii_digit()))
            }),
        }
    }

    /// Whether the file has the key.
    pub fn has(&self, key: &str) -> bool {
        self.metadata.contains(&format!("{}.{key}", self.architecture.gguf_name))
    }

    /// Whether no problem has been found.
    pub fn is_sound(&self) -> bool {
        self.diagnostics.list().is_empty()
    }

    /// The size of a dimension of a tensor.
    pub fn dimension(&self, tensor: &str, dimension: usize) -> Option<usize> {
        self.shapes.get(tensor)?.get(dimension).and_then(|size| usize::try_from(*size).ok())
    }

    /// Reports a key that contradicts the tensors. `sizes` are tensor sizes that must equal the key; if they differ
    /// from each other, a tensor is wrong, and this function reports nothing. `meaning` describes the number.
    pub fn expect_of_tensors(&mut self, key: &str, found: usize, meaning: &str, sizes: &[Option<usize>]) {
        let Some((Some(first), others)) = sizes.split_first() else { return };
        if self.has(key) && first != &found && others.iter().all(|size| size.as_ref() == Some(first)) {
            self.wrong(key, &format!("expected {first}, {meaning}, found {found}"));
        }
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.diagnostics.add(problem);
    }

    /// Elements of a row.
    pub fn size(&mut self, key: &str) -> usize {
        self.count_within(key, SIZE_MAX, None)
    }

    /// Elements of a row; `absent` if the file does not have the key.
    pub fn size_or(&mut self, key: &str, absent: usize) -> usize {
        self.count_within(key, SIZE_MAX, Some(absent))
    }

    /// A count, such as the number of experts, `1 ..= 2^16`.
    pub fn count(&mut self, key: &str) -> usize {
        self.count_within(key, COUNT_MAX, None)
    }

    /// A number that may be 0; `None` if the file does not have the key.
    pub fn count_if_present(&mut self, key: &str) -> Option<u64> {
        let name = self.key(key);
        self.get(&name, Metadata::u64)
    }

    /// A count under a key without the architecture; `absent` if the file does not have it.
    pub fn shared_count_or(&mut self, name: &str, absent: usize) -> usize {
        let Some(found) = self.get(name, Metadata::u64) else { return absent };
        match usize::try_from(found).ok().filter(|count| (1..=COUNT_MAX).contains(count)) {
            Some(count) => count,
            None => {
                self.problem(format!("key {name}: expected 1 to {COUNT_MAX}, found {found}"));
                absent
            }
        }
    }

    /// The context length.
    pub fn context(&mut self) -> usize {
        self.count_within("context_length", CONTEXT_MAX, None)
    }

    /// The number of layers, which the number of tensors limits.
    pub fn layers(&mut self) -> usize {
        self.layers_within("block_count", None)
    }

    /// The number of layers of another stack; `absent` if the file does not have the key.
    pub fn layers_or(&mut self, key: &str, absent: usize) -> usize {
        self.layers_within(key, Some(absent))
    }

    fn layers_within(&mut self, key: &str, absent: Option<usize>) -> usize {
        let layers = self.count_within(key, COUNT_MAX, absent);
        let tensors = self.shapes.len();
        if layers <= tensors {
            return layers;
        }
        self.wrong(key, &format!("expected at most {tensors} (the number of tensors), found {layers}"));
        1
    }

    /// A count, such as the number of experts; `absent` if the file does not have the key.
    pub fn count_or(&mut self, key: &str, absent: usize) -> usize {
        self.count_within(key, COUNT_MAX, Some(absent))
    }

    /// A token ID; `absent` if the file does not have the key.
    pub fn token_or(&mut self, key: &str, absent: u32) -> u32 {
        let name = self.key(key);
        self.get(&name, Metadata::u64).map_or(absent, |id| u32::try_from(id).unwrap_or(u32::MAX))
    }

    /// The vocabulary size: the key, or the number of rows of the embedding.
    pub fn vocabulary(&mut self) -> usize {
        let rows = self.shapes.get(TOKEN_EMBEDDING).and_then(|shape| shape.get(1));
        let rows = rows.and_then(|rows| usize::try_from(*rows).ok()).filter(|rows| (1..=VOCABULARY_MAX).contains(rows));
        let count = self.count_within("vocab_size", VOCABULARY_MAX, rows);
        match self.get(TOKENS, Metadata::array) {
            Some(tokens) if tokens.len() != count => {
                self.problem(format!("{TOKENS} has {} tokens, expected {count}", tokens.len()));
            }
            _ => {}
        }
        count
    }

    /// One count for each layer, from a number or an array; `absent` if the file does not have the key.
    pub fn per_layer(&mut self, key: &str, layers: usize, max: usize, absent: Option<Vec<usize>>) -> Vec<usize> {
        let name = self.key(key);
        if !matches!(self.metadata.value(&name), Some(Value::Array(_))) {
            if !self.metadata.contains(&name)
                && let Some(absent) = absent
            {
                return absent;
            }
            return vec![self.count_within(key, max, None); layers];
        }
        let Some(counts) = self.get(&name, Metadata::u64s) else { return vec![1; layers] };
        if counts.is_empty() {
            self.problem(format!("key {name}: expected {layers} integers, one for each layer, found an empty list"));
        } else if counts.len() != layers {
            let found = counts.len();
            self.problem(format!("key {name}: expected {layers} integers, one for each layer, found {found}"));
        }
        let mut counts: Vec<usize> = counts.into_iter().map(|count| self.within(key, count, max)).collect();
        counts.resize(layers, 1);
        counts
    }

    /// One count that all layers share, from a number or an array with equal entries.
    pub fn shared_count(&mut self, key: &str, layers: usize, absent: Option<usize>) -> usize {
        let counts = self.per_layer(key, layers, COUNT_MAX, absent.map(|absent| vec![absent; layers]));
        let first = counts.first().copied().unwrap_or(1);
        if let Some(layer) = counts.iter().position(|count| *count != first) {
            let other = counts.get(layer).copied().unwrap_or_default();
            let key = self.key(key);
            self.problem(format!(
                "key {key}: layer 0 has {first} and layer {layer} has {other}; layers with different sizes of \
                 heads are not supported"
            ));
        }
        first
    }

    /// A number; `absent` if the file does not have the key. If `absent` is `None`, the key is required.
    pub fn number(&mut self, key: &str, absent: Option<f64>) -> f64 {
        let name = self.key(key);
        match self.get(&name, Metadata::f64).or(absent) {
            Some(number) => number,
            None => {
                self.missing(key, "a float");
                1.0
            }
        }
    }

    /// A number as [`Keys::number`] reads it, which must be positive and finite as f32.
    pub fn positive(&mut self, key: &str, absent: Option<f64>) -> f32 {
        let number = self.number(key, absent);
        let Some(expected) = not_positive(number) else { return nearest_f32(number) };
        let key = self.key(key);
        self.problem(format!("key {key}: expected {expected}, found {number:?}"));
        1.0
    }

    /// Rejects an exponent of ALiBi other than that of the architecture.
    pub fn only_alibi_bias(&mut self, expected: f32) {
        let key = "attention.max_alibi_bias";
        if let Some(found) = self.number_if_present(key).filter(|found| nearest_f32(*found) != expected) {
            self.wrong(key, &format!("expected {expected}, found {found}"));
        }
    }

    /// A number; `None` if the file does not have the key.
    pub fn number_if_present(&mut self, key: &str) -> Option<f64> {
        let name = self.key(key);
        self.get(&name, Metadata::f64)
    }

    /// A switch; `absent` if the file does not have the key.
    pub fn flag_or(&mut self, key: &str, absent: bool) -> bool {
        let name = self.key(key);
        self.get(&name, Metadata::bool).unwrap_or(absent)
    }

    /// The epsilon of norms, under the key of either kind of norm.
    pub fn epsilon(&mut self, key: &str) -> f32 {
        let other = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"]
            .into_iter()
            .find(|other| *other != key && self.metadata.contains(&format!("{}.{other}", self.architecture.gguf_name)));
        let is_present = self.metadata.contains(&self.key(key));
        let key = other.filter(|_| !is_present).unwrap_or(key);
        self.positive(key, None)
    }

    /// The rotation of heads of `head_size` elements.
    pub fn rope(&mut self, pairs: RopePairs, head_size: usize, context: usize, layers: usize) -> RopeSpec {
        let dimensions = self.shared_dimensions(head_size, layers);
        let base = self.positive("rope.freq_base", Some(10_000.0));
        let (scaling, factors) = match self.has_tensor(LONG_FACTORS) {
            true => self.long_scaling(context),
            false if self.has_tensor(ROPE_FACTORS) => (self.scaling(context), RopeFactors::Stored),
            false => (self.scaling(context), RopeFactors::None),
        };
        RopeSpec { pairs, dimensions, base, scaling, factors }
    }

    /// Rotated elements of a head; 0 is left to the check of the rotation.
    fn shared_dimensions(&mut self, head_size: usize, layers: usize) -> usize {
        let name = self.key("rope.dimension_count");
        match self.metadata.value(&name) {
            Some(Value::Array(_)) => self.shared_count("rope.dimension_count", layers, Some(head_size)),
            _ => {
                let count = self.get(&name, Metadata::u64);
                count.map_or(head_size, |count| usize::try_from(count).unwrap_or(0))
            }
        }
    }

    fn scaling(&mut self, context: usize) -> RopeScaling {
        let old = self.number_if_present("rope.scale_linear");
        let factor = self.number_if_present("rope.scaling.factor").or(old);
        let name = self.key("rope.scaling.type");
        let kind = self.get(&name, Metadata::string);
        match (kind.unwrap_or("linear"), factor) {
            ("none", _) | ("linear", None) => RopeScaling::None,
            ("linear", Some(factor)) => RopeScaling::Linear { factor: nearest_f32(factor) },
            ("yarn", factor) => self.yarn(factor, context),
            ("longrope", _) => {
                // Marks the key as read; its value is not needed.
                self.key("rope.scaling.attn_factor");
                self.problem(format!("tensor {LONG_FACTORS} is missing; rope.scaling.type \"longrope\" requires it"));
                RopeScaling::None
            }
            (kind, _) => {
                self.wrong("rope.scaling.type", &format!("expected none, linear or yarn, found \"{}\"", quote(kind)));
                RopeScaling::None
            }
        }
    }

    /// LongRoPE. Its tensors select it, regardless of `rope.scaling.type`.
    fn long_scaling(&mut self, context: usize) -> (RopeScaling, RopeFactors) {
        let magnitude = nearest_f32(self.number("rope.scaling.attn_factor", Some(1.0)));
        let original_context = self.count_within("rope.scaling.original_context_length", CONTEXT_MAX, Some(context));
        let factors = LongFactors { long: Vec::new(), short: Vec::new(), original_context };
        (RopeScaling::Long { magnitude }, RopeFactors::Long(factors))
    }

    /// The magnitude is `attn_factor (1 + 0.1 ln factor)`, divided by `1 + 0.1 m ln factor` if a log multiplier `m` is
    /// given, as programs that run such files compute it.
    fn yarn(&mut self, factor: Option<f64>, context: usize) -> RopeScaling {
        let factor = factor.unwrap_or_else(|| {
            self.wrong("rope.scaling.factor", "expected a float, found no such key");
            1.0
        });
        let multiplier = self.number("rope.scaling.yarn_log_multiplier", Some(0.0));
        let attention = self.number("rope.scaling.attn_factor", Some(1.0));
        let divisor = if multiplier == 0.0 { 1.0 } else { yarn_magnitude(factor, multiplier) };
        let name = self.key("rope.scaling.original_context_length");
        let original = self.get(&name, Metadata::u64);
        RopeScaling::Yarn {
            factor: nearest_f32(factor),
            original_context: u32::try_from(original.unwrap_or(wide(context))).unwrap_or(0),
            beta_fast: nearest_f32(self.number("rope.scaling.yarn_beta_fast", Some(32.0))),
            beta_slow: nearest_f32(self.number("rope.scaling.yarn_beta_slow", Some(1.0))),
            magnitude: nearest_f32(attention * yarn_magnitude(factor, 1.0) / divisor),
        }
    }

    /// The sliding window and the layers that have it, if any. The pattern is an array or a period; without the key,
    /// `usual` is the period of the architecture, and without that all layers have the window.
    pub fn window(&mut self, layers: usize, usual: Option<usize>) -> Option<(usize, Vec<bool>)> {
        let name = self.key("attention.sliding_window");
        let size = self.get(&name, Metadata::u64).filter(|&size| size > 0)?;
        let size = self.within("attention.sliding_window", size, CONTEXT_MAX);
        let name = self.key("attention.sliding_window_pattern");
        let list = match self.metadata.value(&name) {
            None => usual.map_or_else(|| vec![true; layers], |period| windows_by_period(period, layers)),
            Some(Value::Array(_)) => self.get(&name, Metadata::bools)?.to_vec(),
            Some(_) => {
                windows_by_period(self.count_within("attention.sliding_window_pattern", COUNT_MAX, None), layers)
            }
        };
        if list.len() != layers {
            let found = list.len();
            let problem = format!("expected {layers} entries, one for each layer, found {found}");
            self.wrong("attention.sliding_window_pattern", &problem);
            return None;
        }
        Some((size, list))
    }

    /// The outermost size of a tensor, if the file has it.
    pub fn rows_of(&self, tensor: &str) -> Option<usize> {
        let rows = self.shapes.get(tensor)?.last()?;
        usize::try_from(*rows).ok().filter(|rows| (1..=COUNT_MAX).contains(rows))
    }

    /// The special tokens of a prefix LM, which are required.
    pub fn prefix(&mut self) -> Prefix {
        let [end, mark, other_mark] = PREFIX.map(|key| self.token(key));
        Prefix { end, mark, other_mark }
    }

    fn token(&mut self, key: &str) -> u32 {
        let name = self.key(key);
        match self.get(&name, Metadata::u64) {
            Some(id) => u32::try_from(id).unwrap_or(u32::MAX),
            None => {
                self.missing(key, "a token ID");
                0
            }
        }
    }

    fn check_neutral(&mut self) {
        for (key, allowed) in NEUTRAL {
            let name = format!("{}.{key}", self.architecture.gguf_name);
            let found = self.metadata.value(&name).filter(|_| !self.read.contains(&name)).map(Value::to_string);
            if let Some(found) = found.filter(|found| !allowed.contains(&found.as_str())) {
                let expected = if allowed.is_empty() { "no such key".to_owned() } else { allowed.join(" or ") };
                self.wrong(key, &format!("expected {expected}, found {found}"));
            }
        }
    }

    fn count_within(&mut self, key: &str, max: usize, absent: Option<usize>) -> usize {
        let name = self.key(key);
        match (self.get(&name, Metadata::u64), absent) {
            (Some(count), _) => self.within(key, count, max),
            (None, Some(absent)) => absent,
            (None, None) => {
                self.missing(key, "a non-negative integer");
                1
            }
        }
    }

    fn within(&mut self, key: &str, count: u64, max: usize) -> usize {
        match usize::try_from(count).ok().filter(|count| (1..=max).contains(count)) {
            Some(count) => count,
            None => {
                self.wrong(key, &format!("expected 1 to {max}, found {count}"));
                1
            }
        }
    }

    /// The value of a key that may be absent. A value of another type is a problem.
    pub fn get<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'a Metadata, &str) -> std::result::Result<T, MetadataError>,
    ) -> Option<T> {
        if !self.metadata.contains(key) {
            return None;
        }
        read(self.metadata, key).map_err(|error| self.diagnostics.add(error.to_string())).ok()
    }

    /// Reports a required key that is absent. A value of the wrong type has been reported already.
    fn missing(&mut self, key: &str, expected: &str) {
        if !self.metadata.contains(&self.key(key)) {
            self.wrong(key, &format!("expected {expected}, found no such key"));
        }
    }

    pub fn wrong(&mut self, key: &str, problem: &str) {
        let key = self.key(key);
        self.problem(format!("key {key}: {problem}"));
    }

    /// The full key. Marks it as read.
    pub fn key(&mut self, key: &str) -> String {
        let name = format!("{}.{key}", self.architecture.gguf_name);
        self.read.insert(name.clone());
        name
    }
}

/// Whether each layer has a window, if the last of each `period` layers has none.
pub(crate) fn windows_by_period(period: usize, layers: usize) -> Vec<bool> {
    (1..=layers).map(|layer| !layer.is_multiple_of(period.max(1))).collect()
}
