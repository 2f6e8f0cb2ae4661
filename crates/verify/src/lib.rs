//! Compares every intermediate tensor of a model with an oracle and says what is wrong.
//!
//! ```text
//!   device  ──each node's inputs and result──▶ bound: R0, R1, sigma, B ──▶ statistics ──▶ verdict ─┐
//!   oracle, free-running on the same tokens ──▶ inherited error                                    ├─▶ report
//!   logits of both ──▶ tokens: divergence, margins, flips        plain runs ──▶ repeatable?        ─┘
//! ```
//!
//! An error splits exactly into what a node does wrong itself and what it inherits:
//! `y_device - y_reference = [y_device - f(x_device)] + [f(x_device) - f(x_reference)]`. Verdicts judge the first bracket alone, by the
//! noise that the device's declared arithmetic must cause; no tolerance is set by hand.
#![forbid(unsafe_code)]

mod activation;
mod batch;
mod bound;
mod choice;
mod operand;
mod precision;
mod record;
mod repeat;
mod report;
mod running;
mod sentence;
mod shadow;
mod statistics;
mod sum;
mod terminal;
mod tokens;
mod trace;
mod verdict;
mod verify;

pub use batch::{BatchDifference, BatchReport, SequenceReport};
pub use record::{Phase, Place};
pub use repeat::RepeatReport;
pub use report::{BadNode, Coverage, DeviceFacts, NodeReport, Outcome, PhaseReport, Report, UsedProfile, VERSION};
pub use tokens::{Flip, TokenReport};
pub use trace::{
    Follow, FreeRun, Recorded, Recording, TraceNode, TraceOptions, TraceReport, TraceTokens, compare_trace, record,
};
pub use verdict::{Gate, Verdict};
pub use verify::{Progress, Reference, STEPS_DEFAULT, TEXT_DEFAULT, VerifyOptions, verify};
