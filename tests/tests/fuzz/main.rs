//! Fuzzing without instruments: every target for its share of the time, by a seed, in a process of its own that has
//! little memory.
//!
//! ```text
//! cargo test -p trueup-tests --test fuzz                              kept inputs, then a few seconds
//! cargo test -p trueup-tests --test fuzz -- gguf --seconds 60 --seed 7     one target, longer, other inputs
//! cargo test -p trueup-tests --test fuzz -- gguf --input FILE         one input again
//! cargo test -p trueup-tests --test fuzz -- --seeds FOLDER            good and kept inputs, a folder each, for libFuzzer
//! ```
//!
//! A panic, an allocation beyond what the input allows, more than a second of computing, or a law that is broken is a
//! failure: its input is cut smaller, written to a file that is named, and belongs into `tests/crashes/TARGET/`, which
//! every later run begins with.
#![allow(clippy::print_stdout, reason = "a runner of its own reports by printing")]

mod attempt;
mod kept;
mod parent;
mod shrink;
mod worker;

use peak_alloc::PeakAlloc;
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Seconds for all targets together where nobody says how many.
const SECONDS: f64 = 20.0;

/// What the words behind `--` ask for.
struct Request {
    seed: u64,
    /// Of all targets together.
    seconds: f64,
    /// Names of targets, or parts of them.
    names: Vec<String>,
    /// One input instead of many.
    input: Option<PathBuf>,
    /// Where good inputs are written instead.
    seeds: Option<PathBuf>,
    /// The target of this process, and the folder that it shares with the one that started it.
    worker: Option<(String, PathBuf)>,
}

impl Request {
    /// Words that other runners know are passed over.
    fn read(mut words: impl Iterator<Item = String>) -> Request {
        let mut request =
            Request { seed: 1, seconds: SECONDS, names: Vec::new(), input: None, seeds: None, worker: None };
        while let Some(word) = words.next() {
            let mut next = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word.as_str() {
                "--seed" => request.seed = next().parse().expect("--seed NUMBER"),
                "--seconds" => request.seconds = next().parse().expect("--seconds NUMBER"),
                "--input" => request.input = Some(PathBuf::from(next())),
                "--seeds" => request.seeds = Some(PathBuf::from(next())),
                "--worker" => request.worker = Some((next(), PathBuf::from(next()))),
                "--test-threads" | "--skip" | "--format" | "--color" => drop(next()),
                option if option.starts_with('-') => (),
                name => request.names.push(name.to_owned()),
            }
        }
        request
    }
}

fn main() -> ExitCode {
    let request = Request::read(std::env::args().skip(1));
    // Seeds live in statics, which are never dropped. Their files go into a folder that the parent deletes.
    let passed = match &request.worker {
        Some((target, folder)) => {
            tempfile::env::override_temp_dir(folder).expect("the temporary directory is set once");
            worker::run(target, folder, &request)
        }
        None => {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            tempfile::env::override_temp_dir(scratch.path()).expect("the temporary directory is set once");
            parent::run(&request)
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
