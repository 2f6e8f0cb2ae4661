//! The `trueup` command: arguments in, exit code out. The only crate that prints.
//!
//! ```text
//! arguments --clap--> command::NAME --trueup (the library)--> results to stdout, notes to stderr, exit code 0, 1, 2 or 3
//! ```

mod command;
mod failure;
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

/// What `trueup` takes.
#[derive(Parser)]
#[command(
    name = "trueup",
    version,
    about = "Convert, quantize and run language models, and prove operator by operator that they still compute the same thing",
    after_help = "Exit codes: 0 done and every check passed; 1 a comparison failed; 2 usage, bad input, environment or I/O; \
                  3 not enough was checked to say.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: command::Command,
    /// No progress bars and no notes.
    #[arg(short, long, global = true)]
    quiet: bool,
}

fn main() -> ExitCode {
    os::prepare();
    let arguments = Arguments::parse();
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
            output::error("this is a bug in trueup: please report the command and the message above");
            failure::Code::Unusable.into()
        }
    }
}
