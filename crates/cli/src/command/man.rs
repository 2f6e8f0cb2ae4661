//! `trueup man`: prints the manual page, which is generated from the same definitions as `--help`.

use crate::failure::{Code, Result};
use crate::output;
use clap::{Args, CommandFactory};
use clap_mangen::Man;

const EXAMPLES: &str = "\
Examples:
  trueup man | man -l -
  trueup man quantize > trueup-quantize.1";

/// Arguments of `trueup man`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Subcommand to describe [default: trueup itself]
    subcommand: Option<String>,
}

/// Runs `trueup man`.
pub fn run(arguments: Arguments) -> Result {
    let mut command = crate::Arguments::command();
    command.build();
    let page = match &arguments.subcommand {
        None => Man::new(command),
        Some(name) => match command.find_subcommand(name) {
            Some(found) => Man::new(found.clone()),
            None => {
                return Err(crate::failure::Failure::new(format!(
                    "expected a subcommand, found {name:?}; list them with `trueup --help`"
                )));
            }
        },
    };
    let mut roff = Vec::new();
    page.render(&mut roff)?;
    output::text(&String::from_utf8_lossy(&roff))?;
    Ok(Code::Done)
}
