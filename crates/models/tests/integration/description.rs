//! Descriptions of models, and the files that conversion makes of them, without weights.

use serde_json::{Map, Value};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::Metadata;
use trueup_models::{Architecture, ModelSpec};

/// The description `base` with the keys of `more` added or replaced.
pub fn with(base: Value, more: Value) -> Map<String, Value> {
    let (Value::Object(base), Value::Object(more)) = (base, more) else { panic!("a description is an object") };
    base.into_iter().chain(more).collect()
}

/// Reads the description of a checkpoint with this many tensors.
pub fn read(config: &Map<String, Value>, tensors: usize) -> Result<ModelSpec, String> {
    let path = Path::new("model");
    Architecture::of_config(config, path)
        .and_then(|architecture| ModelSpec::from_config(architecture, config, tensors, path))
        .map_err(|error| error.to_string())
}

/// The keys and tensors of a GGUF file of this model.
pub fn written(spec: &ModelSpec) -> (Metadata, Vec<TensorInfo>) {
    let mut metadata = Metadata::default();
    spec.write_metadata(&mut metadata);
    let tensor = |name: String, shape: &[u64]| TensorInfo::new(name, shape, DType::F32).unwrap();
    (metadata, spec.tensors().into_iter().map(|expected| tensor(expected.name, &expected.shape)).collect())
}
