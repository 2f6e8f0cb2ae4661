//! `trueup completions`: for the shells that clap knows.

use crate::failure::{Code, Result};
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// What `trueup completions` takes.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  trueup completions bash > ~/.local/share/bash-completion/completions/trueup\n  trueup completions zsh > _trueup"
)]
pub struct Arguments {
    /// The shell to print for
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: Arguments) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "trueup", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}
