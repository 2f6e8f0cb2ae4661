//! Hostile files by hundreds, through the command: one lie a file, told apart from truths that look like lies.
//!
//! ```text
//! fixture ─ one change, by a seed ─▶ file ─ trueup CALL, within limits ─▶ refused: exit code 2, one sentence, nothing written
//!                                                                      └▶ accepted: exit code 0, JSON that parses
//! ```
//!
//! Seed 1 runs always; `cargo test -p trueup-cli --test hostile -- --ignored` runs seeds 2 and 3 too.

mod case;
mod folder;
mod gguf;
mod gguf_model;
mod gguf_parts;
mod llama2c;
mod npz;
mod random;
mod runner;
mod safetensors;
mod sentencepiece;
mod templates;
mod tokenizer_json;
mod traces;

use case::Case;
use folder::Folder;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

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
        name: "traces",
        cases: |seed| {
            let trace = |name: &str| fs::read(fixture("traces").join(name)).expect("a fixture");
            let good = traces::Good { model: converted("models/qwen2"), trace: trace("qwen2.safetensors") };
            let printed = traces::Good { model: wide("models/llama2"), trace: trace("llama2.llama_cpp.txt") };
            traces::cases(seed, &good, &printed)
        },
    },
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
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let target = scratch.path().join("good.gguf");
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_trueup"));
    command.arg("convert").arg(fixture(name)).arg(&target).args(["--type", dtype, "--quiet"]).assert().success();
    fs::read(target).expect("it was just written")
}

fn family(name: &str, seed: u64) {
    let family = FAMILIES.iter().find(|family| family.name == name).expect("a family of that name");
    let complaints = runner::complaints(name, &(family.cases)(seed));
    assert!(complaints.is_empty(), "{} complaints, seed {seed}:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn gguf() {
    family("gguf", 1);
}

#[test]
fn safetensors_folders() {
    family("safetensors", 1);
}

#[test]
fn llama2c_files() {
    family("llama2.c", 1);
}

#[test]
fn tokenizers() {
    family("tokenizers", 1);
}

#[test]
fn chat_templates() {
    family("templates", 1);
}

#[test]
fn traces_of_other_programs() {
    family("traces", 1);
}

#[test]
fn families_have_cases_enough_and_no_name_twice() {
    for family in FAMILIES {
        let cases = (family.cases)(1);
        let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len(), "{}: a name is there twice", family.name);
        let refused = cases.iter().filter(|case| case.is_refused()).count();
        assert!(refused >= CASES_MIN && cases.len() > refused, "{}: {refused} of {}", family.name, cases.len());
    }
}

#[test]
fn what_is_refused_is_not_what_is_accepted() {
    for family in FAMILIES {
        let cases = (family.cases)(1);
        let (refused, accepted): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_refused());
        for case in refused {
            let twin = accepted.iter().find(|good| good.files == case.files);
            assert!(twin.is_none(), "{}/{} is a good file", family.name, case.name);
        }
    }
}

#[test]
#[ignore = "takes minutes: scripts/full_check.sh runs it"]
fn other_seeds() {
    for seed in [2, 3] {
        FAMILIES.iter().for_each(|known| family(known.name, seed));
    }
}
