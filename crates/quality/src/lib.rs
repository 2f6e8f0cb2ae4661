//! Measures models on a corpus: perplexity, and the difference between two models in KL divergence, most probable
//! tokens and hidden states.
//!
//! ```text
//! text ─ ids ─ chunks ─▶ model     ─ logits ─┐
//!                    └─▶ reference ─ logits ─┴─ Score per position ─ Totals ─ Comparison
//! ```
//!
//! Chunks and formulas are those of `llama-perplexity`. The first half of a chunk is context only; each position of the
//! second half but the last predicts the next token. The reference is a second model or a file of its logits
//! ([`trueup_formats::LogitsFile`]).
#![forbid(unsafe_code)]

mod compare;
mod corpus;
mod drift;
mod html;
mod imatrix;
mod score;
mod statistics;
mod target;
mod totals;

pub use compare::{CompareOptions, Comparison, Reference, WorstPosition, compare};
pub use corpus::Corpus;
pub use drift::LayerDrift;
pub use html::PageFacts;
pub use imatrix::{ImatrixOptions, collect};
pub use score::{Against, Position, Score};
pub use statistics::{Estimate, Percentile};
pub use target::{
    Choice, Goal, MeasuredWith, Measurements, TargetInput, TargetPlan, TargetStep, Tuner, allocate, cost, hash_files,
};
pub use totals::{AgainstFigures, ChunkFigures, Figures, KlFigures, ProbabilityFigures, Totals};
