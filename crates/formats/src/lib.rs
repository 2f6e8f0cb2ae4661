//! Model files on disk.
mod error;
pub use error::{Error, Result, quote};
