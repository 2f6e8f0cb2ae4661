//! Work done again and again in one process, which must hold no more at its end than behind its warm-up: memory,
//! handles, threads, mappings.
//!
//! ```text
//! generate, load, cancel, start, chat ─ again and again ─ samples of /proc ─ growth ─ complaint or nothing
//!                                      └ results must stay the same
//! ```
//!
//! ```text
//! cargo test -p trueup-cli --test soak                          all kinds of work, shortly
//! cargo test --release -p trueup-cli --test soak -- --long      at length (scripts/soak.sh)
//! cargo test -p trueup-cli --test soak -- load --count 300      one of them, so often
//! ```
//!
//! Leaks are planted too (plant.rs), and each must be found: otherwise the soak itself fails.
#![allow(clippy::print_stdout, reason = "a runner of its own reports by printing")]

mod figures;
mod plant;
#[path = "../hostile/random.rs"]
#[allow(dead_code, reason = "the hostile files draw in more ways")]
mod random;
mod work;

use figures::{FIGURES, Sample, Series};
use plant::{LEAKS, Leak, Plant};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use work::{WORK, Work};

/// Loads that a planted leak has to show in. Memory leaks a little each time and has to show in as many as are done
/// without a leak.
const PLANTED_LOADS: usize = 40;

/// What the words behind `--` ask for.
#[derive(Default)]
struct Request {
    long: bool,
    count: Option<usize>,
    /// The model, where this process is the one that does the work.
    model: Option<PathBuf>,
    /// Names of work, or of other tests.
    names: Vec<String>,
}

impl Request {
    /// Words that other runners know are passed over.
    fn read(mut words: impl Iterator<Item = String>) -> Request {
        let mut request = Request::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--long" => request.long = true,
                "--count" => {
                    request.count = Some(words.next().and_then(|count| count.parse().ok()).expect("--count NUMBER"));
                }
                "--model" => request.model = words.next().map(PathBuf::from),
                "--test-threads" | "--skip" | "--format" | "--color" => drop(words.next()),
                option if option.starts_with('-') => (),
                name => request.names.push(name.to_owned()),
            }
        }
        request
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|asked| "soak".contains(asked) || name.contains(asked))
    }

    fn count(&self, work: &Work) -> usize {
        self.count.unwrap_or(if self.long { work.long } else { work.short })
    }
}

fn main() -> ExitCode {
    let request = Request::read(std::env::args().skip(1));
    if Sample::take("self").is_none() {
        println!("skipped: soak, this system has no /proc that says what a process holds");
        return ExitCode::SUCCESS;
    }
    if let Some(model) = &request.model {
        return one(&request, model);
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = converted(scratch.path());
    let work = WORK.iter().map(|work| (work.name.to_owned(), request.count(work)));
    let loads = WORK.iter().find(|work| work.name == "load").map_or(PLANTED_LOADS, |work| request.count(work));
    let planted = |leak: Leak| if leak == Leak::Memory { loads } else { PLANTED_LOADS };
    let plants = LEAKS.iter().map(|(leak, _)| (format!("planted-{leak:?}"), planted(*leak)));
    let wanted: Vec<_> = work.chain(plants).filter(|(name, _)| request.wants(name)).collect();
    let failed = wanted.iter().filter(|(name, count)| !apart(&model, name, *count)).count();
    println!("{} kinds of work, {failed} with complaints", wanted.len());
    if failed == 0 && !wanted.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether work that is done in a process of its own is right: what other work left free in a heap would hide a leak.
fn apart(model: &Path, name: &str, count: usize) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("--model").arg(model).args(["--count", &count.to_string(), name]);
    command.status().expect("this program starts again").success()
}

/// Does the work of that name in this process.
fn one(request: &Request, model: &Path) -> ExitCode {
    let (begin, name) = (Instant::now(), request.names.first().map_or("", String::as_str));
    let count = request.count.unwrap_or(PLANTED_LOADS);
    let leak = LEAKS.iter().find(|(leak, _)| format!("planted-{leak:?}") == name);
    let work = WORK.iter().find(|work| work.name == name);
    let (unit, result) = match (leak, work) {
        (Some((leak, _)), _) => ("loads", work::load(model, count, Some(Plant::new(*leak, count)))),
        (None, Some(work)) => (work.unit, (work.run)(model, count)),
        (None, None) => ("", Err("there is no such work".to_owned())),
    };
    let series = match result {
        Ok(series) => series,
        Err(problem) => {
            println!("{name}: {problem}");
            return ExitCode::FAILURE;
        }
    };
    println!("{name}: {count} {unit} in {:.1} s; {}", begin.elapsed().as_secs_f64(), shown(&series));
    let complaints = series.complaints();
    complaints.iter().for_each(|complaint| println!("    {complaint}"));
    let is_right = match leak {
        Some((_, figure)) => complaints.iter().any(|complaint| complaint.starts_with(figure)),
        None => complaints.is_empty(),
    };
    println!("{}", if is_right { "    as it must be" } else { "    WRONG" });
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The trained model as GGUF, in 8 bits.
fn converted(folder: &Path) -> PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/stories-1M");
    let target = folder.join("stories.gguf");
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_trueup"));
    command.arg("convert").arg(fixture).arg(&target).args(["--type", "q8_0", "--quiet"]).assert().success();
    target
}

/// Growth of each figure, and its largest value.
fn shown(series: &Series) -> String {
    let figures = FIGURES.iter().zip(series.growth()).zip(series.most());
    let each = figures.map(|((figure, growth), most)| format!("{} {growth:+} of {most}", figure.name));
    format!("{} samples: {}", series.len(), each.collect::<Vec<String>>().join(", "))
}
