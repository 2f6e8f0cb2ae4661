//! Model files on disk, read as if they were hostile, and written so that no half file is ever seen.
//!
//! ```text
//!                 ┌ gguf::Gguf ───────────┐
//! path ── open() ─┼ SafetensorsDir ───────┼── dyn Checkpoint: description, tokenizer files, tensors, read by place
//!                 ├ llama2c::Llama2c ─────┤
//!                 └ flm::Flm ─────────────┘
//!
//! metadata, tensors ── gguf::GgufWriter ──┐
//! named arrays ── write_safetensors() ────┴── AtomicFile ── path
//! ```
//!
//! Everything is checked once, when a file is opened: sizes against the file's length, names against each other, every
//! byte against a second owner. Afterwards only input and output can fail. No size from a file is trusted before the
//! file is known to hold it, and no thread is started here.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod atomic_file;
mod checkpoint;
mod counted;
mod error;
mod fault;
pub mod flm;
mod foreign;
pub mod gguf;
mod hash_file;
mod hexadecimal;
mod hub_cache;
mod importance;
mod importance_sums;
pub mod json;
pub mod llama2c;
mod logits_file;
mod name_index;
mod open;
mod quantization;
mod reader;
mod regex_reason;
mod safetensors_dir;
mod safetensors_writer;
mod significant;
mod source_file;
mod split_scale;
mod stand_in;
mod survey;
mod tensor_range;
mod text_encoding;
mod trace;

pub use atomic_file::{AtomicFile, TemporaryFile, free_disk_bytes};
pub use checkpoint::{Checkpoint, Description, RankFile, SPIECE_MODEL, TOKENIZER_MODEL, TensorInfo, TokenizerFiles};
pub use counted::counted;
pub use error::{Error, Result, listed, quote};
pub use fault::{Fault, FaultKind, FaultList};
pub use flm::Flm;
pub use gguf::{Gguf, MappedGguf};
pub use hash_file::hash_file;
pub use hexadecimal::hexadecimal;
pub use hub_cache::cached_model_name;
pub use importance::{Importance, ImportanceEntry};
pub use importance_sums::{ImportanceSums, WeightSums};
pub use llama2c::Llama2c;
pub use logits_file::{LOGITS_MAGIC, LogitsFile, LogitsRecord, LogitsShape, LogitsWriter};
pub use open::{OpenOptions, open, open_with};
pub use quantization::{QUANTIZED_HELP, is_quantized, quantization};
pub use regex_reason::regex_reason;
pub use safetensors_dir::{
    FolderOthers, FolderSurvey, IndexFacts, SafetensorsDir, SafetensorsFile, SecondWeights, SetComparison,
};
pub use safetensors_writer::{SafetensorsArray, write_safetensors};
pub use significant::significant;
pub use source_file::{FileStamp, SourceFile, is_out_of_descriptors};
pub use split_scale::{
    LAYOUT_KEY, LAYOUT_SPLIT_SCALE, SCALE_SUFFIX, SplitScalePart, join_split_scale, split_scale_parts,
    split_scale_tensors,
};
pub use stand_in::StandIn;
pub use survey::{Facts, Survey, survey, survey_with};
pub use tensor_range::{check_disjoint, element_indices, tensor_bytes, tensor_range};
pub use text_encoding::to_utf8;
pub use trace::{KEY_SYSTEM_INFO, Shown, Trace, TraceTensor, TraceValues, TraceWriter};
