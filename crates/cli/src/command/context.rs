//! Flags that say what happens when a sequence is full; `run` and `chat` share them.

use crate::value::{self, Keep};
use clap::Args;
use trueup::runtime::ContextShift;

/// What happens when the context is full.
#[derive(Args, Clone)]
#[command(next_help_heading = "Context")]
pub struct ContextArguments {
    /// When the context (-c) is full, drop half of what is behind the kept tokens and go on; without it the text ends there. What remains
    /// is computed again: exact, at the cost of a prompt of half a context each time. With -n -1 a text may have no end
    #[arg(long)]
    context_shift: bool,
    /// Tokens of the prompt that a context shift keeps, beside its bos; -1 is the whole prompt
    #[arg(
        long, value_name = "N", default_value = "0", value_parser = value::keep, allow_negative_numbers = true,
        requires = "context_shift"
    )]
    keep: Keep,
}

impl ContextArguments {
    /// As generation takes it.
    pub fn shift(&self) -> Option<ContextShift> {
        self.context_shift.then_some(ContextShift { keep: self.keep.0 })
    }
}
