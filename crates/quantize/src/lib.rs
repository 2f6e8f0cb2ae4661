//! Quantization: the recipe that assigns types to tensors, and the stream of a file through the block codecs.
//!
//! ```text
//! Checkpoint --Recipe--> one choice per tensor --chunks on all cores--> GgufWriter
//!                                               read, decode, encode, measure, write
//! ```
//!
//! Chunks have a fixed size and are written at their final offset. Memory stays bounded, and the bytes do not depend
//! on the number of threads.
#![forbid(unsafe_code)]

mod encode;
mod exact;
mod importance;
mod loss;
mod progress;
mod recipe;
mod report;
mod resume;
mod stream;
mod transcode;
mod walk;

pub use encode::{Encoded, Encoder};
pub use exact::{ExactTypes, OnGrid, exact_types, exact_types_of};
pub use importance::{ImportanceOptions, TensorImportance, WeightedRows, possible_importance};
pub use loss::Loss;
pub use progress::{NoProgress, Progress};
pub use recipe::{Choice, Freedom, ModelFacts, Recipe, RecipeParameters, Rule, RuleError, Scheme};
pub use recipe::{stays_f32, written_type, written_types};
pub use report::{Report, TensorReport};
pub use resume::{Resumed, open_writer, take_over};
pub use stream::{Layout, Options, choices_of, file_bytes, quantize, quantize_with};
pub use transcode::{Scratch, Transcoder, Unfit, decode_exact, piece_bytes};
pub use walk::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, first_bytes, walk, walk_with};
