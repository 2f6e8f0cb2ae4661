//! Graphs of named tensors: what is to be computed, in which order and with which shapes. Nothing is computed here.
//!
//! ```text
//! models: description + Hyper --build--> Graph --runtime: plan--> Plan --execute--> logits
//! ```
//!
//! A [`Graph`] is a list of [`Node`]s in execution order. Each has one [`Op`], which infers the type of its one output from
//! the types of its inputs and refuses what does not fit. Shapes are concrete for one batch.
#![forbid(unsafe_code)]

mod case;
pub mod fuse;
mod graph;
mod infinite;
pub mod op;
mod shape;

pub use case::{Case, Fill};
pub use graph::{Graph, Input, Node, Origin, ShapeError, Value, ValueId};
pub use op::Op;
pub use shape::{Shape, Strides, TensorType};
