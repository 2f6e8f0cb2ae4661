//! Mistakes that a backend for Ascend cards can make: the simulator names each of them, or `verify` names the node.
//!
//! ```text
//!  cargo test -p trueup-tests --test npu_faults [-- WORDS]
//!
//!  WORDS      those in whose names they stand
//! ```
//!
//! A library between the device and the simulator (`npu_faults/between.c`) asks for what the mistaken backend would ask
//! for, so the device itself is the one that ships. A process of its own tries each mistake, and what it tries is right
//! with the same library and no mistake. Without a C compiler that is said, and nothing is tested.
#![allow(clippy::print_stdout, clippy::exit, reason = "a runner of its own reports by printing")]

#[path = "npu_sim/peer.rs"]
mod peer;

use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::device::ascend::{Ascend, AscendOptions, Chip, Place};
use trueup_tests::{convert, plain_fixture, quantize, run_written, verdict};

/// A mistake, and who names it how.
struct Misuse {
    /// As in `between.c`.
    name: &'static str,
    work: Work,
    /// Words of one line of what is said: the kind, and the operator.
    named: &'static [&'static str],
}

/// What is tried on simulated cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// A fixture is verified in a type.
    Verify(DType),
    /// A tensor is copied from card to card while it is computed.
    Copy,
}

const MISUSES: [Misuse; 8] = [
    Misuse { name: "NOT_SYNCHRONIZED", work: Work::Verify(DType::F16), named: &[FIRST_BAD, "(get_rows)", RACE] },
    Misuse {
        name: "FREED_EARLY",
        work: Work::Verify(DType::F16),
        named: &["npu-sim: freed_in_use: aclrtFree frees memory that aclnnMm argument"],
    },
    Misuse {
        name: "SMALL_WORKSPACE",
        work: Work::Verify(DType::F16),
        named: &["mul_mat(", "aclnnMm answers 161002", "workspaceSize is"],
    },
    Misuse {
        name: "MISALIGNED_SCALES",
        work: Work::Verify(DType::Q8_0),
        named: &["mul_mat(", PRODUCT, "answers 161002", "antiquantScale", "must be aligned to"],
    },
    Misuse { name: "TRANSPOSED_STRIDES", work: Work::Verify(DType::Q8_0), named: &[FIRST_BAD, "(mul_mat)", WRONG] },
    Misuse {
        name: "WRONG_GROUP",
        work: Work::Verify(DType::Q8_0),
        named: &["mul_mat(", PRODUCT, "answers 161002", "antiquantGroupSize"],
    },
    Misuse { name: "NO_INT4_BIAS", work: Work::Verify(DType::Q4_0), named: &[FIRST_BAD, "(mul_mat)", WRONG] },
    Misuse {
        name: "EVENT_NOT_WAITED_FOR",
        work: Work::Copy,
        named: &["npu-sim: race: aclrtMemcpyAsync argument", "aclnnAdds argument out"],
    },
];

/// How `verify` names a node that no rounding explains, and one that gives other results each time.
const FIRST_BAD: &str = "First faulty node: ";
const WRONG: &str = "Structural bug";
const RACE: &str = "suspected data race";

/// The product with weights in groups.
const PRODUCT: &str = "aclnnWeightQuantBatchMatmulV2GetWorkspaceSize";

/// No mistake.
const RIGHT: &str = "NONE";

/// What the device opens, and what lies behind it then.
const SIMULATOR: &str = "libtrueup_npu_sim.so";
const BEHIND: &str = "libtrueup_npu_sim_behind.so";

/// Bytes of memory of a simulated card.
const MEMORY_BYTES: u64 = 8 << 30;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        ["--try", work] => tried(work),
        [words] if !words.starts_with('-') => plant(|misuse| misuse.name.contains(words)),
        _ => plant(|_| true),
    }
}

/// Tries some work in this process, and ends it: 1 where something is wrong.
fn tried(name: &str) {
    let work = MISUSES.iter().map(|misuse| misuse.work).find(|work| format!("{work:?}") == name);
    let wrong = match work.unwrap_or_else(|| panic!("there is no work {name}")) {
        Work::Verify(dtype) => verified(dtype).into_iter().collect(),
        Work::Copy => peer::from_card_to_card(&*open(0), &*open(1)),
    };
    println!("{}", wrong.join("\n"));
    exit(i32::from(!wrong.is_empty()));
}

fn open(card: usize) -> Arc<dyn Device> {
    let chip = Chip::from_name("910b").expect("a chip that is known");
    let more = "\"timing\": \"late\"".to_owned();
    let place = Place::Simulated { chip, cards: 2, card, memory_bytes: MEMORY_BYTES, more };
    Arc::new(Ascend::new(&AscendOptions { place }).unwrap_or_else(|error| panic!("{error}")))
}

/// What is not right about a fixture in this type.
fn verified(dtype: DType) -> Option<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [source, target] = ["source.gguf", "target.gguf"].map(|name| scratch.path().join(name));
    let fixture = plain_fixture();
    convert(&fixture.folder, &source, None, None);
    quantize(&source, &target, dtype, Layout::Block);
    verdict(&open(0), &fixture, &target, true, None).err()
}

/// Plants mistakes, and fails where one is not named, or where the same work is not right without it.
fn plant(is_wanted: impl Fn(&Misuse) -> bool) {
    let Some(compiler) = compiler() else {
        println!("skipped: mistakes of a backend for Ascend cards: there is no C compiler (cc, gcc, clang)");
        return;
    };
    let wanted: Vec<&Misuse> = MISUSES.iter().filter(|misuse| is_wanted(misuse)).collect();
    let mut works: Vec<Work> = Vec::new();
    for misuse in &wanted {
        if !works.contains(&misuse.work) {
            works.push(misuse.work);
        }
    }
    let mut wrong: Vec<String> = wanted.par_iter().filter_map(|misuse| missed(misuse, compiler)).collect();
    wrong.par_extend(works.par_iter().filter_map(|work| not_right(*work, compiler)));
    println!("npu-sim, simulated: {} mistakes of a backend, {} wrong", wanted.len(), wrong.len());
    if !wrong.is_empty() {
        println!("{}", wrong.join("\n"));
        exit(1);
    }
}

fn compiler() -> Option<&'static str> {
    let is_there =
        |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    ["cc", "gcc", "clang"].into_iter().find(is_there)
}

/// How a mistake was not named as it should be.
fn missed(misuse: &Misuse, compiler: &str) -> Option<String> {
    let (is_right, said) = run(misuse.name, misuse.work, compiler);
    let is_named = said.lines().any(|line| misuse.named.iter().all(|words| line.contains(words)));
    println!("{}: {}", misuse.name, said.lines().next().unwrap_or_default());
    (is_right || !is_named).then(|| format!("{} is not named as {:?}, but:\n{said}", misuse.name, misuse.named))
}

/// What is found where nothing is wrong.
fn not_right(work: Work, compiler: &str) -> Option<String> {
    let (is_right, said) = run(RIGHT, work, compiler);
    (!is_right || said.contains("npu-sim: ")).then(|| format!("{work:?} without a mistake:\n{said}"))
}

/// Tries some work behind the library with this mistake: whether all was right, and what was said.
fn run(misuse: &str, work: Work, compiler: &str) -> (bool, String) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let folder = scratch.path();
    let program = std::env::current_exe().expect("the test's own path");
    fs::hard_link(&program, folder.join("try"))
        .or_else(|_| fs::copy(&program, folder.join("try")).map(|_| ()))
        .expect("a copy of the program");
    std::os::unix::fs::symlink(simulator(&program), folder.join(BEHIND)).expect("the directory can be written");
    compile(misuse, folder, compiler);
    let output = run_written(Command::new(folder.join("try")).args(["--try", &format!("{work:?}")]));
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    (output.status.success(), said.join("\n"))
}

/// The simulator, which cargo builds into the directory of the tests: it is a dependency of theirs.
fn simulator(program: &Path) -> PathBuf {
    program.with_file_name(SIMULATOR)
}

/// The library that stands between, under the simulator's name.
fn compile(misuse: &str, folder: &Path, compiler: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/npu_faults/between.c");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]);
    command.arg(format!("-DMISUSE={misuse}")).arg(source).arg("-o").arg(folder.join(SIMULATOR));
    command.arg("-L").arg(folder).arg(format!("-l:{BEHIND}")).arg("-ldl");
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{misuse}: {}", String::from_utf8_lossy(&output.stderr));
}
