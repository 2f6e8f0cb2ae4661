//! The `.bin` files of llama2.c, versions 0, 1 and 2, with their `tokenizer.bin`.
//!
//! ```text
//! v0  7 x i32 | f32 tensors in the order of v0, with two tables of rope angles; negative vocabulary: own output matrix
//! v1  "24ka" 1 7 x i32 shared u8 0.. | f32 tensors                                    header of 256 bytes
//! v2  "24ka" 2 7 x i32 shared u8 group i32 0.. | f32 norms | per matrix: i8 values, f32 scales
//! ```
//!
//! Every tensor is read as f32: in version 2 element `i` of a matrix is `values[i] * scales[i / group]`, with groups
//! running over the flattened matrix. Names are those of the original Llama checkpoints; queries and keys are in that
//! layout too (rope on neighbouring pairs), so they need no permutation for GGUF.

mod header;
mod layout;
mod rope_table;
mod tokenizer_bin;

pub(crate) use header::MAGIC;
pub use header::{Header, Version};
pub use tokenizer_bin::TokenizerBin;

use crate::checkpoint::{Checkpoint, Description, TensorInfo, TokenizerFiles, range_to_read};
use crate::error::Result;
use crate::source_file::SourceFile;
use layout::{F32_BYTES, Place};
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the tokenizer's file beside a model.
const TOKENIZER: &str = "tokenizer.bin";

/// The base of rope angles that no file of this format states.
const THETA: f64 = 10_000.0;

/// The constant in the root of the norm, by convention.
const EPSILON: f64 = 1e-5;

/// Said of version 2.
const GROUPS_NOTE: &str = "the source's 8-bit groups are decoded to f32; a quantized output type rounds them again";

/// An open llama2.c model.
#[derive(Debug)]
pub struct Llama2c {
    path: PathBuf,
    format: String,
    header: Header,
    description: serde_json::Map<String, serde_json::Value>,
    tokenizer: TokenizerFiles,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    notes: Vec<String>,
    source: SourceFile,
    tokenizer_source: Option<SourceFile>,
}

impl Llama2c {
    /// Opens a model with its tokenizer: `tokenizer` names a `tokenizer.bin`, `tokenizer.model` or `tokenizer.json`;
    /// without it the `tokenizer.bin` beside the model is taken when there is one.
    pub fn open(path: impl AsRef<Path>, tokenizer: Option<&Path>) -> Result<Llama2c> {
        let path = path.as_ref();
        let source = SourceFile::open(path)?;
        let header = Header::read(&source)?;
        let layout = layout::lay_out(&source, &header)?;
        let theta = match layout.angles {
            Some(angles) => rope_table::theta(&source, &header, angles)?,
            None => THETA,
        };
        let notes = header.group.map(|_| GROUPS_NOTE.to_owned()).into_iter().collect();
        let (tokenizer, tokenizer_source) = open_tokenizer(path, tokenizer, header.vocabulary)?;
        Ok(Llama2c {
            path: path.to_owned(),
            format: format!("llama2.c {}", header.version),
            description: describe(&header, theta),
            header,
            tokenizer,
            tensors: layout.tensors,
            places: layout.places,
            notes,
            source,
            tokenizer_source,
        })
    }

    /// The numbers at the start of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl Checkpoint for Llama2c {
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

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(place) = self.places.get(tensor) else {
            unreachable!("tensor number {tensor} of {}", self.places.len())
        };
        match place {
            Place::Plain { bytes } => self.source.read_at(range_to_read(bytes, offset, out.len()), out),
            Place::Grouped { values, scales, group } => {
                let bytes = 0..values.end.saturating_sub(values.start).saturating_mul(F32_BYTES);
                let start = range_to_read(&bytes, offset, out.len());
                layout::read_grouped(&self.source, values.start, *scales, *group, start, out)
            }
        }
    }

    fn unchanged(&self) -> Result<()> {
        self.sources().into_iter().try_for_each(SourceFile::unchanged)
    }

    fn sources(&self) -> Vec<&SourceFile> {
        std::iter::once(&self.source).chain(&self.tokenizer_source).collect()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The header in the words of a Hugging Face configuration.
fn describe(header: &Header, theta: f64) -> serde_json::Map<String, serde_json::Value> {
    let facts = json!({
        "architectures": ["Llama2cForCausalLM"],
        "model_type": "llama2c",
        "hidden_size": header.dim,
        "intermediate_size": header.hidden_dim,
        "num_hidden_layers": header.layers,
        "num_attention_heads": header.heads,
        "num_key_value_heads": header.kv_heads,
        "vocab_size": header.vocabulary,
        "max_position_embeddings": header.context,
        "rms_norm_eps": EPSILON,
        "rope_theta": theta,
        "tie_word_embeddings": header.shared,
        "bos_token_id": 1,
        "eos_token_id": 2,
    });
    let mut map = if let serde_json::Value::Object(map) = facts { map } else { serde_json::Map::new() };
    if let Some(group) = header.group {
        map.insert("llama2c_group_size".to_owned(), group.into());
    }
    map
}

fn open_tokenizer(path: &Path, named: Option<&Path>, vocabulary: u64) -> Result<(TokenizerFiles, Option<SourceFile>)> {
    let beside = path.with_file_name(TOKENIZER);
    let path = match named {
        Some(named) => named,
        None => match beside.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((TokenizerFiles::default(), None)),
            Ok(_) | Err(_) => beside.as_path(),
        },
    };
    let mut files = TokenizerFiles::default();
    let source = files.replace(path, Some(vocabulary))?;
    Ok((files, Some(source)))
}
