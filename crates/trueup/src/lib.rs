//! Convert, quantize, run and verify language models.
//!
//! ```text
//! formats::open -> convert::convert -> quantize::quantize -> Model::open -> generate, logits
//!                                                        \-> verify::verify -> Report
//! ```
//!
//! The other crates are re-exported as modules. [`Model`] runs a model; [`Service`] serves many callers at once. This
//! example converts a checkpoint, quantizes it, and verifies every operator:
//!
//! ```
//! use std::sync::Arc;
//! use trueup::blocks::DType;
//! use trueup::formats::{self, OpenOptions};
//! use trueup::quantize::{Layout, NoProgress, Recipe};
//! use trueup::runtime::{DeviceOptions, ModelFile, open_device};
//! use trueup::verify::{Outcome, Reference, VerifyOptions};
//! use trueup::{convert, quantize, verify};
//!
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stories-1M");
//! # let scratch = tempfile::tempdir()?;
//! # let (file, small) = (scratch.path().join("stories.gguf"), scratch.path().join("small.gguf"));
//! let source = formats::open(folder, &OpenOptions::default())?;
//! convert::convert(source.as_ref(), &file, &convert::Options::default(), &NoProgress)?;
//!
//! let source = formats::open(&file, &OpenOptions::default())?;
//! let (recipe, layout) = (Recipe::new(Some(DType::Q8_0)), Layout::Block);
//! let options = quantize::Options { recipe, layout, threads: None, dry_run: false, resume: false };
//! quantize::quantize(source.as_ref(), &small, &options, &NoProgress)?;
//!
//! let model = Arc::new(ModelFile::open(&small)?);
//! let prompts = vec![model.tokenizer()?.encode("Once upon a time", true)?];
//! let (device, options) = (open_device("cpu", &DeviceOptions::default())?, VerifyOptions { prompts, ..Default::default() });
//! let report = verify::verify(model, device, Reference::Oracle, &options, &mut |_progress| {})?;
//! assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
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

mod array_file;
pub mod attestation;
pub mod manifest;
mod model;
mod service;
pub mod synthetic;
pub mod text;

pub use array_file::open_arrays;
pub use model::Model;
pub use service::{Answer, OnPiece, Piece, Service};
pub use trueup_blocks as blocks;
pub use trueup_convert as convert;
/// Readers and writers of model files.
pub mod formats {
    pub use trueup_formats::*;
    // Knows more about old files than the readers do.
    pub use trueup_models::{open, survey};
}

pub use trueup_graph as graph;
pub use trueup_models as models;
pub use trueup_quality as quality;
pub use trueup_quantize as quantize;
pub use trueup_runtime as runtime;
pub use trueup_tokenizer as tokenizer;
pub use trueup_verify as verify;
