//! Conversion of a checkpoint to GGUF: rename, transform, describe, check.
//!
//! ```text
//! Checkpoint ─ Mapping: tensors to tensors, all faults at once ─ Recipe: types ─ chunks on all cores ─▶ GgufWriter
//!     ▲                                                            read, order rows, convert, write        │
//!     └────────────── check: restore the order of rows, compare ◀──────────────────────────────────── Gguf ┘
//! ```
//!
//! [`diff()`] compares two models of any format in the same chunks. [`doctor::diagnose`] diagnoses one.
//!
//! Tensors are streamed in chunks of bounded size, and each chunk is written at its final offset. The output bytes do
//! not depend on the number of threads.
#![forbid(unsafe_code)]

mod check;
mod chunk;
mod describe;
mod diff;
pub mod doctor;
mod encoding;
mod flm_table;
mod mapping;
mod mismatch;
mod omitted;
mod on_grid;
mod overrides;
mod permute;
mod report;
mod slim;
mod stream;
mod ternary;
mod to_flm;
mod unit_rows;

pub use check::{Agreement, TensorCheck, check, check_with};
pub use describe::vocabulary;
pub use diff::{Diff, DiffOptions, Difference, Kind, ValueDifference, diff};
pub use diff::{WEIGHTED_COSINE_MIN, WEIGHTED_RMSE_MAX};
pub use mapping::{MappedTensor, Mapping};
pub use omitted::{OmittedTensor, StandIn};
pub use overrides::{Override, OverrideError};
pub use permute::{restore_rope_rows, sort_rope_rows};
pub use report::{Report, TensorReport};
pub use slim::{Slim, SlimError};
pub use stream::{Options, convert, convert_with};
pub use to_flm::{FlmOptions, to_flm};
