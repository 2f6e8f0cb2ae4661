//! `trueup ops`: every operator by itself on a device: what it takes, whether it is right, how fast it is.

use crate::command::place::{Matmul, Repack};
use crate::command::roof;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::table::{Column, Side, table};
use crate::value;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::runtime::device::Device;
use trueup::runtime::{DeviceOptions, open_device};
use trueup::verify::suite::{self, Answer, PerfReport, PerfResult, SEED_DEFAULT, Selection, SuiteReport};

/// What `trueup ops` takes.
#[derive(Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 every case that the device computes is right; 1 one is not, and it is named; 2 nothing could be \
    tried; 3 the device computes none of the cases.\n\nExamples:\n  trueup ops list --dev cpu\n  \
    trueup ops test --op \"add|mul_.*\" --seed 7\n  trueup ops test --case add/3 --seed 7\n  \
    trueup ops perf --op mul_mat --json perf.json"
)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What a device answers about each operator on each combination of types
    #[command(after_help = "Examples:\n  trueup ops list\n  trueup ops list --op rope --json -")]
    List(List),
    /// Compute every case of the suite on a device and compare with f64
    #[command(
        after_help = "A case is right when its elements are within the noise that the device's declared arithmetic causes, nothing \
        beside the result changed, a second run gave the same bits, integers came out exact, and the NMSE of pure f32 cases is \
        below 1e-6.\n\nExit codes: 0 every case that the device computes is right; 1 one is not; 2 nothing could be tried; 3 the \
        device computes none of the cases.\n\nExamples:\n  trueup ops test\n  trueup ops test --dev cpu -t 1 --op \"add|mul_.*\" --seed 7\n  \
        trueup ops test --case add/3 --seed 7 --json -"
    )]
    Test(Test),
    /// Time operators, and compare with what the machine can do at most
    #[command(
        after_help = "The roof is measured in the same run, before and behind the operators: reading and copying large arrays with all \
        threads, and f32 fused multiply-add and products of 8-bit codes in registers on all threads. Data that lies in caches may go \
        beyond it, where it says so.\n\nExamples:\n  trueup ops perf\n  trueup ops perf --op \"mul_mat|add\" -t 1 --json perf.json"
    )]
    Perf(Perf),
}

/// What all of them take.
#[derive(Args)]
struct Common {
    /// The device: cpu, ref, cuda[:N], npu[:N], and simulated cuda-sim, npu-sim[:CHIP]
    #[arg(long, visible_alias = "dev", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Only operators whose whole name matches this regular expression
    #[arg(long = "op", value_name = "RE")]
    operators: Option<String>,
    /// Write the results as JSON to a file ("-" is stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Threads; one per core by default. Results do not depend on it
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Instruction set of the cpu device; the best that is here by default
    #[arg(long, value_name = "NAME", value_parser = value::instruction_sets())]
    isa: Option<String>,
    #[command(flatten)]
    repack: Repack,
    #[command(flatten)]
    matmul: Matmul,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Test {
    /// What all numbers follow from
    #[arg(short, long, value_name = "S", default_value_t = SEED_DEFAULT)]
    seed: u64,
    /// Only the case of this name
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Test a random sample of about one case in N, selected by the seed; --case always runs
    #[arg(long, value_name = "1/N", value_parser = value::sample)]
    sample: Option<u64>,
    /// The former spelling of `--sample 1/N`: `--one-of N`.
    #[arg(long, hide = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample")]
    one_of: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Perf {
    /// What all numbers follow from
    #[arg(short, long, value_name = "S", default_value_t = SEED_DEFAULT)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Lists, tests or measures.
pub fn run(arguments: Arguments) -> Result {
    match arguments.task {
        Task::List(arguments) => list(&arguments),
        Task::Test(arguments) => test(&arguments),
        Task::Perf(arguments) => perf(&arguments),
    }
}

impl Common {
    fn options(&self) -> DeviceOptions {
        DeviceOptions {
            threads: self.threads,
            isa: self.isa.clone(),
            repack: self.repack.is_on(),
            linear: self.matmul.mode(),
            ..DeviceOptions::default()
        }
    }

    fn open(&self) -> Result<Arc<dyn Device>> {
        check_folder(self.json.as_deref())?;
        Ok(open_device(&self.device, &self.options())?)
    }

    fn selection(&self, case: Option<&str>) -> Result<Selection> {
        Ok(Selection::new(self.operators.as_deref(), case)?)
    }

    /// Whether stdout is for text.
    fn prints(&self) -> bool {
        self.json.as_deref() != Some(Path::new("-"))
    }

    fn write(&self, document: &impl Serialize) -> Result<()> {
        match &self.json {
            Some(file) => output::document(file, &serde_json::to_string(document)?),
            None => Ok(()),
        }
    }
}

/// Fails before any work where the results have nowhere to go.
fn check_folder(target: Option<&Path>) -> Result<()> {
    target.map_or(Ok(()), |target| output::check_target(target, &[]))
}

fn list(arguments: &List) -> Result {
    let common = &arguments.common;
    let device = common.open()?;
    let answers = suite::list(&*device, &common.selection(None)?);
    common.write(&json!({"device": device.about().name, "operators": answers}))?;
    if common.prints() {
        let columns =
            [("operator", Side::Left), ("types", Side::Left), ("cases", Side::Right), ("computed", Side::Left)];
        let rows = answers.iter().map(|Answer { op, types, cases, profile, reason }| {
            let no = || format!("no: {}", reason.as_deref().unwrap_or_default());
            let answer = profile.map_or_else(no, |profile| profile.to_string());
            [op.clone(), types.clone(), cases.to_string(), answer]
        });
        output::line(&table(columns.map(|(title, side)| Column(title, side)), &rows.collect::<Vec<_>>()))?;
    }
    Ok(Code::Done)
}

fn test(arguments: &Test) -> Result {
    let common = &arguments.common;
    let device = common.open()?;
    let selection =
        common.selection(arguments.case.as_deref())?.one_of(arguments.sample.or(arguments.one_of).unwrap_or(1));
    let mut told: Result<()> = Ok(());
    let report = suite::test(&*device, &selection, arguments.seed, &mut |result| {
        if common.prints() && told.is_ok() {
            told = output::line(&result.to_string());
        }
    });
    told?;
    common.write(&report)?;
    if common.prints() {
        output::line(&report.summary())?;
        replay(&report, &common.device)?;
    }
    Ok(match (report.failed, report.ran()) {
        (0, true) => Code::Done,
        (0, false) => Code::Inconclusive,
        _ => Code::Mismatch,
    })
}

/// How the first wrong case is computed again.
fn replay(report: &SuiteReport, device: &str) -> Result<()> {
    let wrong = report.results.iter().find(|result| result.status == suite::Status::Fail);
    wrong.map_or(Ok(()), |wrong| {
        output::line(&format!("again: trueup ops test --dev {device} --case {} --seed {}", wrong.name, wrong.seed))
    })
}

fn perf(arguments: &Perf) -> Result {
    let common = &arguments.common;
    let device = common.open()?;
    let selection = common.selection(None)?;
    let report = suite::perf(&*device, &selection, arguments.seed, &mut |result| {
        if common.prints() {
            output::note(&format!("{} {} is measured", result.op, result.inputs.join(", ")));
        }
    })?;
    common.write(&report)?;
    if common.prints() {
        output::line(&speeds(&report))?;
        output::line(&roof::line(report.roof.as_ref(), &report.device))?;
    }
    let computed = report.results.iter().any(|result| result.skipped.is_none());
    if report.results.is_empty() {
        return Err(Failure::new("no case of these operators is known; take others with --op"));
    }
    Ok(if computed { Code::Done } else { Code::Inconclusive })
}

fn speeds(report: &PerfReport) -> String {
    let columns = [
        ("operator", Side::Left),
        ("inputs", Side::Left),
        ("nodes", Side::Right),
        ("us", Side::Right),
        ("GB/s", Side::Right),
        ("GFLOP/s", Side::Right),
        ("roof", Side::Right),
        ("", Side::Left),
    ];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let share = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{:.0} %", 100.0 * value));
    let row = |result: &PerfResult| {
        let note = match &result.skipped {
            Some(reason) => format!("no: {reason}"),
            None if result.gb_per_s.is_none() => "nothing to do".to_owned(),
            None if result.cached => "in caches".to_owned(),
            None => String::new(),
        };
        let (time, bytes, products) = (number(result.time_us), number(result.gb_per_s), number(result.gflop_per_s));
        let (op, inputs) = (result.op.clone(), result.inputs.join(", "));
        [op, inputs, result.nodes.to_string(), time, bytes, products, share(result.roof_share), note]
    };
    let rows: Vec<_> = report.results.iter().map(row).collect();
    table(columns.map(|(title, side)| Column(title, side)), &rows)
}
