//! The description against the architecture's tables, and both against the tensors that are there.

use super::files::sentence;
use super::finding::{Effect, Findings, Place, Rule};
use super::patient::{Patient, TOKENS};
use crate::mapping::stand_in;
use std::collections::{HashMap, HashSet};
use trueup_formats::{Description, Error, TensorInfo, counted, listed, quote};
use trueup_models::{
    AbsentLayers, LayerNames, ModelSpec, OUTPUT, OtherKind, SourceTensor, TensorSpec, expected_tensors, layer_prefix,
};

pub(super) const RULES: &[&Rule] = &[
    &NOT_A_MODEL,
    &ARCHITECTURE_MISSING,
    &ARCHITECTURE_UNKNOWN,
    &QUANTIZED,
    &HYPER_INVALID,
    &NO_TENSORS,
    &TENSOR_MISSING,
    &LAYERS_DIFFER,
    &TENSOR_UNKNOWN,
    &TENSOR_SHAPE,
    &TENSOR_TYPE,
];

static NOT_A_MODEL: Rule = Rule::error(
    "not-a-model",
    "the file belongs to a model but is not a model: it cannot run alone",
    "pass the model file; merge an adapter into its model first",
)
.effect(Effect::Unusable);
static ARCHITECTURE_MISSING: Rule = Rule::error(
    "architecture-missing",
    "programs cannot know how to compute with the tensors",
    "get the right file for the model, or convert the model again",
)
.for_checkpoint("correct config.json, or get a new copy");
static ARCHITECTURE_UNKNOWN: Rule = Rule::note(
    "architecture-not-known",
    "trueup does not support it: tensor names, shapes and model parameters were not checked",
    "check the model with a program that supports it",
)
.effect(Effect::Unchecked);
static QUANTIZED: Rule = Rule::error(
    "checkpoint-quantized",
    "trueup reads the weights of unquantized checkpoints only: tensors and model parameters were not checked",
    "convert an unquantized (bf16, f16 or f32) copy of the checkpoint",
)
.effect(Effect::Unusable);
static HYPER_INVALID: Rule = Rule::error(
    "model-parameters-invalid",
    "the graph of the model is built from these numbers",
    "correct the keys, or convert the model again from a checkpoint with the right config.json",
)
.for_checkpoint("correct config.json, or get a new copy");
static NO_TENSORS: Rule = Rule::warning(
    "no-tensors",
    "the file contains only a vocabulary or metadata: it cannot run",
    "get the file with the weights if you expected a model",
);
static TENSOR_MISSING: Rule = Rule::error(
    "tensor-missing",
    "the model cannot run without it",
    "get all files of the model, or convert the model again",
)
.for_checkpoint("get all files of the model, and make sure that config.json belongs to them");
static LAYERS_DIFFER: Rule = Rule::error(
    "layer-count-differs",
    "the number of layers and the tensors contradict each other",
    "correct the number of layers, or get the model again; if it has several files, get all of them",
)
.for_checkpoint("correct the number of layers in config.json, or get all files of the model");
static TENSOR_UNKNOWN: Rule = Rule::error(
    "tensor-unknown",
    "the model is a different variant than its metadata says, or the tensor has a wrong name",
    "compare it with the missing tensors, if there are any, or use a program that supports the variant",
);
static TENSOR_SHAPE: Rule = Rule::error(
    "tensor-shape-wrong",
    "the metadata and the tensor contradict each other",
    "use metadata and weights of the same model",
);
static TENSOR_TYPE: Rule =
    Rule::error("tensor-type-wrong", "no program supports this type for this tensor", "convert the model again")
        .for_checkpoint("get the model again");

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    let checkpoint = patient.checkpoint();
    if let Some(kind) = patient.metadata().and_then(OtherKind::of_metadata) {
        findings.add(&NOT_A_MODEL, Place::file(&patient.path), format!("expected a model, found {}", kind.what()));
        return;
    }
    if let Err(error) = &patient.architecture
        && (patient.is_description_whole() || names_architecture(checkpoint.description()))
    {
        let key = if patient.metadata().is_some() { "general.architecture" } else { "architectures" };
        let known = names_architecture(checkpoint.description());
        let rule = if known { &ARCHITECTURE_UNKNOWN } else { &ARCHITECTURE_MISSING };
        findings.add(rule, Place::file(&patient.path).key(key), sentence(error));
    }
    // Without tensors no number of layers holds.
    if let Some(Err(error)) = patient.spec.as_ref().filter(|_| !checkpoint.tensors().is_empty())
        && patient.is_description_whole()
        && !is_about_tokens(error)
    {
        let (rule, place) = match is_quantized(checkpoint.description()) {
            true => (&QUANTIZED, Place::file(&patient.path).key("quantization_config")),
            false => (&HYPER_INVALID, Place::file(&patient.path)),
        };
        findings.add(rule, place, error.problem.clone());
    }
    if checkpoint.tensors().is_empty() {
        if patient.faults.kept().is_empty() {
            findings.add(&NO_TENSORS, Place::file(&patient.path), "the file has metadata but no tensors");
        }
        return;
    }
    if let Some(spec) = patient.valid_spec() {
        look_at_tensors(patient, spec, findings);
    }
}

/// Whether a description says that its checkpoint is quantized.
fn is_quantized(description: Description) -> bool {
    match description {
        Description::Gguf(_) => false,
        Description::Json(config) => config.get("quantization_config").is_some_and(|value| !value.is_null()),
    }
}

/// Whether a description names one architecture, known or not.
fn names_architecture(description: Description) -> bool {
    match description {
        Description::Gguf(metadata) => metadata.string("general.architecture").is_ok(),
        Description::Json(config) => {
            let classes = config.get("architectures").and_then(serde_json::Value::as_array);
            classes.is_some_and(|list| list.len() == 1 && list.iter().all(|class| class.is_string()))
        }
    }
}

/// Whether all that is wrong is the type of the list of tokens, which the tokenizer is refused for.
fn is_about_tokens(error: &Error) -> bool {
    error
        .problem
        .strip_prefix("key ")
        .and_then(|rest| rest.strip_prefix(TOKENS))
        .is_some_and(|rest| rest.starts_with(": ") && !rest.contains("; "))
}

fn look_at_tensors(patient: &Patient, spec: &ModelSpec, findings: &mut Findings) {
    let is_gguf = patient.metadata().is_some();
    let all = patient.checkpoint().tensors();
    let mut left: HashMap<&str, &TensorInfo> = all.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let mut missing = Vec::new();
    let expected = wanted_tensors(patient, spec, is_gguf);
    for wanted in &expected {
        let name = wanted.name.as_str();
        match left.remove(name) {
            None if patient.is_left_out(name) => {}
            None => missing.push(name),
            // Half of it alone has another shape and type.
            Some(_) if patient.is_left_out(name) => {}
            Some(found) => {
                let place = || Place::file(patient.file_of(name)).tensor(name);
                if let Some(problem) = shape_problem(&wanted.shape, found, is_gguf) {
                    findings.add(&TENSOR_SHAPE, place(), problem);
                }
                if let Some(problem) = type_problem(wanted, found, is_gguf) {
                    findings.add(&TENSOR_TYPE, place(), problem);
                }
            }
        }
    }
    add_missing(patient, spec, &expected, &missing, findings);
    let sources: Vec<&str> = expected.iter().map(|wanted| wanted.name.as_str()).collect();
    let unknown: Vec<&TensorInfo> = all.iter().filter(|tensor| left.contains_key(tensor.name.as_str())).collect();
    add_unknown(patient, spec, &sources, &unknown, findings);
}

/// Reports missing tensors. All layers without any tensor are one finding. If a file could not be read, all missing
/// tensors are one finding, because that file is the likely cause.
fn add_missing(
    patient: &Patient,
    spec: &ModelSpec,
    expected: &[SourceTensor],
    missing: &[&str],
    findings: &mut Findings,
) {
    if let ([first, _, ..], false) = (missing, patient.are_all_files_read()) {
        let count = counted(missing.len(), "required tensor");
        let problem = format!("{count}, first {}, are not in the files that could be read", quote(first));
        return findings.add(&TENSOR_MISSING, Place::file(&patient.path), problem);
    }
    let head = patient.name_of(OUTPUT);
    let names = || patient.checkpoint().tensors().iter().map(|tensor| tensor.name.as_str());
    let layers = LayerNames::new(expected.iter().map(|tensor| tensor.name.as_str()));
    let missing_layers: HashSet<&str> = missing.iter().filter_map(|name| layer_prefix(name)).collect();
    let mut absent = layers.absent(names().chain(patient.faults.tensors()));
    let mut prefixes: HashSet<String> = HashSet::new();
    for AbsentLayers { stack, numbers, .. } in &mut absent {
        numbers.retain(|number| missing_layers.contains(format!("{stack}{number}.").as_str()));
        prefixes.extend(numbers.iter().map(|number| format!("{stack}{number}.")));
    }
    for layers in absent.iter().filter(|layers| !layers.numbers.is_empty()) {
        let place = match (layers.probable_count(), patient.metadata()) {
            (Some(_), Some(_)) => Place::file(&patient.path).key(&layers.gguf_key(spec.architecture().gguf_name)),
            (Some(_) | None, _) => Place::file(&patient.path),
        };
        findings.add(&LAYERS_DIFFER, place, absence(layers, patient.metadata().is_some()));
    }
    for name in missing.iter().filter(|name| !layer_prefix(name).is_some_and(|layer| prefixes.contains(layer))) {
        let mut problem = "the architecture requires the tensor, but the model does not have it".to_owned();
        if patient.metadata().is_none() && head.as_deref() == Some(*name) {
            problem +=
                "; if the model uses its embedding as the output head, set tie_word_embeddings to true in config.json";
        }
        findings.add(&TENSOR_MISSING, Place::file(&patient.path).tensor(name), problem);
    }
}

/// A sentence about layers without tensors.
fn absence(layers: &AbsentLayers, is_gguf: bool) -> String {
    let name = |number: &u64| quote(&format!("{}{number}", layers.stack));
    match (layers.probable_count(), &layers.numbers[..]) {
        (Some(count), _) if is_gguf => {
            format!("expected {count}, the number of layers with tensors, found {}", layers.layers)
        }
        (Some(count), _) => {
            let count = counted(count, "layer");
            format!("expected {count} in config.json, the number of layers with tensors, found {}", layers.layers)
        }
        (None, [number]) => format!("expected tensors of the layer {}, found none", name(number)),
        (None, numbers) => {
            let all: Vec<String> = numbers.iter().map(name).collect();
            format!("expected tensors of the layers {}, found none", listed(&all, ", "))
        }
    }
}

/// Reports tensors that are not expected, and that nothing stands for.
fn add_unknown(
    patient: &Patient,
    spec: &ModelSpec,
    expected: &[&str],
    unknown: &[&TensorInfo],
    findings: &mut Findings,
) {
    let architecture = spec.architecture();
    let is_gguf = patient.metadata().is_some();
    let names = patient.source_names(architecture);
    let head = names.head();
    let is_spare = |tensor: &TensorInfo| {
        patient.is_left_out(&tensor.name)
            || !is_gguf
                && (stand_in(spec, &names, expected.iter().copied(), tensor).is_some()
                    || spec.has_head_of_embedding() && head.as_deref() == Some(tensor.name.as_str()))
            || is_gguf && architecture.unused_in_gguf(&tensor.name).is_some()
    };
    let unknown: Vec<&str> =
        unknown.iter().filter(|tensor| !is_spare(tensor)).map(|tensor| tensor.name.as_str()).collect();
    let layers = LayerNames::new(expected.iter().copied());
    for others in layers.others(unknown.iter().copied()) {
        let key = if is_gguf { others.gguf_key(architecture.gguf_name) } else { "config.json".to_owned() };
        findings.add(&LAYERS_DIFFER, Place::file(&patient.path), others.problem(&key));
    }
    for name in unknown.into_iter().filter(|name| !layers.is_of_other_layer(name)) {
        let problem = format!("{} has no tensor of this name", quote(architecture.gguf_name));
        findings.add(&TENSOR_UNKNOWN, Place::file(patient.file_of(name)).tensor(name), problem);
    }
}

/// All tensors that the file must have, each once.
fn wanted_tensors(patient: &Patient, spec: &ModelSpec, is_gguf: bool) -> Vec<SourceTensor> {
    if is_gguf {
        let wanted = |tensor: TensorSpec| SourceTensor { name: tensor.name, shape: tensor.shape, dtype: None };
        return spec.tensors().into_iter().map(wanted).collect();
    }
    let mut known = HashSet::new();
    let names = patient.source_names(spec.architecture());
    let sources = expected_tensors(spec, &names).into_iter().flat_map(|expected| expected.sources);
    sources.filter(|source| known.insert(source.name.clone())).collect()
}

/// What is wrong with a shape; outer sizes of 1 say nothing in GGUF.
fn shape_problem(expected: &[u64], found: &TensorInfo, is_gguf: bool) -> Option<String> {
    let mut shape = found.shape.clone();
    while is_gguf && shape.len() > expected.len() && shape.last() == Some(&1) {
        shape.pop();
    }
    (shape != expected).then(|| format!("expected shape {expected:?} (innermost first), found {:?}", found.shape))
}

/// What is wrong with a type: numbers are needed, in one dimension plain ones, and in checkpoints plain ones
/// everywhere.
fn type_problem(expected: &SourceTensor, found: &TensorInfo, is_gguf: bool) -> Option<String> {
    let dtype = found.dtype;
    if let Some(wanted) = expected.dtype {
        return (dtype != wanted).then(|| format!("expected packed values of type u8, found {dtype}"));
    }
    let is_vector = expected.shape.len() == 1;
    let fits = dtype.is_float() || is_gguf && dtype.is_quantized() && !is_vector;
    let wanted = if is_vector || !is_gguf { "f32, f16 or bf16" } else { "a floating-point or block type" };
    (!fits).then(|| format!("expected {wanted}, found {dtype}"))
}
