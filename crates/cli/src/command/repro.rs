//! `trueup repro`: one failing node, written by `trueup verify --repro-dir`, computed alone.

use crate::command::place::Machine;
use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::verify::{Outcome, Repro, file_word};

/// What `trueup repro` takes.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 the device computes it as it declares; 1 it does not; 2 the file is damaged or the device cannot \
    compute it; 3 nothing can be said: the inputs are no numbers, or a planted fault does not show.\n\nExamples:\n  trueup repro repro/ffn_up-1.repro.safetensors\n  \
    trueup repro ffn_up-1.repro.safetensors --dev ref --json\n  \
    trueup repro ffn_up-1.repro.safetensors --inject-fault row-unwritten"
)]
pub struct Arguments {
    /// The file, NODE.repro.safetensors
    file: PathBuf,
    /// The device that computes: cpu, ref
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Plant a fault in the device on purpose; the exit code is then 1, or 3 where it does not show. The file says which one it was written with, if any
    #[arg(long, alias = "plant", value_name = "NAME")]
    inject_fault: Option<String>,
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
    let result = match &arguments.inject_fault {
        Some(name) => repro.run_planted(name, device)?,
        None => repro.run(&*device)?,
    };
    if arguments.json {
        output::json(&result)?;
    } else {
        output::line(&result.recorded.to_string())?;
        let planted = arguments.inject_fault.as_ref().map_or(String::new(), |name| format!(" with the fault {name}"));
        output::line(&format!("now{planted}: {}", result.sentence))?;
        let recorded = result.recorded.planted.as_ref().filter(|name| repro.fits(name));
        if let (Some(name), None) = (recorded, &arguments.inject_fault) {
            output::line(&hint(name, &arguments.file))?;
        }
    }
    Ok(match result.result {
        Outcome::Fail => Code::Mismatch,
        Outcome::Pass => Code::Done,
        Outcome::Inconclusive => Code::Inconclusive,
    })
}

/// What a file with a planted fault is good for.
fn hint(name: &str, file: &Path) -> String {
    let file = file_word(&file.to_string_lossy());
    format!(
        "The fault was planted on purpose: a right device passes. See it fail with `trueup repro {file} --inject-fault {name}`."
    )
}
