//! Graphs of named tensors: operators, their order and shapes. This crate computes nothing.
//!
//! ```text
//! models: ModelSpec --build--> Graph --runtime: plan--> Plan --execute--> logits
//! ```
//!
//! A [`Graph`] is a list of [`Node`]s in execution order. Each node has one [`Op`], which infers the type of its
//! output from the types of its inputs and rejects inputs that do not fit. Shapes are concrete for one batch, and
//! innermost first.
//!
//! Node names are unique, and match the traces of other GGUF programs where these have a corresponding node.
#![forbid(unsafe_code)]

mod case;
pub mod fuse;
mod graph;
mod infinite;
pub mod op;
mod shape;

pub use case::{Case, Fill};
pub use graph::{Graph, Input, Node, Origin, ShapeError, StateKind, Value, ValueId};
pub use op::Op;
pub use shape::{Shape, Strides, TensorType};
