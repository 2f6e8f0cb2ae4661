//! `--resume`: runs that are killed, and those that go on with them.

use crate::trueup::{Scratch, argument, binary, stories, trueup};
use ::trueup::blocks::DType;
use ::trueup::formats::TensorInfo;
use ::trueup::formats::gguf::{GgufPlan, GgufWriter, Metadata};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tensors of the large model, 4 MiB each.
const TENSORS: usize = 64;

/// Bytes of a journal without records.
const JOB_BYTES: u64 = 152;

/// Runs that may come to their end before they could be killed.
const ATTEMPTS: usize = 8;

/// A model that takes long enough to be interrupted.
fn large(scratch: &Scratch) -> String {
    let path = scratch.path("large.gguf");
    let info = |tensor| TensorInfo::new(format!("blk.{tensor}.ffn_up.weight"), &[1024, 1024], DType::F32);
    let infos: Vec<TensorInfo> = (0..TENSORS).map(|tensor| info(tensor).expect("a tensor")).collect();
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let plan = GgufPlan::new(&path, &metadata, &infos, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a writer");
    let mut state = 1_u32;
    for (tensor, info) in infos.iter().enumerate() {
        let values = (0..info.elements()).flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 24) as f32 - 0.5).to_le_bytes()
        });
        writer.write(tensor, 0, &values.collect::<Vec<u8>>()).expect("disk space");
    }
    writer.finish().expect("disk space");
    path
}

/// One process under way.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut command = binary();
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Running(child.expect("the binary starts"))
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).output();
        assert!(kill.is_ok(), "signals can be sent");
    }

    /// Waits until a file has more bytes than these; false when the process ended before.
    fn waits_for(&mut self, path: &Path, bytes: u64) -> bool {
        let begin = Instant::now();
        while !fs::metadata(path).is_ok_and(|facts| facts.len() > bytes) {
            if self.0.try_wait().expect("it is our process").is_some() {
                return false;
            }
            assert!(begin.elapsed() < Duration::from_secs(100), "nothing happens");
            sleep(Duration::from_micros(300));
        }
        true
    }

    /// Stops the process where its journal has just begun, and lets it go on when the next record is due.
    fn pauses(&mut self, journal: &Path) -> bool {
        let begun = self.waits_for(journal, JOB_BYTES - 1);
        self.signal("STOP");
        sleep(Duration::from_millis(150));
        begun
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Ends a run of this command by a signal when its journal has a record.
fn interrupt(scratch: &Scratch, call: &[&str], output: &str, signal: &str) {
    let journal = scratch.path(&format!(".{output}.journal.partial"));
    for _ in 0..ATTEMPTS {
        let mut running = Running::start(call);
        if running.pauses(Path::new(&journal)) {
            running.signal("CONT");
            if running.waits_for(Path::new(&journal), JOB_BYTES) {
                running.signal(signal);
                running.0.wait().expect("it ends");
                if !Path::new(&scratch.path(output)).exists() {
                    return;
                }
            }
        }
        // Killed between its name and its end, a run leaves a journal that the next attempt would take for its own.
        [scratch.path(output), journal.clone()].iter().for_each(|path| drop(fs::remove_file(path)));
    }
    panic!("{ATTEMPTS} runs came to their end before they could be interrupted");
}

#[test]
fn a_killed_run_is_gone_on_with() {
    let scratch = Scratch::new();
    let model = large(&scratch);
    let (whole, output) = (scratch.path("whole.gguf"), scratch.path("out.gguf"));
    for (signal, flags) in [
        ("KILL", &["--type", "q5_1"][..]),
        ("INT", &["-b", "8", "--layout", "split"]),
        ("TERM", &["-b", "4"]),
        ("HUP", &["-b", "8"]),
    ] {
        let arguments = |output| [&["quantize", &model, output, "-t", "1"], flags].concat();
        let expected = trueup(&[&arguments(&whole)[..], &["--json"]].concat()).exits(0).json();
        let call = [&arguments(&output)[..], &["--resume"]].concat();
        interrupt(&scratch, &call, "out.gguf", signal);
        let kept = [".out.gguf.journal.partial", ".out.gguf.resume.partial", "large.gguf", "whole.gguf"];
        assert_eq!(scratch.names(), kept, "{signal}");
        let run = trueup(&[&call[..], &["--json"]].concat()).exits(0);
        let mut answer = run.json();
        let resumed = answer["resumed"].take();
        // All of them where the signal came between the last tensor and the name.
        assert!(resumed["taken_over"].as_u64().is_some_and(|count| (1..=64).contains(&count)), "{signal}: {resumed}");
        assert_eq!((&resumed["tensors"], &resumed["redone"]), (&TENSORS.into(), &0.into()), "{signal}");
        assert!(run.stderr.contains("note: resumed: ") && run.stderr.contains("of 64 tensors reused"), "{run:?}");
        assert_eq!(answer, expected, "{signal}: the report of a run that nothing interrupted");
        assert!(fs::read(&whole).expect("a file") == fs::read(&output).expect("a file"), "{signal}: other bytes");
        fs::remove_file(&output).expect("a file");
        assert_eq!(scratch.names(), ["large.gguf", "whole.gguf"], "{signal}");
    }
}

#[test]
fn a_second_run_is_refused_and_a_plain_one_is_not() {
    let scratch = Scratch::new();
    let model = large(&scratch);
    let (output, journal) = (scratch.path("out.gguf"), scratch.path(".out.gguf.journal.partial"));
    let call = ["quantize", &model, &output, "-b", "8", "-t", "1"];
    let resume = [&call[..], &["--resume"]].concat();
    let mut first = Running::start(&resume);
    assert!(first.pauses(Path::new(&journal)), "it is stopped at its beginning");
    trueup(&resume).refuses(&["out.gguf", &format!("(process {})", first.0.id()), "wait for it"]);
    trueup(&call).exits(0);
    let bytes = fs::read(&output).expect("a file");
    first.signal("CONT");
    assert!(first.0.wait().expect("it ends").success());
    assert!(fs::read(&output).expect("a file") == bytes);
    assert_eq!(scratch.names(), ["large.gguf", "out.gguf"]);
}

#[test]
fn a_run_that_needs_no_resuming_says_so() {
    let scratch = Scratch::new();
    let (folder, output) = (argument(&stories()), scratch.path("out.gguf"));
    let run = trueup(&["convert", &folder, &output, "--resume", "--json", "--check"]).exits(0);
    let resumed = &run.json()["report"]["resumed"];
    assert_eq!(resumed.to_string(), r#"{"tensors":56,"taken_over":0,"bytes_taken_over":0,"redone":0}"#);
    assert!(run.stderr.contains("note: resumed: 0 of 56 tensors reused (0 bytes), 0 redone\n"), "{run:?}");
    let plain = trueup(&["convert", &folder, &output, "--json"]).exits(0).json();
    assert!(plain["report"]["resumed"].is_null());
    trueup(&["convert", &folder, &output, "--resume", "--dry-run"]).refuses(&["--dry-run"]);
    fs::create_dir(scratch.path(".out.gguf.journal.partial")).expect("a directory");
    trueup(&["convert", &folder, &output, "--resume"]).refuses(&[".out.gguf.journal.partial", "remove it"]);
}

/// Another build may compute other bytes, though its version is the same.
#[test]
fn what_another_build_finished_is_not_taken_over() {
    let scratch = Scratch::new();
    let model = large(&scratch);
    let output = scratch.path("out.gguf");
    let call = ["quantize", &model, &output, "-b", "4", "-t", "1", "--resume"];
    let program = scratch.path("trueup");
    fs::copy(env!("CARGO_BIN_EXE_trueup"), &program).expect("a file");
    let resume = || Command::new(&program).args(call).output().expect("the copy starts");
    interrupt(&scratch, &call, "out.gguf", "KILL");
    let stderr = String::from_utf8(resume().stderr).expect("text");
    assert!(
        stderr.contains("note: resumed: ") && !stderr.contains("resumed: 0 of"),
        "a copy is the same program: {stderr}"
    );
    fs::remove_file(&output).expect("a file");
    interrupt(&scratch, &call, "out.gguf", "KILL");
    let mut bytes = fs::read(&program).expect("a file");
    bytes.push(0);
    fs::write(&program, bytes).expect("disk space");
    let stderr = String::from_utf8(resume().stderr).expect("text");
    assert!(stderr.contains("another version or build of the program"), "{stderr}");
    assert!(stderr.contains("resumed: 0 of 64 tensors reused"), "{stderr}");
}
