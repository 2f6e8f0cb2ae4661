//! `trueup repro`: one failing node, written by `trueup verify --repro-dir`, computed alone.

use crate::command::place::Machine;
use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::formats::quote;
use trueup::verify::Repro;

/// What `trueup repro` takes.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 the device computes it as it declares; 1 it does not; 2 the file is damaged or the device cannot \
    compute it; 3 the inputs are no numbers, so nothing can be said.\n\nExamples:\n  trueup repro repro/ffn_up-1.repro.safetensors\n  \
    trueup repro ffn_up-1.repro.safetensors --dev ref --json\n  \
    trueup repro ffn_up-1.repro.safetensors --plant row-unwritten"
)]
pub struct Arguments {
    /// The file, NODE.repro.safetensors
    file: PathBuf,
    /// The device that computes: cpu, ref
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Plant a fault in the device on purpose; the result must be 1. The file says which one it was written with, if any
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: Machine,
}

/// Computes it.
pub fn run(arguments: Arguments) -> Result {
    let repro = Repro::open(&arguments.file)?;
    let device = arguments.machine.open(&arguments.device)?;
    let device = match &arguments.plant {
        Some(name) => repro.planted(name, device)?,
        None => device,
    };
    let result = repro.run(&*device)?;
    if arguments.json {
        output::json(&result)?;
    } else {
        output::line(&result.recorded.to_string())?;
        let planted = arguments.plant.as_ref().map_or(String::new(), |name| format!(" with the fault {name}"));
        output::line(&format!("now{planted}: {}", result.sentence))?;
        if let (Some(name), None) = (&result.recorded.planted, &arguments.plant) {
            output::line(&hint(&quote(name), &arguments.file))?;
        }
    }
    Ok(if result.verdict.fails() {
        Code::Mismatch
    } else if result.verdict.passes() {
        Code::Done
    } else {
        Code::Inconclusive
    })
}

/// What a file with a planted fault is good for.
fn hint(name: &str, file: &Path) -> String {
    let file = quote(&file.to_string_lossy());
    format!(
        "The fault was planted on purpose: a right device passes. See it fail with `trueup repro {file} --plant {name}`."
    )
}
