//! The kernels of `cuda` on the simulator, and the host code that launches them: the operator suite, and the verdict on
//! the fixtures.
//!
//! ```text
//!  cargo test -p trueup-tests --test cuda_sim -- [--all] [--seed S] [--model NAME] [--sanitize]
//!
//!  --all        all cases of the suite, not one in twenty, all fixtures in all types, and a wide model in all types
//!  --seed       what the numbers follow from, and which cases are drawn
//!  --model      run only this fixture, in all types; `published`: all models in fixtures/published.json, in all
//!               types
//!  --sanitize   in a process with the address and undefined behaviour sanitizers, which end it where a kernel touches what is not its own
//! ```
//!
//! Two processes share the tests. `scripts/cuda_sim.sh` builds the simulator in the directory of the tests. Without a
//! C++ compiler, the tests are skipped with a message.
#![allow(clippy::print_stdout, clippy::exit, reason = "a runner of its own reports by printing")]

#[path = "cuda_sim/cards.rs"]
mod cards;
#[path = "cuda_sim/edges.rs"]
mod edges;
#[path = "cuda_sim/gathered.rs"]
mod gathered;
#[path = "cuda_sim/generations.rs"]
mod generations;
#[path = "cuda_sim/groups.rs"]
mod groups;
#[path = "cuda_sim/launches.rs"]
mod launches;
#[path = "cuda_sim/plans.rs"]
mod plans;
#[path = "cuda_sim/products.rs"]
mod products;
#[path = "cuda_sim/replay.rs"]
mod replay;
#[path = "cuda_sim/transfers.rs"]
mod transfers;
#[path = "cuda_sim/wide.rs"]
mod wide;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::device::cuda::{CudaOptions, Place};
use trueup::runtime::{DeviceOptions, Linear, open_device};
use trueup::verify::suite::{self, SEED_DEFAULT, Selection, Status};
use trueup_tests::{
    Fixture, VERIFIED_TYPES, all_fixtures, caches, convert, fell_back, few_fixtures, fixtures_of_other_kinds,
    plain_fixture, published_config_fixtures, quantize, verdict,
};

/// One case in so many is tried, unless all are.
const ONE_OF: u64 = 20;

/// The cards of this process.
const CARDS: &str = "cuda-simx2";

/// The first of them, by the memory that it has by default.
const CARD: CudaOptions = CudaOptions {
    place: Place::Simulated { cards: 2, card: 0, memory_bytes: 8 << 30 },
    repack: true,
    linear: Linear::Q8_1,
};

/// What `scripts/cuda_sim.sh` ends with where there is no C++ compiler.
const NO_COMPILER: i32 = 3;

fn main() {
    if let Some(place) = std::env::args().position(|argument| argument == plans::FITS) {
        let arguments: Vec<String> = std::env::args().skip(place + 1).collect();
        let problem = plans::fits(&arguments, &CARD);
        problem.iter().for_each(|problem| println!("{problem}"));
        exit(i32::from(problem.is_some()));
    }
    if has(SANITIZE) {
        sanitized();
    }
    let (all, seed) = arguments();
    generations::child(seed);
    if !has(BUILT) && !build() {
        return;
    }
    // All devices of a process have the same simulated cards.
    let name = format!("{CARDS}:0");
    let device = open_device(&name, &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    if let Some(model) = argument("--model") {
        if model == "published" {
            return finish(&published(&device));
        }
        let only = all_fixtures().into_iter().filter(|fixture| fixture.name == model);
        return finish(&models(&device, only.map(|fixture| (fixture, &VERIFIED_TYPES[..], &[true, false][..]))));
    }
    if has(REST) {
        return finish(&rest(&device, all, seed));
    }
    let other = start_rest();
    let mut faults = first(&device, &name, all, seed);
    faults.extend(finish_rest(other));
    finish(&faults);
}

/// Operators, memory and the verdict on fixtures.
fn first(device: &Arc<dyn Device>, name: &str, all: bool, seed: u64) -> Vec<String> {
    let one_of = if all { 1 } else { ONE_OF };
    let mut faults = operators(&**device, "the fast ways", &Selection::default(), one_of, seed);
    let products = Selection::new(Some("get_rows|mul_mat.*"), None).unwrap_or_else(|error| panic!("{error}"));
    for (ways, options) in [
        ("--no-repack", DeviceOptions { repack: false, ..DeviceOptions::default() }),
        ("--matmul dequantize", DeviceOptions { linear: Linear::Dequantize, ..DeviceOptions::default() }),
    ] {
        let device = open_device(name, &options).unwrap_or_else(|error| panic!("{error}"));
        faults.extend(operators(&*device, ways, &products, one_of, seed));
    }
    faults.extend(edges::edges(&**device));
    faults.extend(roof(&**device));
    faults.extend(transfers::transfers(&**device));
    faults.extend(products::products(&**device));
    faults.extend(plans::plans(&CARD));
    faults.extend(models(device, cases(all)));
    if all {
        faults.extend(published(device));
    }
    faults
}

/// The other tests, which take about as long.
fn rest(device: &Arc<dyn Device>, all: bool, seed: u64) -> Vec<String> {
    let mut faults = wide::wide(device, all, seed);
    faults.extend(caches("cuda-sim, simulated", device));
    faults.extend(groups::groups(&CARD));
    faults.extend(launches::launches(&CARD));
    faults.extend(generations::generations(seed));
    faults.extend(with_model(|model| {
        [replay::replay(model, &CARD), cards::cards(model, CARDS), gathered::gathered(model, CARDS)].concat()
    }));
    faults
}

/// Asks for [`rest`] alone.
const REST: &str = "--rest";

/// Starts [`rest`] in another process, with the arguments of this one.
fn start_rest() -> Child {
    let program = std::env::current_exe().expect("the test's own path");
    let arguments = std::env::args().skip(1).filter(|argument| argument != BUILT);
    let mut command = Command::new(program);
    command.args(arguments).args([BUILT, REST]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("the test starts again")
}

/// Waits for the other process and prints what it said; a fault if it failed.
fn finish_rest(child: Child) -> Option<String> {
    let output = child.wait_with_output().expect("the output of a process");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    (!output.status.success()).then(|| format!("the other process: {}", output.status))
}

fn finish(faults: &[String]) {
    if !faults.is_empty() {
        println!("{}", faults.join("\n"));
        exit(1);
    }
}

/// Asks for the process with sanitizers, and says in it that its simulator is there.
const SANITIZE: &str = "--sanitize";
const BUILT: &str = "--built";

fn has(wanted: &str) -> bool {
    std::env::args().skip(1).any(|argument| argument == wanted)
}

/// Starts this program again, with a simulator that is built with sanitizers, and ends as it ends.
fn sanitized() -> ! {
    let program = std::env::current_exe().expect("the test's own path");
    let rest = std::env::args().skip(1).filter(|argument| argument != SANITIZE);
    let status = Command::new("bash").arg(script()).arg("--run").arg(program).args(rest).arg(BUILT).status();
    exit(status.expect("bash is started").code().unwrap_or(1));
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/cuda_sim.sh")
}

/// The value of an option.
fn argument(name: &str) -> Option<String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let place = given.iter().position(|argument| argument == name)?;
    given.get(place + 1).cloned()
}

/// Whether everything is wanted, and the seed.
fn arguments() -> (bool, u64) {
    let seed = argument("--seed");
    let seed = seed.map_or(SEED_DEFAULT, |seed| seed.parse().unwrap_or_else(|_| panic!("{seed} is no seed")));
    (has("--all"), seed)
}

/// Builds the simulator where the device looks for it; whether it is there.
fn build() -> bool {
    let program = std::env::current_exe().expect("the test's own path");
    let folder = program.parent().expect("a program lies in a directory");
    let output = Command::new("bash").arg(script()).arg(folder).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: everything on cuda-sim: bash cannot be started: {error}");
            return false;
        }
    };
    let said =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned()).join("\n");
    if output.status.code() == Some(NO_COMPILER) {
        println!("skipped: everything on cuda-sim: {}", said.trim());
        return false;
    }
    assert!(output.status.success(), "the simulator is not built: {said}");
    true
}

/// The operator suite; what failed.
fn operators(device: &dyn Device, ways: &str, selection: &Selection, one_of: u64, seed: u64) -> Vec<String> {
    let selection = selection.clone().one_of(one_of);
    let report = suite::test(device, &selection, seed, &mut |_| {});
    println!("cuda-sim, simulated, {ways}: {}", report.summary());
    assert!(report.passed > 0, "no case was computed");
    let wrong = report.results.iter().filter(|result| result.status == Status::Fail);
    wrong.map(ToString::to_string).collect()
}

/// What is missing of the roof that the card's own kernels measure.
fn roof(device: &dyn Device) -> Option<String> {
    let roof = device.roof().unwrap_or_else(|error| panic!("{error}"))?;
    let speeds = [roof.read_gb_per_s, roof.copy_gb_per_s, roof.multiply_gflop_per_s, roof.int8_gop_per_s];
    let measured =
        speeds.into_iter().chain(roof.f16_gflop_per_s).filter(|speed| speed.is_finite() && *speed > 0.0).count();
    (measured != 5).then(|| format!("the roof is not measured: {roof:?}"))
}

/// What a test finds about a fixture in q4_0.
fn with_model(test: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [source, target] = ["source.gguf", "target.gguf"].map(|name| scratch.path().join(name));
    let fixture = plain_fixture();
    convert(&fixture.folder, &source, None, None);
    quantize(&source, &target, DType::Q4_0, Layout::Block);
    test(&target)
}

/// A fixture, and the types and choices of fusion to verify it with.
type Case = (Fixture, &'static [DType], &'static [bool]);

fn cases(all: bool) -> Vec<Case> {
    if all {
        return all_fixtures().into_iter().map(|fixture| (fixture, &VERIFIED_TYPES[..], &[true, false][..])).collect();
    }
    let fused: &[bool] = &[true];
    let few = few_fixtures().into_iter().map(|fixture| (fixture, &VERIFIED_TYPES[1..], fused));
    let plain = few_fixtures().into_iter().map(|fixture| (fixture, &[DType::Q8_0][..], &[false][..]));
    let others = fixtures_of_other_kinds().into_iter().map(|fixture| (fixture, &[DType::Q8_0][..], fused));
    few.chain(plain).chain(others).collect()
}

/// The verdicts on published models that share a class with a fixture.
fn published(device: &Arc<dyn Device>) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixtures = published_config_fixtures(scratch.path());
    models(device, fixtures.into_iter().map(|fixture| (fixture, &VERIFIED_TYPES[..], &[true][..])))
}

/// The verdict on fixtures, fused and plain; what is not right.
fn models(device: &Arc<dyn Device>, cases: impl IntoIterator<Item = Case>) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (fixture, types, fusions) in cases {
        let source = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &source, None, None);
        for dtype in types {
            let target = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&source, &target, *dtype, Layout::Block);
            for fusion in fusions {
                let problems = match verdict(device, &fixture, &target, *fusion, None) {
                    Ok(report) => fell_back(&report).collect(),
                    Err(problem) => vec![problem],
                };
                let name = format!("{} as {dtype}, fusion {fusion}", fixture.name);
                wrong.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
                count += 1;
            }
        }
    }
    println!("cuda-sim, simulated: {count} verdicts on fixtures, {} not right", wrong.len());
    wrong
}
