//! What a look cannot judge, because a survey left it out: keys of a file that is not there, tensors with a fault of
//! their own.
//!
//! A tensor that is cut is no missing tensor, and without the file that describes a model nothing is missing in its
//! description.

use super::patient::{Patient, TOKENS};
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::GgufPart;
use trueup_formats::{
    Checkpoint, Description, Facts, FaultKind, FaultList, SCALE_SUFFIX, SPIECE_MODEL, TOKENIZER_MODEL, TensorInfo,
};
use trueup_models::TOKEN_EMBEDDING;

/// The files beside the weights of a folder that say what to compute, and those that say how text becomes tokens.
const CONFIG: &str = "config.json";
pub(super) const TOKENIZER_JSON: &str = "tokenizer.json";
const TOKENIZERS: [&str; 3] = [TOKENIZER_JSON, TOKENIZER_MODEL, SPIECE_MODEL];

/// The file or folder that describes a model: of a split one its first file, if that was read.
pub(super) fn described_by(named: &Path, facts: &Facts) -> PathBuf {
    match first_part(facts) {
        Some(first) => first.path.clone(),
        None => named.to_owned(),
    }
}

/// The first file of a GGUF model, if it was read.
fn first_part(facts: &Facts) -> Option<&GgufPart> {
    match facts {
        Facts::Gguf { parts, .. } => parts.first().filter(|part| part.named_number == 0),
        Facts::Single | Facts::Folder { .. } => None,
    }
}

/// The tensors that a model claims to have: those that were read, those with a fault, and as many as files that are not
/// there hold. Only names and numbers are known of the last two.
pub(super) fn claimed_tensors(source: &dyn Checkpoint, faults: &FaultList, facts: &Facts) -> Vec<TensorInfo> {
    let mut tensors = source.tensors().to_vec();
    let nothing = |name: &str| TensorInfo { name: name.to_owned(), shape: vec![0], dtype: DType::F32, bytes: 0 };
    tensors.extend(faults.tensors().map(nothing));
    if let Facts::Gguf { parts, missing, .. } = facts
        && parts.len() + missing.len() > 1
    {
        let all = parts.iter().filter_map(|part| part.all_tensors).max().and_then(|all| usize::try_from(all).ok());
        // Their number is held against that of layers only, of which no known model has so many.
        const CLAIMED_MAX: usize = 1024;
        let more = all.unwrap_or(0).min(CLAIMED_MAX).saturating_sub(tensors.len());
        tensors.extend((0..more).map(|_| nothing("")));
    }
    let embedding = TOKEN_EMBEDDING;
    let is_there = source.find(embedding).is_some();
    if let (false, Description::Gguf(metadata)) = (is_there, source.description())
        && let Ok(tokens) = metadata.array(TOKENS)
    {
        tensors.retain(|tensor| tensor.name != embedding);
        tensors.push(TensorInfo { shape: vec![0, tokens.len() as u64], ..nothing(embedding) });
    }
    tensors
}

impl Patient {
    /// Whether all keys of its description were read: only then one that is not there is missing.
    pub fn is_description_whole(&self) -> bool {
        match &self.facts {
            Facts::Single => true,
            Facts::Gguf { .. } => first_part(&self.facts).is_some_and(|first| !self.has_fault_at(&first.path)),
            Facts::Folder { .. } => !self.has_fault_at(&self.folder().join(CONFIG)),
        }
    }

    /// Whether a file of a tokenizer, or the file that would hold it, is there and was not read.
    pub fn is_tokenizer_unread(&self) -> bool {
        match &self.facts {
            Facts::Single => false,
            Facts::Gguf { .. } => !self.is_description_whole(),
            Facts::Folder { .. } => TOKENIZERS.iter().any(|name| self.has_fault_at(&self.folder().join(name))),
        }
    }

    /// Whether every file with tensors was read: only then it is known which tensors are missing.
    pub fn are_all_files_read(&self) -> bool {
        let has_all_parts = match &self.facts {
            Facts::Gguf { missing, .. } => missing.is_empty(),
            Facts::Single | Facts::Folder { .. } => true,
        };
        has_all_parts && self.faults.kept().iter().all(|fault| !is_unread(fault.kind))
    }

    /// Whether a file, or a part of its header, was not read.
    fn has_fault_at(&self, path: &Path) -> bool {
        let mut faults = self.faults.kept().iter().filter(|fault| fault.error.path == path);
        faults.any(|fault| is_unread(fault.kind))
    }

    /// Whether a tensor, or one of the two that stand for it in the split-scale layout, was left out for a fault.
    pub fn is_left_out(&self, tensor: &str) -> bool {
        let values = tensor.strip_suffix(SCALE_SUFFIX).unwrap_or(tensor);
        self.faults.has_tensor(values) || self.faults.has_tensor(&format!("{values}{SCALE_SUFFIX}"))
    }
}

/// Whether a fault means that a file, or a part of its header, was not read.
fn is_unread(kind: FaultKind) -> bool {
    match kind {
        FaultKind::FileMissing
        | FaultKind::FileUnreadable
        | FaultKind::LfsPointer
        | FaultKind::WebPage
        | FaultKind::HeaderBroken => true,
        FaultKind::AlignmentInvalid
        | FaultKind::NameTwice
        | FaultKind::TypeUnknown
        | FaultKind::ShapeInvalid
        | FaultKind::RowsNotBlocks
        | FaultKind::Misaligned
        | FaultKind::OutsideFile
        | FaultKind::Overlap
        | FaultKind::BytesUnowned
        | FaultKind::IndexDisagrees => false,
    }
}
