//! One run under attack: a folder with an old output or none, a command that makes a new one, and what must hold
//! afterwards.
//!
//! ```text
//! folder ─┬─ out/   the old output, or nothing; the new one; partial files
//!         ├─ tmp/   the command's folder for temporary files, which stays empty
//!         └─ in/    a copy of the input, where that is attacked
//! ```

use crate::stock::Job;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A run that takes longer hangs: a clean one takes a fraction of a second.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often a process is asked whether it has ended.
const TICK: Duration = Duration::from_millis(1);

/// Characters of a message.
const MESSAGE_CHARS_MAX: usize = 800;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// Not within [`PATIENCE`].
    Hung,
}

/// What the names of the output hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Byte for byte what was there before.
    Old,
    /// Byte for byte what a clean run writes.
    New,
    /// Nothing, as before.
    Nothing,
    /// Several files without the first one, so that nothing opens them.
    Unopenable,
}

/// A run and what it works on.
pub struct Scene<'a> {
    /// What is run.
    pub job: &'a Job,
    /// Where its standard output goes.
    pub stdout: PathBuf,
    /// The output as the command line names it; the job's name in the folder where the command runs by default.
    pub target: OsString,
    /// Words behind the job's.
    pub more: Vec<OsString>,
    folder: TempDir,
    outputs: PathBuf,
    input: PathBuf,
    /// Whether there was an old output.
    had_old: bool,
}

impl<'a> Scene<'a> {
    /// A scene with an old output, or none.
    pub fn new(job: &'a Job, had_old: bool) -> Scene<'a> {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let root = folder.path().canonicalize().expect("it is there");
        let outputs = root.join("out");
        fs::create_dir(&outputs).and_then(|()| fs::create_dir(root.join("tmp"))).expect("directories can be made");
        let (stdout, target, input) = (root.join("stdout"), OsString::from(job.output), job.input.clone());
        let scene = Scene { job, stdout, target, more: Vec::new(), folder, outputs, input, had_old };
        scene.put_old();
        scene
    }

    /// A scene whose input is a copy that can be changed.
    pub fn with_own_input(job: &'a Job, had_old: bool) -> Scene<'a> {
        let mut scene = Scene::new(job, had_old);
        scene.input = scene.folder.path().join("in").join(job.input.file_name().expect("a name"));
        copy(&job.input, &scene.input);
        scene
    }

    /// Another writer of the same output: from the input that gives the old one.
    pub fn beside(&self) -> Scene<'a> {
        let mut scene = Scene::new(self.job, false);
        scene.outputs = self.outputs.clone();
        scene.input = self.job.old_input.clone();
        scene
    }

    /// Writes the old output, where there is one.
    pub fn put_old(&self) {
        if self.had_old {
            for (name, bytes) in self.job.names.iter().zip(&self.job.old) {
                fs::write(self.outputs.join(name), bytes).expect("a file can be written");
            }
        }
    }

    /// Where the output appears.
    pub fn outputs(&self) -> &Path {
        &self.outputs
    }

    /// The folder of the scene, for whatever else a test needs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The input: a file, or a folder.
    pub fn input(&self) -> &Path {
        &self.input
    }

    /// The file with the weights, in the input.
    pub fn weights(&self) -> PathBuf {
        weights(&self.input)
    }

    /// The command's folder for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// Where its standard error goes.
    pub fn stderr(&self) -> PathBuf {
        self.folder.path().join("stderr")
    }

    /// What it said on standard error.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.stderr()).unwrap_or_default()).into_owned()
    }

    /// The command's arguments.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = vec![self.job.command.into(), self.input.clone().into_os_string(), self.target.clone()];
        words.extend(self.job.options.iter().map(OsString::from));
        words.extend(self.more.iter().cloned());
        words
    }

    /// Starts the command.
    pub fn start(&self) -> Running {
        self.start_under("exec \"$0\" \"$@\"")
    }

    /// Starts the command by a script of the shell, which finds it in `"$0" "$@"`.
    pub fn start_under(&self, script: &str) -> Running {
        let mut command = heeding("bash");
        command.args(["-c", script, env!("CARGO_BIN_EXE_trueup")]).args(self.words());
        command.env("TMPDIR", self.temporary()).current_dir(&self.outputs).stdin(Stdio::null());
        let open = |path: &Path| {
            File::options().write(true).create(true).truncate(!path.starts_with("/dev")).open(path).expect("a file")
        };
        command.stdout(open(&self.stdout)).stderr(open(&self.stderr()));
        Running(command.spawn().expect("bash starts"))
    }

    /// What the names of the output hold; a problem where that is neither the old nor the new output.
    pub fn held(&self) -> Result<Held, String> {
        let found: Vec<Option<Vec<u8>>> =
            self.job.names.iter().map(|name| fs::read(self.outputs.join(name)).ok()).collect();
        let all = |wanted: &[Vec<u8>]| found.iter().zip(wanted).all(|(found, wanted)| found.as_ref() == Some(wanted));
        if all(&self.job.new) {
            Ok(Held::New)
        } else if self.had_old && all(&self.job.old) {
            Ok(Held::Old)
        } else if !self.had_old && found.iter().all(Option::is_none) {
            Ok(Held::Nothing)
        } else if found.len() > 1 && found[0].is_none() {
            Ok(Held::Unopenable)
        } else {
            let found: Vec<Option<usize>> = found.iter().map(|bytes| bytes.as_ref().map(Vec::len)).collect();
            Err(format!("the output is neither the old nor the new one: {found:?} bytes"))
        }
    }

    /// What must hold after any run, whatever happened to it.
    pub fn judge(&self, end: End) -> Result<Held, String> {
        let held = self.held()?;
        match end {
            End::Hung => return Err("it hangs".to_owned()),
            End::Exited(0) if held != Held::New => return Err(format!("exit code 0, and the output is {held:?}")),
            End::Exited(0 | 2) | End::Killed(_) => (),
            End::Exited(code) => return Err(format!("exit code {code}")),
        }
        self.check_message(end)?;
        let may_leave = end == End::Killed(Signal::KILL.as_raw());
        if let Some(name) = self.strays().iter().find(|name| !may_leave || !self.is_partial(name)) {
            return Err(format!("{name} is left behind"));
        }
        match fs::read_dir(self.temporary()).expect("it was made").next() {
            Some(_) => Err("a temporary file is left behind".to_owned()),
            None => Ok(held),
        }
    }

    /// The next run without any attack ends with the new output alone.
    pub fn check_next_run(&self) -> Result<(), String> {
        let end = self.start().wait();
        match (end, self.judge(end)?) {
            (End::Exited(0), Held::New) => Ok(()),
            (end, held) => Err(format!("the next run: {end:?}, {held:?}: {}", self.said())),
        }
    }

    /// Judges a run, and the next one.
    pub fn judge_with_next(&self, end: End) -> Result<Held, String> {
        let held = self.judge(end)?;
        self.check_next_run()?;
        Ok(held)
    }

    /// A failure says why in one line, a success has notes at most, and who is killed says nothing.
    pub fn check_message(&self, end: End) -> Result<(), String> {
        let said = self.said();
        let complain = |problem: &str| Err(format!("{problem}: {said:?}"));
        if said.contains("panicked") || said.contains("this is a bug") {
            return complain("a bug");
        }
        let errors = said.lines().filter(|line| !line.starts_with("note: ")).collect::<Vec<&str>>();
        match (end, errors.as_slice()) {
            (End::Exited(2), [line]) if line.starts_with("error: ") && line.chars().count() <= MESSAGE_CHARS_MAX => {
                Ok(())
            }
            (End::Exited(2), _) => complain("not one line `error: ...`"),
            (_, []) => Ok(()),
            (_, _) => complain("a message without a failure"),
        }
    }

    /// Files beside the output.
    pub fn strays(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.outputs).expect("it was made");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| !self.job.names.contains(name)).collect()
    }

    fn is_partial(&self, name: &str) -> bool {
        self.job.names.iter().any(|output| name.starts_with(&format!(".{output}."))) && name.ends_with(".partial")
    }
}

/// The file with the weights of an input.
pub fn weights(input: &Path) -> PathBuf {
    if input.is_dir() { input.join("model.safetensors") } else { input.to_owned() }
}

/// A copy of a file, or of the files of a folder.
fn copy(source: &Path, target: &Path) {
    if source.is_dir() {
        fs::create_dir_all(target).expect("a directory can be made");
        for entry in fs::read_dir(source).expect("a directory") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), target.join(entry.file_name())).expect("a file can be copied");
        }
    } else {
        fs::create_dir_all(target.parent().expect("a directory above")).expect("a directory can be made");
        fs::copy(source, target).expect("a file can be copied");
    }
}

/// A command that heeds signals, whatever whoever started the tests wants to be ignored.
pub fn heeding(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP").arg(program);
    command
}

/// A command that was started.
pub struct Running(Child);

impl Running {
    /// Sends it a signal.
    pub fn send(&self, signal: Signal) {
        send(self.0.id() as i32, signal);
    }

    /// Waits for its end; what hangs is killed.
    pub fn wait(mut self) -> End {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child can be waited for") {
                let killed = || End::Killed(status.signal().expect("a code or a signal"));
                return status.code().map_or_else(killed, End::Exited);
            }
            if start.elapsed() > PATIENCE {
                self.send(Signal::KILL);
                self.0.wait().expect("a child can be waited for");
                return End::Hung;
            }
            thread::sleep(TICK);
        }
    }
}

/// Sends a signal to a process that has not been waited for.
pub fn send(process: i32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process) {
        kill_process(process, signal).ok();
    }
}
