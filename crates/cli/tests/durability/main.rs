//! `convert` and `quantize` under attack: whatever happens to a run, the name of its output holds the old or the
//! complete new file.
//!
//! ```text
//! old output, or none ─ trueup convert | quantize, attacked ─▶ exit code, message, files ─ judged ─▶ a clean run ends as ever
//! ```
//!
//! ```text
//! cargo test -p trueup-cli --test durability                            every check, once
//! cargo test -p trueup-cli --test durability -- signals --rounds 20     one of them, longer
//! cargo test -p trueup-cli --test durability -- --seed 2                other moments and places
//! ```
//!
//! docs/durability.md lists the guarantees and sums up the results.
#![allow(clippy::print_stdout, reason = "a runner of its own reports by printing")]

mod disk;
mod errors;
mod inputs;
mod interposer;
mod interruptions;
mod model;
mod outputs;
#[path = "../hostile/random.rs"]
mod random;
mod resumed;
mod scene;
mod signals;
mod stock;
mod streams;
mod tally;
mod writers;

use interposer::Interposer;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use stock::Job;
use tally::Tally;

/// What checks work with.
struct Bench {
    jobs: Vec<Job>,
    /// Or why there is none.
    interposer: Result<Interposer, String>,
    /// Whether file systems can be mounted.
    mounts: bool,
    rounds: usize,
    seed: u64,
}

impl Bench {
    /// The interposer, for checks that asked for it.
    fn interposer(&self) -> &Interposer {
        self.interposer.as_ref().expect("the check needs it")
    }
}

/// What a check needs of the machine.
#[derive(Clone, Copy)]
enum Need {
    Nothing,
    /// A C compiler, and a kernel that hands system calls over.
    Interposer,
    /// A namespace in which file systems can be mounted.
    Mounts,
}

/// One kind of attack.
struct Check {
    name: &'static str,
    needs: Need,
    run: fn(&Bench) -> Vec<Tally>,
}

const CHECKS: &[Check] = &[
    Check { name: "signals", needs: Need::Nothing, run: signals::at_any_time },
    Check { name: "points", needs: Need::Interposer, run: signals::at_every_call },
    Check { name: "ignored", needs: Need::Interposer, run: signals::ignored },
    Check { name: "errors", needs: Need::Interposer, run: errors::run },
    Check { name: "interruptions", needs: Need::Interposer, run: interruptions::run },
    Check { name: "resumed", needs: Need::Interposer, run: resumed::run },
    Check { name: "order", needs: Need::Interposer, run: errors::order },
    Check { name: "disk", needs: Need::Mounts, run: disk::mounted },
    Check { name: "limits", needs: Need::Nothing, run: disk::limited },
    Check { name: "inputs", needs: Need::Interposer, run: inputs::run },
    Check { name: "outputs", needs: Need::Nothing, run: outputs::run },
    Check { name: "writers", needs: Need::Interposer, run: writers::run },
    Check { name: "streams", needs: Need::Nothing, run: streams::run },
];

/// What the words behind `--` ask for.
struct Request {
    rounds: usize,
    seed: u64,
    /// Set by the runner itself, when it runs where file systems can be mounted.
    mounts: bool,
    /// Names of checks, or of other tests.
    names: Vec<String>,
}

impl Request {
    /// Words that other runners know are passed over.
    fn read(mut words: impl Iterator<Item = String>) -> Request {
        let mut request = Request { rounds: 1, seed: 1, mounts: false, names: Vec::new() };
        let number = |word: Option<String>| word.and_then(|word| word.parse::<u64>().ok()).expect("a number");
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rounds" => request.rounds = number(words.next()) as usize,
                "--seed" => request.seed = number(words.next()),
                MOUNTS => request.mounts = true,
                "--test-threads" | "--skip" | "--format" | "--color" => drop(words.next()),
                option if option.starts_with('-') => (),
                name => request.names.push(name.to_owned()),
            }
        }
        request
    }

    fn wants(&self, check: &Check) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| "durability".contains(name) || check.name.contains(name))
    }
}

/// Tells the runner that it is in a namespace of its own.
const MOUNTS: &str = "--mounts";

/// Runs this program again where file systems can be mounted, if there is such a place.
fn run_where_mounts_are_allowed() -> Option<ExitCode> {
    let unshare = |words: &[OsString]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).args(words);
        command
    };
    let probe = ["sh", "-c", "mount -t tmpfs tmpfs /tmp"].map(OsString::from);
    let allowed = unshare(&probe).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return None;
    }
    let program = std::env::current_exe().expect("this program has a path").into_os_string();
    let words: Vec<OsString> =
        std::iter::once(program).chain(std::env::args_os().skip(1)).chain([OsString::from(MOUNTS)]).collect();
    let status = unshare(&words).status().expect("it has just been tried");
    Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let request = Request::read(std::env::args().skip(1));
    let wanted: Vec<&Check> = CHECKS.iter().filter(|check| request.wants(check)).collect();
    if wanted.is_empty() {
        return ExitCode::SUCCESS;
    }
    if let Some(code) = (!request.mounts).then(run_where_mounts_are_allowed).flatten() {
        return code;
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/stories-1M");
    let bench = Bench {
        jobs: stock::jobs(scratch.path(), &fixture),
        interposer: Interposer::compile(scratch.path()),
        mounts: request.mounts,
        rounds: request.rounds,
        seed: request.seed,
    };
    let complaints = run(&bench, &wanted);
    println!("{complaints} complaints, seed {}, {} rounds", bench.seed, bench.rounds);
    if complaints == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the checks, prints their rows and what was skipped, and returns the number of complaints.
fn run(bench: &Bench, checks: &[&Check]) -> usize {
    println!("{}", tally::HEAD);
    let mut complaints = Vec::new();
    for check in checks {
        let missing = match check.needs {
            Need::Nothing => None,
            Need::Interposer => bench.interposer.as_ref().err().cloned(),
            Need::Mounts => (!bench.mounts).then(|| "file systems cannot be mounted here".to_owned()),
        };
        if let Some(missing) = missing {
            println!("skipped: {}: {missing}", check.name);
            continue;
        }
        for tally in (check.run)(bench) {
            println!("{}", tally.row());
            complaints.extend(tally.nothing_done());
            complaints.extend(tally.complaints().to_vec());
        }
    }
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    complaints.len()
}
