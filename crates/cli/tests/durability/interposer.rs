//! A command whose system calls wait for what a test decides: `interpose.c`, compiled when the tests run.
//!
//! ```text
//! test ─ Go, Fail(errno), Short(bytes), or nothing yet ─▶ interpose ─▶ kernel ─▶ trueup
//!      ◀─ call: name, path ──────────────────────────────           ◀─ pwrite64(...)
//! ```
//!
//! While a call waits, the command stands still at a known point: there it can be killed, or its input changed.

use crate::scene::{End, PATIENCE, Scene, heeding};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The compiled program.
pub struct Interposer {
    program: PathBuf,
}

impl Interposer {
    /// Compiles the program into `folder` and tries it once.
    pub fn compile(folder: &Path) -> Result<Interposer, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/interpose.c");
        let program = folder.join("interpose");
        let output = Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&program).arg(source).output();
        let output = output.map_err(|error| format!("cc: {error}"))?;
        if !output.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let mut probe = Command::new(&program);
        probe.args(["fsync", "/dev/null", "/dev/null", "true"]).stdin(Stdio::piped());
        let said = probe.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // Its stdin ends at once, so it may be killed before it ends by itself.
        if said.starts_with("started ") {
            Ok(Interposer { program })
        } else {
            Err("the kernel hands no calls over".to_owned())
        }
    }

    /// Starts the scene's command; the named calls wait.
    pub fn start(&self, scene: &Scene, calls: &[&str]) -> Interposed {
        let mut command = heeding(&self.program);
        command.arg(calls.join(",")).arg(&scene.stdout).arg(scene.stderr());
        command.arg(env!("CARGO_BIN_EXE_trueup")).args(scene.words());
        command.env("TMPDIR", scene.temporary()).current_dir(scene.outputs());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("interpose starts");
        let stdout = child.stdout.take().expect("it is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
        });
        let mut started = Interposed { child, lines, process: 0, end: None };
        let first = started.lines.recv_timeout(PATIENCE).expect("interpose tells the process");
        started.process = number(first.strip_prefix("started ").expect("the process comes first"));
        started
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It happens.
    Go,
    /// It fails with this number and does nothing.
    Fail(rustix::io::Errno),
    /// So many bytes are written.
    Short(u64),
}

/// A call that waits.
#[derive(Clone, Debug)]
pub struct Call {
    id: u64,
    /// Its name, as `man 2` has it.
    pub name: String,
    /// The file that it is about; of a rename, the new name.
    pub path: PathBuf,
}

impl Call {
    /// Whether it is about a partial file, or names an output.
    pub fn is_of(&self, scene: &Scene) -> bool {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches(" (deleted)");
        name.ends_with(".partial")
            || scene.job.names.iter().any(|output| output == name)
            || self.path == scene.outputs()
    }
}

/// A running command.
pub struct Interposed {
    child: Child,
    lines: Receiver<String>,
    /// Its process.
    process: i32,
    end: Option<End>,
}

impl Interposed {
    /// The next call, or nothing when the command has ended. Hangs are an end of their own.
    pub fn next(&mut self) -> Option<Call> {
        self.next_within(PATIENCE).unwrap_or_else(|()| {
            self.end = Some(End::Hung);
            None
        })
    }

    /// The same, when it comes within a time.
    fn next_within(&mut self, time: Duration) -> Result<Option<Call>, ()> {
        if self.end.is_some() {
            return Ok(None);
        }
        let line = self.lines.recv_timeout(time).map_err(drop)?;
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next()) {
            (Some("call"), Some(id)) => {
                let name = words.next().expect("a name").to_owned();
                let path = PathBuf::from(words.next().unwrap_or_default());
                return Ok(Some(Call { id: id.parse().expect("a number"), name, path }));
            }
            (Some("exited"), Some(code)) => self.end = Some(End::Exited(number(code))),
            (Some("killed"), Some(signal)) => self.end = Some(End::Killed(number(signal))),
            _ => panic!("interpose says {line}"),
        }
        Ok(None)
    }

    /// Lets `call` wait for a time, in which others go on, and then go on too. A call that a signal interrupted comes
    /// again.
    pub fn hold(&mut self, call: Call, time: Duration) {
        let until = Instant::now() + time;
        let mut held = vec![call];
        while let Ok(Some(call)) = self.next_within(until.saturating_duration_since(Instant::now())) {
            if call.name == held[0].name && call.path == held[0].path {
                held.push(call);
            } else {
                self.answer(&call, Answer::Go);
            }
        }
        held.iter().for_each(|call| self.answer(call, Answer::Go));
    }

    /// Lets a call go on.
    pub fn answer(&mut self, call: &Call, answer: Answer) {
        let id = call.id;
        let line = match answer {
            Answer::Go => format!("{id} go\n"),
            Answer::Fail(errno) => format!("{id} fail {}\n", errno.raw_os_error()),
            Answer::Short(bytes) => format!("{id} short {bytes}\n"),
        };
        // The command may have been killed: its end is the next line.
        self.child.stdin.as_mut().expect("it is a pipe").write_all(line.as_bytes()).ok();
    }

    /// The process of the command.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Lets all calls go on as `decide` says, to the end.
    pub fn run(mut self, mut decide: impl FnMut(&Call) -> Answer) -> End {
        while let Some(call) = self.next() {
            let answer = decide(&call);
            self.answer(&call, answer);
        }
        self.finish()
    }

    /// The end, once there is no next call.
    pub fn finish(mut self) -> End {
        drop(self.child.stdin.take());
        self.child.wait().expect("interpose ends");
        self.end.take().expect("there is a next call")
    }
}

fn number(text: &str) -> i32 {
    text.parse().expect("a number")
}

/// The calls of the writer, in the order of a run that nothing disturbs.
pub fn calls(interposer: &Interposer, scene: &Scene) -> Vec<Call> {
    let mut calls = Vec::new();
    let end = interposer.start(scene, WRITING).run(|call| {
        if call.is_of(scene) {
            calls.push(call.clone());
        }
        Answer::Go
    });
    assert_eq!(end, End::Exited(0), "{}", fs::read_to_string(scene.stderr()).unwrap_or_default());
    calls
}

/// Everything that changes files.
pub const WRITING: &[&str] = &[
    "fallocate",
    "ftruncate",
    "pwrite64",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
];
