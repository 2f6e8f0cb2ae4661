//! `trueup ops`: lists, tests and benchmarks the operators of a device.

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

const DETAILS: &str = "\
Examples:
  trueup ops list --dev cpu
  trueup ops test --op \"add|mul_.*\" --seed 7
  trueup ops test --case add/3 --seed 7
  trueup ops perf --op mul_mat --json perf.json";

const LIST_DETAILS: &str = "\
Examples:
  trueup ops list
  trueup ops list --op rope --json -";

const TEST_ABOUT: &str = "\
Test the operators of a device against f64 computations

A case passes if its elements are within the error bound of the arithmetic that the device declares, no memory \
outside the result was written, a second run gave the same bits, and integers are exact. Cases that use f32 only must \
also have a normalized mean squared error (NMSE) below 1e-6.";

const TEST_DETAILS: &str = "\
Exit codes:
  0  Every case that the device supports passed
  1  A case failed
  2  Nothing could be tested
  3  Inconclusive: the device supports none of the cases

Examples:
  trueup ops test
  trueup ops test --dev cpu -t 1 --op \"add|mul_.*\" --seed 7
  trueup ops test --case add/3 --seed 7 --json -
  trueup ops test --sample 1/50";

const PERF_ABOUT: &str = "\
Measure the speed of operators, and the share of the hardware limit that they reach

The hardware limit is measured in the same run, before and after the operators, with all threads: reading and copying \
large arrays, and f32 multiply-add and 8-bit integer products in registers. Data that fits in the caches can exceed \
the limit; such results are marked as cached.";

const PERF_DETAILS: &str = "\
Examples:
  trueup ops perf
  trueup ops perf --op \"mul_mat|add\" -t 1 --json perf.json";

/// Arguments of `trueup ops`.
#[derive(Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_long_help = DETAILS)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// List the operators and types that a device supports
    #[command(after_long_help = LIST_DETAILS)]
    List(List),
    /// Test the operators of a device against f64 computations
    #[command(long_about = TEST_ABOUT, after_long_help = TEST_DETAILS)]
    Test(Test),
    /// Measure the speed of operators, and the share of the hardware limit that they reach
    #[command(long_about = PERF_ABOUT, after_long_help = PERF_DETAILS)]
    Perf(Perf),
}

/// Options of all three subcommands.
#[derive(Args)]
struct Common {
    /// Device to use: cpu, ref, cuda[:N], npu[:N], cuda-sim or npu-sim[:CHIP]
    #[arg(long, visible_alias = "dev", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Select operators whose full name matches the regular expression RE
    #[arg(long = "op", value_name = "RE")]
    operators: Option<String>,
    /// Write the results as JSON to FILE; - prints them instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Number of threads; does not change the results [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Instruction set of the cpu device [default: the best one available]
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
    /// Random seed for the generated inputs
    #[arg(
        short, long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = value::whole::<u64>,
        allow_negative_numbers = true
    )]
    seed: u64,
    /// Test only the case NAME, such as add/3
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Test a random sample of about one case in N; the seed selects the cases
    #[arg(long, value_name = "1/N", value_parser = value::sample)]
    sample: Option<u64>,
    /// The former spelling of `--sample 1/N`: `--one-of N`.
    #[arg(long, hide = true, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "sample")]
    one_of: Option<u64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Perf {
    /// Random seed for the generated inputs
    #[arg(
        short, long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = value::whole::<u64>,
        allow_negative_numbers = true
    )]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// Runs `trueup ops`.
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

    /// Whether text is printed to stdout.
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

/// Checks before any work that the results can be written.
fn check_folder(target: Option<&Path>) -> Result<()> {
    target.map_or(Ok(()), |target| output::check_target(target, &[]))
}

fn list(arguments: &List) -> Result {
    let common = &arguments.common;
    let device = common.open()?;
    let answers = suite::list(&*device, &common.selection(None)?);
    common.write(&json!({"device": device.name(), "operators": answers}))?;
    if common.prints() {
        let columns =
            [("operator", Side::Left), ("types", Side::Left), ("cases", Side::Right), ("support", Side::Left)];
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
    let mut printed: Result<()> = Ok(());
    let report = suite::test(&*device, &selection, arguments.seed, &mut |result| {
        if common.prints() && printed.is_ok() {
            printed = output::line(&result.to_string());
        }
    });
    printed?;
    common.write(&report)?;
    if common.prints() {
        output::line(&report.summary())?;
        print_rerun(&report, &common.device)?;
    }
    Ok(match (report.failed, report.ran()) {
        (0, true) => Code::Done,
        (0, false) => Code::Inconclusive,
        _ => Code::Mismatch,
    })
}

/// Prints the command that reruns the first failed case.
fn print_rerun(report: &SuiteReport, device: &str) -> Result<()> {
    let failed = report.results.iter().find(|result| result.status == suite::Status::Fail);
    failed.map_or(Ok(()), |failed| {
        output::line(&format!("rerun: trueup ops test --dev {device} --case {} --seed {}", failed.name, failed.seed))
    })
}

fn perf(arguments: &Perf) -> Result {
    let common = &arguments.common;
    let device = common.open()?;
    let selection = common.selection(None)?;
    let report = suite::perf(&*device, &selection, arguments.seed, &mut |result| {
        if common.prints() {
            output::note(&format!("measuring {} {}", result.op, result.inputs.join(", ")));
        }
    })?;
    common.write(&report)?;
    if common.prints() {
        output::line(&speeds(&report))?;
        output::line(&roof::line(report.roof.as_ref(), &report.device))?;
    }
    let computed = report.results.iter().any(|result| result.skipped.is_none());
    if report.results.is_empty() {
        return Err(Failure::new(
            "--op: the selected operators have no benchmark; select others, such as --op mul_mat",
        ));
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
        ("of limit", Side::Right),
        ("note", Side::Left),
    ];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let share = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{:.0}%", 100.0 * value));
    let row = |result: &PerfResult| {
        let note = match &result.skipped {
            Some(reason) => format!("skipped: {reason}"),
            None if result.gb_per_s.is_none() => "no data is moved".to_owned(),
            None if result.cached => "cached".to_owned(),
            None => String::new(),
        };
        let (time, bytes, products) = (number(result.time_us), number(result.gb_per_s), number(result.gflop_per_s));
        let (op, inputs) = (result.op.clone(), result.inputs.join(", "));
        [op, inputs, result.nodes.to_string(), time, bytes, products, share(result.roof_share), note]
    };
    let rows: Vec<_> = report.results.iter().map(row).collect();
    table(columns.map(|(title, side)| Column(title, side)), &rows)
}
