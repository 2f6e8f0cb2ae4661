//! Type inference, views and fusion of operators.

mod attention;
mod fused_attention;
mod fusion;
mod inference;
mod inference_reduce;
mod moving;
mod names;
mod views;
