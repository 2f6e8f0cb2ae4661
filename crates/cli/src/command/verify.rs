//! `trueup verify`: compares every intermediate tensor of a device with a reference.

use crate::command::fault_list;
use crate::command::input::Input;
use crate::command::place::{Machine, ModelWithTokenizer, Shares, note_tokenizer, note_weight_types};
use crate::command::reports::Reports;
use crate::command::trace;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value::{self, Ids};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use trueup::formats::{Trace, quote};
use trueup::runtime::device::Device;
use trueup::runtime::{ModelFile, Weights, device_kinds, is_device_name};
use trueup::verify::{
    self, Outcome, PlantedDevice, Reference, Report, TraceOptions, TraceReport, TraceTokens, VerifyOptions, planted_in,
};

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Compare every intermediate tensor of a device with a reference

Every operator is judged against an f64 computation on the same inputs, within an error bound derived from the \
device's declared arithmetic and the inputs. In addition, the device and the reference each compute the whole model on \
the same tokens, and their results are compared. Without a prompt, a short built-in text is used.";

const DETAILS: &str = "\
Exit codes:
  0  Every node passed
  1  A node, the logits, a budget or the baseline failed; the report names it
  2  Nothing could be verified
  3  Inconclusive: too few nodes could be checked

Examples:
  trueup verify model-q4_0.gguf
  trueup verify model.gguf --ref ref --dev cpu -p \"The sky is\" --steps 32 --json report.json
  trueup verify model.gguf --inject-fault rope-position
  trueup verify model.gguf --ref trace.safetensors
  trueup verify model.gguf --gate gate.toml --baseline main.json --junit verify.xml --html verify.html";

/// Arguments of `trueup verify`.
#[derive(Args)]
#[command(after_long_help = DETAILS)]
pub struct Arguments {
    /// GGUF file of the model
    #[arg(required_unless_present = "inject_fault")]
    model: Option<PathBuf>,
    /// Reference: a device such as ref or cpu, or a trace file
    ///
    /// The trace may be written by `trueup trace` or by another program: a safetensors file, an .npz file, or the text
    /// printed by llama-eval-callback of llama.cpp. Each tensor of the trace is checked too, with the weights of the
    /// model and the token IDs of the trace.
    #[arg(long = "ref", value_name = "DEVICE|FILE", default_value = "ref")]
    reference: String,
    /// Device to verify: cpu, ref, cuda[:N], npu[:N], cuda-sim or npu-sim[:CHIP]
    ///
    /// With several devices, such as cuda:0,cuda:1, the layers are placed on them in this order.
    #[arg(long = "dev", visible_alias = "device", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[command(flatten)]
    shares: Shares,
    #[command(flatten)]
    input: Input,
    /// Decoder token IDs for an encoder-decoder model, such as "0 5 9", including the decoder start token; repeat once
    /// per prompt
    ///
    /// The prompts are the encoder's input. Without this option, the decoder's input is its start token only.
    #[arg(long, value_name = "IDS", value_parser = value::ids)]
    decoder_ids: Vec<Ids>,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the model's
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Decode N tokens after each prompt; the reference selects the tokens [default: 8]
    ///
    /// Cannot be used with a trace, which determines the number of steps.
    #[arg(long, value_name = "N", value_parser = value::whole::<usize>, allow_negative_numbers = true)]
    steps: Option<usize>,
    /// Exit with 3 if a node falls back to another device
    #[arg(long)]
    require_device: bool,
    /// Write a file to DIR for each failing node; `trueup repro` reruns the node from it
    #[arg(long, value_name = "DIR")]
    repro_dir: Option<PathBuf>,
    /// Inject a fault into the device: NAME, or NAME@NODE; "list" prints all faults
    ///
    /// Use this to check that a gate can fail: the exit code should be 1, and the report should name the node.
    #[arg(long, alias = "plant", value_name = "NAME")]
    inject_fault: Option<String>,
    /// Write the tensors of the device and the reference to DIR, by step and node
    ///
    /// The files for prompt N are DIR/device/pN.safetensors and DIR/reference/pN.safetensors.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    machine: Machine,
}

/// Runs `trueup verify`.
pub fn run(arguments: Arguments) -> Result {
    let file = match (&arguments.model, arguments.inject_fault.as_deref()) {
        (_, Some(fault_list::LIST)) => return fault_list::list(arguments.reports.json()).map(|()| Code::Done),
        (Some(file), _) => file,
        (None, _) => {
            return Err(Failure::new(
                "--inject-fault: expected a model to verify, found none; add the path of a GGUF file",
            ));
        }
    };
    let opened = ModelWithTokenizer::open(file, arguments.tokenizer.as_deref())?;
    let model = opened.model.clone();
    let trace = open_trace(&arguments.reference)?;
    if trace.is_some() {
        model.expect_no_encoder("--ref FILE", "omit the option")?;
    }
    if arguments.dump.is_some() {
        model.expect_no_encoder("--dump", "omit the option")?;
    }
    expect_decoder(&arguments, &model)?;
    arguments.shares.expect_use(&model)?;
    let read = trace.iter().map(|_| Path::new(&arguments.reference)).chain(arguments.input.files());
    let read: Vec<&Path> = read.chain(arguments.tokenizer.as_deref()).collect();
    let gates = arguments.reports.open(&model, &folders(&arguments), &read)?;
    if let Some(folder) = &arguments.repro_dir {
        let problem = |error| {
            Failure::new(format!("{}: cannot create this directory: {error}", quote(&folder.to_string_lossy())))
        };
        std::fs::create_dir_all(folder).map_err(problem)?;
    }
    let mut devices = arguments.shares.open(&arguments.device, &arguments.machine)?;
    note_weight_types(&model, &devices);
    let device = devices.remove(0);
    let plant = |choice| planted_in(choice, &model, device.clone(), arguments.machine.fusion());
    let fault = arguments.inject_fault.as_deref().map(plant).transpose()?;
    let device = fault.as_ref().map_or_else(|| device.clone(), |fault| fault.device.clone());
    let given =
        if trace.is_some() && arguments.input.is_empty() { None } else { Some(prompts(&opened, &arguments.input)?) };
    if trace.is_some() && arguments.steps.is_some() {
        return Err(Failure::new("--steps: the trace determines the number of steps; remove --steps"));
    }
    let tokens = trace.as_ref().map(|trace| tokens(trace, given.as_deref(), &model)).transpose()?;
    let work = match &tokens {
        Some(tokens) => prompt_and_steps(tokens),
        None => (given.unwrap_or_default(), steps(&model, arguments.steps)?),
    };
    let options = VerifyOptions { further: devices, ..options(&arguments, work, fault.as_ref())? };
    let reference = match arguments.reference.as_str() {
        "ref" => Reference::Oracle,
        _ if trace.is_some() => Reference::Oracle,
        other => Reference::Device(arguments.machine.open(other)?),
    };
    let start = Instant::now();
    let traced = trace.as_ref().zip(tokens).map(|(trace, tokens)| compared(trace, tokens, &model, &device, &options));
    let traced = traced.transpose()?;
    let mut report = verify_with_bar(model.clone(), device.clone(), reference, &options)?;
    if let Some(traced) = traced {
        report = report.with_trace(traced);
    }
    if let Some(folder) = &arguments.dump {
        let devices = std::iter::once(device).chain(options.further.iter().cloned()).collect();
        dump(&arguments, folder, &model, devices, &report)?;
    }
    gates.apply(&mut report, start.elapsed())?;
    arguments.reports.write(&report)?;
    if !arguments.reports.take_stdout() {
        output::text(&report.to_terminal())?;
    }
    Ok(code(&report))
}

/// Options to verify these prompts with this number of steps after each.
fn options(
    arguments: &Arguments,
    (prompts, steps): (Vec<Vec<u32>>, usize),
    fault: Option<&PlantedDevice>,
) -> Result<VerifyOptions> {
    let machine = &arguments.machine;
    Ok(VerifyOptions {
        prompts,
        decoder_prompts: arguments.decoder_ids.iter().map(|Ids(ids)| ids.clone()).collect(),
        steps,
        kv: machine.kv(),
        context: machine.session(1).context,
        require_device: arguments.require_device,
        fallback: if arguments.device.split(',').any(|name| name == "cpu") { None } else { Some(machine.open("cpu")?) },
        threads: machine.threads(),
        repro_folder: arguments.repro_dir.clone(),
        fusion: machine.fusion(),
        planted: fault.map(PlantedDevice::facts),
        arguments: [machine.arguments(), arguments.shares.arguments()].concat(),
        ..VerifyOptions::default()
    })
}

/// Fails if the ids of a decoder are given and the model has none that follows an encoder.
fn expect_decoder(arguments: &Arguments, model: &ModelFile) -> Result<()> {
    if arguments.decoder_ids.is_empty() || model.model().spec().has_encoder() {
        return Ok(());
    }
    Err(Failure::new(
        "--decoder-ids: expected an encoder-decoder model, found a model without an encoder; omit the option",
    ))
}

/// The number of steps after each prompt. An encoder has none.
fn steps(model: &ModelFile, given: Option<usize>) -> Result<usize> {
    let has_logits = model.model().spec().has_logits();
    if !has_logits && given.is_some_and(|steps| steps > 0) {
        return Err(Failure::new("--steps: an encoder generates no tokens; remove the option"));
    }
    Ok(if has_logits { given.unwrap_or(verify::STEPS_DEFAULT) } else { 0 })
}

/// Output directories, with the name endings of the files that are written there.
fn folders(arguments: &Arguments) -> Vec<(PathBuf, &'static str)> {
    let dumped = arguments.dump.iter().flat_map(|folder| ["device", "reference"].map(|side| folder.join(side)));
    let alone = arguments.repro_dir.iter().map(|folder| (folder.clone(), ".repro.safetensors"));
    dumped.map(|folder| (folder, ".safetensors")).chain(alone).collect()
}

/// Opens the trace, if the reference is a file. Names of devices have no file extension and no directory.
fn open_trace(reference: &str) -> Result<Option<Trace>> {
    let path = Path::new(reference);
    let is_file = path.extension().is_some() || path.components().count() > 1 || path.is_file();
    if is_file {
        return Ok(Some(Trace::open(path)?));
    }
    if !is_device_name(reference) {
        let (kinds, found) = (device_kinds().join(", "), quote(reference));
        return Err(Failure::new(format!(
            "--ref: expected a device ({kinds}) or a trace file, found {found}, which is neither"
        )));
    }
    Ok(None)
}

/// The prompt of a trace, which may span several steps, and the number of tokens after it.
fn prompt_and_steps(tokens: &TraceTokens) -> (Vec<Vec<u32>>, usize) {
    let TraceTokens { ids, steps } = tokens;
    let further = steps.iter().skip(1).rev().take_while(|count| **count == 1).count();
    (vec![ids[..ids.len() - further].to_vec()], further)
}

/// Compares with a trace. Runs before the verification because it shows whether the trace belongs to this model.
fn compared(
    trace: &Trace,
    tokens: TraceTokens,
    model: &Arc<ModelFile>,
    device: &Arc<dyn Device>,
    options: &VerifyOptions,
) -> Result<TraceReport> {
    let options = TraceOptions {
        ids: Some(tokens.ids),
        kv: options.kv,
        further: options.further.clone(),
        fallback: options.fallback.clone(),
        threads: options.threads,
        fusion: options.fusion,
    };
    Ok(verify::compare_trace(model.clone(), device.clone(), trace, &options)?)
}

/// The tokens of a trace; if the trace has none, those of the command line.
fn tokens(trace: &Trace, given: Option<&[Vec<u32>]>, model: &ModelFile) -> Result<TraceTokens> {
    let prompt = match given {
        None => None,
        Some([prompt]) => Some(prompt.as_slice()),
        Some(several) => {
            let count = several.len();
            return Err(Failure::new(format!(
                "expected the one prompt of the trace, found {count} prompts; remove the others"
            )));
        }
    };
    let tokens = TraceTokens::new(trace, prompt, model)?;
    if let Some(prompt) = prompt {
        expect_its_own(&tokens, prompt)?;
    }
    Ok(tokens)
}

/// Checks that the given token IDs are those of the first steps of the trace, or of all its steps.
fn expect_its_own(tokens: &TraceTokens, given: &[u32]) -> Result<()> {
    let ends = tokens.steps.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    if tokens.ids.starts_with(given) && ends.into_iter().any(|end| end == given.len()) {
        return Ok(());
    }
    let (theirs, ours) = (&tokens.ids, given.len());
    let place = theirs.iter().zip(given).position(|(a, b)| a != b);
    let difference = match place {
        Some(place) => format!("token {place} is {} in the trace and {} in the prompt", theirs[place], given[place]),
        None => format!(
            "the first step of the trace has {} of its {} tokens, and the prompt has {ours}",
            tokens.steps[0],
            theirs.len()
        ),
    };
    Err(Failure::new(format!(
        "the prompt has different token IDs from the trace: {difference}; remove the prompt to use those of the trace"
    )))
}

/// Writes the tensors of both sides.
fn dump(
    arguments: &Arguments,
    folder: &Path,
    model: &Arc<ModelFile>,
    devices: Vec<Arc<dyn Device>>,
    report: &Report,
) -> Result<()> {
    let reference = if report.trace.is_some() { "ref" } else { &arguments.reference };
    let sides = [("device", devices), ("reference", vec![arguments.machine.open(reference)?])];
    for (side, devices) in sides {
        let fallback = if devices[0].name() == "cpu" { None } else { Some(arguments.machine.open("cpu")?) };
        let weights = Arc::new(Weights::over(model.clone(), devices, fallback));
        let session = arguments.machine.session(1);
        for (number, (prompt, further)) in report.prompts.iter().zip(&report.continuations).enumerate() {
            trace::dump(folder, side, number, &weights, prompt, further, &session)?;
        }
    }
    Ok(())
}

/// Verifies a model, with a progress bar on stderr.
pub fn verify_with_bar(
    model: Arc<ModelFile>,
    device: Arc<dyn Device>,
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

/// The exit code for a report.
pub fn code(report: &Report) -> Code {
    match report.result {
        Outcome::Pass => Code::Done,
        Outcome::Fail => Code::Mismatch,
        Outcome::Inconclusive => Code::Inconclusive,
    }
}

/// Encodes all prompts; without any, the built-in text.
pub fn prompts(opened: &ModelWithTokenizer, input: &Input) -> Result<Vec<Vec<u32>>> {
    if !input.is_empty() {
        return input.encode(|| opened.tokenizer(), true);
    }
    note_tokenizer(opened.tokenizer()?);
    Ok(vec![opened.tokenizer()?.encode(verify::TEXT_DEFAULT, true)?])
}
