//! Hostile files by hundreds, through the command: one lie a file, told apart from truths that look like lies.
//!
//! ```text
//! fixture ─ one change, by a seed ─▶ file ─ trueup CALL, within limits ─▶ refused: exit code 2, one sentence, nothing written
//!                                                                      └▶ accepted: exit code 0, JSON that parses
//! ```
//!
//! ```text
//! cargo test -p trueup-cli --test hostile                          all families, seed 1
//! cargo test -p trueup-cli --test hostile -- gguf --seed 2         one of them, another seed
//! cargo test -p trueup-cli --test hostile -- --write FOLDER        the files, for scripts/hostile_peers.py
//! ```
//!
//! docs/hostile-input.md has the numbers.
#![allow(clippy::print_stdout, reason = "a runner of its own reports by printing")]

mod case;
mod doctor;
mod flm;
mod folder;
mod gguf;
mod gguf_model;
mod gguf_parts;
mod llama2c;
mod npz;
mod parts;
mod random;
mod runner;
mod safetensors;
mod sentencepiece;
mod templates;
mod tokenizer_json;
mod traces;

use case::{Call, Case};
use folder::Folder;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Cases that a family has at least.
const CASES_MIN: usize = 60;

/// A kind of file.
struct Family {
    name: &'static str,
    /// All cases of a seed.
    cases: fn(u64) -> Vec<Case>,
}

const FAMILIES: &[Family] = &[
    Family {
        name: "gguf",
        cases: |seed| {
            let good = converted("models/qwen2");
            [gguf::cases(seed, &good), gguf_model::cases(seed, &good)].concat()
        },
    },
    Family { name: "safetensors", cases: |seed| safetensors::cases(seed, &Folder::read(&fixture("models/qwen2"))) },
    Family { name: "llama2.c", cases: llama2c::cases },
    Family {
        name: "flm",
        cases: |seed| flm::cases(seed, &fs::read(fixture("flm/llama_quantool_4/model.flm")).expect("a fixture")),
    },
    Family {
        name: "traces",
        cases: |seed| {
            let trace = |name: &str| fs::read(fixture("traces").join(name)).expect("a fixture");
            let good = traces::Good { model: converted("models/qwen2"), trace: trace("qwen2.safetensors") };
            let printed = traces::Good { model: wide("models/llama2"), trace: trace("llama2.llama_cpp.txt") };
            traces::cases(seed, &good, &printed)
        },
    },
    Family { name: "parts", cases: |_| parts::cases() },
    Family { name: "templates", cases: |seed| templates::cases(seed, &converted("models/qwen2")) },
    Family {
        name: "tokenizers",
        cases: |seed| {
            let (json, model) = (fixture("models/qwen2"), fixture("models/llama-linear"));
            let pieces = fs::read(model.join("tokenizer.model")).expect("a fixture");
            let cases = tokenizer_json::cases(seed, &Folder::read(&json));
            [cases, sentencepiece::cases(seed, &Folder::read(&model), &pieces)].concat()
        },
    },
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// A fixture as GGUF.
fn converted(name: &str) -> Vec<u8> {
    convert(name, "auto")
}

/// A fixture as GGUF in f32, as the programs computed whose traces are in the repository.
fn wide(name: &str) -> Vec<u8> {
    convert(name, "f32")
}

fn convert(name: &str, dtype: &str) -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let target = scratch.path().join("good.gguf");
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_trueup"));
    command.arg("convert").arg(fixture(name)).arg(&target).args(["--type", dtype, "--quiet"]).assert().success();
    fs::read(target).expect("it was just written")
}

/// What the words behind `--` ask for.
struct Request {
    seed: u64,
    /// Where the files are written instead of being tried.
    target: Option<PathBuf>,
    /// Names of families, or of other tests.
    names: Vec<String>,
}

impl Request {
    /// Words that other runners know are passed over.
    fn read(mut words: impl Iterator<Item = String>) -> Request {
        let mut request = Request { seed: 1, target: None, names: Vec::new() };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seed" => request.seed = words.next().and_then(|seed| seed.parse().ok()).expect("--seed NUMBER"),
                "--write" => request.target = Some(PathBuf::from(words.next().expect("--write FOLDER"))),
                "--test-threads" | "--skip" | "--format" | "--color" => drop(words.next()),
                option if option.starts_with('-') => (),
                name => request.names.push(name.to_owned()),
            }
        }
        request
    }

    fn wants(&self, family: &Family) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| "hostile".contains(name) || family.name.contains(name))
    }
}

fn main() -> ExitCode {
    let request = Request::read(std::env::args().skip(1));
    let mut list = Vec::new();
    let mut complaints = Vec::new();
    for family in FAMILIES.iter().filter(|family| request.wants(family)) {
        let cases = (family.cases)(request.seed);
        complaints.extend(check_family(family, &cases));
        match &request.target {
            Some(target) => list.extend(write(&target.join(family.name), family, &cases)),
            None => complaints.extend(runner::complaints(family.name, &cases)),
        }
        let refused = cases.iter().filter(|case| case.is_refused()).count();
        println!("{}: {refused} refused, {} accepted, seed {}", family.name, cases.len() - refused, request.seed);
    }
    if let Some(target) = &request.target {
        fs::write(target.join("cases.json"), json!(list).to_string()).expect("a list can be written");
    }
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    println!("{} complaints", complaints.len());
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cases enough, no name twice, nothing refused that is accepted too, and the page has the numbers.
fn check_family(family: &Family, cases: &[Case]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |problem: String| complaints.push(format!("{}: {problem}", family.name));
    let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    if names.len() != cases.len() {
        complain("a name is there twice".to_owned());
    }
    let (refused, accepted): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_refused());
    if refused.len() < CASES_MIN || accepted.is_empty() {
        complain(format!("{} cases are refused and {} accepted: too few", refused.len(), accepted.len()));
    }
    for case in &refused {
        if accepted.iter().any(|good| good.files == case.files) {
            complain(format!("{} is a good file", case.name));
        }
    }
    let row = format!("| {} | {} | {} | {} |", family.name, cases.len(), refused.len(), accepted.len());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hostile-input.md");
    if !fs::read_to_string(page).expect("docs/hostile-input.md").contains(&row) {
        complain(format!("docs/hostile-input.md lacks the row {row}"));
    }
    complaints
}

/// Writes the files of a family, a folder each, and lists them for `scripts/hostile_peers.py`.
fn write(target: &Path, family: &Family, cases: &[Case]) -> Vec<Value> {
    let list = cases.iter().enumerate().map(|(number, case)| {
        let folder = target.join(format!("{number:03}"));
        fs::create_dir_all(&folder).expect("a directory can be made");
        case.write(&folder);
        let container = case.refused_by.contains(&Call::Inspect);
        json!({
            "family": family.name, "name": case.name, "model": folder.join(case.model),
            "refused": case.is_refused(), "container": container,
        })
    });
    list.collect()
}
