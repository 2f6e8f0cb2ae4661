//! The key-value section of the file to be written: what it is, the model's numbers, the tokenizer.

use crate::mapping::{Mapping, config_of};
use crate::overrides::Override;
use crate::slim;
use serde_json::{Map, Value};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::flm::description_name;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Checkpoint, Error, Result, TensorInfo, cached_model_name};
use trueup_models::Model;
use trueup_quantize::{Recipe, Scheme};
use trueup_tokenizer::{ModelTokens, Tokenizer, Vocabulary, role_ids};

/// All keys, and notes for a person. `tensors` are those of the file to be written, with the types of `recipe`.
pub(crate) fn describe(
    source: &dyn Checkpoint,
    mapping: &Mapping,
    (tensors, recipe): (&[TensorInfo], &Recipe),
    overrides: &[Override],
) -> Result<(Metadata, Vec<String>)> {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", mapping.architecture().gguf_name);
    metadata.insert("general.type", "model");
    if let Some(name) = name_of(source.path()) {
        metadata.insert("general.name", name);
    }
    let scheme = recipe.scheme().or_else(|| main_type(tensors).map(Scheme::from));
    if let Some(number) = scheme.and_then(|scheme| scheme.file_type()) {
        metadata.insert("general.file_type", number);
    }
    if tensors.iter().any(|tensor| tensor.dtype.is_quantized()) {
        metadata.insert("general.quantization_version", 2u32);
    }
    mapping.spec().write_metadata(&mut metadata);
    let mut notes = mapping.notes().to_vec();
    notes.extend(mapping.spec().compatibility_notes());
    notes.extend_from_slice(source.notes());
    if source.tokenizer().is_left_out {
        notes.push(
            "the file contains no vocabulary, so none is written; pass token ids instead of text, or \
            convert with --tokenizer"
                .to_owned(),
        );
    } else {
        let vocabulary = slim::vocabulary(source, mapping)?;
        notes.extend_from_slice(vocabulary.notes());
        notes.extend(vocabulary.write_metadata(&mut metadata)?);
    }
    notes.extend(slim::write_metadata(source, mapping, &mut metadata)?);
    for change in overrides {
        change.apply(&mut metadata).map_err(|fault| Error::new(source.path(), fault.0).at("--metadata"))?;
    }
    // What is written must be usable again, whatever was overridden.
    Model::from_gguf(&metadata, tensors, source.path())?;
    if !source.tokenizer().is_left_out {
        Tokenizer::new(Vocabulary::from_metadata(&metadata, source.path())?)?;
    }
    Ok((metadata, notes))
}

/// The vocabulary of a checkpoint that is to be converted.
///
/// # Errors
/// What [`Mapping::new`] refuses, and a tokenizer that cannot be read.
pub fn vocabulary(source: &dyn Checkpoint) -> Result<Vocabulary> {
    vocabulary_of(source, &Mapping::new(source)?)
}

/// The same for one that was mapped already.
pub(crate) fn vocabulary_of(source: &dyn Checkpoint, mapping: &Mapping) -> Result<Vocabulary> {
    let tokens = model_tokens(config_of(source)?, mapping.spec().vocabulary_size(), source.path())?;
    Vocabulary::from_files(source.tokenizer(), &tokens, source.path())
}

/// The repository's name when the model is in the cache of huggingface_hub, else the name of the folder or file without
/// its extension.
fn name_of(path: &Path) -> Option<String> {
    if let Some(name) = cached_model_name(path) {
        return Some(name);
    }
    let path = std::fs::canonicalize(path).ok()?;
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    Some(name?.to_string_lossy().into_owned())
}

/// The type that most bytes of matrices have.
fn main_type(tensors: &[TensorInfo]) -> Option<DType> {
    let mut sums: Vec<(DType, u64)> = Vec::new();
    for tensor in tensors.iter().filter(|tensor| tensor.shape.len() > 1) {
        match sums.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype) {
            Some((_, sum)) => *sum += tensor.elements(),
            None => sums.push((tensor.dtype, tensor.elements())),
        }
    }
    sums.into_iter().max_by_key(|(_, sum)| *sum).map(|(dtype, _)| dtype)
}

/// What the description says about tokens.
pub(crate) fn model_tokens(config: &Map<String, Value>, vocabulary: usize, path: &Path) -> Result<ModelTokens> {
    let ids = |key| role_ids(config, key, description_name(path), path);
    let text = |key| config.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(ModelTokens {
        vocab_size: Some(vocabulary),
        bos_token_id: ids("bos_token_id")?.first().copied(),
        eos_token_ids: ids("eos_token_id")?,
        padding_token_id: ids("pad_token_id")?.first().copied(),
        model_type: text("model_type"),
        tokenizer_class: text("tokenizer_class"),
    })
}
