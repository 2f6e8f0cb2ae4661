//! Reads `config.json` of a Hugging Face directory, or a description with the same keys.
//!
//! A reader collects every problem and continues with a placeholder value, so that one message lists them all. A model
//! with a problem is never built.

use crate::architecture::{Architecture, Marker, SUPPORTED_HELP};
use crate::diagnostics::Diagnostics;
use crate::encoder::MODULES;
use crate::limit::{CONTEXT_MAX, COUNT_MAX, SIZE_MAX, VOCABULARY_MAX};
use crate::metadata::windows_by_period;
use crate::number::not_positive;
use crate::spec::{ModelSpec, ScaledHead};
use crate::subject::key_in_config;
use crate::tensor::OUTPUT;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::flm::description_name;
use trueup_formats::json::{INFINITY, MINUS_INFINITY, NAN};
use trueup_formats::{Error, QUANTIZED_HELP, Result, counted, quote};

mod rope;
mod unread;

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

impl Architecture {
    /// The architecture of a description, by its `architectures`, and by markers if several share a class name.
    pub fn of_config(config: &Object, path: &Path) -> Result<&'static Architecture> {
        let listed = config.get("architectures");
        let classes: Vec<&str> =
            listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(found) = Architecture::of_flm_description(config) {
            return Ok(found);
        }
        let [class] = classes[..] else {
            let found = match listed {
                None => "no such key".to_owned(),
                Some(Value::Array(_)) => counted(classes.len(), "class name"),
                Some(Value::String(class)) => format!("the string \"{}\"", quote(class)),
                Some(other) => quote(&other.to_string()),
            };
            let problem = format!("expected a list with one class name, found {found}");
            let file = description_name(path);
            let help = match (listed, classes.len()) {
                (None, _) => format!("add \"architectures\" with the class of this model to {file}"),
                (_, 2..) => "keep only the class of this model in \"architectures\"".to_owned(),
                _ => "write the class of this model as a list with one name".to_owned(),
            };
            return Err(Error::new(path, problem).at(format!("architectures in {file}")).help(help));
        };
        Architecture::of_class(class).find(|architecture| architecture.is_selected_by(config)).ok_or_else(|| {
            Error::new(path, format!("expected a supported class, found \"{}\"", quote(class)))
                .at(format!("architectures in {}", description_name(path)))
                .help(if is_multimodal(class, config) { MULTIMODAL_HELP } else { SUPPORTED_HELP })
        })
    }
}

/// The help for a class that is not supported.
const MULTIMODAL_HELP: &str = "`trueup convert --help` lists the supported models; if this is a multimodal model, save \
                               only the language model, with the class name of the language model";

/// Whether a class or the keys of a description are those of models with other input than text.
fn is_multimodal(class: &str, config: &Object) -> bool {
    let parts = ["text_config", "vision_config", "audio_config", "visual", "llm_config"];
    class.ends_with("ForConditionalGeneration") || parts.iter().any(|key| config.contains_key(*key))
}

impl ModelSpec {
    /// Reads a description; `tensors` is the number of tensors of the checkpoint.
    ///
    /// # Errors
    /// All problems of the description in one message.
    pub fn from_config(
        architecture: &'static Architecture,
        config: &Object,
        tensors: usize,
        path: &Path,
    ) -> Result<ModelSpec> {
        ModelSpec::with_notes(architecture, config, tensors, path).map(|(spec, _)| spec)
    }

    /// Reads a description, and returns a note for each key that needed interpretation.
    ///
    /// # Errors
    /// As [`ModelSpec::from_config`].
    pub fn with_notes(
        architecture: &'static Architecture,
        config: &Object,
        tensors: usize,
        path: &Path,
    ) -> Result<(ModelSpec, Vec<String>)> {
        expect_unquantized(architecture, config, path)?;
        let mut reader = Config {
            architecture,
            object: config,
            diagnostics: Diagnostics::default(),
            tensors,
            notes: Vec::new(),
            other_file: None,
            has_window_base: false,
            read: RefCell::default(),
        };
        let mut spec = (architecture.from_config)(&mut reader);
        spec.architecture = architecture;
        if architecture.needs_head && spec.is_tied() {
            spec.head.is_tied = false;
            spec.head.scaled = Some(ScaledHead { factor: 1.0, is_embedding: true });
            reader.note(format!(
                "the embedding is written a second time, as {OUTPUT}, which llama.cpp requires for {}",
                architecture.gguf_name
            ));
        }
        reader.check_window_rope();
        reader.note_unused_scalings(spec.context_length);
        reader.note_unread(description_name(path));
        if spec.has_logits() && config.contains_key(MODULES) {
            reader.note("modules.json is ignored: the model is converted as a text generator, without pooling");
        }
        if !config.contains_key("architectures") && description_name(path) == "config.json" {
            let (kind, class) = (config.get("model_type").and_then(Value::as_str), architecture.classes.first());
            let (kind, class) = (quote(kind.unwrap_or_default()).to_string(), class.copied().unwrap_or_default());
            reader.note(format!("config.json has no `architectures`; model_type \"{kind}\" is read as {class}"));
        }
        let Config { mut diagnostics, notes, other_file, .. } = reader;
        if diagnostics.list().is_empty() {
            spec.check(&mut diagnostics);
            diagnostics = diagnostics.with_keys(|problem| key_in_config(problem, config));
        }
        let name = description_name(path);
        let help =
            format!("correct {name} or get the file again; if the file is correct, trueup does not support this model");
        diagnostics.check(path, name, &help)?;
        match other_file {
            Some(OtherFile { place, problem, help }) => Err(Error::new(path, problem).at(place).help(help)),
            None => Ok((spec, notes)),
        }
    }
}

/// Rejects checkpoints of GPTQ, AWQ, FP8 and other quantizers that the architecture does not read, before anything else
/// is read: their other problems follow from the quantization.
fn expect_unquantized(architecture: &Architecture, config: &Object, path: &Path) -> Result<()> {
    let Some(quantization) = config.get("quantization_config").filter(|value| !value.is_null()) else { return Ok(()) };
    let method = quantization.get("quant_method").and_then(Value::as_str);
    if method.is_some_and(|method| architecture.quantization_methods.contains(&method)) {
        return Ok(());
    }
    let found = match method {
        Some(method) => format!("quant_method \"{}\"", quote(method)),
        None => quote(&quantization.to_string()),
    };
    let problem = format!("expected an unquantized checkpoint, found {found}");
    Err(Error::new(path, problem).at(format!("{}: quantization_config", description_name(path))).help(QUANTIZED_HELP))
}

impl Marker {
    pub(crate) fn is_in(self, config: &Object) -> bool {
        let value = |key: &str| config.get(key).filter(|value| !value.is_null());
        match self {
            Marker::Present(key) => value(key).is_some(),
            Marker::True(key) => {
                value(key).is_some_and(|value| value.as_bool() == Some(true) || value.as_u64() == Some(1))
            }
        }
    }
}

/// A problem of a file other than the description.
struct OtherFile {
    /// Path of the file in the directory of the model.
    place: String,
    problem: String,
    help: &'static str,
}

/// A reader of a description.
pub(crate) struct Config<'a> {
    architecture: &'static Architecture,
    object: &'a Object,
    diagnostics: Diagnostics,
    /// The number of tensors of the checkpoint, which limits the number of layers.
    tensors: usize,
    notes: Vec<String>,
    /// The first problem of another file of the model.
    other_file: Option<OtherFile>,
    /// Whether the class reads a separate rotation for layers with a window.
    has_window_base: bool,
    /// Keys that were read.
    read: RefCell<HashSet<String>>,
}

impl Config<'_> {
    /// The architecture that reads it.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// The class of the description, or an empty string if it has none.
    pub fn class(&self) -> &str {
        self.value("architectures").and_then(|classes| classes.get(0)?.as_str()).unwrap_or_default()
    }

    /// Whether transformers 5 or later wrote the description.
    pub fn is_of_transformers_5(&self) -> bool {
        let version = self.value("transformers_version").and_then(Value::as_str).unwrap_or_default();
        version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 5)
    }

    /// The value of a key that is present and not null.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.stored(key).filter(|value| !value.is_null())
    }

    /// Marks a key as read whose value has no effect here.
    pub fn without_effect(&self, key: &str) {
        self.read.borrow_mut().insert(key.to_owned());
    }

    /// The value of a key that is present; the key counts as read.
    fn stored(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.object.get(key)
    }

    /// Whether the key is present, even if it is null.
    pub fn has(&self, key: &str) -> bool {
        self.stored(key).is_some()
    }

    /// The key of a number: `alias`, which the class prefers, or `key`.
    pub fn key_or_alias(&self, key: &'static str, alias: &'static str) -> &'static str {
        if self.has(alias) { alias } else { key }
    }

    /// Reads the object of this key, which may be absent, as a separate description.
    pub fn nested<T>(&mut self, key: &str, read: impl FnOnce(&mut Config) -> T) -> T {
        let empty = Object::new();
        self.read.get_mut().insert(key.to_owned());
        let object = match self.object.get(key) {
            Some(Value::Object(object)) => object,
            Some(found) if !found.is_null() => self.wrong(key, "an object", &found.clone(), &empty),
            _ => &empty,
        };
        let (diagnostics, notes) = (Diagnostics::default(), std::mem::take(&mut self.notes));
        let Config { architecture, tensors, .. } = *self;
        let has_window_base = self.has_window_base;
        let mut inner = Config {
            architecture,
            object,
            diagnostics,
            tensors,
            notes,
            other_file: None,
            has_window_base,
            read: RefCell::default(),
        };
        let result = read(&mut inner);
        self.notes = inner.notes;
        inner.diagnostics.list().iter().for_each(|problem| self.problem(format!("{key}: {problem}")));
        result
    }

    /// Whether a marker is found.
    pub fn is_marked(&self, marker: Marker) -> bool {
        let (Marker::Present(key) | Marker::True(key)) = marker;
        self.read.borrow_mut().insert(key.to_owned());
        marker.is_in(self.object)
    }

    /// Adds a sentence for the user about how the description was interpreted.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether a problem has been found.
    pub fn has_problem(&self) -> bool {
        !self.diagnostics.list().is_empty()
    }

    /// The number of tensors of the checkpoint, an upper limit for counts.
    pub fn tensors(&self) -> usize {
        self.tensors
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.diagnostics.add(problem);
    }

    /// Adds the problem of another file of the model, such as `modules.json`; the first one is reported.
    pub fn problem_in(&mut self, place: &str, problem: impl Into<String>, help: &'static str) {
        let (place, problem) = (place.to_owned(), problem.into());
        self.other_file.get_or_insert(OtherFile { place, problem, help });
    }

    /// Elements of a row, `1 ..= 2^22`.
    pub fn size(&mut self, key: &str) -> usize {
        self.required(key, SIZE_MAX)
    }

    /// Elements of a row, or `absent` if the key is absent or null.
    pub fn size_or(&mut self, key: &str, absent: usize) -> usize {
        self.optional(key, SIZE_MAX).unwrap_or(absent)
    }

    /// Elements of a row; `None` if the key is absent, null or 0.
    pub fn size_unless_zero(&mut self, key: &str) -> Option<usize> {
        let found = self.value(key).filter(|found| found.as_f64() != Some(0.0))?.clone();
        Some(match found.as_u64() {
            Some(size) => self.within(key, size, SIZE_MAX),
            None => self.wrong(key, "an integer of at least 0", &found, 1),
        })
    }

    /// A count: layers, heads or elements of a head, `1 ..= 2^16`.
    pub fn count(&mut self, key: &str) -> usize {
        self.required(key, COUNT_MAX)
    }

    /// A count, or `absent` if the key is absent or null.
    pub fn count_or(&mut self, key: &str, absent: usize) -> usize {
        self.optional(key, COUNT_MAX).unwrap_or(absent)
    }

    /// A count or 0, or `absent` if the key is absent or null.
    pub fn whole_or(&mut self, key: &str, absent: usize) -> usize {
        let Some(found) = self.value(key).cloned() else { return absent };
        match found.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count <= COUNT_MAX => count,
            Some(count) => {
                self.problem(format!("{key}: expected 0 to {COUNT_MAX}, found {count}"));
                absent
            }
            None => self.wrong(key, "an integer of at least 0", &found, absent),
        }
    }

    /// The number of layers, which the number of tensors limits.
    pub fn layers(&mut self, key: &str) -> usize {
        let layers = self.required(key, COUNT_MAX);
        if layers > self.tensors {
            let tensors = self.tensors;
            self.problem(format!("{key}: expected at most {tensors} (the number of tensors), found {layers}"));
            return 1;
        }
        layers
    }

    /// The number of layers of another stack, or `absent`.
    pub fn layers_or(&mut self, key: &str, absent: usize) -> usize {
        if self.value(key).is_some() { self.layers(key) } else { absent }
    }

    /// Tokens of the vocabulary.
    pub fn vocabulary(&mut self, key: &str) -> usize {
        self.required(key, VOCABULARY_MAX)
    }

    /// Positions, or `absent`; without it the key is required.
    pub fn context(&mut self, key: &str, absent: Option<usize>) -> usize {
        match absent {
            None => self.required(key, CONTEXT_MAX),
            Some(absent) => self.optional(key, CONTEXT_MAX).unwrap_or(absent),
        }
    }

    /// One count for each layer, from a number or a list; without `absent` the key is required.
    pub fn per_layer(&mut self, key: &str, layers: usize, max: usize, absent: Option<usize>) -> Vec<usize> {
        let Some(list) = self.value(key).and_then(Value::as_array).cloned() else {
            let one = match absent {
                None => self.required(key, max),
                Some(absent) => self.optional(key, max).unwrap_or(absent),
            };
            return vec![one; layers];
        };
        let counts: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        let Some(counts) = counts else {
            return self.wrong(key, "a positive integer for each layer", &Value::from(list), vec![1; layers]);
        };
        if counts.len() != layers {
            let found = counts.len();
            self.problem(format!("{key}: expected {layers} integers, one for each layer, found {found}"));
            return vec![1; layers];
        }
        counts.into_iter().map(|count| self.within(key, count, max)).collect()
    }

    /// A list with `count` numbers.
    pub fn numbers(&mut self, key: &str, count: usize) -> Vec<f64> {
        let found = self.value(key).cloned().unwrap_or_default();
        let numbers: Option<Vec<f64>> = found.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        match numbers {
            Some(numbers) if numbers.len() == count => numbers,
            _ => self.wrong(key, &format!("a list of {count} numbers"), &found, vec![1.0; count]),
        }
    }

    /// A number, or `absent` if the key is absent or null.
    pub fn number_or(&mut self, key: &str, absent: f64) -> f64 {
        match self.value(key).cloned() {
            None => absent,
            Some(found) => found.as_f64().unwrap_or_else(|| self.wrong(key, "a number", &found, absent)),
        }
    }

    /// A number; `None` if the key is absent or null.
    pub fn number(&mut self, key: &str) -> Option<f64> {
        self.value(key)?;
        Some(self.number_or(key, 1.0))
    }

    /// A number that is positive and finite as f32, or `absent` if the key is absent or null.
    pub fn positive_or(&mut self, key: &str, absent: f64) -> f64 {
        let number = self.number_or(key, absent);
        let Some(expected) = not_positive(number) else { return number };
        let found = self.value(key).cloned().unwrap_or_else(|| number.into());
        self.wrong(key, expected, &found, absent)
    }

    /// A switch, or `absent` if the key is absent or null.
    pub fn flag_or(&mut self, key: &str, absent: bool) -> bool {
        match self.value(key).cloned() {
            None => absent,
            Some(Value::Bool(flag)) => flag,
            Some(found) => self.wrong(key, "true or false", &found, absent),
        }
    }

    /// A token ID, or `absent` if the key is absent or null.
    pub fn token_or(&mut self, key: &str, absent: u32) -> u32 {
        match self.value(key).cloned() {
            None => absent,
            Some(found) => {
                let id = found.as_u64().and_then(|id| u32::try_from(id).ok());
                id.unwrap_or_else(|| self.wrong(key, "a token ID", &found, absent))
            }
        }
    }

    /// Rejects all values except these JSON texts, null and an absent key.
    pub fn only(&mut self, key: &str, allowed: &[&str]) {
        let Some(found) = self.value(key).cloned() else { return };
        if !allowed.contains(&found.to_string().as_str()) {
            let expected = match allowed {
                [] => "no such key".to_owned(),
                [only] => (*only).to_owned(),
                [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
            };
            self.wrong(key, &expected, &found, ());
        }
    }

    /// Rejects a multimodal checkpoint whose language model has another `model_type`.
    pub fn only_text_model(&mut self, kind: &str) {
        let found = self.value("text_config").and_then(|text| text.get("model_type")).cloned();
        if let Some(found) = found.filter(|found| found != kind) {
            self.wrong("text_config: model_type", &format!("\"{kind}\""), &found, ());
        }
    }

    /// The sliding window, and whether each layer has it. The window is `sliding_window`, or `absent` if the key is
    /// absent; null means no window. The layers are those of `layer_types`, or `usual` if the key is absent.
    pub fn windows(&mut self, absent: Option<usize>, usual: Vec<bool>) -> Option<(usize, Vec<bool>)> {
        let size = self.window("sliding_window", absent);
        let listed = self.listed_windows(usual.len(), size.is_some());
        Some((size?, listed.unwrap_or(usual)))
    }

    /// Checks the keys of a sliding window that another key turns off.
    pub fn no_windows(&mut self, layers: usize) {
        self.window("sliding_window", None);
        self.listed_windows(layers, false);
    }

    /// Whether each layer of `layer_types` has a window. Reports a problem if a layer has a window but the
    /// model has none.
    fn listed_windows(&mut self, layers: usize, has_window: bool) -> Option<Vec<bool>> {
        let listed = self.sliding_layers(layers)?;
        if !has_window && listed.contains(&true) {
            self.problem("layer_types: expected a sliding_window for sliding_attention, found none");
        }
        Some(listed)
    }

    /// The sliding window of a class in which the last of each `period` layers has none, unless `layer_types` is given.
    /// The class requires a window.
    pub fn windows_by_period(&mut self, period: usize, layers: usize) -> Option<(usize, Vec<bool>)> {
        let windows = self.windows(Some(4096), windows_by_period(period, layers));
        if windows.is_none() {
            self.problem("sliding_window: expected a positive integer, found null");
        }
        windows
    }

    /// Whether each layer has a sliding window in `layer_types`; `None` if the key is absent.
    fn sliding_layers(&mut self, layers: usize) -> Option<Vec<bool>> {
        let found = self.value("layer_types").cloned()?;
        let list: Option<Vec<bool>> = found.as_array().and_then(|types| types.iter().map(is_sliding).collect());
        let Some(list) = list else {
            return self.wrong("layer_types", "full_attention and sliding_attention only", &found, None);
        };
        if list.len() != layers {
            let found = list.len();
            self.problem(format!("layer_types: expected {layers} entries, one for each layer, found {found}"));
            return None;
        }
        Some(list)
    }

    /// The size of a sliding window, below 2^31.
    fn window(&mut self, key: &str, absent: Option<usize>) -> Option<usize> {
        let found = match self.stored(key) {
            None => return absent,
            Some(Value::Null) => return None,
            Some(found) => found.clone(),
        };
        let Some(size) = found.as_u64() else { return Some(self.wrong(key, "a positive integer", &found, 1)) };
        let size = usize::try_from(size).ok().filter(|&size| size > 0 && size <= CONTEXT_MAX);
        if size.is_none() {
            self.problem(format!("{key}: expected 1 to {CONTEXT_MAX}, found {found}"));
        }
        Some(size.unwrap_or(1))
    }

    fn required(&mut self, key: &str, max: usize) -> usize {
        match self.stored(key).cloned() {
            Some(found) if !found.is_null() => self.optional(key, max).unwrap_or(1),
            found => {
                let found = found.map_or("nothing", |_| "null");
                self.problem(format!("{key}: expected a positive integer, found {found}"));
                1
            }
        }
    }

    fn optional(&mut self, key: &str, max: usize) -> Option<usize> {
        let found = self.value(key)?.clone();
        Some(match found.as_u64() {
            Some(count) => self.within(key, count, max),
            None => self.wrong(key, "a positive integer", &found, 1),
        })
    }

    fn within(&mut self, key: &str, count: u64, max: usize) -> usize {
        match usize::try_from(count).ok().filter(|count| (1..=max).contains(count)) {
            Some(count) => count,
            None => {
                self.problem(format!("{key}: expected 1 to {max}, found {count}"));
                1
            }
        }
    }

    fn wrong<T>(&mut self, key: &str, expected: &str, found: &Value, instead: T) -> T {
        self.problem(format!("{key}: expected {expected}, found {}", shown(found)));
        instead
    }
}

/// A value for a message. Infinities and NaN, which are not valid in JSON, are stored as strings.
pub(crate) fn shown(value: &Value) -> String {
    match value.as_str() {
        Some(INFINITY) => "Infinity".to_owned(),
        Some(MINUS_INFINITY) => "-Infinity".to_owned(),
        Some(NAN) => "NaN".to_owned(),
        Some(_) | None => quote(&value.to_string()),
    }
}

/// `Some(whether a layer has a window)`, `None` for an unknown kind of attention.
fn is_sliding(kind: &Value) -> Option<bool> {
    match kind.as_str()? {
        "full_attention" => Some(false),
        "sliding_attention" => Some(true),
        _ => None,
    }
}
