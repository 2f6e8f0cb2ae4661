//! `trueup man`: the manual page, from the same definitions as `--help`.

use crate::failure::{Code, Result};
use crate::output;
use clap::{Args, CommandFactory};
use clap_mangen::Man;

/// What `trueup man` takes.
#[derive(Args)]
#[command(after_help = "Examples:\n  trueup man | man -l -\n  trueup man quantize > trueup-quantize.1")]
pub struct Arguments {
    /// The subcommand to describe; without it, trueup itself
    subcommand: Option<String>,
}

/// Prints the page in roff.
pub fn run(arguments: Arguments) -> Result {
    let mut command = crate::Arguments::command();
    command.build();
    let page = match &arguments.subcommand {
        None => Man::new(command),
        Some(name) => match command.find_subcommand(name) {
            Some(found) => Man::new(found.clone()),
            None => return Err(crate::failure::Failure::new(format!("there is no subcommand {name:?}"))),
        },
    };
    let mut roff = Vec::new();
    page.render(&mut roff)?;
    output::text(&String::from_utf8_lossy(&roff))?;
    Ok(Code::Done)
}
