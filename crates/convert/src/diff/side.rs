//! One of the two models, as a GGUF file would hold it.

use crate::chunk::{Chunk, Order};
use crate::mapping::Mapping;
use crate::slim;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Checkpoint, Description, Result, quote};
use trueup_models::Model;
use trueup_quantize::bytes_of;

/// A model that is compared.
pub(super) struct Side<'a> {
    pub source: &'a dyn Checkpoint,
    kind: SideKind<'a>,
    pub tensors: Vec<SideTensor>,
    /// The ids of the tokens that are compared, where the other side has only these.
    pub kept: Option<Arc<[u32]>>,
}

enum SideKind<'a> {
    Gguf(&'a Metadata),
    Mapped(Box<Mapping>),
}

/// One tensor under its name in GGUF.
pub(super) struct SideTensor {
    pub name: String,
    /// Its name in the checkpoint, where that is another.
    pub theirs: Option<String>,
    pub shape: Vec<u64>,
    pub dtype: DType,
    /// How its rows stand in the checkpoint, where GGUF has another order.
    pub order: Option<Order>,
}

impl SideTensor {
    /// `bf16[64, 128] model.norm.weight`, for people.
    pub fn describe(&self) -> String {
        let theirs = self.theirs.as_ref().map_or_else(String::new, |name| format!(" {}", quote(name)));
        format!("{}{:?}{theirs}", self.dtype, self.shape)
    }
}

impl<'a> Side<'a> {
    pub fn new(source: &'a dyn Checkpoint) -> Result<Side<'a>> {
        if let Description::Gguf(metadata) = source.description() {
            let tensor = |info: &trueup_formats::TensorInfo| SideTensor {
                name: info.name.clone(),
                theirs: None,
                shape: info.shape.clone(),
                dtype: info.dtype,
                order: None,
            };
            let tensors = source.tensors().iter().map(tensor).collect();
            return Ok(Side { source, kind: SideKind::Gguf(metadata), tensors, kept: None });
        }
        Ok(Side::mapped(source, Mapping::new(source)?))
    }

    fn mapped(source: &'a dyn Checkpoint, mapping: Mapping) -> Side<'a> {
        let tensor = |tensor: &crate::MappedTensor| SideTensor {
            name: tensor.expected.name.clone(),
            theirs: tensor.expected.sources.first().map(|source| source.name.clone()),
            shape: tensor.expected.shape.clone(),
            dtype: tensor.dtype,
            order: mapping.order(tensor),
        };
        let tensors = mapping.tensors().iter().map(tensor).collect();
        let kept = mapping.kept().cloned();
        Side { source, tensors, kind: SideKind::Mapped(Box::new(mapping)), kept }
    }

    /// For people.
    pub fn name(&self) -> String {
        quote(&self.source.path().to_string_lossy())
    }

    /// The keys of a slimmed file.
    pub fn slimmed(&self) -> Option<&'a Metadata> {
        self.metadata().filter(|metadata| slim::is_slimmed(metadata))
    }

    /// The same model with the tokens alone that `slimmed`, made from it, has. Fails when it was made from another.
    fn with_tokens_of(mut self, slimmed: &Side, metadata: &Metadata) -> Result<Side<'a>> {
        let path = slimmed.source.path();
        let own = match &self.kind {
            SideKind::Mapped(_) => None,
            SideKind::Gguf(own) => Some(Model::from_gguf(own, self.source.tensors(), self.source.path())?),
        };
        let spec = own.as_ref().map(Model::spec).or(self.mapping().map(Mapping::spec));
        let count = spec.map_or(0, |spec| spec.vocabulary_size());
        let Some(kept) = slim::kept_in(metadata, count, path)? else { return Ok(self) };
        let kept: Arc<[u32]> = kept.into();
        let Some(model) = own else {
            return Ok(Side::mapped(self.source, Mapping::new(self.source)?.slimmed(kept, path)?));
        };
        for expected in model.spec().tensors() {
            let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == expected.name);
            if let (Some(tensor), true) = (tensor, expected.kind.is_per_token())
                && let Some(rows) = tensor.shape.last_mut()
            {
                *rows = kept.len() as u64;
                tensor.order = Some(Order::Kept(Arc::clone(&kept)));
            }
        }
        self.kept = Some(kept);
        Ok(self)
    }

    /// The keys of a GGUF file.
    pub fn metadata(&self) -> Option<&'a Metadata> {
        match &self.kind {
            SideKind::Gguf(metadata) => Some(metadata),
            SideKind::Mapped(_) => None,
        }
    }

    /// Whether the file was quantized with an importance matrix: such files name it.
    pub fn has_importance(&self) -> bool {
        self.metadata().is_some_and(|metadata| metadata.contains("quantize.imatrix.file"))
    }

    /// The tables of a checkpoint that is no GGUF file.
    pub fn mapping(&self) -> Option<&Mapping> {
        match &self.kind {
            SideKind::Gguf(_) => None,
            SideKind::Mapped(mapping) => Some(mapping),
        }
    }

    /// The bytes of the chunk's elements, in the order of rows that GGUF has.
    pub fn read(&self, chunk: &Chunk) -> Result<Vec<u8>> {
        let dtype = self.tensors[chunk.tensor].dtype;
        let mut bytes = vec![0; bytes_of(chunk.len(), dtype) as usize];
        match &self.kind {
            SideKind::Mapped(mapping) => {
                chunk.read_source(self.source, mapping, &mut bytes)?;
                let mut sorted = Vec::new();
                chunk.sort_rows(dtype, &bytes, &mut sorted);
                Ok(if sorted.is_empty() { bytes } else { sorted })
            }
            SideKind::Gguf(_) => {
                chunk.read_runs(self.source, &[chunk.tensor], &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    pub fn unchanged(&self) -> Result<()> {
        self.source.unchanged()
    }
}

/// Both sides with the same tokens, where one was slimmed and the other was not: a slimmed file's rows and tokens are
/// compared with those of its source that were kept. Where it was made from another, both stay as they are.
pub(super) fn with_the_same_tokens<'a>(
    a: Side<'a>,
    b: Side<'a>,
    notes: &mut Vec<String>,
) -> Result<(Side<'a>, Side<'a>)> {
    let mut fewer = |whole: Side<'a>, slimmed: &Side, metadata: &Metadata| {
        let name = whole.name();
        let again = whole.source;
        match whole.with_tokens_of(slimmed, metadata) {
            Ok(whole) => {
                let count = whole.kept.as_ref().map_or(0, |kept| kept.len());
                notes.push(format!("{} has {count} of the tokens of {name}; only these are compared", slimmed.name()));
                Ok(whole)
            }
            Err(error) => {
                notes.push(format!("{} has fewer tokens, and they do not come from {name}: {error}", slimmed.name()));
                Side::new(again)
            }
        }
    };
    match (a.slimmed(), b.slimmed()) {
        (None, Some(metadata)) => Ok((fewer(a, &b, metadata)?, b)),
        (Some(metadata), None) => {
            let b = fewer(b, &a, metadata)?;
            Ok((a, b))
        }
        (None, None) | (Some(_), Some(_)) => Ok((a, b)),
    }
}
