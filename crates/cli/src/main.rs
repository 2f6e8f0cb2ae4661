//! The `trueup` command: parses arguments and returns an exit code. The only crate that prints.
//!
//! ```text
//! arguments --clap--> command::NAME --trueup (library)--> stdout: results; stderr: notes; exit code 0, 1, 2 or 3
//! ```

mod command;
mod failure;
mod foreign_flags;
mod losses;
mod os;
mod output;
mod progress;
mod table;
mod target;
mod value;

use clap::Parser;
use std::panic;
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
  0  Success; every check passed
  1  A comparison failed
  2  Usage error, invalid input, missing device, or I/O error
  3  Inconclusive: too little could be checked";

/// Arguments of `trueup`.
#[derive(Parser)]
#[command(
    name = "trueup",
    version,
    about = "Find the operator that breaks a language model's output; convert, quantize and run models",
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: command::Command,
    /// Hide progress bars and notes
    #[arg(short, long, global = true)]
    quiet: bool,
}

fn main() -> ExitCode {
    os::prepare();
    let arguments = foreign_flags::parse();
    output::set_quiet(arguments.quiet);
    let outcome = panic::catch_unwind(|| command::run(arguments.command));
    match outcome {
        Ok(Ok(code)) => code.into(),
        Ok(Err(failure)) => {
            os::wait_for_end();
            if let Some(sentence) = failure.sentence() {
                output::error(sentence);
            }
            failure.code().into()
        }
        Err(_) => {
            output::error("internal error in trueup; please report the command and the message above");
            failure::Code::Unusable.into()
        }
    }
}
