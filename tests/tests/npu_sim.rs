//! The device `npu` on simulated cards: the operator suite, and the verdict on the fixtures, chip by chip.
//!
//! ```text
//!  cargo test -p trueup-tests --test npu_sim [-- --all] [-- --seed S] [-- --part NAME]
//!
//!  --all      all cases of the suite, not one in ten, and all fixtures in all types
//!  --seed     what the numbers follow from, and which cases are drawn
//!  --part     one of the parts below alone, in this process
//! ```
//!
//! A process has cards of one kind, so each part runs in one of its own.
#![allow(clippy::print_stdout, clippy::exit, reason = "a runner of its own reports by printing")]

#[path = "npu_sim/buffers.rs"]
mod buffers;
#[path = "cuda_sim/cards.rs"]
mod cards;
#[path = "npu_sim/casts.rs"]
mod casts;

use std::path::Path;
use std::process::{Command, exit};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::ModelFile;
use trueup::runtime::device::Device;
use trueup::runtime::device::ascend::{Ascend, AscendOptions, Chip, Place};
use trueup::verify::suite::{self, SEED_DEFAULT, Selection, Status};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};
use trueup_tests::{Fixture, convert, fixtures, quantize, stories};

/// One case in so many is tried, unless all are.
const ONE_OF: u64 = 10;

/// Steps behind each prompt: enough for the decode phase to be seen.
const STEPS: usize = 2;

/// Bytes of memory of a simulated card.
const MEMORY_BYTES: u64 = 8 << 30;

/// Cards of one kind, and what is tried on them.
struct Part {
    name: &'static str,
    chip: &'static str,
    /// More settings of the simulator.
    more: &'static str,
    /// The types that fixtures are verified in.
    types: &'static [DType],
}

const PARTS: [Part; 3] = [
    Part { name: "910b", chip: "910b", more: "\"timing\": \"late\"", types: &[DType::F16, DType::Q8_0, DType::Q4_0] },
    Part { name: "310p", chip: "310p", more: "\"timing\": \"random\"", types: &[DType::F16, DType::Q8_0] },
    Part { name: "permuted", chip: "a3", more: "\"sums\": \"permuted\"", types: &[DType::Q8_0] },
];

/// Cards of which an operator is wrong once: `verify` must say so, and name the node.
const FAULTY: [Part; 2] = [
    Part {
        name: "wrong tile",
        chip: "910b",
        more: "\"faults\": [{\"kind\": \"wrong_tile\", \"operator\": \"aclnnMm\"}]",
        types: &[DType::F16],
    },
    Part {
        name: "dropped group",
        chip: "910b",
        more: "\"faults\": [{\"kind\": \"dropped_group\", \"operator\": \"aclnnWeightQuantBatchMatmulV2\"}]",
        types: &[DType::Q8_0, DType::Q4_0],
    },
];

/// The fixture with heads of 32.
const HEADS_OF_BLOCKS: &str = "qwen3";

/// The part of a model over several cards, and how these are called.
const CARDS: (&str, &str) = ("cards", "npu-sim:910bx2");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let behind = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let all = arguments.iter().any(|argument| argument == "--all");
    let seed =
        behind("--seed").map_or(SEED_DEFAULT, |seed| seed.parse().unwrap_or_else(|_| panic!("{seed} is no seed")));
    if behind("--part").is_some_and(|name| name == CARDS.0) {
        return over_cards();
    }
    if let Some(part) = behind("--part").and_then(|name| FAULTY.iter().find(|part| part.name == name)) {
        return run_faulty(part);
    }
    if let Some(name) = behind("--part") {
        let part = PARTS.iter().find(|part| part.name == name);
        return run(part.unwrap_or_else(|| panic!("there is no part {name}")), all, seed);
    }
    build();
    let program = std::env::current_exe().expect("the test's own path");
    let fails = |name: &&str| {
        let status = Command::new(&program).args(&arguments).args(["--part", name]).status();
        !status.expect("the test starts itself").success()
    };
    let parts = PARTS.iter().chain(&FAULTY).map(|part| part.name);
    let failed: Vec<&str> = parts.chain([CARDS.0]).filter(fails).collect();
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        exit(1);
    }
}

/// Builds the simulator where the device looks for it: cargo builds libraries that are opened by name for nobody.
fn build() {
    let status = Command::new(env!("CARGO")).args(["build", "--locked", "--quiet", "-p", "trueup-npu-sim"]).status();
    assert!(status.expect("cargo starts").success(), "the simulator is not built");
}

fn run(part: &Part, all: bool, seed: u64) {
    let device = open(part, 0).unwrap_or_else(|error| panic!("{error}"));
    let mut faults = operators(&*device, part, all, seed);
    faults.extend(buffers::buffers(&*device, &|card| open(part, card).unwrap_or_else(|error| panic!("{error}"))));
    faults.extend(casts::casts(&*device));
    faults.extend(models(&device, part, all));
    faults.extend(caches(&device, part));
    if !faults.is_empty() {
        println!("{}", faults.join("\n"));
        exit(1);
    }
}

/// A fixture on cards that are wrong, in each type: whoever passes it has not looked.
fn run_faulty(part: &Part) {
    let device = open(part, 0).unwrap_or_else(|error| panic!("{error}"));
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let [source, target] = ["source.gguf", "target.gguf"].map(|name| scratch.path().join(name));
    let fixture = fixtures().into_iter().next().expect("a fixture");
    convert(&fixture.folder, &source, None, None);
    for dtype in part.types {
        quantize(&source, &target, *dtype, Layout::Block);
        let said = verdict(&device, &fixture, &target, None);
        println!("npu-sim, simulated, {} in {dtype}: {}", part.name, said.as_deref().unwrap_or("nothing was found"));
        if !said.is_some_and(|said| said.contains("mul_mat")) {
            exit(1);
        }
    }
}

/// A model over two cards.
fn over_cards() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let [source, target] = ["source.gguf", "target.gguf"].map(|name| scratch.path().join(name));
    let fixture = fixtures().into_iter().next().expect("a fixture");
    convert(&fixture.folder, &source, None, None);
    quantize(&source, &target, DType::Q8_0, Layout::Block);
    let faults = cards::cards(&target, CARDS.1);
    if !faults.is_empty() {
        println!("{}", faults.join("\n"));
        exit(1);
    }
}

fn open(part: &Part, card: usize) -> Result<Arc<dyn Device>, trueup::runtime::Error> {
    let chip = Chip::from_name(part.chip).expect("a chip that is known");
    let more = part.more.to_owned();
    let place = Place::Simulated { chip, cards: 2, card, memory_bytes: MEMORY_BYTES, more };
    Ok(Arc::new(Ascend::new(&AscendOptions { place })?))
}

/// The operator suite; what failed.
fn operators(device: &dyn Device, part: &Part, all: bool, seed: u64) -> Vec<String> {
    let selection = Selection::default().one_of(if all { 1 } else { ONE_OF });
    let report = suite::test(device, &selection, seed, &mut |_| {});
    println!("npu-sim, simulated, {}: {}", part.name, report.summary());
    assert!(report.passed > 0, "no case was computed");
    let wrong = report.results.iter().filter(|result| result.status == Status::Fail);
    wrong.map(ToString::to_string).collect()
}

/// The verdict on fixtures; what is not right.
fn models(device: &Arc<dyn Device>, part: &Part, all: bool) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut wrong = Vec::new();
    let every = fixtures();
    let (mut count, few) = (0, every.len().min(2));
    for fixture in every.into_iter().take(if all { usize::MAX } else { few }).chain(all.then(stories)) {
        let source = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &source, None, None);
        for dtype in part.types {
            let target = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&source, &target, *dtype, Layout::Block);
            let sentence = verdict(device, &fixture, &target, None);
            wrong.extend(sentence.map(|sentence| format!("{} as {dtype} on {}: {sentence}", fixture.name, part.name)));
            count += 1;
        }
    }
    println!("npu-sim, simulated, {}: {count} verdicts on fixtures, {} not right", part.name, wrong.len());
    wrong
}

/// The verdict on a fixture whose heads are of whole blocks, with a KV cache of q8_0; what is not right.
fn caches(device: &Arc<dyn Device>, part: &Part) -> Option<String> {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let [source, target] = ["source.gguf", "target.gguf"].map(|name| scratch.path().join(name));
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == HEADS_OF_BLOCKS).expect("the fixture is there");
    convert(&fixture.folder, &source, None, None);
    quantize(&source, &target, DType::Q8_0, Layout::Block);
    let sentence = verdict(device, &fixture, &target, Some(DType::Q8_0));
    println!("npu-sim, simulated, {}: a cache of q8_0, {} not right", part.name, u8::from(sentence.is_some()));
    sentence.map(|sentence| format!("{} with a cache of q8_0 on {}: {sentence}", fixture.name, part.name))
}

/// What is not right with a model on the device.
fn verdict(device: &Arc<dyn Device>, fixture: &Fixture, model: &Path, kv: Option<DType>) -> Option<String> {
    let prompts = fixture.prompts().into_iter().take(1).map(|prompt| prompt.ids).collect();
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let options = VerifyOptions { prompts, steps: STEPS, kv, ..VerifyOptions::default() };
    match verify(model, Arc::clone(device), Reference::Oracle, &options, &mut |_| {}) {
        Ok(report) if report.result != Outcome::Pass => Some(report.sentence),
        Ok(report) if report.coverage.checked != report.coverage.nodes => {
            Some("not every node was looked at".to_owned())
        }
        Ok(report) => {
            let elsewhere = report.nodes.iter().filter(|node| node.device != device.about().name).count();
            (elsewhere > 0).then(|| format!("{elsewhere} nodes were computed elsewhere"))
        }
        Err(error) => Some(error.to_string()),
    }
}
