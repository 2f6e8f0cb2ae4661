//! Model architectures as data, their hyper-parameters, and the graph builder.
//!
//! ```text
//!  config.json ──┐                                    ┌─▶ tensor table: names, shapes, transforms (convert)
//!                ├─ Architecture's tables ─▶ Hyper ───┤
//!  GGUF keys ────┘   (one file each)       (valid)    └─▶ Model ── graph(batch) ─▶ Graph           (runtime)
//! ```
//!
//! A new architecture is one file with an [`Architecture`] and one line in [`ARCHITECTURES`]. A [`Hyper`] is valid by
//! construction, and a graph can only be built from one.
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

mod architecture;
mod baichuan;
mod build;
mod chatglm;
mod chatglm1;
mod config;
mod faults;
mod field;
mod gap;
mod hyper;
mod internlm;
mod metadata;
mod model;
mod number;
mod other_kind;
mod role;
mod rope;
mod tensor_table;

mod llama;
mod llama2c;
mod mistral;
mod moss;
mod qwen;
mod qwen2;
mod qwen3;

pub use architecture::{
    ARCHITECTURES, AlibiRule, Architecture, Condition, FeedForward, FieldRule, Fixed, FlagRule, Grouped, Heads,
    Missing, Norm, Parts, PrefixRule, Residual, Rotated, Sign, SignRule, TensorRule, Transform, WindowRule,
};
pub use build::Batch;
pub use faults::Faults;
pub use field::Field;
pub use gap::Gap;
pub use hyper::{Conditions, Hyper, Prefix, Window};
pub use model::{Model, Slice};
pub use other_kind::OtherKind;
pub use role::Role;
pub use rope::{Llama3Scaling, RopeDescription};
pub use tensor_table::{ExpectedTensor, expected_tensors};
