//! `trueup quantize --target` and `--max-kl`: chooses types by measurements on a text.

use super::attest;
use crate::command::place::{note_tokenizer, open_model};
use crate::failure::{Code, Failure, Result};
use crate::losses::{self, How, Outcome};
use crate::output;
use crate::progress::{Bar, group_bar};
use crate::target::{Targets, is_same};
use crate::value::{self, TargetSize};
use clap::{ArgGroup, Args};
use indicatif::ProgressBar;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::formats::{Checkpoint, flm::is_flm, quote};
use trueup::quality::{Corpus, Goal, MeasuredWith, Measurements, TargetInput, TargetPlan, TargetStep, Tuner};
use trueup::quantize::{ImportanceOptions, Recipe, quantize_with};
use trueup::runtime::{DeviceOptions, ModelFile, open_devices, open_fallback};
use trueup::text;

/// Tokens of a chunk, if the model allows them.
const CHUNK: usize = 512;

/// Arguments of targets for size and quality.
#[derive(Args)]
#[command(group = ArgGroup::new("goal").args(["target", "max_kl"]))]
pub struct GoalArguments {
    /// Choose the types that give the best quality in a file of at most this size: 300M, 4.6GiB or 4.5bpw
    ///
    /// The size is that of the whole file, with metadata and padding; bpw is bits per weight. K, M, G and T are powers
    /// of 1024. How much each type increases the KL divergence is measured on the text of --corpus. Cannot be combined
    /// with --max-kl, --type, -b, --layout, --pure, --strict or --resume.
    #[arg(long, value_name = "SIZE", value_parser = value::target_size, allow_hyphen_values = true,
        conflicts_with_all = ["bits", "scheme", "layout", "pure", "strict", "resume", "max_kl"])]
    target: Option<TargetSize>,
    /// Choose the types that give the smallest file with a KL divergence from INPUT of at most X nats
    ///
    /// Cannot be combined with --target, --type, -b, --layout, --pure, --strict or --resume.
    #[arg(long, value_name = "X", value_parser = value::positive, allow_negative_numbers = true,
        conflicts_with_all = ["bits", "scheme", "layout", "pure", "strict", "resume"])]
    max_kl: Option<f64>,
    /// Evaluation text for --target and --max-kl
    #[arg(long, value_name = "FILE", requires = "goal")]
    corpus: Option<PathBuf>,
    /// Measure on at most N chunks of 512 tokens of the text [default: 4]
    #[arg(long, value_name = "N", value_parser = value::tokens, requires = "corpus", allow_negative_numbers = true)]
    chunks: Option<usize>,
    /// Measure every candidate type of each group of tensors, instead of one or two per group
    ///
    /// This makes the prediction more accurate, but measuring takes several times as long.
    #[arg(long, requires = "corpus")]
    measure_all: bool,
    /// File that stores the measurements for later runs [default: MODEL-HASH.measurements.json next to the output]
    ///
    /// A run with another target reuses the measurements, and an interrupted run continues from them. A file with
    /// measurements of another model, text, importance matrix, rule or device is an error.
    #[arg(long, value_name = "FILE", requires = "corpus")]
    measurements: Option<PathBuf>,
    /// Device that runs the model for the measurements [default: cpu]
    #[arg(long, visible_alias = "dev", value_name = "DEVICE", requires = "corpus")]
    device: Option<String>,
}

/// The model to quantize, and the options.
pub struct Job<'a> {
    pub input: &'a Path,
    pub output: &'a Path,
    pub source: Box<dyn Checkpoint>,
    pub recipe: Recipe,
    pub importance: Option<ImportanceOptions>,
    pub imatrix: Option<&'a Path>,
    pub attest: Option<&'a Path>,
    pub threads: Option<usize>,
    pub dry_run: bool,
    pub how: How,
}

impl GoalArguments {
    /// Whether a target was given.
    pub fn is_given(&self) -> bool {
        self.target.is_some() || self.max_kl.is_some()
    }

    /// Measures, chooses the types, writes the file and measures it.
    pub fn run(&self, job: Job) -> Result {
        let option = if self.target.is_some() { "--target" } else { "--max-kl" };
        if is_flm(job.output) {
            let problem = "expected GGUF output, found .flm output; write a .gguf file, or use -b instead";
            return Err(Failure::new(format!("{option}: {problem}")));
        }
        let Some(corpus_path) = &self.corpus else {
            return Err(Failure::new(format!("{option} requires an evaluation text; pass --corpus FILE")));
        };
        let (source, importance): (Arc<dyn Checkpoint>, _) = (Arc::from(job.source), job.importance.map(Arc::new));
        let read: Vec<&Path> = [Some(corpus_path.as_path()), job.imatrix].into_iter().flatten().collect();
        let outputs = [Some(job.output), self.measurements.as_deref(), job.how.report.as_deref(), job.attest];
        Targets::files(outputs.into_iter().flatten()).check(&source.sources(), &read)?;
        let model = open_model(job.input)?;
        if !model.model().spec().has_logits() {
            let shown = quote(&job.input.to_string_lossy());
            let problem = "expected a model that generates text, found an encoder; use --type instead";
            return Err(Failure::new(format!("{shown}: {option}: {problem}")));
        }
        model.expect_no_encoder("quantize --target", "use --type")?;
        let corpus = self.corpus(&model, corpus_path)?;
        let positions = corpus.chunks() * corpus.scored();
        let options = DeviceOptions { threads: job.threads, ..DeviceOptions::default() };
        let device = self.device.as_deref().unwrap_or("cpu");
        let mut tuner = Tuner::new(TargetInput {
            source: source.clone(),
            model,
            importance: importance.clone(),
            recipe: job.recipe,
            corpus,
            devices: open_devices(device, &[], &options)?,
            fallback: open_fallback(device, &options)?,
            threads: job.threads,
            measures_all: self.measure_all,
        })?;
        let goal = self.goal(&tuner)?;
        let (path, mut known) = self.measurements(&tuner, job.input, job.output)?;
        let bar = group_bar(tuner.groups());
        tuner.measure(&mut known, &mut |known| Ok(known.write(&path)?), &mut |step| show(&bar, step))?;
        tuner.notes(&known).iter().for_each(|note| output::note(note));
        let plan = tuner.plan(&known, goal, &mut |step| show(&bar, step))?;
        bar.finish_and_clear();
        let options = trueup::quantize::Options { dry_run: job.dry_run, ..tuner.options(plan.types.clone()) };
        let report = quantize_with(&*source, job.output, &options, importance.as_deref(), &Bar::new("quantize"))?;
        if let Some(file) = job.attest {
            attest(file, (&*source, importance.as_deref()), &options, (job.output, &report))?;
        }
        let mut outcome = outcome(&plan, goal, &tuner, positions, &path);
        if !job.dry_run {
            outcome.file_bytes = fs::metadata(job.output).map_or(plan.bytes, |facts| facts.len());
            outcome.bits_per_weight = bits_per_weight(outcome.file_bytes, &tuner);
            let bar = group_bar(tuner.groups());
            let written = Arc::new(ModelFile::open(job.output)?);
            outcome.measured_kl = Some(tuner.divergence_of_file(written, &mut |step| show(&bar, step))?);
            bar.finish_and_clear();
        }
        let missed = missed(&outcome);
        losses::print(&report, job.output, job.dry_run, &How { target: Some(outcome), ..job.how })?;
        missed.iter().for_each(|sentence| output::error(sentence));
        Ok(if missed.is_some() { Code::Mismatch } else { Code::Done })
    }

    fn corpus(&self, model: &ModelFile, path: &Path) -> Result<Corpus> {
        let tokenizer = model.tokenizer()?;
        note_tokenizer(tokenizer);
        let text = text::read_text(path)?;
        let size = CHUNK.min(model.model().spec().context_length());
        let (found, needed) = (tokenizer.encode(&text, true)?.len(), 2 * size);
        let shown = quote(&path.to_string_lossy());
        if !text.is_empty() && found < needed {
            return Err(Failure::new(format!(
                "{shown}: expected at least {needed} tokens (2 chunks of {size}), found {found}; use a longer text"
            )));
        }
        Corpus::new(tokenizer, &text, size, Some(self.chunks.unwrap_or(4)))
            .map_err(|error| Failure::new(format!("{shown}: {error}")))
    }

    fn goal(&self, tuner: &Tuner) -> Result<Goal> {
        let Some(target) = self.target else { return Ok(Goal::Divergence(self.max_kl.unwrap_or_default())) };
        let (bytes, (smallest, largest)) = (target.bytes(tuner.parameters()), tuner.sizes());
        if (smallest..=largest).contains(&bytes) {
            return Ok(Goal::Bytes(bytes));
        }
        let bpw = |bytes: u64| format!("{bytes} bytes ({:.3}bpw)", bits_per_weight(bytes, tuner));
        Err(Failure::new(match bytes < smallest {
            true => format!(
                "--target: expected at least {}, the smallest possible file, found {}; use a larger target",
                bpw(smallest),
                bpw(bytes)
            ),
            false => format!(
                "--target: expected at most {} (the size with the largest candidate types), found {}; use a smaller \
                 target, or --type instead of --target",
                bpw(largest),
                bpw(bytes)
            ),
        }))
    }

    /// The path of the measurements, and the measurements that it already contains.
    fn measurements(&self, tuner: &Tuner, input: &Path, output: &Path) -> Result<(PathBuf, Measurements)> {
        let with = tuner.measured_with(&Bar::new("hash"))?;
        let path = self.measurements.clone().unwrap_or_else(|| default_path(input, output, &with));
        let known = match path.exists() {
            true => Measurements::read(&path, &with)?,
            false => Measurements::new(with),
        };
        if is_same(&path, output) {
            return Err(Failure::new("--measurements: this path is also the output model; choose another path"));
        }
        Ok((path, known))
    }
}

/// The default file of measurements, next to the output. Its name contains the name of the model and a hash of
/// everything that the measurements depend on.
fn default_path(input: &Path, output: &Path, with: &MeasuredWith) -> PathBuf {
    let stem = input.file_stem().unwrap_or_default().to_string_lossy();
    output.with_file_name(format!("{stem}-{}.measurements.json", with.short_hash()))
}

fn outcome(plan: &TargetPlan, goal: Goal, tuner: &Tuner, positions: usize, measurements: &Path) -> Outcome {
    let (target_bytes, max_kl) = match goal {
        Goal::Bytes(bytes) => (Some(bytes), None),
        Goal::Divergence(kl) => (None, Some(kl)),
    };
    Outcome {
        target_bytes,
        max_kl,
        file_bytes: plan.bytes,
        bits_per_weight: bits_per_weight(plan.bytes, tuner),
        predicted_kl: plan.predicted_kl,
        measured_kl: None,
        positions,
        measurements: measurements.to_string_lossy().into_owned(),
    }
}

/// The error of a written file that misses its goal; `None` if it does not.
fn missed(outcome: &Outcome) -> Option<String> {
    let too_large = outcome.target_bytes.filter(|most| outcome.file_bytes > *most).map(|most| {
        format!("--target: expected a file of at most {most} bytes, found {}; use a smaller target", outcome.file_bytes)
    });
    let found = outcome.measured_kl.as_ref().map_or(0.0, |kl| kl.value);
    let too_different = outcome.max_kl.filter(|most| found > *most).map(|most| {
        format!("--max-kl: expected a KL divergence of at most {most} in the file, found {found}; use a smaller limit")
    });
    too_large.or(too_different)
}

fn bits_per_weight(bytes: u64, tuner: &Tuner) -> f64 {
    8.0 * bytes as f64 / tuner.parameters().max(1) as f64
}

/// Shows a step on the progress bar.
fn show(bar: &ProgressBar, step: TargetStep) {
    match step {
        TargetStep::Reference => bar.set_message("computing the predictions of the model"),
        TargetStep::Groups(done, _) => {
            bar.set_message("measuring types");
            bar.set_position(done as u64);
        }
        TargetStep::Try(number) => bar.set_message(format!("measuring allocation {number}")),
        TargetStep::Result => bar.set_message("measuring the file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup::quality::Estimate;

    #[test]
    fn goals_that_are_missed_are_reported() {
        let outcome = |target_bytes, max_kl| Outcome {
            target_bytes,
            max_kl,
            file_bytes: 1000,
            bits_per_weight: 4.5,
            predicted_kl: 0.04,
            measured_kl: Some(Estimate { value: 0.05, error: 0.001 }),
            positions: 10,
            measurements: String::new(),
        };
        assert_eq!((missed(&outcome(Some(1000), None)), missed(&outcome(None, Some(0.05)))), (None, None));
        let sentence = missed(&outcome(Some(999), None)).unwrap();
        assert!(sentence.contains("at most 999 bytes, found 1000"), "{sentence}");
        let sentence = missed(&outcome(None, Some(0.049))).unwrap();
        assert!(sentence.contains("at most 0.049 in the file, found 0.05"), "{sentence}");
        let planned = Outcome { measured_kl: None, ..outcome(None, Some(0.01)) };
        assert_eq!(missed(&planned), None);
    }
}
