//! Options for a full context, shared by `run` and `chat`.

use crate::value::{self, Keep};
use clap::Args;
use trueup::runtime::ContextShift;

/// Options for a full context.
#[derive(Args, Clone)]
#[command(next_help_heading = "Context")]
pub struct ContextArguments {
    /// When the context is full, drop the oldest half of its tokens and continue
    ///
    /// Tokens selected with --keep stay. The remaining tokens are recomputed, so the result is exact, and each
    /// shift costs as much as a prompt of half the context. Without this option, generation stops when the context (-c)
    /// is full. With this option and no limit (-n), generation may never stop.
    #[arg(long)]
    context_shift: bool,
    /// With --context-shift, keep the first N tokens of the prompt, after the BOS token; -1 keeps all
    #[arg(
        long, value_name = "N", default_value = "0", value_parser = value::keep, allow_negative_numbers = true,
        requires = "context_shift"
    )]
    keep: Keep,
}

impl ContextArguments {
    /// The first option that was given, for models to which it does not apply.
    pub fn given(&self) -> Option<&'static str> {
        self.context_shift.then_some("--context-shift")
    }

    /// The options in the form that generation takes.
    pub fn shift(&self) -> Option<ContextShift> {
        self.context_shift.then_some(ContextShift { keep: self.keep.0 })
    }
}
