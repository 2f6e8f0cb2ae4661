//! One test of a test binary, run once more in a process of its own.
//!
//! A binary of another architecture runs in an emulator, which the system may not start for its children: where the
//! tests' arguments hold `--skip emulator=PROGRAM`, the child is started as `PROGRAM BINARY ...`. No test has that
//! name, so that none is skipped.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};

/// Stands among the child's arguments as the name of a test to skip, which no test has.
const MARK: &str = "between-guard-pages";

/// Stands before the emulator's name among the arguments.
const EMULATOR: &str = "emulator=";

/// Whether this process was started by [`run_in_child`].
pub fn is_child() -> bool {
    std::env::args().any(|argument| argument == MARK)
}

/// Runs one test of this binary in a process of its own and says what became of it. `test` is the path of the function,
/// with its crate: `concat!(module_path!(), "::", stringify!(name))`.
///
/// # Errors
/// What the child died of or printed, or that there is no such test.
pub fn run_in_child(test: &str) -> Result<(), String> {
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    let arguments = ["--exact", name, "--test-threads=1", "--skip", MARK];
    let output = this_binary()?.args(arguments).output();
    let output = output.map_err(|error| format!("the test binary cannot be started: {error}"))?;
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if !output.status.success() {
        return Err(format!("{}\n{printed}", death(output.status)));
    }
    if !printed.contains("1 passed") {
        return Err(format!("there is no test {name} in this binary:\n{printed}"));
    }
    Ok(())
}

/// What starts this binary once more, in the emulator that it runs in where its arguments name one.
fn this_binary() -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("the test binary is not found: {error}"))?;
    let program: OsString = program.into();
    let emulator = std::env::args().find_map(|argument| argument.strip_prefix(EMULATOR).map(str::to_owned));
    let Some(emulator) = emulator else { return Ok(Command::new(program)) };
    let mut command = Command::new(emulator);
    command.arg(program);
    Ok(command)
}

/// As [`run_in_child`]; panics with the name of the test where the child fails.
pub fn expect_in_child(test: &str) {
    if let Err(death) = run_in_child(test) {
        panic!("{test} between guard pages: {death}");
    }
}

/// SIGSEGV and SIGBUS are what a touched guard page sends.
fn death(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(11) => "touches memory outside of its slices (SIGSEGV)".to_owned(),
        Some(7) => "touches memory outside of its slices (SIGBUS)".to_owned(),
        Some(signal) => format!("dies of signal {signal}"),
        None => "fails".to_owned(),
    }
}
