//! What the attacks are made on: inputs, commands, and the bytes that clean runs write.

use crate::model;
use crate::scene::{End, Scene};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Clean runs whose median time is taken.
const TIMED_RUNS: usize = 3;

/// A command with one input and one output.
pub struct Job {
    /// What a table calls it.
    pub name: &'static str,
    /// The subcommand.
    pub command: &'static str,
    /// A file or a folder.
    pub input: PathBuf,
    /// The input that gives the old output.
    pub old_input: PathBuf,
    /// The output as the command is told.
    pub output: &'static str,
    /// The words behind input and output.
    pub options: &'static [&'static str],
    /// The files that it writes.
    pub names: Vec<String>,
    /// What these held before.
    pub old: Vec<Vec<u8>>,
    /// What a clean run writes.
    pub new: Vec<Vec<u8>>,
    /// How long that takes.
    pub time: Duration,
}

impl Job {
    fn new(name: &'static str, command: &'static str, options: &'static [&'static str], inputs: [&Path; 2]) -> Job {
        let [old, new] = inputs;
        let (output, names) = ("out.gguf", Vec::new());
        let (input, old_input) = (old.to_owned(), old.to_owned());
        let (old, none) = (Vec::new(), Vec::new());
        let mut job =
            Job { name, command, input, old_input, output, options, names, old, new: none, time: Duration::ZERO };
        (job.names, job.old, _) = job.clean();
        job.input = new.to_owned();
        let mut runs: Vec<_> = (0..TIMED_RUNS).map(|_| job.clean()).collect();
        assert!(runs.iter().all(|run| run.1 == runs[0].1), "{name} does not repeat itself");
        runs.sort_by_key(|run| run.2);
        let (names, new, time) = runs.swap_remove(TIMED_RUNS / 2);
        assert_eq!(job.names, names, "{name}: both outputs have the same names");
        let differ = job.old.iter().zip(&new).all(|(old, new)| old != new);
        assert!(differ, "{name}: old and new differ in every file");
        (job.new, job.time) = (new, time);
        job
    }

    /// Names and bytes of an undisturbed run, and its time.
    fn clean(&self) -> (Vec<String>, Vec<Vec<u8>>, Duration) {
        let scene = Scene::new(self, false);
        let start = Instant::now();
        let end = scene.start().wait();
        let time = start.elapsed();
        assert_eq!(end, End::Exited(0), "{}: {}", self.name, scene.said());
        let entries = fs::read_dir(scene.outputs()).expect("it was made");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        let bytes = names.iter().map(|name| fs::read(scene.outputs().join(name)).expect("it was listed")).collect();
        (names, bytes, time)
    }
}

/// Makes the inputs in `folder`, and the three jobs: one file, several files, and a file from a file.
pub fn jobs(folder: &Path, fixture: &Path) -> Vec<Job> {
    let models = ["old", "new"].map(|name| {
        let model = folder.join(name);
        model::write(&model, fixture, name);
        model
    });
    let whole = Job::new("convert", "convert", &[], [&models[0], &models[1]]);
    let files = [(&whole.old, "old.gguf"), (&whole.new, "new.gguf")].map(|(bytes, name)| {
        let file = folder.join(name);
        fs::write(&file, &bytes[0]).expect("a file can be written");
        file
    });
    let split = Job::new("convert, several files", "convert", &["--split-max-size", "3M"], [&models[0], &models[1]]);
    assert!(split.names.len() > 2, "{:?}", split.names);
    let quantized = Job::new("quantize", "quantize", &["-b", "4"], [&files[0], &files[1]]);
    vec![whole, split, quantized]
}
