//! `trueup completions`: prints a completion script for a shell.

use crate::failure::{Code, Result};
use crate::output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  trueup completions bash > ~/.local/share/bash-completion/completions/trueup
  trueup completions zsh > _trueup";

/// Arguments of `trueup completions`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Shell to generate the script for
    shell: Shell,
}

/// Runs `trueup completions`.
pub fn run(arguments: Arguments) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "trueup", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}
