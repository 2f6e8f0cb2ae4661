//! Opens a model of any format, told apart by content, not by name.
//!
//! ```text
//! folder ─ SafetensorsDir      "GGUF" ─ Gguf      u64, "{" ─ SafetensorsDir      "24ka" ─ Llama2c v1, v2
//! i32 0, 1, 2 ─ Flm when it can be read so        pickle, archive, older formats ─ refused by name (`foreign`)
//! anything else ─ Llama2c v0 when its sizes give the file's size
//! ```

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::flm::{self, Completion, Flm};
use crate::foreign;
use crate::gguf::{self, Gguf};
use crate::hub_cache;
use crate::llama2c::{self, Llama2c};
use crate::safetensors_dir::{SafetensorsDir, is_index};
use crate::source_file::SourceFile;
use crate::stand_in;
use std::path::{Path, PathBuf};

/// What the caller knows better than the files.
#[derive(Clone, Default, Debug)]
pub struct OpenOptions {
    /// A `tokenizer.bin`, `tokenizer.model` or `tokenizer.json` that replaces the one beside the model.
    pub tokenizer: Option<PathBuf>,
}

/// Opens a model file or folder.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
    open_with(path, options, |_, _| None)
}

/// Opens a model as [`open`] does; `completion` describes `.flm` files that do not name their kind of model.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions, completion: Completion) -> Result<Box<dyn Checkpoint>> {
    open_any(path.as_ref(), options, completion).map_err(stand_in::explained)
}

fn open_any(path: &Path, options: &OpenOptions, completion: Completion) -> Result<Box<dyn Checkpoint>> {
    if path.is_dir() || is_index(path) {
        return open_dir(&hub_cache::snapshot(path)?, options);
    }
    let source = SourceFile::open(path)?;
    let mut start = [0; foreign::START_BYTES];
    let size = usize::try_from(source.bytes()).unwrap_or(usize::MAX).min(start.len());
    let start = start.get_mut(..size).unwrap_or_default();
    source.read_at(0, start)?;
    if start.starts_with(&gguf::MAGIC) {
        return open_gguf(path, options);
    }
    if start.starts_with(&llama2c::MAGIC.to_le_bytes()) {
        return open_llama2c(path, options);
    }
    if let Some(found) = foreign::of_file(start, path) {
        return Err(found.error(path).at("first bytes"));
    }
    if looks_like_safetensors(start, source.bytes()) {
        return open_dir(path, options);
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("flm")) {
        return Ok(Box::new(Flm::open_with(path, options.tokenizer.as_deref(), completion)?));
    }
    if start.first_chunk().is_some_and(|version| flm::VERSIONS.contains(&i32::from_le_bytes(*version)))
        && let Ok(model) = Flm::open_with(path, options.tokenizer.as_deref(), completion)
    {
        return Ok(Box::new(model));
    }
    open_llama2c(path, options).map_err(|error| {
        if error.path != path {
            return error;
        }
        let reason = if error.place.is_empty() { error.problem } else { format!("{}: {}", error.place, error.problem) };
        // Version 0 of llama2.c has no mark: only the name of the file or small numbers at its start say that it may
        // be one.
        let is_bin = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bin"));
        let is_bin = is_bin || looks_like_llama2c(start);
        let found = match (source.bytes(), is_bin) {
            (0, _) => "an empty file".to_owned(),
            (_, true) => format!("none of them (as llama2.c version 0: {reason})"),
            (_, false) => "none of them".to_owned(),
        };
        Error::new(path, format!("expected a GGUF, safetensors, FastLLM .flm or llama2.c model, found {found}"))
            .at("first bytes")
            .help("check that this is the right file and that it was copied completely")
    })
}

fn open_dir(path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
    Ok(Box::new(match &options.tokenizer {
        Some(tokenizer) => SafetensorsDir::open_with_tokenizer(path, tokenizer)?,
        None => SafetensorsDir::open(path)?,
    }))
}

fn open_gguf(path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
    if let Some(tokenizer) = &options.tokenizer {
        return Err(Error::new(tokenizer, "expected no separate tokenizer, because a GGUF file contains its own")
            .help("remove the tokenizer option"));
    }
    Ok(Box::new(Gguf::open(path)?))
}

fn open_llama2c(path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
    Ok(Box::new(Llama2c::open(path, options.tokenizer.as_deref())?))
}

/// Seven 32-bit numbers of the size that llama2.c's settings have; the vocabulary size may be negative.
fn looks_like_llama2c(start: &[u8]) -> bool {
    let numbers = start.chunks_exact(4).take(7).filter_map(|bytes| Some(i32::from_le_bytes(bytes.try_into().ok()?)));
    let numbers: Vec<u32> = numbers.map(i32::unsigned_abs).collect();
    numbers.len() == 7 && numbers.iter().all(|number| (1..1 << 24).contains(number))
}

/// A size that fits the file, and an object after it.
fn looks_like_safetensors(start: &[u8], file_bytes: u64) -> bool {
    let Some((size, [b'{', ..])) = start.split_first_chunk::<8>() else { return false };
    u64::from_le_bytes(*size) <= file_bytes
}
