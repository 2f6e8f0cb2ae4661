//! The error for a checkpoint that does not fit its architecture: the cause if the tensor names show it, then the
//! missing and the unknown tensors.
//!
//! ```text
//! names of the tensors ─┬─ of a quantizer                found weights quantized by GPTQ (...), such as ...
//!                       ├─ of an adapter                 found an adapter, such as ...
//!                       ├─ of Meta's or Mistral's code   found those of another layout, such as ...
//!                       ├─ of other experts              num_experts: expected ..., found ...
//!                       ├─ of other kinds of input       a multimodal checkpoint; missing and unknown names
//!                       └─ anything else                 missing and unknown names
//! ```

use serde_json::{Map, Value};
use std::collections::HashSet;
use trueup_formats::{Checkpoint, Error, QUANTIZED_HELP, Result, counted, is_quantized, listed, quantization, quote};
use trueup_models::{Architecture, LayerNames, ModelSpec, OUTPUT, SourceNames, layer_prefix, unlike_experts};

/// What does not fit.
#[derive(Default)]
pub(crate) struct Mismatch {
    /// Expected names that no tensor has.
    pub missing: Vec<String>,
    /// Names that the architecture does not have.
    pub unknown: Vec<String>,
    /// Tensors of another shape or type: a sentence each.
    pub misfits: Vec<String>,
    /// The names in `missing`: a hostile description may expect hundreds of thousands.
    known_missing: HashSet<String>,
}

/// Names that are listed one by one, each in its own words.
const NAMED_MAX: usize = 8;
/// Names of each kind that are listed where there are more.
const SHOWN: usize = 5;
const LAYERS_HELP: &str = "nothing was written; correct the number of layers in config.json, or get the config.json of \
                           this model";
const CONFIG_HELP: &str = "nothing was written; correct config.json, or get the config.json of this model";
const VARIANT_HELP: &str = "nothing was written; make sure that config.json belongs to these tensors; if it does, \
                            trueup does not support this variant of the model";

impl Mismatch {
    /// Adds an expected name that no tensor has, once.
    pub fn add_missing(&mut self, name: &str) {
        if self.known_missing.insert(name.to_owned()) {
            self.missing.push(name.to_owned());
        }
    }

    /// Fails when anything does not fit. `expected` are the names of all tensors that the architecture has.
    pub fn check<'a>(
        self,
        source: &dyn Checkpoint,
        (spec, config): (&ModelSpec, &Map<String, Value>),
        names: &SourceNames,
        expected: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        if self.missing.is_empty() && self.unknown.is_empty() && self.misfits.is_empty() {
            return Ok(());
        }
        let architecture = spec.architecture();
        let fault = |problem: String, help: &str| Err(Error::new(source.path(), problem).at("tensors").help(help));
        if let Some((problem, help)) = self.other_kind(source, architecture) {
            return fault(problem, help);
        }
        let mut tensors = source.tensors().iter().map(|tensor| tensor.name.as_str());
        if let Some(problem) = unlike_experts(spec, names, config, &mut tensors) {
            return Err(Error::new(source.path(), problem).at("config.json").help(CONFIG_HELP));
        }
        let (cause, help) = self.cause(source, architecture, names);
        let layers = LayerNames::new(expected);
        let is_other_number = self.missing.is_empty()
            && self.misfits.is_empty()
            && self.unknown.iter().all(|name| layers.is_of_other_layer(name));
        let help = if is_other_number && cause.is_none() { LAYERS_HELP.to_owned() } else { help };
        let symptoms = self.symptoms(architecture, &layers);
        fault(cause.map_or(symptoms.clone(), |cause| format!("{cause}; {symptoms}")), &help)
    }

    /// The error for tensors of another kind, whose names explain everything that is missing.
    fn other_kind(&self, source: &dyn Checkpoint, architecture: &Architecture) -> Option<(String, &'static str)> {
        let unknown = || self.unknown.iter().map(String::as_str);
        let is_scale = |name: &&str| name.ends_with(".weight_scale");
        let scales = unknown().filter(is_scale).count();
        let all_scales = source.tensors().iter().map(|tensor| tensor.name.as_str()).filter(is_scale).count();
        if scales > 0 && scales == all_scales && !architecture.quantization_methods.is_empty() {
            let places = counted(scales, "place");
            let problem =
                format!("expected plain weights, as config.json says, found packed weights (weight_scale in {places})");
            return Some((problem, "restore quantization_config from the original config.json"));
        }
        if let Some((scheme, example)) = quantization(unknown()).zip(unknown().find(|name| is_quantized(name))) {
            let problem = format!("expected unquantized weights, found weights {scheme}, such as {}", quote(example));
            return Some((problem, QUANTIZED_HELP));
        }
        let is_adapter = |name: &&str| [".lora_A.", ".lora_B.", ".base_layer."].iter().any(|part| name.contains(part));
        if let Some(example) = unknown().find(is_adapter) {
            let problem =
                format!("expected a model, found an adapter that is not merged into it, such as {}", quote(example));
            let help = "merge it first, for example with merge_and_unload() of peft, and convert the merged model";
            return Some((problem, help));
        }
        let is_original = |name: &&str| *name == "tok_embeddings.weight" || name.ends_with(".attention.wq.weight");
        let example = unknown().find(is_original)?;
        let problem = format!(
            "expected the tensor names of the Hugging Face layout, found those of Meta's and Mistral's own layout, such as {}",
            quote(example)
        );
        Some((problem, "get the files of the same model in the Hugging Face layout"))
    }

    /// Missing, unknown and unfit tensors.
    fn symptoms(&self, architecture: &Architecture, layers: &LayerNames) -> String {
        let class = architecture.classes[0];
        let mut parts = Vec::new();
        let (other_layers, unknown): (Vec<String>, Vec<String>) =
            self.unknown.iter().cloned().partition(|name| layers.is_of_other_layer(name));
        let others = layers.others(other_layers.iter().map(String::as_str));
        parts.extend(others.iter().map(|others| others.problem("config.json")));
        let is_of_one_kind = self.missing.is_empty() || unknown.is_empty();
        if is_of_one_kind || self.missing.len() + unknown.len() <= NAMED_MAX {
            parts.extend(self.missing.iter().map(|name| format!("tensor {name} is missing")));
            parts.extend(unknown.iter().map(|name| format!("tensor {} is not known to {class}", quote(name))));
        } else {
            parts.extend(group(&self.missing, "missing"));
            parts.extend(group(&unknown, &format!("not known to {class}")));
        }
        parts.extend(self.misfits.iter().cloned());
        listed(&parts, "; ")
    }

    /// Why it does not fit, where that can be seen, and what to do.
    fn cause(
        &self,
        source: &dyn Checkpoint,
        architecture: &Architecture,
        names: &SourceNames,
    ) -> (Option<String>, String) {
        if self.unknown.iter().any(|name| PARTS_OF_OTHER_INPUT.iter().any(|part| name.contains(part))) {
            let class = architecture.classes[0];
            let help = format!(
                "convert the language model alone: save it as {class}, or get the checkpoint that it was made from"
            );
            let cause = "this is a multimodal checkpoint, which is not supported as a whole";
            return (Some(cause.to_owned()), help);
        }
        let head = names.source_of(OUTPUT);
        let is_head_only = self.unknown.is_empty() && self.misfits.is_empty() && self.missing.len() == 1;
        if is_head_only && self.missing.first() == head.as_ref() {
            let help = "if the model uses its embedding as the output head, set tie_word_embeddings to true in config.json; \
                        otherwise get all files of the model";
            let cause = names.is_base_model().then(|| "this is the base model, without the output head".to_owned());
            return (cause, help.to_owned());
        }
        if self.unknown.is_empty() && self.misfits.is_empty() {
            return (None, format!("nothing was written; {}", missing_help(source, &self.missing)));
        }
        (None, VARIANT_HELP.to_owned())
    }
}

/// What to do about missing tensors: config.json is the likely cause if whole layers or only biases are missing.
fn missing_help(source: &dyn Checkpoint, missing: &[String]) -> &'static str {
    let is_layer_absent = |name: &String| {
        let layer = layer_prefix(name);
        layer.is_some_and(|layer| !source.tensors().iter().any(|tensor| tensor.name.starts_with(layer)))
    };
    if missing.iter().all(is_layer_absent) {
        "correct the number of layers in config.json, or get all files of the model"
    } else if missing.iter().all(|name| name.ends_with(".bias")) {
        "correct the keys for biases in config.json, such as attention_bias, or get all files of the model"
    } else {
        "get all files of the model, and make sure that config.json belongs to them"
    }
}

/// What names of tensors contain that take other input than text.
const PARTS_OF_OTHER_INPUT: [&str; 5] =
    ["vision_tower.", "vision_model.", "multi_modal_projector.", "audio_tower.", "visual."];

/// `96 tensors are missing: a, b, c and 93 more`.
fn group(names: &[String], what: &str) -> Option<String> {
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|name| quote(name)).collect();
    let rest = names.len() - quoted.len();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    match names {
        [] => None,
        [name] => Some(format!("tensor {} is {what}", quote(name))),
        _ => Some(format!("{} tensors are {what}: {}{more}", names.len(), quoted.join(", "))),
    }
}
