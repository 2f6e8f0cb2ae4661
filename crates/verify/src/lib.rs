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
mod bound;
mod operand;
mod precision;
mod statistics;
mod sum;
mod verdict;

pub use verdict::{Gate, Verdict};
