//! Faults planted in the fast kernels of `cuda`, each by one change of their source: the operator suite, or the test of
//! groups, fails on a simulator of the changed kernels.
//!
//! ```text
//!  cargo test -p trueup-tests --test cuda_faults [-- --all | WORDS]
//!
//!  --all      every fault, not the few that are marked
//!  WORDS      those in whose names they stand
//! ```
//!
//! `scripts/cuda_sim.sh --faulty` compiles what was changed, and a process of its own tries it. Without a C++ compiler
//! that is said, and nothing is tested.
#![allow(clippy::print_stdout, clippy::exit, reason = "a runner of its own reports by printing")]

#[path = "cuda_sim/groups.rs"]
mod groups;
#[path = "cuda_faults/planted.rs"]
mod planted;

use planted::{FAULTS, Fault, Seen};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, exit};
use trueup::runtime::device::cuda::{CudaOptions, Place};
use trueup::runtime::{DeviceOptions, Linear, open_device};
use trueup::verify::suite::{self, SEED_DEFAULT, Selection, Status};
use trueup_tests::run_written;

/// What `scripts/cuda_sim.sh` ends with where there is no C++ compiler.
const NO_COMPILER: i32 = 3;

/// The card of a process that tries a fault.
const CARD: CudaOptions = CudaOptions {
    place: Place::Simulated { cards: 1, card: 0, memory_bytes: 8 << 30 },
    repack: true,
    linear: Linear::Q8_1,
};

/// The sample of cases that is tried first: one in this many.
const SAMPLE: u64 = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        ["--try-suite", operator] => tried(&of_suite(operator)),
        ["--try-groups"] => tried(&groups::groups(&CARD)),
        ["--all"] => plant(|_| true),
        [words] if !words.starts_with('-') => plant(|fault| fault.name.contains(words)),
        _ => plant(|fault| fault.quick),
    }
}

/// Ends the process: 1 where something is wrong.
fn tried(wrong: &[String]) {
    println!("{}", wrong.join("\n"));
    exit(i32::from(!wrong.is_empty()));
}

/// Cases of an operator that are not right: of a sample, or of all cases if the sample passes.
fn of_suite(operator: &str) -> Vec<String> {
    let device = open_device("cuda-sim", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let selection = Selection::new(Some(operator), None).unwrap_or_else(|error| panic!("{error}"));
    let failing = |one_of: u64| -> Vec<String> {
        let report = suite::test(&*device, &selection.clone().one_of(one_of), SEED_DEFAULT, &mut |_| {});
        assert!(one_of > 1 || report.passed + report.failed > 0, "no case of {operator} was computed");
        report.results.iter().filter(|result| result.status == Status::Fail).map(ToString::to_string).collect()
    };
    [SAMPLE, 1].into_iter().map(failing).find(|failing| !failing.is_empty()).unwrap_or_default()
}

/// Plants faults, and fails where one is not found.
fn plant(is_wanted: impl Fn(&Fault) -> bool) {
    // A fault whose place is gone is planted nowhere: told of all, also where few are planted.
    let unplaced: Vec<String> = FAULTS.iter().filter_map(|fault| faulty(fault, &kernels()).err()).collect();
    assert!(unplaced.is_empty(), "{}", unplaced.join("\n"));
    let program = std::env::current_exe().expect("the test's own path");
    let folder = program.parent().expect("a program lies in a directory");
    let built = script(&[folder.as_os_str()]);
    if built.status.code() == Some(NO_COMPILER) {
        println!("skipped: faults in kernels: {}", words(&built));
        return;
    }
    assert!(built.status.success(), "the simulator is not built: {}", words(&built));
    let wanted: Vec<&Fault> = FAULTS.iter().filter(|fault| is_wanted(fault)).collect();
    // The compiler has one thread.
    let missed: Vec<String> =
        wanted.par_iter().with_max_len(1).filter_map(|fault| missed(fault, &program, folder)).collect();
    println!("cuda-sim, simulated: {} faults planted in kernels, {} not found", wanted.len(), missed.len());
    if !missed.is_empty() {
        println!("{}", missed.join("\n"));
        exit(1);
    }
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda")
}

fn script(arguments: &[&std::ffi::OsStr]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cuda_sim.sh");
    Command::new("bash").arg(script).args(arguments).output().expect("bash is started")
}

fn words(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    both.join("\n").trim().to_owned()
}

/// Why a fault was not found as it should.
fn missed(fault: &Fault, program: &Path, folder: &Path) -> Option<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (sources, target) = (scratch.path().join("kernels"), scratch.path().join("faulty"));
    change(fault, &sources);
    let files = fault.kernels.iter().map(|kernel| sources.join(format!("{kernel}.cu")));
    let paths: Vec<PathBuf> = [folder.to_path_buf(), target.clone()].into_iter().chain(files).collect();
    let arguments = std::iter::once("--faulty".as_ref()).chain(paths.iter().map(|path| path.as_os_str()));
    let built = script(&arguments.collect::<Vec<_>>());
    assert!(built.status.success(), "{} is not built: {}", fault.name, words(&built));
    let copy = target.join("cuda_faults");
    fs::copy(program, &copy).expect("a copy of the program");
    let (arguments, expected) = match fault.seen {
        Seen::Suite(operator) => (vec!["--try-suite", operator], format!("FAIL {operator}/")),
        Seen::Groups => (vec!["--try-groups"], "has other bits".to_owned()),
    };
    let found = run_written(Command::new(copy).args(arguments));
    let is_found = found.status.code() == Some(1) && words(&found).contains(&expected);
    (!is_found).then(|| format!("{} is not found, but: {}\n{}", fault.name, found.status, words(&found)))
}

/// A copy of all sources with the fault in one of them.
fn change(fault: &Fault, target: &Path) {
    fs::create_dir(target).expect("a directory for kernels");
    for entry in fs::read_dir(kernels()).expect("kernels") {
        let path = entry.expect("a kernel").path();
        if path.is_file() {
            fs::copy(&path, target.join(path.file_name().expect("a file has a name"))).expect("a copy of a kernel");
        }
    }
    let changed = faulty(fault, target).unwrap_or_else(|problem| panic!("{problem}"));
    fs::write(target.join(fault.file), changed).expect("a changed source");
}

/// The source with the fault in it, whose place must be there once.
fn faulty(fault: &Fault, sources: &Path) -> Result<String, String> {
    let source = fs::read_to_string(sources.join(fault.file)).expect("a source");
    match source.matches(fault.find).count() {
        1 => Ok(source.replace(fault.find, fault.replace)),
        count => Err(format!("{}: {:?} stands {count} times in {}", fault.name, fault.find, fault.file)),
    }
}
