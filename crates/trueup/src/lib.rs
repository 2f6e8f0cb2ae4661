//! Convert, quantize, run and verify language models.
//!
//! ```text
//! formats::open -> convert::convert -> quantize::quantize -> Model::open -> generate, logits
//!                                                        \-> verify::verify -> Report
//! ```
//!
//! The rooms are re-exported under their own names; [`Model`] is the short way to run one, [`Service`] the one for many callers at once.
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
pub use trueup_formats as formats;
pub use trueup_graph as graph;
pub use trueup_models as models;
pub use trueup_quantize as quantize;
pub use trueup_runtime as runtime;
pub use trueup_tokenizer as tokenizer;
pub use trueup_verify as verify;
