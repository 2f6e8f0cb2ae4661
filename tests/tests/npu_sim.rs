//! The device `npu` on simulated cards: the operator suite, the verdict on the fixtures and their texts, chip by chip;
//! one card and several.
//!
//! ```text
//!  cargo test -p trueup-tests --test npu_sim [-- --all] [-- --seed S] [-- --part NAME [--model NAME]]
//!
//!  --all      all cases of the suite, not one in twenty, and all fixtures in all types, also for texts
//!  --seed     what the numbers follow from, and which cases are drawn
//!  --part     one of the parts below alone, in this process; `cost` is one that prints a table and is run by its name only
//!  --model    with --part: run only this fixture, in all types; `published`: all models in fixtures/published.json,
//!             in all types
//! ```
//!
//! A process has cards of one kind, so each part runs in a separate process, as many at a time as there are cores.
#![allow(clippy::print_stdout, clippy::exit, reason = "a runner of its own reports by printing")]

#[path = "npu_sim/buffers.rs"]
mod buffers;
#[path = "cuda_sim/cards.rs"]
mod cards;
#[path = "npu_sim/casts.rs"]
mod casts;
#[path = "npu_sim/cost.rs"]
mod cost;
#[path = "npu_sim/decoded.rs"]
mod decoded;
#[path = "npu_sim/full.rs"]
mod full;
#[path = "npu_sim/installed.rs"]
mod installed;
#[path = "npu_sim/many.rs"]
mod many;
#[path = "npu_sim/peer.rs"]
mod peer;
#[path = "npu_sim/planted.rs"]
mod planted;
#[path = "npu_sim/pools.rs"]
mod pools;
#[path = "npu_sim/replay.rs"]
mod replay;
#[path = "npu_sim/texts.rs"]
mod texts;
#[path = "npu_sim/visible.rs"]
mod visible;

use decoded::DECODED;
use full::FULL;
use pools::POOLS;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::Arc;
use texts::{Alike, texts};
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::device::ascend::{Ascend, AscendOptions, Chip, Place};
use trueup::verify::suite::{self, SEED_DEFAULT, Selection, Status};
use trueup_tests::{
    Fixture, VERIFIED_TYPES, all_fixtures, caches, convert, fell_back, few_fixtures, fixtures, fixtures_of_other_kinds,
    plain_fixture, published_config_fixtures, quantize, stories, verdict,
};

/// One case in so many is tried, unless all are.
const ONE_OF: u64 = 20;

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
    Part { name: "310p", chip: "310p", more: "\"timing\": \"random\"", types: &[DType::F16, DType::Q8_0, DType::Q4_0] },
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

/// The fixture with an ungated feed-forward.
const UNGATED: &str = "gpt2";

/// A chip that captures nothing, and one whose captures are refused.
const UNCAPTURED: [Part; 2] = [
    Part { name: "310b", chip: "310b", more: "\"timing\": \"late\"", types: &[DType::F16] },
    Part {
        name: "refused",
        chip: "910b",
        more: "\"faults\": [{\"kind\": \"capture_invalidated\"}]",
        types: &[DType::F16],
    },
];

/// Cards on which texts are told.
const TELLING: [Part; 2] = [
    Part { name: "texts of 910b", chip: "910b", more: "", types: &[DType::F16, DType::Q8_0, DType::Q4_0] },
    Part { name: "texts of 310p", chip: "310p", more: "", types: &[DType::F16, DType::Q8_0] },
];

/// Cards that compute nothing.
const COST: Part =
    Part { name: "cost", chip: "910b", more: "\"null_kernels\": true", types: &[DType::F16, DType::Q8_0, DType::Q4_0] };

/// Which cards a process has.
const VISIBLE: &str = "visible";

/// How an installation is found.
const INSTALLED: &str = "installed";

/// The parts of a model over several cards, how these are called, and how many they are.
const CARDS: [(&str, &str, usize); 3] =
    [("two cards", "npu-sim:910bx2", 2), ("three cards", "npu-sim:910bx3", 3), ("four cards", "npu-sim:910bx4", 4)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let behind = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let all = arguments.iter().any(|argument| argument == "--all");
    let seed =
        behind("--seed").map_or(SEED_DEFAULT, |seed| seed.parse().unwrap_or_else(|_| panic!("{seed} is no seed")));
    if let Some(name) = behind("--part") {
        return match behind("--model") {
            Some(model) => run_model(&name, &model),
            None => run_part(&name, all, seed),
        };
    }
    let parts = PARTS.iter().chain(&FAULTY).chain(&UNCAPTURED).chain(&TELLING).map(|part| part.name);
    let parts = parts.chain(DECODED.map(|(name, _)| name));
    let parts = parts.chain(FULL.map(|(name, _)| name)).chain(POOLS.map(|(name, ..)| name));
    let parts: Vec<&str> = parts.chain(CARDS.map(|(name, ..)| name)).chain([VISIBLE, INSTALLED]).collect();
    let failed = failing_parts(&parts, &arguments);
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        exit(1);
    }
}

/// Runs each part in a process, one for each core at a time, and prints its output when it ends. Returns the parts that
/// fail.
fn failing_parts<'a>(parts: &[&'a str], arguments: &[String]) -> Vec<&'a str> {
    let program = std::env::current_exe().expect("the test's own path");
    let fails = |name: &&str| {
        let ended = Command::new(&program).args(arguments).args(["--part", name]).output();
        let ended = ended.expect("the test starts itself");
        print!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        !ended.status.success()
    };
    // One part at a time for each thread: a part may run for a minute or for a tenth of a second.
    parts.par_iter().with_max_len(1).copied().filter(fails).collect()
}

fn run_part(name: &str, all: bool, seed: u64) {
    let of = |parts: &'static [Part]| parts.iter().find(|part| part.name == name);
    let cards = CARDS.iter().find(|(part, ..)| *part == name);
    let drawn = POOLS.iter().find(|(part, ..)| *part == name);
    let faults = match (of(&PARTS), of(&FAULTY), of(&UNCAPTURED), of(&TELLING), cards, drawn) {
        (Some(part), ..) => run(part, all, seed),
        (_, Some(part), ..) => run_faulty(part),
        (_, _, Some(part), ..) => replayed(part, &open(part, 0), all, false),
        (_, _, _, Some(part), ..) => tell(part, all, seed),
        (_, _, _, _, Some((_, cards, count)), _) => over_cards(cards, *count),
        (.., Some((_, chip, timing))) => pools::pools(chip, timing, seed),
        _ if DECODED.iter().any(|(part, _)| *part == name) => {
            decoded::decoded(name.trim_start_matches("decoded "), all, seed)
        }
        _ if name == VISIBLE => visible::visible(),
        _ if FULL.iter().any(|(part, _)| *part == name) => full::full(name.trim_start_matches("full ")),
        _ if name == INSTALLED => installed::installed(),
        _ if name == installed::LISTED => return installed::listed(),
        _ if name == visible::COUNTED => return visible::counted(|card| open_one_of("910b", "", 4, card)),
        _ if name == COST.name => return print_cost(),
        _ => panic!("there is no part {name}"),
    };
    finish(&faults);
}

/// The verdicts on one fixture.
fn run_model(part: &str, model: &str) {
    let part = PARTS.iter().find(|known| known.name == part).unwrap_or_else(|| panic!("there is no part {part}"));
    if model == "published" {
        return finish(&published(&(open(part, 0) as Arc<dyn Device>), part));
    }
    let cases = all_fixtures().into_iter().filter(|fixture| fixture.name == model);
    let wrong = models(&(open(part, 0) as Arc<dyn Device>), part, cases.map(|fixture| (fixture, &VERIFIED_TYPES[..])));
    finish(&wrong);
}

fn finish(faults: &[String]) {
    if !faults.is_empty() {
        println!("{}", faults.join("\n"));
        exit(1);
    }
}

fn run(part: &Part, all: bool, seed: u64) -> Vec<String> {
    let card = open(part, 0);
    let device = Arc::clone(&card) as Arc<dyn Device>;
    let mut faults = operators(&*device, part, all, seed);
    faults.extend(buffers::buffers(&*device, &|card| open(part, card) as Arc<dyn Device>));
    faults.extend(casts::casts(&*device));
    faults.extend(replayed(part, &card, all, true));
    faults.extend(replay::workspace(&open(part, 1)));
    faults.extend(models(&device, part, cases(part, all)));
    if all {
        faults.extend(published(&device, part));
    }
    faults.extend(blocks_cached(&device, part));
    faults.extend(planted(&device, part));
    faults.extend(caches(&format!("npu-sim, simulated, {}", part.name), &device));
    faults
}

/// The verdicts on published models that share a class with a fixture.
fn published(device: &Arc<dyn Device>, part: &Part) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixtures = published_config_fixtures(scratch.path()).into_iter();
    models(device, part, fixtures.map(|fixture| (fixture, &VERIFIED_TYPES[..])))
}

/// Steps that come again, of fixtures in each type; what is not right.
fn replayed(part: &Part, card: &Arc<Ascend>, all: bool, captures: bool) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut wrong = Vec::new();
    for fixture in if all { fixtures() } else { vec![plain_fixture()] } {
        for dtype in part.types {
            let model = written(&fixture, *dtype, scratch.path());
            let name = format!("{} as {dtype} on {}", fixture.name, part.name);
            wrong.extend(replay::replay(&name, &model, card, captures));
        }
    }
    let description = card.about().description;
    // Who is refused is told.
    if description.contains("cannot capture graphs: aclmdlRICaptureEnd answers 507903") != (part.name == "refused") {
        wrong.push(format!("{} says of its captures: {description}", part.name));
    }
    wrong
}

/// A fixture on cards that are wrong, in each type: whoever passes it has not looked.
fn run_faulty(part: &Part) -> Vec<String> {
    let device = open(part, 0) as Arc<dyn Device>;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = plain_fixture();
    let passed = |dtype: &DType| {
        let model = written(&fixture, *dtype, scratch.path());
        let said = verdict(&device, &fixture, &model, true, None).err();
        println!("npu-sim, simulated, {} in {dtype}: {}", part.name, said.as_deref().unwrap_or("nothing was found"));
        let told = texts(&device, &model, &fixture.prompts()[0].ids, SEED_DEFAULT);
        let is_found = said.is_some_and(|said| said.contains("mul_mat")) && told.iter().all(Result::is_err);
        (!is_found).then(|| format!("{} in {dtype} is not found in nodes or not in texts", part.name))
    };
    part.types.iter().filter_map(passed).collect()
}

/// A model over several cards.
fn over_cards(cards: &str, count: usize) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if count == 2 {
        let fixture = plain_fixture();
        return cards::cards(&written(&fixture, DType::Q8_0, scratch.path()), cards);
    }
    many::many(&written(&stories(), DType::Q8_0, scratch.path()), cards, count)
}

/// Compares texts of fixtures with those of `cpu`. Returns the problems. A model that a 310P lacks an operator for is
/// skipped by name.
fn tell(part: &Part, all: bool, seed: u64) -> Vec<String> {
    let device = open(part, 0) as Arc<dyn Device>;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let every: Vec<Fixture> = fixtures().into_iter().chain([stories()]).collect();
    let cases = every.iter().flat_map(|fixture| part.types.iter().map(move |dtype| (fixture, *dtype)));
    let drawn = (seed % cases.clone().count() as u64) as usize;
    let (mut wrong, mut equal, mut tied) = (Vec::new(), 0, 0);
    for (place, (fixture, dtype)) in cases.enumerate() {
        if !(all || place == drawn) {
            continue;
        }
        let model = written(fixture, dtype, scratch.path());
        if let Some(problem) = texts::refusal(&device, &model) {
            if part.chip == "310p" && problem.contains("cannot compute") {
                println!("npu-sim, simulated, {} as {dtype}: needs a second device, no texts: {problem}", fixture.name);
            } else {
                wrong.push(format!("{} as {dtype}: {problem}", fixture.name));
            }
            continue;
        }
        for told in texts(&device, &model, &fixture.prompts()[0].ids, seed) {
            match told {
                Ok(alike) if alike.ties.is_empty() => equal += 1,
                Ok(Alike { ties, noise }) => {
                    tied += 1;
                    let (first, noise) = (ties[0], 100.0 * noise);
                    println!(
                        "{} as {dtype}: {} ties, the first at {first}; noise {noise:.2}%",
                        fixture.name,
                        ties.len()
                    );
                }
                Err(problem) => wrong.push(format!("{} as {dtype}: {problem}", fixture.name)),
            }
        }
    }
    let others = wrong.len();
    println!("npu-sim, simulated, {}: {equal} texts equal to cpu's, {tied} but for ties, {others} wrong", part.name);
    wrong
}

/// A table of what the device layer costs.
fn print_cost() {
    let device = open_one_of(COST.chip, COST.more, 1, 0).unwrap_or_else(|error| panic!("{error}"));
    let device = Arc::new(device);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    println!(
        "| model | nodes a token | operators of CANN a token | graphs a token | ms a token | nodes a second |\n|---|---|---|---|---|---|"
    );
    for fixture in [plain_fixture(), stories()] {
        for dtype in COST.types {
            let model = written(&fixture, *dtype, scratch.path());
            println!("{}", cost::cost(&device, &model, &format!("{} {dtype}", fixture.name)));
        }
    }
}

/// A fixture's file in a type.
fn written(fixture: &Fixture, dtype: DType, folder: &Path) -> PathBuf {
    let source = folder.join(format!("{}.gguf", fixture.name));
    let target = folder.join(format!("{}-{dtype}.gguf", fixture.name));
    convert(&fixture.folder, &source, None, None);
    quantize(&source, &target, dtype, Layout::Block);
    target
}

fn open(part: &Part, card: usize) -> Arc<Ascend> {
    Arc::new(open_one_of(part.chip, part.more, 2, card).unwrap_or_else(|error| panic!("{error}")))
}

fn open_one_of(chip: &str, more: &str, cards: usize, card: usize) -> Result<Ascend, trueup::runtime::Error> {
    let chip = Chip::from_name(chip).expect("a chip that is known");
    let place = Place::Simulated { chip, cards, card, memory_bytes: MEMORY_BYTES, more: more.to_owned() };
    Ascend::new(&AscendOptions { place })
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

/// Whether the chip lacks operators of the fixture: 310p computes no attention without an f16 cache, as encoders have
/// it.
fn may_fall_back(part: &Part, fixture: &Fixture) -> bool {
    part.chip == "310p" && !fixture.is_decoder()
}

/// The fixtures to verify, each with its types.
fn cases(part: &Part, all: bool) -> Vec<(Fixture, &'static [DType])> {
    if all {
        return all_fixtures().into_iter().map(|fixture| (fixture, &VERIFIED_TYPES[..])).collect();
    }
    let few = few_fixtures().into_iter().map(|fixture| (fixture, part.types));
    let others = if part.more.contains("permuted") { Vec::new() } else { fixtures_of_other_kinds() };
    few.chain(others.into_iter().map(|fixture| (fixture, &[DType::Q8_0][..]))).collect()
}

/// The verdict on fixtures; what is not right.
fn models(
    device: &Arc<dyn Device>,
    part: &Part,
    cases: impl IntoIterator<Item = (Fixture, &'static [DType])>,
) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (mut wrong, mut count, mut fallen) = (Vec::new(), 0, BTreeSet::new());
    for (fixture, types) in cases {
        for dtype in types {
            let target = written(&fixture, *dtype, scratch.path());
            match verdict(device, &fixture, &target, true, None) {
                Ok(report) if may_fall_back(part, &fixture) => fallen.extend(fell_back(&report)),
                Ok(report) => {
                    wrong.extend(fell_back(&report).map(|fell| format!("{} as {dtype}: {fell}", fixture.name)))
                }
                Err(problem) => wrong.push(format!("{} as {dtype} on {}: {problem}", fixture.name, part.name)),
            }
            count += 1;
        }
    }
    let (name, wrong_count) = (part.name, wrong.len());
    println!("npu-sim, simulated, {name}: {count} verdicts on fixtures, {wrong_count} not right");
    fallen.iter().for_each(|fell| println!("npu-sim, simulated, {name}: fell back: {fell}"));
    wrong
}

/// The verdict on a fixture whose heads are of whole blocks, with a KV cache of q8_0; what is not right.
fn blocks_cached(device: &Arc<dyn Device>, part: &Part) -> Option<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == HEADS_OF_BLOCKS).expect("the fixture is there");
    let model = written(&fixture, DType::Q8_0, scratch.path());
    let sentence = verdict(device, &fixture, &model, true, Some(DType::Q8_0)).err();
    println!("npu-sim, simulated, {}: a cache of q8_0, {} not right", part.name, u8::from(sentence.is_some()));
    sentence.map(|sentence| format!("{} with a cache of q8_0 on {}: {sentence}", fixture.name, part.name))
}

/// Injected faults in a fixture with an ungated feed-forward; what is not right.
fn planted(device: &Arc<dyn Device>, part: &Part) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == UNGATED).expect("the fixture exists");
    let model = written(&fixture, DType::F16, scratch.path());
    let wrong = planted::planted_faults(device, &model, &fixture.prompts()[0].ids);
    println!("npu-sim, simulated, {}: faults injected in {UNGATED}, {} wrong", part.name, wrong.len());
    wrong
}
