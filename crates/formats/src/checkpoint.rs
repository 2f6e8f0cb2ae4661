//! The one face of every input: what the model is, its tokenizer, and its tensors by place.
//!
//! Everything about a checkpoint is validated when it is opened; reading a tensor afterwards fails only on I/O.

use crate::error::{Error, Result, quote};
use crate::flm::FlmVocabulary;
use crate::gguf::Metadata;
use crate::llama2c::TokenizerBin;
use crate::source_file::SourceFile;
use crate::tensor_range::tensor_bytes;
use std::ops::Range;
use std::path::{Path, PathBuf};
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

    /// The number of the tensor of that name. Formats that can hold many tensors have an index of them.
    fn find(&self, name: &str) -> Option<usize> {
        self.tensors().iter().position(|tensor| tensor.name == name)
    }

    /// Fills `out` with the bytes of tensor number `tensor` from byte `offset` on, as its `dtype` says. The range must
    /// lie inside the tensor and both ends on element boundaries; anything else panics, since the caller knows the
    /// size.
    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Fails when an input file changed since it was opened, by size, time or inode: its bytes are then a mixture.
    fn unchanged(&self) -> Result<()>;

    /// The files that were opened, for [`AtomicFile::create`](crate::AtomicFile::create): an output may be none of
    /// them.
    fn sources(&self) -> Vec<&SourceFile>;

    /// How the file holds a tensor's numbers, where that is not the type that `read` delivers: `int4`, `int8`,
    /// `int4g128` of a `.flm` file.
    fn stored(&self, _tensor: usize) -> Option<String> {
        None
    }

    /// What a person should know about how it was read: one sentence each.
    fn notes(&self) -> &[String] {
        &[]
    }
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
    /// Sizes, innermost first: a matrix with `rows` outputs of `columns` inputs is `[columns, rows]`. One to four of
    /// them; a scalar is `[1]`.
    pub shape: Vec<u64>,
    /// What `read` delivers.
    pub dtype: DType,
    /// Bytes that `read` can deliver.
    pub bytes: u64,
}

impl TensorInfo {
    /// A tensor of that shape, innermost first; an error when there is no such tensor.
    pub fn new(name: impl Into<String>, shape: &[u64], dtype: DType) -> Result<TensorInfo> {
        let name = name.into();
        match tensor_bytes(shape, dtype) {
            Ok(bytes) => Ok(TensorInfo { name, shape: shape.to_vec(), dtype, bytes }),
            Err(problem) => Err(Error::new("", problem).at(format!("tensor {}", quote(&name)))),
        }
    }

    /// Elements in all dimensions; the size in bytes bounds it, so it does not overflow.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size))
    }
}

/// Where `len` bytes from `offset` of a tensor on stand in the file; panics when they are not inside the tensor, as
/// [`Checkpoint::read`] says.
pub(crate) fn range_to_read(range: &Range<u64>, offset: u64, len: usize) -> u64 {
    let start = range.start.checked_add(offset);
    let end = start.and_then(|start| start.checked_add(u64::try_from(len).ok()?));
    assert!(end.is_some_and(|end| end <= range.end), "{len} bytes from byte {offset} are not inside the tensor");
    start.unwrap_or(range.end)
}

/// The files beside the weights that say how text becomes tokens. Contents are bounded and parsed by the tokenizer
/// crate.
#[derive(Clone, Default, Debug)]
pub struct TokenizerFiles {
    /// `tokenizer.json` of the tokenizers library.
    pub tokenizer_json: Option<Vec<u8>>,
    /// `tokenizer.model` of sentencepiece (protobuf), or `spiece.model`, which is the same format.
    pub tokenizer_model: Option<Vec<u8>>,
    /// Whether [`TokenizerFiles::tokenizer_model`] was read from `spiece.model`.
    pub is_spiece: bool,
    /// `ice_text.model`, also of sentencepiece: the pieces that follow ids of images.
    pub ice_text: Option<Vec<u8>>,
    /// The file with the extension `.tiktoken`.
    pub tiktoken: Option<RankFile>,
    /// `vocab.json`, tokens with ids, beside [`TokenizerFiles::merges`].
    pub vocab_json: Option<Vec<u8>>,
    /// `merges.txt`: pairs of tokens, the first to be merged first.
    pub merges: Option<Vec<u8>>,
    /// `vocab.txt`: a token on each line, in the order of ids.
    pub vocab_txt: Option<Vec<u8>>,
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
    pub llama2c: Option<TokenizerBin>,
    /// The vocabulary in a `.flm` file.
    pub flm: Option<FlmVocabulary>,
    /// Whether the vocabulary comes from another place than the model's folder ([`TokenizerFiles::replace`]); added
    /// tokens of the folder do not belong to it then.
    pub is_replaced: bool,
    /// The file that the vocabulary comes from, if it replaces that of the model.
    pub replacement: Option<PathBuf>,
    /// Whether the model was meant to be without: its format holds a vocabulary, and there is nothing in it.
    pub is_left_out: bool,
}

/// Tokens in base64 with their ranks.
#[derive(Clone, Debug)]
pub struct RankFile {
    /// The name of the file.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// A sentencepiece model, as most checkpoints name it.
pub const TOKENIZER_MODEL: &str = "tokenizer.model";
/// A sentencepiece model, as some families name it.
pub const SPIECE_MODEL: &str = "spiece.model";

/// The largest vocabulary file that is read, in bytes.
pub(crate) const VOCABULARY_BYTES_MAX: u64 = 256 << 20;

impl TokenizerFiles {
    /// The name of the file with [`TokenizerFiles::tokenizer_model`].
    pub fn model_name(&self) -> &'static str {
        if self.is_spiece { SPIECE_MODEL } else { TOKENIZER_MODEL }
    }

    /// Whether there is a vocabulary among them.
    pub fn has_vocabulary(&self) -> bool {
        let in_files = self.tokenizer_json.is_some() || self.tokenizer_model.is_some() || self.tiktoken.is_some();
        let in_two = self.vocab_json.is_some() && self.merges.is_some();
        in_files
            || in_two
            || self.vocab_txt.is_some()
            || self.ice_text.is_some()
            || self.llama2c.is_some()
            || self.flm.is_some()
    }

    /// Takes the vocabulary from one file, by its extension: `.json`, `.model`, `.tiktoken`, `.txt`, else llama2.c's
    /// structure, which needs to know the number of tokens. The other vocabularies are dropped, the rest stays.
    pub fn replace(&mut self, path: &Path, vocabulary: Option<u64>) -> Result<SourceFile> {
        let source = SourceFile::open(path)?;
        (self.tokenizer_json, self.tokenizer_model, self.tiktoken) = (None, None, None);
        (self.vocab_json, self.merges, self.vocab_txt) = (None, None, None);
        (self.ice_text, self.llama2c, self.flm) = (None, None, None);
        (self.is_left_out, self.is_replaced, self.is_spiece) = (false, true, false);
        self.replacement = Some(path.to_owned());
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => self.tokenizer_json = Some(source.read_all(VOCABULARY_BYTES_MAX)?),
            Some("txt") => self.vocab_txt = Some(source.read_all(VOCABULARY_BYTES_MAX)?),
            Some("tiktoken") => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.tiktoken = Some(RankFile { name, bytes: source.read_all(VOCABULARY_BYTES_MAX)? });
            }
            Some("model") if path.file_name().is_some_and(|name| name == "ice_text.model") => {
                self.ice_text = Some(source.read_all(VOCABULARY_BYTES_MAX)?);
            }
            Some("model") => {
                self.is_spiece = path.file_name().is_some_and(|name| name == SPIECE_MODEL);
                self.tokenizer_model = Some(source.read_all(VOCABULARY_BYTES_MAX)?);
            }
            Some(_) | None => {
                let vocabulary = vocabulary.ok_or_else(|| {
                    Error::new(path, "neither the file nor the model specifies the number of tokens")
                        .help("pass a tokenizer.json or a tokenizer.model")
                })?;
                self.llama2c = Some(TokenizerBin::read(&source, vocabulary)?);
            }
        }
        Ok(source)
    }
}
