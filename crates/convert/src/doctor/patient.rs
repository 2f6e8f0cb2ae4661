//! The model that is looked at: opened where it can be, else as far as it can be read; and what follows from its
//! description.

use super::left_out::{claimed_tensors, described_by};
use crate::describe::model_tokens;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::{Metadata, first_of_split};
use trueup_formats::{
    Checkpoint, Description, Error, Facts, FaultList, OpenOptions, Result, Survey, TensorInfo, is_out_of_descriptors,
    join_split_scale, split_scale_parts,
};
use trueup_models::{Architecture, ModelSpec, OUTPUT, SourceNames, TOKEN_EMBEDDING, open, survey};
use trueup_tokenizer::{Tokenizer, Vocabulary};

/// A JSON object.
pub(super) type Object = serde_json::Map<String, serde_json::Value>;

/// A model with what is known about it.
pub(super) struct Patient {
    /// What was named.
    pub named: PathBuf,
    /// The same, but where a later file of a split model was named the first one, which describes the model.
    pub path: PathBuf,
    /// Why it does not open, where it does not.
    pub refusal: Option<Error>,
    /// Why values and scales are not joined, where a file of the split-scale layout is broken.
    pub layout: Option<Error>,
    pub faults: FaultList,
    pub facts: Facts,
    /// The tables of its architecture; `Err` when it names none that is known.
    pub architecture: Result<&'static Architecture>,
    /// Its numbers; `None` without an architecture.
    pub spec: Option<Result<ModelSpec>>,
    /// `None` when it has no tokenizer.
    pub vocabulary: Option<Result<Vocabulary>>,
    /// Made of a vocabulary that could be read.
    pub tokenizer: Option<Result<Tokenizer>>,
    checkpoint: Box<dyn Checkpoint>,
    token_rows: Vec<String>,
    file_of: std::collections::HashMap<String, PathBuf>,
}

/// Tensors of so many bytes are read whether they are there or not.
const HOLE_BYTES_MIN: u64 = 1 << 30;

/// At least this part of them, one sixteenth, must be there then. File systems that compress save less of weights.
const HOLE_PARTS: u64 = 16;

/// The key without which a GGUF file has no tokenizer.
pub(super) const TOKENIZER_MODEL: &str = "tokenizer.ggml.model";
/// The texts of tokens in a GGUF file.
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";

impl Patient {
    /// Reads what can be read.
    ///
    /// # Errors
    /// It is no model: nothing can be read.
    pub fn admit(path: &Path) -> Result<Patient> {
        let (refusal, Survey { checkpoint, faults, file_of, facts }) = read(path)?;
        let (named, path) = (path.to_owned(), described_by(path, &facts));
        let path = path.as_path();
        let layout = split_scale_parts(checkpoint.as_ref()).err();
        let checkpoint = if layout.is_none() { join_split_scale(checkpoint)? } else { checkpoint };
        let source = checkpoint.as_ref();
        let architecture = match source.description() {
            Description::Gguf(metadata) => Architecture::of_metadata(metadata, path),
            Description::Json(config) => Architecture::of_config(config, path),
        };
        let claimed = claimed_tensors(source, &faults, &facts);
        let spec = architecture.as_ref().ok().map(|architecture| spec_of(source, architecture, &claimed, path));
        let vocabulary = vocabulary_of(source, spec.as_ref(), path);
        let read = vocabulary.as_ref().and_then(|vocabulary| vocabulary.as_ref().ok());
        let tokenizer = read.map(|vocabulary| Tokenizer::new(vocabulary.clone()));
        let path = path.to_owned();
        let mut patient = Patient {
            named,
            path,
            refusal,
            layout,
            faults,
            facts,
            architecture,
            spec,
            vocabulary,
            tokenizer,
            checkpoint,
            file_of,
            token_rows: Vec::new(),
        };
        let copies = patient.architecture.as_ref().map_or(&[][..], |architecture| architecture.copies);
        let names = [patient.name_of(TOKEN_EMBEDDING), patient.name_of_head()];
        patient.token_rows = names.into_iter().flatten().chain(copies.iter().map(|name| (*name).to_owned())).collect();
        Ok(patient)
    }

    pub fn checkpoint(&self) -> &dyn Checkpoint {
        self.checkpoint.as_ref()
    }

    /// The keys of a GGUF file.
    pub fn metadata(&self) -> Option<&Metadata> {
        match self.checkpoint.description() {
            Description::Gguf(metadata) => Some(metadata),
            Description::Json(_) => None,
        }
    }

    /// `config.json` of a folder; the descriptions that readers of other formats make are not meant.
    pub fn config(&self) -> Option<&Object> {
        match (self.checkpoint.description(), &self.facts) {
            (Description::Json(config), Facts::Folder { .. }) => Some(config),
            (Description::Json(_) | Description::Gguf(_), _) => None,
        }
    }

    /// Its numbers, where they hold.
    pub fn valid_spec(&self) -> Option<&ModelSpec> {
        self.spec.as_ref()?.as_ref().ok()
    }

    /// The vocabulary, where it could be read.
    pub fn valid_vocabulary(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_ref()?.as_ref().ok()
    }

    /// The file that holds a tensor.
    pub fn file_of(&self, tensor: &str) -> &Path {
        self.file_of.get(tensor).unwrap_or(&self.path)
    }

    /// The folder of a model in several files of different kinds.
    pub fn folder(&self) -> &Path {
        let parent = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if self.path.is_dir() { &self.path } else { parent.unwrap_or(Path::new(".")) }
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<(usize, &TensorInfo)> {
        let number = self.checkpoint.find(name)?;
        Some((number, self.checkpoint.tensors().get(number)?))
    }

    /// Bytes of the tensors, where the file system holds next to none of them: what was never written reads as zeros,
    /// and takes as long as what was.
    pub fn hole(&self) -> Option<u64> {
        let bytes = self.checkpoint.tensors().iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes));
        let facts: Vec<fs::Metadata> =
            self.checkpoint.sources().iter().filter_map(|source| source.path().metadata().ok()).collect();
        let held = facts.iter().fold(0, |sum: u64, facts| sum.saturating_add(facts.blocks().saturating_mul(512)));
        // A file system that does not say how much it holds says 0.
        (held > 0 && bytes > HOLE_BYTES_MIN && held < bytes / HOLE_PARTS).then_some(bytes)
    }

    /// The tensors whose rows belong to tokens: embedding and head.
    pub fn names_of_token_rows(&self) -> &[String] {
        &self.token_rows
    }

    /// The file's name of the tensor that GGUF calls `name`, which must be one outside of the layers.
    pub fn name_of(&self, name: &str) -> Option<String> {
        match self.metadata() {
            Some(_) => Some(name.to_owned()),
            None => self.source_names(self.architecture.as_ref().ok()?).source_of(name),
        }
    }

    /// The name of its output head, if it has one other than the embedding.
    pub fn name_of_head(&self) -> Option<String> {
        match self.metadata() {
            Some(_) => Some(OUTPUT.to_owned()),
            None => self.source_names(self.architecture.as_ref().ok()?).head(),
        }
    }

    /// The names of its tensors, with those that a fault left out.
    pub fn source_names(&self, architecture: &'static Architecture) -> SourceNames<'_> {
        let read = self.checkpoint.tensors().iter().map(|tensor| tensor.name.as_str());
        SourceNames::new(architecture, read.chain(self.faults.tensors()))
    }
}

/// Why a model does not open, and all that can be read of it. Its files are closed between the two: each is open once
/// at a time.
fn read(path: &Path) -> Result<(Option<Error>, Survey)> {
    let open_again = || open(path, &OpenOptions::default());
    let refusal = match (open_again().err(), first_of_split(path)) {
        (Some(_), Some(first)) => open(first, &OpenOptions::default()).err(),
        (refusal, _) => refusal,
    };
    match (refusal, survey(path)) {
        (Some(error), _) | (_, Err(error)) if is_out_of_descriptors(&error) => {
            Err(error.help("raise the limit of open files (`ulimit -n`)"))
        }
        (Some(error), Err(_)) => Err(error),
        (refusal, Ok(survey)) => Ok((refusal, survey)),
        (None, Err(_)) => {
            let (faults, file_of) = (FaultList::default(), Default::default());
            Ok((None, Survey { checkpoint: open_again()?, faults, file_of, facts: Facts::Single }))
        }
    }
}

fn spec_of(
    source: &dyn Checkpoint,
    architecture: &'static Architecture,
    tensors: &[TensorInfo],
    path: &Path,
) -> Result<ModelSpec> {
    match source.description() {
        Description::Gguf(metadata) => ModelSpec::from_metadata(architecture, metadata, tensors, path),
        Description::Json(config) => ModelSpec::from_config(architecture, config, tensors.len(), path),
    }
}

fn vocabulary_of(source: &dyn Checkpoint, spec: Option<&Result<ModelSpec>>, path: &Path) -> Option<Result<Vocabulary>> {
    match source.description() {
        Description::Gguf(metadata) => {
            let is_there = metadata.contains(TOKENIZER_MODEL) || metadata.contains(TOKENS);
            is_there.then(|| Vocabulary::from_metadata(metadata, path))
        }
        Description::Json(config) => {
            let files = source.tokenizer();
            let is_there = files.has_vocabulary();
            let known = spec.and_then(|spec| spec.as_ref().ok()).map(ModelSpec::vocabulary_size);
            let said = || config.get("vocab_size")?.as_u64().and_then(|size| usize::try_from(size).ok());
            is_there.then(|| {
                let mut tokens = model_tokens(config, 0, path)?;
                tokens.vocab_size = known.or_else(said);
                Vocabulary::from_files(files, &tokens, path)
            })
        }
    }
}

/// Whether the values of a type can be looked at.
pub(super) fn is_readable(dtype: DType) -> bool {
    dtype.is_float() || dtype.decoder().is_some()
}
