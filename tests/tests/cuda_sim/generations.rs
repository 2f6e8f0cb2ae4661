//! Cards of other generations, each in a process of its own: those that begin no launch early, those without tensor
//! cores, and some whose driver refuses a module or graphs.

use crate::{BUILT, CARD, CARDS, has, operators, replay, with_model};
use std::process::{Command, exit};
use trueup::runtime::{DeviceOptions, open_device};
use trueup::verify::suite::{self, SEED_DEFAULT, Selection};

/// Says that this process is one of those, and which.
const OLDER: &str = "--older";
const REFUSED: &str = "--refused";
const WITHOUT_GRAPHS: &str = "--without-graphs";

/// What the simulator reads.
pub const CAPABILITY: &str = "TRUEUP_CUDA_SIM_CAPABILITY";
const REFUSES: &str = "TRUEUP_CUDA_SIM_REFUSES";

/// Generations beside the one that is imitated by default.
const GENERATIONS: [&str; 3] = ["75", "80", "89"];

/// Of the operator suite, one case in so many.
const ONE_OF: u64 = 50;

/// The kernel whose module is refused.
const KERNEL: &str = "rms_norm_f32";

/// What is refused by a card that has no room for it.
const GRAPHS: &str = "graphs";

/// Does what this process was started for, and ends it; nothing in the first one.
pub fn child(seed: u64) {
    let faults = if has(OLDER) {
        older(seed)
    } else if has(REFUSED) {
        refused().into_iter().collect()
    } else if has(WITHOUT_GRAPHS) {
        with_model(|model| replay::without_graphs(model, &CARD).into_iter().collect())
    } else {
        return;
    };
    println!("{}", faults.join("\n"));
    exit(i32::from(!faults.is_empty()));
}

/// What is not right on other cards.
pub fn generations(seed: u64) -> Vec<String> {
    let older = GENERATIONS.into_iter().filter_map(|capability| started(&[(CAPABILITY, capability)], OLDER, seed));
    let refused = [(KERNEL, REFUSED), (GRAPHS, WITHOUT_GRAPHS)];
    let refused = refused.into_iter().filter_map(|(what, child)| started(&[(REFUSES, what)], child, seed));
    let wrong: Vec<String> = older.chain(refused).collect();
    println!("cuda-sim, simulated: cards of {} generations, {} wrong", GENERATIONS.len(), wrong.len());
    wrong
}

/// What another process of this test says where it fails.
fn started(environment: &[(&str, &str)], what: &str, seed: u64) -> Option<String> {
    let program = std::env::current_exe().expect("the test's own path");
    let mut command = Command::new(program);
    command.args([what, BUILT, "--seed", &seed.to_string()]).envs(environment.iter().copied());
    let output = command.output().expect("the test is started again");
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    (!output.status.success()).then(|| format!("{what} with {environment:?}: {}", said.join("\n")))
}

/// The operator suite in part, and the decode phase.
fn older(seed: u64) -> Vec<String> {
    let device =
        open_device(&format!("{CARDS}:0"), &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut faults = operators(&*device, "an older card", &Selection::default(), ONE_OF, seed);
    faults.extend(with_model(|model| replay::replay(model, &CARD)));
    faults
}

/// What is not said of a module that the driver's compiler refuses.
fn refused() -> Option<String> {
    let device =
        open_device(&format!("{CARDS}:0"), &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let selection = Selection::new(Some("rms_norm"), None).unwrap_or_else(|error| panic!("{error}")).one_of(1);
    let report = suite::test(&*device, &selection, SEED_DEFAULT, &mut |_| {});
    let said: Vec<String> = report.results.iter().map(ToString::to_string).collect();
    let words = format!(
        "rms_norm cannot be loaded: CUDA_ERROR_INVALID_PTX: a module is for other cards: .entry {KERNEL}: refused"
    );
    let told = said.iter().any(|sentence| sentence.contains(&words));
    (!told).then(|| format!("\"{words}\" is not in {}", said.join("\n")))
}
