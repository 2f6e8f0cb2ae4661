//! Report and gate options of `trueup verify`.

use crate::failure::{Failure, Result};
use crate::output;
use crate::target::Targets;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use trueup::formats::{self, OpenOptions, SourceFile, quote};
use trueup::runtime::ModelFile;
use trueup::verify::{
    BASELINE_BYTES_MAX, Baseline, Date, POLICY_BYTES_MAX, Policy, Report, RunFacts, peak_memory_bytes, shell_word,
};

/// Report and gate options.
#[derive(Args)]
#[command(next_help_heading = "Reports and gates")]
pub struct Reports {
    /// Write the report as JSON to FILE; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the report as Markdown, for the job summary of a CI system
    ///
    /// If the model does not pass, an error annotation for GitHub Actions is also printed to stderr.
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Apply the gate in a TOML file: required coverage, error budgets and waivers
    ///
    /// A waiver needs a reason and an expiry date.
    #[arg(long, value_name = "FILE.toml")]
    gate: Option<PathBuf>,
    /// Exit with 3 if less than this share of the nodes is judged; above 0, at most 1 [default: 1]
    ///
    /// The share applies to each phase, and to each step of a trace. For traces of other programs, the default requires
    /// only the last result and one node of each layer.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    coverage: Option<f64>,
    /// Compare with an earlier JSON report, and exit with 1 if a result is worse
    #[arg(long, value_name = "FILE.json")]
    baseline: Option<PathBuf>,
}

/// Gates, read before any work.
pub struct Gates {
    coverage: Option<f64>,
    policy: Option<(Policy, String)>,
    baseline: Option<(Baseline, String)>,
}

impl Reports {
    /// Reads the gates and checks all output paths before any work.
    ///
    /// `directories` are output directories in addition to the reports; `files` are inputs in addition to the model.
    pub fn open(&self, model: &ModelFile, folders: &[(PathBuf, &'static str)], files: &[&Path]) -> Result<Gates> {
        let mut read = Vec::new();
        let mut take = |path: &Option<PathBuf>, bytes_max| -> Result<Option<(Vec<u8>, String)>> {
            let Some(path) = path else { return Ok(None) };
            let source = SourceFile::open(path)?;
            let bytes = source.read_all(bytes_max)?;
            read.push(source);
            Ok(Some((bytes, path.to_string_lossy().into_owned())))
        };
        let policy = take(&self.gate, POLICY_BYTES_MAX)?;
        let baseline = take(&self.baseline, BASELINE_BYTES_MAX)?;
        let checkpoint = formats::open(model.path(), &OpenOptions::default())?;
        let sources: Vec<&SourceFile> = checkpoint.sources().into_iter().chain(&read).collect();
        Targets::files(self.targets()).and_folders(folders).check(&sources, files)?;
        Ok(Gates {
            coverage: self.coverage,
            policy: policy.map(|(bytes, file)| Ok::<_, Failure>((read_policy(&bytes, &file)?, file))).transpose()?,
            baseline: baseline
                .map(|(bytes, file)| {
                    let fail = |fault| Failure::new(format!("{}: {fault}", quote(&file)));
                    Ok::<_, Failure>((Baseline::parse(&bytes).map_err(fail)?, file))
                })
                .transpose()?,
        })
    }

    fn targets(&self) -> impl Iterator<Item = &Path> {
        [&self.json, &self.html, &self.junit, &self.summary].into_iter().flatten().map(PathBuf::as_path)
    }

    /// The path of the JSON report.
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether a report is written to stdout, so that the text report is not printed.
    pub fn take_stdout(&self) -> bool {
        self.targets().any(|path| path == Path::new("-"))
    }

    /// Writes the requested reports.
    pub fn write(&self, report: &Report) -> Result<()> {
        if let Some(file) = &self.json {
            output::document(file, &serde_json::to_string(report)?)?;
        }
        if let Some(file) = &self.html {
            output::document(file, &report.to_html().map_err(Failure::new)?)?;
        }
        if let Some(file) = &self.junit {
            output::document(file, report.to_junit().map_err(Failure::new)?.trim_end())?;
        }
        if let Some(file) = &self.summary {
            output::document(file, report.to_summary().trim_end())?;
            if let Some(annotation) = report.to_annotation() {
                output::annotation(&annotation);
            }
        }
        Ok(())
    }
}

impl Gates {
    /// Applies the gates to a report, and records the run: date, duration, memory and command.
    pub fn apply(&self, report: &mut Report, took: Duration) -> Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let days = since.ok().and_then(|since| u32::try_from(since.as_secs() / 86_400).ok());
        let today = Date::from_days(days.ok_or_else(|| {
            Failure::new("the system clock is set to a date before 1970; set it to check the expiry dates of waivers")
        })?);
        let command: Vec<String> =
            std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy())).collect();
        report.run = Some(RunFacts {
            date: today.to_string(),
            seconds: took.as_secs_f64(),
            peak_memory_bytes: peak_memory_bytes(),
            command: format!("trueup {}", command.join(" ")),
        });
        if let Some(share) = self.coverage {
            report.require_coverage(share);
        }
        if let Some((policy, file)) = &self.policy {
            report.apply_policy(policy, file, today);
        }
        if let Some((baseline, file)) = &self.baseline {
            report.compare_with(baseline, file);
        }
        Ok(())
    }
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "expected a share above 0 and at most 1, such as 0.9".to_owned())
}

fn read_policy(bytes: &[u8], file: &str) -> Result<Policy> {
    let file = quote(file);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
        Failure::new(format!(
            "{file}: line {line}: expected UTF-8 text, found other bytes; pass a gate file in TOML format"
        ))
    })?;
    Policy::parse(text).map_err(|fault| Failure::new(format!("{file}: {fault}")))
}
