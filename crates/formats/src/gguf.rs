//! GGUF files: one header that is validated once, and tensors after it.
//!
//! ```text
//! "GGUF" | version u32 | tensors u64 | keys u64
//!   | (key, type u32, value) ... | (name, dimensions, type, offset) ... | pad | data
//!
//! text:  length u64, bytes                 array: type u32, count u64, items
//! data:  starts at the next multiple of the alignment; offsets of tensors count from there
//! ```
//!
//! Versions 2 and 3, little-endian, in one file or split (`NAME-00001-of-00003.gguf`). There are two faces on an open
//! file: [`Gguf`] reads by place, [`MappedGguf`] maps. [`GgufWriter`] writes version 3.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("tiny.gguf");
//! use trueup_blocks::DType;
//! use trueup_formats::gguf::{Gguf, GgufPlan, GgufWriter, Metadata, Value};
//! use trueup_formats::{Checkpoint, TensorInfo};
//!
//! let mut metadata = Metadata::default();
//! metadata.insert("general.architecture", "example");
//! metadata.insert("example.block_count", 2u32);
//! let tensors = [TensorInfo::new("output_norm.weight", &[4], DType::F32)?];
//! let writer = GgufWriter::create(GgufPlan::new(&path, &metadata, &tensors, None)?, &[])?;
//! writer.write(0, 0, &[0; 16])?;
//! writer.finish()?;
//!
//! let model = Gguf::open(&path)?;
//! assert_eq!(model.metadata().u64("example.block_count"), Ok(2));
//! assert_eq!(model.tensors()[0].name, "output_norm.weight");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod header;
mod journal;
mod layer_name;
mod map;
mod metadata;
mod plan;
mod reader;
mod resume;
mod split_name;
mod survey;
mod value;
mod writer;

pub use journal::Measure;
pub use layer_name::layer_of;
pub use map::{MappedBytes, MappedGguf};
pub use metadata::{Metadata, MetadataError};
pub use plan::{GgufPlan, PlannedFile, Split};
pub use reader::Gguf;
pub use split_name::first_of_split;
pub use survey::{GgufPart, GgufSurvey};
pub use value::{Array, Value, ValueType};
pub use writer::GgufWriter;

/// The first four bytes of a file.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// The version that is written.
pub const VERSION: u32 = 3;

/// Where tensors start in files without `general.alignment`, and in all written files.
pub const ALIGNMENT: u64 = 32;

/// Key that overrides [`ALIGNMENT`] in a file.
const KEY_ALIGNMENT: &str = "general.alignment";

/// Keys that say how a model is spread over files; they describe the files, not the model.
const KEY_SPLIT_NUMBER: &str = "split.no";
const KEY_SPLIT_COUNT: &str = "split.count";
const KEY_SPLIT_TENSORS: &str = "split.tensors.count";

/// Keys about the file itself, which a new file has anew.
const FILE_KEYS: [&str; 4] = [KEY_ALIGNMENT, KEY_SPLIT_NUMBER, KEY_SPLIT_COUNT, KEY_SPLIT_TENSORS];
