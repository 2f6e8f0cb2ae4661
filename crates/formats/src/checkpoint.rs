//! The one face of every input: what the model is, its tokenizer, and its tensors by place.
//!
//! Everything about a checkpoint is validated when it is opened; reading a tensor afterwards fails only on I/O.

use crate::error::Result;
use crate::gguf::Metadata;
use std::path::Path;
use trueup_blocks::DType;

/// A model on disk in any format.
pub trait Checkpoint: Send + Sync {
    /// The format's name for people: `safetensors`, `GGUF v3`, `llama2.c v1`.
    fn format(&self) -> &str;

    /// The file or folder that was opened.
    fn path(&self) -> &Path;

    /// Hyper-parameters and other facts about the model.
    fn description(&self) -> Description<'_>;

    /// The tokenizer's files; all absent when the metadata holds the tokenizer (GGUF).
    fn tokenizer(&self) -> &TokenizerFiles;

    /// All tensors, in the order of the file.
    fn tensors(&self) -> &[TensorInfo];

    /// Fills `out` with the bytes of tensor number `tensor` from byte `offset` on, as its `dtype` says. The range must lie
    /// inside the tensor and both ends on element boundaries; anything else panics, since the caller knows the size.
    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Fails when an input file changed since it was opened, by size, time or inode: its bytes are then a mixture.
    fn unchanged(&self) -> Result<()>;
}

/// Where a checkpoint's hyper-parameters come from.
#[derive(Clone, Copy, Debug)]
pub enum Description<'a> {
    /// `config.json` of a Hugging Face directory, or what a llama2.c header says in the same words.
    Json(&'a serde_json::Map<String, serde_json::Value>),
    /// The key-value section of a GGUF file.
    Gguf(&'a Metadata),
}

/// One tensor of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Its name in the checkpoint.
    pub name: String,
    /// Sizes, innermost first: a matrix with `rows` outputs of `columns` inputs is `[columns, rows]`. One to four of them; a
    /// scalar is `[1]`.
    pub shape: Vec<u64>,
    /// What `read` delivers.
    pub dtype: DType,
    /// Bytes that `read` can deliver.
    pub bytes: u64,
}

/// The files beside the weights that say how text becomes tokens. Contents are bounded and parsed by the tokenizer crate.
#[derive(Clone, Default, Debug)]
pub struct TokenizerFiles {
    /// `tokenizer.json` of the tokenizers library.
    pub tokenizer_json: Option<Vec<u8>>,
    /// `tokenizer.model` of sentencepiece (protobuf).
    pub tokenizer_model: Option<Vec<u8>>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<serde_json::Map<String, serde_json::Value>>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<serde_json::Map<String, serde_json::Value>>,
    /// `added_tokens.json`.
    pub added_tokens: Option<serde_json::Map<String, serde_json::Value>>,
    /// `generation_config.json`.
    pub generation_config: Option<serde_json::Map<String, serde_json::Value>>,
    /// `chat_template.jinja`, when it is a file of its own.
    pub chat_template: Option<String>,
    /// `tokenizer.bin` of llama2.c.
    pub llama2c: Option<crate::llama2c::TokenizerBin>,
}
