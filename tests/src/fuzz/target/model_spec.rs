//! Descriptions of models: numbers that a graph is built of.

use super::super::seeds::{MODELS, PARTS, fixture_file, tiny_config};
use super::super::{Answer, later, law, refused};
use serde_json::{Map, Value, json};
use std::path::Path;
use trueup::blocks::DType;
use trueup::formats::TensorInfo;
use trueup::formats::gguf::Metadata;
use trueup::models::{Architecture, Batch, Model, ModelSpec, Stage};

/// Tensors that the checkpoint has besides those that are asked for: a bound of the layers.
const TENSORS: usize = 300;

/// Positions of the cache that a graph is built for.
const CONTEXT_MAX: usize = 64;

/// Configs of dense decoders and of models with other parts, and tiny configs with RoPE scaling or a sliding window.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut configs: Vec<Map<String, Value>> = MODELS.map(tiny_config).to_vec();
    let mut scaled = tiny_config("llama3");
    scaled.insert("rope_scaling".to_owned(), json!({"rope_type": "linear", "factor": 2.0}));
    configs.push(scaled.clone());
    scaled.insert(
        "rope_scaling".to_owned(),
        json!({"rope_type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [1.0, 1.0, 1.0, 1.0], "original_max_position_embeddings": 64}),
    );
    configs.push(scaled);
    let mut window = tiny_config("mistral");
    window.insert("sliding_window".to_owned(), json!(4));
    configs.push(window);
    let tiny = configs.into_iter().map(|config| Value::Object(config).to_string().into_bytes());
    tiny.chain(PARTS.map(|name| fixture_file(&format!("{name}/config.json")))).collect()
}

/// A `config.json`.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("config.json");
    let config = match trueup::formats::json::object(&path, input) {
        Ok(config) => config,
        Err(problem) => return refused(&problem),
    };
    let architecture = match Architecture::of_config(&config, &path) {
        Ok(architecture) => architecture,
        Err(problem) => return refused(&problem),
    };
    let spec = match ModelSpec::from_config(architecture, &config, TENSORS, &path) {
        Ok(spec) => spec,
        Err(problem) => return refused(&problem),
    };
    graph_of(&spec, &path)
}

/// Builds the graph of a model that has all tensors it asks for. The same model comes back from the keys that are
/// written for it.
pub fn graph_of(spec: &ModelSpec, path: &Path) -> Result<Answer, String> {
    law(spec.layer_count() <= TENSORS, "more layers than tensors")?;
    let info = |name: &str, shape: &[u64]| TensorInfo::new(name, shape, DType::F32);
    let expected = spec.tensors();
    let tensors: Result<Vec<TensorInfo>, _> = expected.iter().map(|tensor| info(&tensor.name, &tensor.shape)).collect();
    let tensors = match tensors {
        Ok(tensors) => tensors,
        Err(problem) => return refused(&problem),
    };
    let mut metadata = Metadata::default();
    spec.write_metadata(&mut metadata);
    let read = match ModelSpec::from_metadata(spec.architecture(), &metadata, &tensors, path) {
        Ok(read) => read,
        Err(problem) => return refused(&problem),
    };
    law(read.tensors() == expected, "tensors change when keys are written and read")?;
    let numbers = |spec: &ModelSpec| {
        let epsilon = spec.epsilon().map(f32::to_bits);
        (spec.layer_count(), spec.vocabulary_size(), spec.context_length(), spec.window(), epsilon)
    };
    law(numbers(&read) == numbers(spec), "numbers change when they are written and read")?;
    // The model from `config.json` may have parameters that the GGUF file stores as a tensor or folds into weights, so
    // only models that were read from GGUF keys are compared.
    let mut again = Metadata::default();
    read.write_metadata(&mut again);
    let read_again = ModelSpec::from_metadata(spec.architecture(), &again, &tensors, path);
    let read_again = later(read_again, "keys that were read and written are refused")?;
    law(read_again == read, "the model changes when the keys that were read are written")?;
    let model = later(Model::from_gguf(&metadata, &tensors, path), "a model with all its tensors is refused")?;
    let context = spec.context_length().min(CONTEXT_MAX);
    let (activation, kv, stage) = (DType::F32, DType::F16, spec.decoder_stage(context));
    let (tokens, outputs, capacity, ring, sequences, streams, is_long) = (2, 1, context, context, 2, 1, false);
    let batch = Batch { tokens, outputs, capacity, context, ring, sequences, streams, is_long, stage, activation, kv };
    let stages = spec.has_encoder().then_some(Stage::Encoder).into_iter().chain([stage]);
    for stage in stages {
        if let Err(problem) = model.graph(&Batch { stage, ..batch }) {
            return Err(format!("the graph of an accepted model cannot be built: {problem}"));
        }
    }
    let in_blocks = model.graph(&Batch { kv: DType::Q8_0, ..batch }).is_ok();
    law(
        in_blocks == spec.cached_head_sizes().all(|size| size.is_multiple_of(32)),
        "a cache of q8_0 goes with heads of whole blocks, and no others",
    )?;
    Ok(Answer::Accepted("graph"))
}
