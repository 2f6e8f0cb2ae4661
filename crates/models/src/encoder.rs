//! Shared parts of encoders: bidirectional attention and pooling.
//!
//! ```text
//! modules.json ─ Pooling ─ 1_Pooling/config.json ─┐
//!                                                 ├─▶ ModelResult: Hidden, Pooled(Mean | First | Last)
//! attention.causal, pooling_type ─────────────────┘
//! modules.json ─ Transformer ─ sentence_bert_config.json ─▶ notes: GGUF has no key for these settings
//! ```

use crate::config::{Config, shown};
use crate::metadata::{KeyWriter, Keys};
use crate::spec::{ModelResult, ModelSpec, Pooling};
use serde_json::{Map, Value};
use trueup_formats::gguf::Metadata;
use trueup_formats::quote;

/// Whether tokens see only what is before them; true if the key is absent.
pub(crate) const CAUSAL: &str = "attention.causal";
/// How the rows of a text become one.
const POOLING: &str = "pooling_type";
/// The key of the description with the modules that sentence-transformers applies one after the other.
pub(crate) const MODULES: &str = "modules.json";

/// What to do about a damaged file of sentence-transformers.
const OTHER_FILE: &str = "get the file of the original model, or remove it";
/// The settings of the Transformer module.
const SETTINGS: &str = "sentence_bert_config.json";

/// Values of `pooling_type`, as in llama.cpp.
const POOLINGS: [(u32, ModelResult); 4] = [
    (0, ModelResult::Hidden),
    (1, ModelResult::Pooled(Pooling::Mean)),
    (2, ModelResult::Pooled(Pooling::First)),
    (3, ModelResult::Pooled(Pooling::Last)),
];

/// Switches of a pooling module that are supported.
const MODES: [(&str, Pooling); 3] = [
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_cls_token", Pooling::First),
    ("pooling_mode_lasttoken", Pooling::Last),
];

impl ModelSpec {
    /// The same layers as an encoder with this result: every token attends to the whole text, the embedding has a norm,
    /// and there is no output head.
    pub(crate) fn into_encoder(mut self, result: ModelResult) -> ModelSpec {
        self.embedding.norm = self.head.norm.take();
        self.head.result = result;
        self.with_attention(|_, attention| attention.is_bidirectional = true)
    }
}

impl Config<'_> {
    /// The result of an encoder, by the pooling module of `modules.json`: the rows of all tokens if there is no such
    /// file.
    pub fn encoder_result(&mut self) -> ModelResult {
        let Some(modules) = self.value(MODULES).cloned() else { return ModelResult::Hidden };
        let Some(modules) = modules.as_array() else {
            self.problem_in(MODULES, "expected a list of modules, found another value", OTHER_FILE);
            return ModelResult::Hidden;
        };
        let mut result = ModelResult::Hidden;
        for (number, module) in modules.iter().enumerate() {
            let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
            match (number, kind.rsplit('.').next().unwrap_or_default()) {
                (0, "Transformer") => {
                    if let Some(settings) = module.get("config").and_then(Value::as_object) {
                        self.sentence_settings(settings);
                    }
                }
                (1, "Pooling") => result = self.pooling(module).map_or(ModelResult::Hidden, ModelResult::Pooled),
                (2, "Normalize") => self.note(
                    "modules.json contains a Normalize module, which GGUF cannot store; the embeddings are not normalized",
                ),
                _ => {
                    let found = if kind.is_empty() { "a module without a type".to_owned() } else { quote(kind) };
                    let expected = "expected a Transformer, one Pooling and optionally a Normalize module";
                    self.problem_in(MODULES, format!("{expected}, found {found}"), "other modules are not supported");
                }
            }
        }
        result
    }

    /// Notes on settings that sentence-transformers applies to texts, and that no GGUF key can hold.
    fn sentence_settings(&mut self, settings: &Map<String, Value>) {
        for (key, value) in settings {
            let count = value.as_u64().filter(|count| *count > 0);
            match (key.as_str(), count, value) {
                (_, _, Value::Null) | ("do_lower_case", _, Value::Bool(false)) => {}
                ("max_seq_length", Some(most), _) => self.note(format!(
                    "{SETTINGS}: sentence-transformers truncates texts to {most} tokens (max_seq_length); GGUF cannot \
                     store this, and longer texts are computed whole, up to the context of the model"
                )),
                ("do_lower_case", _, Value::Bool(true)) => self.note(format!(
                    "{SETTINGS}: sentence-transformers converts texts to lower case (do_lower_case); GGUF cannot store \
                     this, so pass lower-case texts unless the tokenizer converts them"
                )),
                ("max_seq_length" | "do_lower_case", ..) => {
                    let expected = if key == "do_lower_case" { "true or false" } else { "a positive integer" };
                    let problem = format!("{key}: expected {expected}, found {}", shown(value));
                    self.problem_in(SETTINGS, &problem, OTHER_FILE);
                }
                _ => self.note(format!("{SETTINGS}: \"{}\" is ignored", quote(key))),
            }
        }
    }

    /// The only mode of a pooling module that is switched on.
    fn pooling(&mut self, module: &Value) -> Option<Pooling> {
        let folder = module.get("path").and_then(Value::as_str).unwrap_or_default();
        let Some(config) = module.get("config").and_then(Value::as_object) else {
            match folder {
                "" => self.problem_in(MODULES, "expected a path of the Pooling module, found none", OTHER_FILE),
                _ => self.problem_in(
                    &format!("{}/config.json", quote(folder)),
                    "the file is missing",
                    "get all files of the model",
                ),
            }
            return None;
        };
        let place = if folder.is_empty() { MODULES.to_owned() } else { format!("{}/config.json", quote(folder)) };
        let on: Vec<&str> = config
            .iter()
            .filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() != Some(false))
            .map(|(key, _)| key.as_str())
            .collect();
        let known = |key: &str| MODES.iter().find(|(name, _)| *name == key).map(|(_, pooling)| *pooling);
        let pooling = match on[..] {
            [key] if config.get(key) == Some(&Value::Bool(true)) => known(key),
            _ => None,
        };
        if pooling.is_none() {
            let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
            let found = if on.is_empty() { "none".to_owned() } else { quote(&on.join(", ")) };
            let names =
                names.split_last().map_or(String::new(), |(last, rest)| format!("{} and {last}", rest.join(", ")));
            self.problem_in(
                &place,
                format!("expected exactly one of {names} to be true, found {found}"),
                "other pooling modes are not supported",
            );
        }
        pooling
    }
}

impl Keys<'_> {
    /// The result of an encoder, by the key of the pooling: the rows of all tokens if the key is absent. An encoder
    /// whose tokens see only what is before them is refused.
    pub fn encoder_result(&mut self) -> ModelResult {
        if !self.has(CAUSAL) {
            self.wrong(CAUSAL, "expected false for an encoder, found no such key");
        } else if self.flag_or(CAUSAL, false) {
            self.wrong(CAUSAL, "expected false for an encoder, found true");
        }
        let name = self.key(POOLING);
        let number = self.get(&name, Metadata::u64).unwrap_or(0);
        let result = POOLINGS.iter().find(|(known, _)| u64::from(*known) == number).map(|(_, result)| *result);
        if result.is_none() {
            let expected = "expected 0 (none), 1 (mean), 2 (first token) or 3 (last token)";
            self.wrong(POOLING, &format!("{expected}, found {number}"));
        }
        result.unwrap_or(ModelResult::Hidden)
    }
}

impl KeyWriter<'_> {
    /// The keys of an encoder; none for other models.
    pub fn encoder(&mut self, spec: &ModelSpec) {
        if spec.is_bidirectional() {
            self.value(CAUSAL, false);
        }
        if let Some((number, _)) = POOLINGS.iter().find(|(_, result)| *result == spec.result()) {
            self.value(POOLING, *number);
        }
    }
}
