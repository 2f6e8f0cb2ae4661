//! `trueup demo`: converts, quantizes, runs and verifies the small model that is embedded in the program.

use crate::command::verify::{code, verify_with_bar};
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::progress::Bar;
use crate::value;
use clap::Args;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::Model;
use trueup::blocks::DType;
use trueup::convert::{self, Agreement, check, convert};
use trueup::formats::{self, AtomicFile, Gguf, OpenOptions};
use trueup::quantize::{Layout, Options, Recipe, quantize};
use trueup::runtime::{DeviceOptions, GenerateOptions, ModelFile, Sampling, open_device};
use trueup::verify::{Reference, STEPS_DEFAULT, TEXT_DEFAULT, VerifyOptions};

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Convert, quantize, run and verify a built-in model

The demo needs no network and no files. The model is embedded in the program; it has 1.2 million weights and was \
trained on stories for children.";

const EXAMPLES: &str = "\
Examples:
  trueup demo
  trueup demo --dir demo -t 1";

/// Arguments of `trueup demo`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Directory to write the files to [default: trueup-demo in the temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of threads; does not change the results [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
}

/// The names and contents of embedded files.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/stories-1M/", $name)).as_slice(),
        )),*]
    };
}

/// The checkpoint, in the format of transformers.
const CHECKPOINT: [(&str, &[u8]); 7] = embedded![
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
];

const PROMPT: &str = "Once upon a time";

/// Runs `trueup demo`.
pub fn run(arguments: Arguments) -> Result {
    let threads = arguments.threads;
    let folder = arguments.dir.unwrap_or_else(|| std::env::temp_dir().join("trueup-demo"));
    let checkpoint = folder.join("stories-1M");
    unpack(&checkpoint)?;
    say(&format!("1. Checkpoint, a Hugging Face directory: {}", shown(&checkpoint)))?;

    let model = folder.join("stories-1M.gguf");
    convert_and_check(&checkpoint, &model, threads)?;
    let mut files = vec![model.clone()];
    say("3. Quantized to GGUF:")?;
    for dtype in [DType::Q8_0, DType::Q4_0] {
        let target = folder.join(format!("stories-1M-{dtype}.gguf"));
        quantize_to(&model, &target, dtype, threads)?;
        files.push(target);
    }
    say(&format!("\n4. Generated text for the prompt \"{PROMPT}\":"))?;
    for file in &files {
        generate_from(file, threads)?;
    }
    say("\n5. Every operator on cpu, compared with an f64 reference:")?;
    let mut worst = Code::Done;
    for file in &files {
        let found = verify_file(file, threads)?;
        if found != Code::Done && worst != Code::Mismatch {
            worst = found;
        }
    }
    say(&format!("\nFiles and reports: {}", shown(&folder)))?;
    say(&format!("Next: trueup verify {}", shown(&files[2])))?;
    Ok(worst)
}

fn say(line: &str) -> Result<()> {
    output::line(line)
}

fn unpack(folder: &Path) -> Result<()> {
    let fail = |error: std::io::Error| {
        Failure::new(format!(
            "{}: cannot create this directory: {error}; choose another directory with --dir",
            shown(folder)
        ))
    };
    fs::create_dir_all(folder).map_err(fail)?;
    for (name, bytes) in CHECKPOINT {
        let mut file = AtomicFile::create(folder.join(name), &[])?;
        file.write_all(bytes)?;
        file.commit()?;
    }
    Ok(())
}

fn convert_and_check(checkpoint: &Path, model: &Path, threads: Option<usize>) -> Result<()> {
    let source = formats::open(checkpoint, &OpenOptions::default())?;
    let options = convert::Options { threads, ..convert::Options::default() };
    let report = convert(source.as_ref(), model, &options, &Bar::new("convert"))?;
    say(&format!("2. Converted to GGUF: {} ({} tensors, {} bytes)", shown(model), report.tensors.len(), report.bytes))?;
    let checks = check(source.as_ref(), &Gguf::open(model)?, threads)?;
    let exact = checks.iter().filter(|check| check.agreement == Agreement::Exact).count();
    if exact < checks.len() {
        return Err(Failure::new(format!(
            "{}: only {exact} of {} tensors are equal to those of the checkpoint; report this as a bug in trueup",
            shown(model),
            checks.len()
        )));
    }
    say(&format!("   Checked: all {exact} tensors are equal to those of the checkpoint"))
}

fn quantize_to(model: &Path, target: &Path, dtype: DType, threads: Option<usize>) -> Result<()> {
    let source = formats::open(model, &OpenOptions::default())?;
    let recipe = Recipe::new(Some(dtype));
    let options = Options { recipe, layout: Layout::Block, threads, dry_run: false, resume: false };
    let report = quantize(source.as_ref(), target, &options, &Bar::new("quantize"))?;
    let cosine = report.tensors.iter().filter_map(|tensor| tensor.cosine).fold(1.0, f64::min);
    say(&format!(
        "   {dtype}: {} ({:.2} bits per weight, lowest cosine similarity of a tensor {cosine:.5})",
        shown(target),
        report.bits_per_weight()
    ))
}

fn generate_from(file: &Path, threads: Option<usize>) -> Result<()> {
    let model = Model::open(file, "cpu", &DeviceOptions { threads, ..DeviceOptions::default() })?;
    let options = GenerateOptions { sampling: Sampling::GREEDY, ..GenerateOptions::default() };
    let text = model.generate(PROMPT, &options, &mut |_| ControlFlow::Continue(()))?;
    say(&format!("   {}:\n     {PROMPT}{}", name(file), text.trim_end().replace('\n', "\n     ")))
}

fn verify_file(file: &Path, threads: Option<usize>) -> Result {
    let model = Arc::new(ModelFile::open(file)?);
    let prompts = vec![model.tokenizer()?.encode(TEXT_DEFAULT, true)?];
    let options = VerifyOptions { prompts, steps: STEPS_DEFAULT, threads, ..VerifyOptions::default() };
    let device = open_device("cpu", &DeviceOptions { threads, ..DeviceOptions::default() })?;
    let report = verify_with_bar(model, device, Reference::Oracle, &options)?;
    let json = file.with_extension("verify.json");
    output::document(&json, &serde_json::to_string_pretty(&report)?)?;
    say(&format!("   {}: {}\n     report: {}", name(file), report.sentence, shown(&json)))?;
    Ok(code(&report))
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A path for display, with control characters escaped.
fn shown(path: &Path) -> String {
    formats::quote(&path.to_string_lossy())
}
