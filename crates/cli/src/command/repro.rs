//! `trueup repro`: one failing node, written by `trueup verify --repro-dir`, computed alone.

use crate::command::place::Machine;
use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use trueup::verify::Repro;

/// What `trueup repro` takes.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 the device computes it as it declares; 1 it does not; 2 the file is damaged or the device cannot \
    compute it; 3 the inputs are no numbers, so nothing can be said.\n\nExamples:\n  trueup repro repro/ffn_up-1.repro.safetensors\n  \
    trueup repro ffn_up-1.repro.safetensors --dev ref --json"
)]
pub struct Arguments {
    /// The file, NODE.repro.safetensors
    file: PathBuf,
    /// The device that computes: cpu, ref
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: Machine,
}

/// Computes it.
pub fn run(arguments: Arguments) -> Result {
    let repro = Repro::open(&arguments.file)?;
    let result = repro.run(&*arguments.machine.open(&arguments.device)?)?;
    if arguments.json {
        output::json(&result)?;
    } else {
        output::line(&result.sentence)?;
    }
    Ok(if result.verdict.fails() {
        Code::Mismatch
    } else if result.verdict.passes() {
        Code::Done
    } else {
        Code::Inconclusive
    })
}
