//! The subcommands. One file each: its arguments and what it does; this file is the list.

mod bench;
mod chat;
mod completions;
mod context;
mod convert;
mod demo;
mod devices;
mod diff;
mod doctor;
mod fault_list;
mod input;
mod inspect;
mod man;
mod ops;
mod place;
mod plan;
mod quantize;
mod reports;
mod repro;
mod roof;
mod run;
mod sampling;
mod screen;
mod tokenize;
mod trace;
mod verify;

use crate::failure::Result;
use clap::Subcommand;

/// What `trueup` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Turn a checkpoint (Hugging Face directory, llama2.c .bin, FastLLM .flm) into GGUF, or any model into a .flm
    Convert(convert::Arguments),
    /// Write a GGUF file with smaller types
    Quantize(quantize::Arguments),
    /// Continue prompts
    Run(run::Arguments),
    /// Talk to a model through its chat template
    Chat(chat::Arguments),
    /// Text to token ids, and back
    Tokenize(tokenize::Arguments),
    /// Compare every intermediate tensor of a device with a reference
    Verify(verify::Arguments),
    /// Write or print every intermediate tensor of a device
    Trace(trace::Arguments),
    /// Compare two model files of any format, tensor by tensor
    Diff(diff::Arguments),
    /// Test and time every operator by itself on a device
    Ops(ops::Arguments),
    /// Compute one failing node alone, from the file that verify wrote
    Repro(repro::Arguments),
    /// Measure how fast a model is, beside what the machine can do at most
    Bench(bench::Arguments),
    /// Show how a model would be computed
    Plan(plan::Arguments),
    /// Show what is in a model file
    Inspect(inspect::Arguments),
    /// Show what is here to compute on, and what is not and why
    Devices(devices::Arguments),
    /// Convert, quantize, run and verify the model inside this program
    Demo(demo::Arguments),
    /// Print shell completions
    Completions(completions::Arguments),
    /// Print the manual page
    Man(man::Arguments),
}

/// Does what was asked for.
pub fn run(command: Command) -> Result {
    match command {
        Command::Convert(arguments) => convert::run(arguments),
        Command::Quantize(arguments) => quantize::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Chat(arguments) => chat::run(arguments),
        Command::Tokenize(arguments) => tokenize::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
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
