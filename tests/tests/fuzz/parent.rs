//! Starts a process for each target, within limits, and looks at what is left of it.

use crate::{Request, kept};
use std::fs;
use std::path::Path;
use std::process::Command;
use trueup_tests::fuzz::{TARGETS, Target};

/// Address space of a process in KiB: what a reader may allocate is measured, this ends those that ask for everything.
const MEMORY_KIB: u64 = 4 << 20;

/// The input that a process works on.
pub const CURRENT: &str = "current.bin";

/// Runs the targets that are asked for; whether all passed.
pub fn run(request: &Request) -> bool {
    let wanted = |target: &&Target| {
        let names = request.names.iter().any(|name| "fuzz".contains(name.as_str()) || target.name == name);
        request.names.is_empty() || names
    };
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if let Some(folder) = &request.seeds {
        targets.iter().for_each(|target| write_seeds(target, &folder.join(target.name)));
        return true;
    }
    let share = request.seconds / targets.len().max(1) as f64;
    println!("seed {}, {share:.1} s for each of {} targets", request.seed, targets.len());
    let failed: Vec<&str> =
        targets.iter().filter(|target| !start(target, share, request)).map(|target| target.name).collect();
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    failed.is_empty() && !targets.is_empty()
}

/// One target in a process of its own.
fn start(target: &Target, seconds: f64, request: &Request) -> bool {
    let scratch = scratch().expect("a scratch directory");
    let script = format!("ulimit -v {MEMORY_KIB} -c 0; exec \"$0\" \"$@\"");
    let program = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).arg(program).arg("--worker").arg(target.name).arg(scratch.path());
    command.args(["--seed", &request.seed.to_string(), "--seconds", &seconds.to_string()]);
    if let Some(input) = &request.input {
        command.arg("--input").arg(input);
    }
    let status = command.status().expect("bash starts");
    if status.code().is_none_or(|code| code > 1) {
        println!("{}: the process ended by {status}, within this input:", target.name);
        show_current(target, scratch.path());
    }
    status.success()
}

/// A scratch folder in memory where there is one: outputs are synced, which a disk takes long for.
fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// The input of a process that is gone.
fn show_current(target: &Target, folder: &Path) {
    match fs::read(folder.join(CURRENT)) {
        Ok(input) => println!("  {}", kept::keep(target, &input)),
        Err(_) => println!("  none was begun"),
    }
}

/// Good and kept inputs of a target as files.
fn write_seeds(target: &Target, folder: &Path) {
    fs::create_dir_all(folder).expect("a directory can be made");
    let seeds = (target.seeds)().into_iter().enumerate().map(|(number, seed)| (format!("seed-{number}"), seed));
    for (name, input) in seeds.chain(kept::inputs(target)) {
        fs::write(folder.join(name), input).expect("a file can be written");
    }
}
