//! Compares every intermediate tensor of a model with the f64 reference, and reports what is wrong.
//!
//! ```text
//!   device  ──inputs and result of each node──▶ bound: R0, R1, sigma, B ──▶ statistics ──▶ verdict ─┐
//!   reference, free-running on the same tokens ──▶ inherited error                                  ├─▶ report
//!   logits of both ──▶ tokens: divergence, margins, flips        plain runs ──▶ repeatable?       ─┘
//! ```
//!
//! An error splits exactly into a local and an inherited part: `y_device - y_reference = [y_device - f(x_device)] +
//! [f(x_device) - f(x_reference)]`. Verdicts judge only the local part, by the noise that the declared arithmetic of
//! the device causes. No tolerance is set by hand.
//!
//! The verifier trusts the file, not the device. Weights, positions, masks and cache rows come from the file and the
//! token ids. Only the inputs and the result of each node come from the device. So a wrong upload or a mixed-up batch
//! shows at the node that it affects.
#![forbid(unsafe_code)]

mod activation;
mod baseline;
mod batch;
mod bound;
mod cached;
mod choice;
mod chosen;
mod collector;
mod conclusion;
mod date;
mod detail;
mod detail_report;
mod element_inputs;
mod explain;
mod fingerprint;
mod flip;
mod html;
mod junit;
mod minimum;
mod model_hash;
mod next;
mod operand;
mod overflow;
mod pieces;
mod plant;
mod policy;
mod precision;
mod predicted;
mod quantities;
mod record;
mod repeat;
mod report;
mod repro;
mod running;
mod samples;
mod scene;
mod sentence;
mod shadow;
mod signature;
mod statistics;
pub mod suite;
mod sum;
mod summary;
mod terminal;
mod tokens;
mod trace;
mod verdict;
mod verify;

pub use baseline::{BASELINE_BYTES_MAX, Baseline, BaselineReport, Change, NumberChange};
pub use batch::{BatchDifference, BatchReport, SequenceReport};
pub use date::Date;
pub use detail_report::{DetailReport, Histogram, Magnitudes, MapReport, WorstElement, level};
pub use element_inputs::{ElementInputs, InputValue, Product, RowSummary};
pub use explain::Explanation;
pub use fingerprint::{CandidateKind, Fingerprint, Fit};
pub use flip::{Flip, FlipText};
pub use next::{file_word, shell_word};
pub use pieces::PieceReport;
pub use plant::{PLANTS, Plant, PlantedDevice, planted, planted_in};
pub use policy::{BudgetReport, POLICY_BYTES_MAX, Policy, PolicyReport, WaiverReport, WaiverState};
pub use record::{Phase, Place};
pub use repeat::RepeatReport;
pub use report::{
    BadNode, Coverage, DeviceFacts, Environment, NodeReport, Outcome, PhaseReport, PlantedFacts, Report, RunFacts,
    UsedProfile, VERSION,
};
pub use repro::{RecordedFailure, Repro, ReproResult};
pub use signature::{Signature, SignatureKind};
pub use tokens::{TokenPoint, TokenReport};
pub use trace::{
    Follow, FreeRun, Recorded, Recording, TraceCoverage, TraceNode, TraceOptions, TraceReport, TraceTokens, Untraced,
    compare_trace, record,
};
pub use trueup_runtime::peak_memory_bytes;
pub use verdict::{Gate, Verdict};
pub use verify::{Progress, Reference, STEPS_DEFAULT, TEXT_DEFAULT, VerifyOptions, verify};
