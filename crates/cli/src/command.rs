//! The list of subcommands. Each has a file with its arguments and its implementation.

mod bench;
mod chat;
mod compare;
mod completions;
mod context;
mod convert;
mod converted;
mod demo;
mod devices;
mod diff;
mod doctor;
mod fault_list;
mod imatrix;
mod input;
mod inspect;
mod man;
mod ops;
mod place;
mod plan;
mod quantize;
mod recipe;
mod reports;
mod repro;
mod reproduce;
mod roof;
mod run;
mod sampling;
mod screen;
mod tokenize;
mod trace;
mod verify;

use crate::failure::Result;
use clap::Subcommand;

/// The subcommands of `trueup`.
#[derive(Subcommand)]
pub enum Command {
    /// Convert a checkpoint to GGUF, or a model to FastLLM .flm
    Convert(convert::Arguments),
    /// Quantize a model
    Quantize(quantize::Arguments),
    /// Repeat a quantization from its attestation, and compare the results
    #[command(long_about = reproduce::LONG_ABOUT)]
    Reproduce(reproduce::Arguments),
    /// Generate text from prompts, or compute embeddings
    Run(run::Arguments),
    /// Chat with a model
    #[command(long_about = chat::LONG_ABOUT)]
    Chat(chat::Arguments),
    /// Convert text to token IDs, or token IDs to text
    Tokenize(tokenize::Arguments),
    /// Compare every intermediate tensor of a device with a reference
    #[command(long_about = verify::LONG_ABOUT)]
    Verify(verify::Arguments),
    /// Record every intermediate tensor that a device computes
    #[command(long_about = trace::LONG_ABOUT)]
    Trace(trace::Arguments),
    /// Compare two models of any format, tensor by tensor
    #[command(long_about = diff::LONG_ABOUT)]
    Diff(diff::Arguments),
    /// Measure the quality of a model on a text, alone or against a reference
    #[command(long_about = compare::LONG_ABOUT)]
    Compare(compare::Arguments),
    /// Compute an importance matrix from a text
    #[command(long_about = imatrix::LONG_ABOUT)]
    Imatrix(imatrix::Arguments),
    /// List, test and benchmark the operators of a device
    Ops(ops::Arguments),
    /// Rerun one failing operator from a file written by verify
    Repro(repro::Arguments),
    /// Measure the speed of a model, and the share of the hardware limit that it reaches
    #[command(long_about = bench::LONG_ABOUT)]
    Bench(bench::Arguments),
    /// Show the execution plan of a model: nodes, devices and memory
    Plan(plan::Arguments),
    /// Show the metadata and tensors of a model
    Inspect(inspect::Arguments),
    /// List the compute devices, with the reason if one is unavailable
    Devices(devices::Arguments),
    /// Convert, quantize, run and verify a built-in model
    #[command(long_about = demo::LONG_ABOUT)]
    Demo(demo::Arguments),
    /// Print a shell completion script
    Completions(completions::Arguments),
    /// Print the manual page in roff format
    Man(man::Arguments),
}

/// Runs the selected subcommand.
pub fn run(command: Command) -> Result {
    match command {
        Command::Convert(arguments) => convert::run(arguments),
        Command::Quantize(arguments) => quantize::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Chat(arguments) => chat::run(arguments),
        Command::Tokenize(arguments) => tokenize::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Imatrix(arguments) => imatrix::run(arguments),
        Command::Ops(arguments) => ops::run(arguments),
        Command::Repro(arguments) => repro::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Devices(arguments) => devices::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    }
}
