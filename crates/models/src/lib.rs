//! Models as lists of layers: what each architecture consists of, its tensors, its GGUF keys, and the graph builder.
//!
//! ```text
//!  config.json ──┐                                        ┌─▶ tensors: names, shapes, transforms (convert)
//!                ├─ Architecture's functions ─▶ ModelSpec ┤
//!  GGUF keys ────┘   (arch/, one file each)    (parts)    └─▶ Model ── graph(batch) ─▶ Graph     (runtime)
//! ```
//!
//! A new architecture is one file in `arch/` and one line in `arch.rs`. A new kind of block is one file in `part/`,
//! which owns its numbers, tensors, keys and graph. A [`ModelSpec`] is valid by construction, and a graph can only be
//! built from one.
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

mod arch;
mod architecture;
mod build;
mod checkpoint;
mod compatibility;
mod config;
mod decoder;
mod diagnostics;
mod encoder;
mod encoder_decoder;
mod expert_tensors;
mod flm_older;
mod fused;
mod layer_names;
mod limit;
mod metadata;
mod model;
mod number;
mod other_kind;
mod part;
mod rope;
mod source_names;
mod spec;
mod subject;
mod tensor;
mod transform;

pub use architecture::{ARCHITECTURES, Architecture, Marker};
pub use build::{Batch, Stage};
pub use checkpoint::{ExpectedTensor, SourceTensor, TensorRule, expected_tensors};
pub use diagnostics::Diagnostics;
pub use encoder_decoder::Buckets;
pub use expert_tensors::unlike_experts;
pub use flm_older::{open, survey};
pub use layer_names::{AbsentLayers, LayerNames, OtherLayers, layer_prefix};
pub use model::{Model, Slice};
pub use other_kind::OtherKind;
pub use rope::{LONG_FACTORS, Llama3Scaling, LongFactors, RopeFactors, RopeSpec};
pub use source_names::SourceNames;
pub use spec::{ModelResult, ModelSpec, Pooling, Prefix};
pub use tensor::{OUTPUT, ROPE_FACTORS, TOKEN_EMBEDDING, TensorKind, TensorSpec};
pub use transform::{Piece, Transform, Transposed, ValueChange};
