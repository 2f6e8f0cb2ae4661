//! The real binary, as users and scripts call it: results, messages, exit codes, files.
//!
//! ```text
//! fixture ─ trueup convert ─ trueup quantize ─ trueup run, verify, inspect ─▶ goldens of other software, exit codes
//! broken fixture ─ every reader ─▶ exit code 2, one sentence, nothing written
//! ```

mod aliases;
mod attesting;
mod benching;
mod cached_blocks;
mod changing;
mod comparing;
mod context;
mod docs;
mod doctor;
mod faces;
mod gating;
mod generating;
mod hostile;
mod llama_cpp;
mod operators;
mod quality;
mod ranges;
mod resuming;
mod targeting;
mod tokenizing;
mod tracing;
mod trueup;
mod writing;
