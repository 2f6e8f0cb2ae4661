//! `trueup repro`: reruns one failing operator from a file that `trueup verify --repro-dir` wrote.

use crate::command::place::Kernels;
use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::verify::{Outcome, Repro, file_word};

const DETAILS: &str = "\
Exit codes:
  0  The operator passed on this device
  1  The operator failed
  2  The file is damaged, or the device cannot compute the operator
  3  Inconclusive: the inputs are not finite, or an injected fault has no effect

Examples:
  trueup repro repro/ffn_up-1.repro.safetensors
  trueup repro ffn_up-1.repro.safetensors --dev ref --json
  trueup repro ffn_up-1.repro.safetensors --inject-fault row-unwritten";

/// Arguments of `trueup repro`.
#[derive(Args)]
#[command(after_long_help = DETAILS)]
pub struct Arguments {
    /// File to rerun, NODE.repro.safetensors
    file: PathBuf,
    /// Device to compute on: cpu, ref, cuda[:N], npu[:N], cuda-sim or npu-sim[:CHIP]
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Inject a fault into the device
    ///
    /// The exit code is then 1, or 3 if the fault has no effect. The output names the fault, if any, that was injected
    /// when the file was written.
    #[arg(long, alias = "plant", value_name = "NAME")]
    inject_fault: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    kernels: Kernels,
}

/// Runs `trueup repro`.
pub fn run(arguments: Arguments) -> Result {
    let repro = Repro::open(&arguments.file)?;
    let device = arguments.kernels.open(&arguments.device)?;
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

/// Explains a file that was written with an injected fault.
fn hint(name: &str, file: &Path) -> String {
    let file = file_word(&file.to_string_lossy());
    format!(
        "The failure was injected, so a correct device passes. To reproduce it, run \
         `trueup repro {file} --inject-fault {name}`"
    )
}
