//! Models that change while a command reads them: there is no verdict on a mixture, whatever the rest of it looks like.

use crate::trueup::{Scratch, binary, stories};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// A run that is caught too late says what it says without a change; so often it is tried again.
const TRIES: usize = 40;

/// How long a run may take to open its input, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_model_that_changes_while_it_is_read_gets_no_verdict() {
    let scratch = Scratch::new();
    let (model, other) = (scratch.gguf(&stories(), "model.gguf"), scratch.gguf(&stories(), "other.gguf"));
    for arguments in [
        &["diff", &model, &other][..],
        &["diff", &other, &model],
        &["verify", &model, "--dev", "cpu"],
        &["inspect", &model, "--doctor"],
        &["inspect", &model, "--hash"],
    ] {
        let whole = fs::read(&model).unwrap();
        let caught = (0..TRIES).find_map(|_| {
            let output = changed_under(arguments, Path::new(&model));
            fs::write(&model, &whole).unwrap();
            output.filter(|output| output.status.code() == Some(2))
        });
        let output = caught.unwrap_or_else(|| panic!("{arguments:?} does not look again"));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("model.gguf: the file changed while it was in use"), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Runs the command and makes the file longer while it stands still with the file open; `None` where it ended before.
fn changed_under(arguments: &[&str], file: &Path) -> Option<Output> {
    let mut run = binary().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stopped = stop_with_open(&mut run, file);
    if stopped {
        let size = fs::metadata(file).unwrap().len();
        File::options().write(true).open(file).unwrap().set_len(size + 1).unwrap();
        kill_process(pid(&run), Signal::CONT).unwrap();
    }
    let output = run.wait_with_output().unwrap();
    stopped.then_some(output)
}

/// Stops a run once it has the file open; `false` where it does not have it open then, or has ended. A stopped run
/// stays stopped.
fn stop_with_open(run: &mut Child, file: &Path) -> bool {
    let (file, began) = (file.canonicalize().unwrap(), Instant::now());
    let proc = Path::new("/proc").join(run.id().to_string());
    let has_open = || {
        let open = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|open| open == file)
    };
    while !has_open() {
        assert!(began.elapsed() < PATIENCE, "the model is never opened");
        if run.try_wait().unwrap().is_some() {
            return false;
        }
    }
    kill_process(pid(run), Signal::STOP).unwrap();
    // `PID (name) T ..` once it stands still, Z where it has ended before.
    let state = || fs::read_to_string(proc.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next();
    while !matches!(state(), Some('T' | 'Z') | None) {
        assert!(began.elapsed() < PATIENCE, "the run does not stop");
    }
    if state() == Some('T') && has_open() {
        return true;
    }
    kill_process(pid(run), Signal::CONT).unwrap();
    false
}

fn pid(run: &Child) -> Pid {
    Pid::from_child(run)
}

/// Weights are read where the file is mapped, by all threads: what is cut off is missed in the middle of a product.
#[test]
fn a_model_that_is_cut_short_while_it_computes_ends_with_a_sentence() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let bytes = fs::metadata(&model).unwrap().len();
    for left in [0, bytes / 2] {
        let cut = scratch.path("cut.gguf");
        fs::copy(&model, &cut).unwrap();
        let mut command = binary();
        command.args(["chat", &cut, "--no-repack", "-t", "3", "-n", "4", "-q"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        input.write_all(b"Hello\n").unwrap();
        let mut lines = BufReader::new(output).lines();
        assert!(!lines.next().unwrap().unwrap().is_empty(), "the model answers while it is whole");
        File::options().write(true).open(&cut).unwrap().set_len(left).unwrap();
        input.write_all(b"Again\n").unwrap();
        drop(input);
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{left} bytes left: {told}");
        assert!(told.starts_with("error: a model file was truncated"), "{left} bytes left: {told}");
    }
}
