//! FastLLM's `.flm` files, versions 0, 1 and 2.
//!
//! ```text
//! version i32 | table of texts | adapters | vocabulary | special tokens | tensors: name, sizes, type, numbers | the end
//!               from 1 on        if named                if named
//! ```
//!
//! Everything is little-endian, nothing is aligned. A tensor is read as what it stands for: f32, f16 and bf16 as they
//! are, 8- and 4-bit codes as the f32 that FastLLM's loader makes of them. Tensors that FastLLM joins (queries, keys
//! and values; gate and up) stay joined.

mod codes;
mod describe;
mod header;
mod python;
mod records;
mod writer;

pub use describe::words;
pub(crate) use header::VERSIONS;
pub use header::{FlmToken, FlmVocabulary};
pub use python::print as printed;
pub use writer::{FlmTensor, FlmType, FlmWriter};

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles, range_to_read};
use crate::error::Result;
use crate::name_index::NameIndex;
use crate::source_file::SourceFile;
use codes::F32_BYTES;
use header::{Header, Lengths};
use records::{Coding, Record};
use serde_json::{Map, Value};
use std::collections::HashMap;
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
    description: Map<String, Value>,
    tokenizer: TokenizerFiles,
    tensors: Vec<TensorInfo>,
    /// How the numbers of each tensor are written.
    codings: Vec<Coding>,
    index: NameIndex,
    notes: Vec<String>,
    source: SourceFile,
    tokenizer_source: Option<SourceFile>,
}

/// Describes a file of version 0 or 1, which does not name its kind of model, by the size of its vocabulary and the
/// shapes of its tensors, innermost first; `None` if nothing is known about such a file.
pub type Completion = fn(usize, &HashMap<&str, &[u64]>) -> Option<Map<String, Value>>;

/// The version from which on the table names the kind of model.
const VERSION_WITH_KINDS: i32 = 2;

impl Flm {
    /// Opens a model; `tokenizer` names a file that replaces the vocabulary in it.
    pub fn open(path: impl AsRef<Path>, tokenizer: Option<&Path>) -> Result<Flm> {
        Flm::open_with(path, tokenizer, |_, _| None)
    }

    /// The same; `completion` describes files that do not name their kind of model.
    pub fn open_with(path: impl AsRef<Path>, tokenizer: Option<&Path>, completion: Completion) -> Result<Flm> {
        let path = path.as_ref();
        let source = SourceFile::open(path)?;
        let (mut header, records) = read(&source)?;
        let mut notes = Vec::new();
        notes.extend(complete(&mut header, &records, completion));
        let description = describe::describe(&header, &records, &mut notes);
        let adapters = header.adapters.iter().map(String::as_str).collect::<Vec<_>>();
        let (tensors, codings) = records::tensors(path, records, &adapters, &mut notes)?;
        let index = NameIndex::of(path, &tensors)?;
        let format = format!("FastLLM v{}", header.version);
        let mut files = TokenizerFiles { chat_template: header.value("chat_template"), ..TokenizerFiles::default() };
        files.flm = header.into_vocabulary();
        files.is_left_out = files.flm.is_none();
        let vocabulary = description.get("vocab_size").and_then(Value::as_u64);
        let tokenizer_source = tokenizer.map(|named| files.replace(named, vocabulary)).transpose()?;
        let path = path.to_owned();
        let tokenizer = files;
        Ok(Flm { path, format, description, tokenizer, tensors, codings, index, notes, source, tokenizer_source })
    }
}

/// Completes the table of a file before version 2 that does not name its kind of model; the keys that it has stay.
/// Gives a sentence about the keys that were added.
fn complete(header: &mut Header, records: &[Record], completion: Completion) -> Option<String> {
    if header.version >= VERSION_WITH_KINDS
        || ["model_type", "architectures"].iter().any(|key| header.value(key).is_some())
    {
        return None;
    }
    let shapes = records.iter().map(|record| (record.name.as_str(), record.shape.as_slice())).collect();
    let tokens = header.tokens();
    let found = completion(tokens, &shapes)?;
    let missing: Vec<(String, Value)> = found.into_iter().filter(|(key, _)| header.value(key).is_none()).collect();
    let said: Vec<String> = missing.iter().map(|(key, value)| format!("{key} {}", printed(value))).collect();
    missing.iter().for_each(|(key, value)| header.set(key, printed(value)));
    Some(format!(
        "the file specifies neither the architecture nor the sizes of the model; derived from its vocabulary of \
         {tokens} tokens and its tensor shapes: {}",
        said.join(", ")
    ))
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
        let (Some(info), Some(coding)) = (self.tensors.get(tensor), self.codings.get(tensor)) else {
            unreachable!("tensor number {tensor} of {}", self.tensors.len())
        };
        let start = range_to_read(&(0..info.bytes), offset, out.len());
        match coding {
            Coding::Plain { at, .. } => self.source.read_at(at.saturating_add(start), out),
            Coding::Codes(codes) => {
                assert!(start.is_multiple_of(F32_BYTES), "a range that cuts a number");
                codes.read(&self.source, start.checked_div(F32_BYTES).unwrap_or(0), out)
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
        match self.codings.get(tensor)? {
            Coding::Plain { .. } => None,
            Coding::Codes(codes) => Some(codes.name()),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}
