//! How the tests call the binary, and where the fixtures lie.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

/// No call takes longer, on a slow machine either.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a call left behind.
pub struct Outcome {
    /// The command line, for messages.
    pub call: String,
    /// The exit code; -1 where a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: exit code {}\n{}\n{}", self.call, self.code, self.stdout, self.stderr)
    }
}

impl Outcome {
    /// Asserts the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts a failure that is explained in one sentence of its own, with all of these words, and without a panic.
    #[track_caller]
    pub fn refuses(self, words: &[&str]) -> Outcome {
        assert_eq!(self.code, 2, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(self.stderr.starts_with("error: ") && !self.stderr.contains("panicked"), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {self:?}");
        }
        self
    }

    /// Standard output as the one JSON document that it is.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// Calls the binary.
pub fn trueup(arguments: &[&str]) -> Outcome {
    trueup_with_input(arguments, "")
}

/// Calls the binary with a text on standard input.
pub fn trueup_with_input(arguments: &[&str], input: &str) -> Outcome {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_trueup"));
    let output = command.args(arguments).write_stdin(input).timeout(PATIENCE).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Outcome {
        call: format!("trueup {}", arguments.join(" ")),
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// The binary, to be started and spoken to while it runs.
pub fn binary() -> std::process::Command {
    let mut command = std::process::Command::new("env");
    // Tests that run in the background have SIGINT ignored, and a command keeps to that.
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_trueup")]);
    command
}

/// A folder for one test, removed behind it.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// An empty folder.
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a scratch directory"))
    }

    /// A path in it, as an argument.
    pub fn path(&self, name: &str) -> String {
        argument(&self.0.path().join(name))
    }

    /// The names of all files in it, hidden ones too, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the scratch directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A fixture as GGUF.
    pub fn gguf(&self, fixture: &Path, name: &str) -> String {
        let target = self.path(name);
        trueup(&["convert", &argument(fixture), &target, "--quiet"]).exits(0);
        target
    }

    /// The story model, quantized.
    pub fn quantized_stories(&self, dtype: &str) -> String {
        let source = self.gguf(&stories(), "whole.gguf");
        let target = self.path(&format!("stories-{dtype}.gguf"));
        trueup(&["quantize", &source, &target, "--type", dtype, "--quiet"]).exits(0);
        target
    }

    /// A copy of a fixture, to be broken.
    pub fn copy(&self, fixture: &Path, name: &str) -> PathBuf {
        let target = self.0.path().join(name);
        fs::create_dir(&target).expect("a directory");
        for entry in fs::read_dir(fixture).expect("a fixture") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), target.join(entry.file_name())).expect("files can be copied");
        }
        target
    }
}

/// A path as an argument.
pub fn argument(path: &Path) -> String {
    path.to_str().expect("paths of tests are UTF-8").to_owned()
}

/// The small trained model.
pub fn stories() -> PathBuf {
    fixtures().join("stories-1M")
}

/// A tiny model with random weights.
pub fn tiny(name: &str) -> PathBuf {
    fixtures().join("models").join(name)
}

/// `golden.json` of a fixture.
pub fn golden(fixture: &Path) -> Value {
    let text = fs::read_to_string(fixture.join("golden.json")).expect("a golden");
    serde_json::from_str(&text).expect("a golden is JSON")
}

/// Ids out of a golden or an answer.
pub fn ids(value: &Value) -> Vec<u64> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id")).collect()
}

/// Ids as `--ids` takes them.
pub fn ids_argument(value: &Value) -> String {
    ids(value).iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}
