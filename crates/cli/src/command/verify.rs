//! `trueup verify`: every intermediate tensor of a device against a reference.

use crate::command::input::Input;
use crate::command::place::{Machine, open_model};
use crate::command::planting;
use crate::command::reports::Reports;
use crate::failure::{Code, Failure, Result};
use crate::output;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use trueup::runtime::ModelFile;
use trueup::verify::{self, Outcome, Reference, Report, VerifyOptions, planted};

/// What `trueup verify` takes.
#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 every node is as it should be; 1 one is not, and it is named; 2 nothing could be verified; \
    3 not enough was checked.\n\nExamples:\n  trueup verify model-q4_0.gguf\n  \
    trueup verify model.gguf --ref ref --dev cpu -p \"The sky is\" --steps 32 --json report.json\n  \
    trueup verify model.gguf --plant rope-position\n  \
    trueup verify model.gguf --gate gate.toml --baseline main.json --junit verify.xml --html verify.html"
)]
pub struct Arguments {
    /// The GGUF file
    #[arg(required_unless_present = "plant")]
    model: Option<PathBuf>,
    /// The device whose free run is compared with: ref, cpu. Each operator by itself is always judged against f64. Without any
    /// input, a built-in text of about 32 tokens is used
    #[arg(long = "ref", value_name = "DEVICE", default_value = "ref")]
    reference: String,
    /// The device that is judged: cpu, ref
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[command(flatten)]
    input: Input,
    /// Tokens to compute behind each prompt, on the reference's choices
    #[arg(long, value_name = "N", default_value_t = verify::STEPS_DEFAULT)]
    steps: usize,
    /// Exit with 3 when the device cannot compute every node itself
    #[arg(long)]
    require_device: bool,
    /// Write a file for each failing node that shows the failure alone (see `trueup repro`) into this folder
    #[arg(long, value_name = "DIR")]
    repro_dir: Option<PathBuf>,
    /// Plant a fault in the device on purpose: NAME or NAME@NODE; the result must be 1 and name the node. "list" shows all faults
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    machine: Machine,
}

/// Verifies.
pub fn run(arguments: Arguments) -> Result {
    let file = match (&arguments.model, arguments.plant.as_deref()) {
        (_, Some(planting::LIST)) => return planting::list(arguments.reports.json()).map(|()| Code::Done),
        (Some(file), _) => file,
        (None, _) => return Err(Failure::new("--plant needs a model to plant the fault in; give a GGUF file")),
    };
    let model = open_model(file)?;
    let gates = arguments.reports.open(&model)?;
    let device = arguments.machine.open(&arguments.device)?;
    let fault = arguments.plant.as_deref().map(|choice| planted(choice, &model, device.clone())).transpose()?;
    let device = fault.as_ref().map_or(device, |fault| fault.device.clone());
    let reference = match arguments.reference.as_str() {
        "ref" => Reference::Oracle,
        other => Reference::Device(arguments.machine.open(other)?),
    };
    let session = arguments.machine.session(1);
    let fallback = if arguments.device == "cpu" { None } else { Some(arguments.machine.open("cpu")?) };
    let options = VerifyOptions {
        prompts: prompts(&model, &arguments.input)?,
        steps: arguments.steps,
        kv: arguments.machine.kv(),
        context: session.context,
        require_device: arguments.require_device,
        fallback,
        threads: arguments.machine.threads(),
        repro_folder: arguments.repro_dir.clone(),
    };
    let start = Instant::now();
    let mut report = verify_with_bar(model, device, reference, &options)?;
    if let Some(fault) = &fault {
        report.was_planted(fault.facts());
    }
    gates.apply(&mut report, start.elapsed())?;
    arguments.reports.write(&report)?;
    if !arguments.reports.take_stdout() {
        output::text(&report.to_terminal())?;
    }
    Ok(if planting::missed(&report) { Code::Inconclusive } else { code(&report) })
}

/// Verifies, with a bar on stderr.
pub fn verify_with_bar(
    model: Arc<ModelFile>,
    device: Arc<dyn trueup::runtime::device::Device>,
    reference: Reference,
    options: &VerifyOptions,
) -> Result<Report> {
    let target = if output::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(
        ProgressStyle::with_template("verify [{bar:30}] {pos}/{len} passes {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let report = verify::verify(model, device, reference, options, &mut |progress| {
        bar.set_length((progress.prompts * progress.all) as u64);
        bar.set_position((progress.prompt * progress.all + progress.done) as u64);
    });
    bar.finish_and_clear();
    Ok(report?)
}

/// The exit code of a report.
pub fn code(report: &Report) -> Code {
    match report.result {
        Outcome::Pass => Code::Done,
        Outcome::Fail => Code::Mismatch,
        Outcome::Inconclusive => Code::Inconclusive,
    }
}

/// All inputs as ids; the built-in text when there are none.
fn prompts(model: &ModelFile, input: &Input) -> Result<Vec<Vec<u32>>> {
    if !input.is_empty() {
        return input.encode(|| Ok(model.tokenizer()?), true);
    }
    Ok(vec![model.tokenizer()?.encode(verify::TEXT_DEFAULT, true)?])
}
