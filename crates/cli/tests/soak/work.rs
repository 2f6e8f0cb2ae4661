//! What is done again and again.

use crate::figures::Series;
use crate::plant::Plant;
use crate::random::Random;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{fs, process};
use trueup::runtime::{
    ContextShift, DeviceOptions, Finish, GenerateOptions, ModelFile, Result, Sampling, Session, SessionOptions, Watch,
    Weights, generate, generate_watched, open_device,
};

const VOCABULARY: usize = 1024;
const THREADS: usize = 2;

/// Rounds until prompts of most lengths were there: as many plans are kept as a session keeps.
const CANCEL_WARM_UP: usize = 6;

/// Kinds of work, each with how often it is done: shortly, and at length.
pub struct Work {
    /// Its name.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How often in each change's check.
    pub short: usize,
    /// How often in a soak.
    pub long: usize,
    /// Does it so often; what came out wrong, in a sentence.
    pub run: fn(&Path, usize) -> std::result::Result<Series, String>,
}

/// All of them.
pub const WORK: [Work; 5] = [
    Work {
        name: "generate",
        unit: "tokens, the context shifting",
        short: 2_000,
        long: 10_000,
        run: generate_at_length,
    },
    Work {
        name: "load",
        unit: "loads and unloads",
        short: 40,
        long: 1_000,
        run: |model, count| load(model, count, None),
    },
    Work { name: "cancel", unit: "prompts, batched, some cancelled", short: 100, long: 2_000, run: cancel },
    Work { name: "start", unit: "starts of the binary", short: 20, long: 50, run: start },
    Work { name: "chat", unit: "turns with one process", short: 40, long: 500, run: chat },
];

fn session(model: &Path, options: &SessionOptions) -> Result<Session> {
    let file = Arc::new(ModelFile::open(model)?);
    let device = open_device("cpu", &DeviceOptions { threads: Some(THREADS), ..DeviceOptions::default() })?;
    Session::new(Arc::new(Weights::new(file, device, None)), options)
}

fn ids(count: usize, random: &mut Random) -> Vec<u32> {
    (0..count).map(|_| random.below(VOCABULARY) as u32).collect()
}

fn options(tokens: usize) -> GenerateOptions {
    GenerateOptions {
        tokens_max: Some(tokens),
        ignore_eos: true,
        sampling: Sampling { seed: 11, ..Sampling::default() },
        context_shift: Some(ContextShift { keep: Some(3) }),
        ..GenerateOptions::default()
    }
}

/// Three texts at once in one session whose contexts shift at different times; two of them are the same and must stay
/// so.
fn generate_at_length(model: &Path, count: usize) -> std::result::Result<Series, String> {
    let sizes = SessionOptions { context: Some(64), sequences: 3, ..SessionOptions::default() };
    let mut random = Random::new(1, "generate");
    let prompt = ids(50, &mut random);
    let prompts = [prompt.clone(), ids(7, &mut random), prompt];
    let mut series = Series::beside(THREADS);
    let each = count.div_ceil(prompts.len());
    let step = (each / 200).max(1);
    let mut seen = 0;
    let results = session(model, &sizes).and_then(|mut session| {
        generate(&mut session, &prompts, &options(each), &mut |number, _| {
            seen += usize::from(number == 0);
            if number == 0 && seen.is_multiple_of(step) {
                series.sample();
            }
            ControlFlow::Continue(())
        })
    });
    let results = results.map_err(|error| error.to_string())?;
    let shifts: Vec<usize> = results.iter().map(|result| result.shifts).collect();
    if results[0].ids != results[2].ids {
        return Err("two texts behind the same prompt differ".to_owned());
    }
    if shifts.iter().any(|shifts| *shifts < each / 40) || shifts[1] == 0 {
        return Err(format!("{each} tokens in a context of 64 shifted it {shifts:?} times"));
    }
    Ok(series)
}

/// A model that is opened, put on a device of its own, computes and is let go; each time it says the same.
pub fn load(model: &Path, count: usize, mut plant: Option<Plant>) -> std::result::Result<Series, String> {
    let mut expected: Option<Vec<u32>> = None;
    let mut series = Series::new("self");
    // What is made once in a process.
    for round in 0..count + 10 {
        let generated = session(model, &SessionOptions { context: Some(64), ..SessionOptions::default() })
            .and_then(|mut session| {
                generate(&mut session, &[vec![1, 400, 5]], &options(4), &mut |_, _| ControlFlow::Continue(()))
            })
            .map_err(|error| error.to_string())?;
        let said = generated.into_iter().flat_map(|generated| generated.ids).collect();
        if expected.get_or_insert_with(|| Vec::clone(&said)) != &said {
            return Err(format!("load {round} says {said:?}, the first said {expected:?}"));
        }
        if let Some(plant) = &mut plant {
            plant.grow(model);
        }
        if round >= 10 {
            series.sample();
        }
    }
    Ok(series)
}

/// Ends prompts at random: before they begin, between pieces of them, behind any of their tokens.
struct Impatient(Random);

impl Watch for Impatient {
    fn is_cancelled(&mut self, _prompt: usize) -> bool {
        self.0.below(60) == 0
    }

    fn saw_token(&mut self, _prompt: usize, _id: u32) -> ControlFlow<()> {
        if self.0.below(60) == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Batches of prompts of random lengths, some of which end before their time: what they said until then is what they
/// say alone.
fn cancel(model: &Path, count: usize) -> std::result::Result<Series, String> {
    const AT_ONCE: usize = 5;
    let sizes = SessionOptions { context: Some(96), sequences: 3, prompt_chunk: 16, ..SessionOptions::default() };
    let mut random = Random::new(2, "cancel");
    let (mut session, mut alone) = session(model, &sizes)
        .and_then(|session| Ok((Session::new(session.weights().clone(), &sizes)?, session)))
        .map_err(|error| error.to_string())?;
    let mut series = Series::new("self");
    let mut impatient = Impatient(Random::new(3, "cancel"));
    let mut cancelled = 0;
    for round in 0..CANCEL_WARM_UP + count / AT_ONCE {
        let prompts: Vec<Vec<u32>> = (0..AT_ONCE)
            .map(|_| {
                let len = random.between(1, 97);
                ids(len, &mut random)
            })
            .collect();
        let cut = generate_watched(&mut session, &prompts, &options(12), &mut impatient);
        let cut = cut.map_err(|error| error.to_string())?;
        let whole = generate(&mut alone, &prompts, &options(12), &mut |_, _| ControlFlow::Continue(()));
        let whole = whole.map_err(|error| error.to_string())?;
        for (cut, whole) in cut.iter().zip(&whole) {
            let is_cut = cut.finish == Finish::Stopped;
            cancelled += usize::from(is_cut);
            let is_right = whole.ids.starts_with(&cut.ids) && (is_cut || cut.ids.len() == whole.ids.len());
            if !is_right {
                return Err(format!("round {round}: {:?} beside cancelled prompts, {:?} alone", cut.ids, whole.ids));
            }
        }
        if round >= CANCEL_WARM_UP {
            series.sample();
        }
    }
    if cancelled < count / 4 || cancelled > count * 99 / 100 {
        return Err(format!("{cancelled} of {count} prompts were cancelled: the rest of the soak has no meaning"));
    }
    Ok(series)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trueup"));
    command.args(arguments).stderr(Stdio::inherit());
    command
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    names.sort();
    names
}

/// Starts of the binary: each says the same and leaves nothing behind, neither beside the model nor in the folder for
/// temporary files.
fn start(model: &Path, count: usize) -> std::result::Result<Series, String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = model.parent().ok_or("the model lies in a directory")?;
    let before = names(folder);
    let path = model.to_str().ok_or("paths of tests are UTF-8")?;
    let mut expected = None;
    let mut series = Series::new("self");
    for round in 0..count {
        let mut command = command(&["run", path, "-p", "Once upon a time", "-n", "8", "-t", "2", "--quiet"]);
        let output = command.env("TMPDIR", temporary.path()).output().map_err(|error| error.to_string())?;
        if !output.status.success() || expected.get_or_insert_with(|| output.stdout.clone()) != &output.stdout {
            return Err(format!("start {round}: {output:?}, the first said {expected:?}"));
        }
        if names(folder) != before || !names(temporary.path()).is_empty() {
            return Err(format!("start {round} left {:?} and {:?}", names(folder), names(temporary.path())));
        }
        series.sample();
    }
    Ok(series)
}

/// A process that is ended when it is let go.
struct Running(process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// One conversation with the binary, which forgets what no longer fits; its process is looked at from outside, while it
/// waits.
fn chat(model: &Path, count: usize) -> std::result::Result<Series, String> {
    let path = model.to_str().ok_or("paths of tests are UTF-8")?;
    let flags = ["chat", path, "-n", "5", "-c", "96", "-t", "2", "--context-shift", "--quiet"];
    let child = command(&flags).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.map_err(|error| error.to_string())?);
    let (input, output) = (child.0.stdin.take(), child.0.stdout.take());
    let (mut input, mut output) = (input.ok_or("a pipe")?, BufReader::new(output.ok_or("a pipe")?));
    let mut answer = String::new();
    let mut turn = |number: usize| {
        writeln!(input, "Tell me about fox {}", number % 10).map_err(|error| error.to_string())?;
        answer.clear();
        output.read_line(&mut answer).map_err(|error| error.to_string())?;
        if answer.ends_with('\n') { Ok(()) } else { Err(format!("turn {number}: the conversation ended")) }
    };
    // What is made once: plans for the first lengths.
    (0..30).try_for_each(&mut turn)?;
    let mut series = Series::new(&child.0.id().to_string());
    for number in 0..count {
        turn(number)?;
        series.sample();
    }
    Ok(series)
}
