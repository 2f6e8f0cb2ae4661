//! One of the two models, as a GGUF file would hold it.

use crate::chunk::{Chunk, Order};
use crate::mapping::Mapping;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Checkpoint, Description, Result};
use trueup_quantize::bytes_of;

/// A model that is compared.
pub(super) struct Side<'a> {
    pub source: &'a dyn Checkpoint,
    kind: SideKind<'a>,
    pub tensors: Vec<SideTensor>,
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
        let theirs = self.theirs.as_ref().map_or_else(String::new, |name| format!(" {}", trueup_formats::quote(name)));
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
            return Ok(Side { source, kind: SideKind::Gguf(metadata), tensors });
        }
        let mapping = Mapping::new(source)?;
        let tensor = |tensor: &crate::MappedTensor| SideTensor {
            name: tensor.expected.name.clone(),
            theirs: tensor.expected.theirs.clone(),
            shape: tensor.expected.shape.clone(),
            dtype: tensor.dtype,
            order: mapping.order(tensor),
        };
        let tensors = mapping.tensors().iter().map(tensor).collect();
        Ok(Side { source, tensors, kind: SideKind::Mapped(Box::new(mapping)) })
    }

    /// The keys of a GGUF file.
    pub fn metadata(&self) -> Option<&'a Metadata> {
        match &self.kind {
            SideKind::Gguf(metadata) => Some(metadata),
            SideKind::Mapped(_) => None,
        }
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
                self.source.read(chunk.tensor, bytes_of(chunk.elements.start, dtype), &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    pub fn unchanged(&self) -> Result<()> {
        self.source.unchanged()
    }
}
