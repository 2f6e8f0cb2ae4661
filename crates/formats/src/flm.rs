//! FastLLM's `.flm` files, versions 0, 1 and 2.
//!
//! ```text
//! version i32 | table of texts | adapters | vocabulary | special tokens | tensors: name, sizes, type, numbers | the end
//!               from 1 on        if named                if named
//! ```
//!
//! Everything is little-endian, nothing is aligned. A tensor is read as what it stands for: f32, f16 and bf16 as they
//! are, 8- and 4-bit codes as the f32 that FastLLM's loader makes of them. Tensors that FastLLM joins (queries, keys
//! and values; gate and up) are read as the ones that they were joined from, under the names of Hugging Face
//! checkpoints.

mod codes;
mod describe;
mod header;
mod older;
mod python;
mod records;
mod writer;

pub use crate::joined::joined_name;
pub use describe::words;
pub(crate) use header::VERSIONS;
pub use header::{FlmToken, FlmVocabulary};
pub use python::print as printed;
pub use writer::{FlmTensor, FlmType, FlmWriter};

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles, range_to_read};
use crate::error::{Result, quote};
use crate::name_index::NameIndex;
use crate::source_file::SourceFile;
use codes::F32_BYTES;
use header::{Header, Lengths};
use records::{Coding, Part, Record};
use std::path::{Path, PathBuf};

/// Whether a name is that of a file of FastLLM.
pub fn is_flm(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("flm"))
}

/// What errors call the place of a model's description, by the path of the model.
pub fn description_name(path: &Path) -> &'static str {
    if is_flm(path) { "the table of keys" } else { "config.json" }
}

/// An open `.flm` model.
#[derive(Debug)]
pub struct Flm {
    path: PathBuf,
    format: String,
    description: serde_json::Map<String, serde_json::Value>,
    tokenizer: TokenizerFiles,
    tensors: Vec<TensorInfo>,
    /// Where each tensor's numbers stand.
    parts: Vec<Part>,
    records: Vec<Record>,
    index: NameIndex,
    notes: Vec<String>,
    source: SourceFile,
    tokenizer_source: Option<SourceFile>,
}

impl Flm {
    /// Opens a model; `tokenizer` names a file that replaces the vocabulary in it.
    pub fn open(path: impl AsRef<Path>, tokenizer: Option<&Path>) -> Result<Flm> {
        let path = path.as_ref();
        let source = SourceFile::open(path)?;
        let (mut header, records) = read(&source)?;
        let mut notes = Vec::new();
        older::complete(&mut header, &records, &mut notes);
        let description = describe::describe(&header, &records, &mut notes);
        let adapters = header.adapters.iter().map(String::as_str).collect::<Vec<_>>();
        let (tensors, parts) = records::divide(path, &records, &description, &adapters, &mut notes)?;
        let index = NameIndex::of(path, &tensors)?;
        let format = format!("FastLLM v{}", header.version);
        let mut files = TokenizerFiles { chat_template: header.value("chat_template"), ..TokenizerFiles::default() };
        files.flm = header.into_vocabulary();
        files.is_left_out = files.flm.is_none();
        let vocabulary = description.get("vocab_size").and_then(serde_json::Value::as_u64);
        let tokenizer_source = tokenizer.map(|named| files.replace(named, vocabulary)).transpose()?;
        let path = path.to_owned();
        let tokenizer = files;
        Ok(Flm {
            path,
            format,
            description,
            tokenizer,
            tensors,
            parts,
            records,
            index,
            notes,
            source,
            tokenizer_source,
        })
    }
}

/// Older exporters wrote the number of characters of a text where its number of bytes belongs, which differ beyond
/// ASCII: read so what cannot be read otherwise.
fn read(source: &SourceFile) -> Result<(Header, Vec<Record>)> {
    let with = |lengths| {
        let (header, mut texts) = Header::read(source, lengths)?;
        let records = records::read(&mut texts)?;
        Ok((header, records))
    };
    with(Lengths::Bytes).or_else(|error| with(Lengths::Characters).map_err(|_| error))
}

impl Checkpoint for Flm {
    fn format(&self) -> &str {
        &self.format
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn description(&self) -> Description<'_> {
        Description::Json(&self.description)
    }

    fn tokenizer(&self) -> &TokenizerFiles {
        &self.tokenizer
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.index.find(&self.tensors, name)
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let (Some(info), Some(part)) = (self.tensors.get(tensor), self.parts.get(tensor)) else {
            unreachable!("tensor number {tensor} of {}", self.tensors.len())
        };
        let start = range_to_read(&(0..info.bytes), offset, out.len());
        let Some(record) = self.records.get(part.record) else {
            unreachable!("a part of tensor {}", quote(&info.name))
        };
        match &record.coding {
            Coding::Plain { dtype, at } => {
                let element = u64::try_from(dtype.block_bytes()).unwrap_or(u64::MAX);
                let at = at.saturating_add(part.first.saturating_mul(element)).saturating_add(start);
                self.source.read_at(at, out)
            }
            Coding::Codes(codes) => {
                assert!(start.is_multiple_of(F32_BYTES), "a range that cuts a number");
                let first = part.first.saturating_add(start.checked_div(F32_BYTES).unwrap_or(0));
                codes.read(&self.source, first, out)
            }
        }
    }

    fn unchanged(&self) -> Result<()> {
        self.sources().into_iter().try_for_each(SourceFile::unchanged)
    }

    fn sources(&self) -> Vec<&SourceFile> {
        std::iter::once(&self.source).chain(&self.tokenizer_source).collect()
    }

    fn stored(&self, tensor: usize) -> Option<String> {
        match &self.records.get(self.parts.get(tensor)?.record)?.coding {
            Coding::Plain { .. } => None,
            Coding::Codes(codes) => Some(codes.name()),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}
