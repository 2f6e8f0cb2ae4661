//! What may stand in a source: `unsafe` only in listed rooms and with its reason, printing and exits only in the
//! command line, no notes of unfinished work, no environment variables.

use crate::{Source, report, sources};

/// Where `unsafe` may stand: the file map, SIMD kernels, the threads and the memory that they work with, calls into the
/// system, vendors' libraries, the Python surface; and the guard pages that catch a kernel of theirs outside of its
/// slices, with the tests that they do; and the library that programs in C open, where it meets them and holds a card's
/// memory.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/blocks/src/avx2.rs",
    "crates/blocks/src/avx2/",
    "crates/blocks/src/avx512.rs",
    "crates/blocks/src/avx512/",
    "crates/blocks/src/neon/",
    "crates/blocks/src/dispatch.rs",
    "crates/formats/src/gguf/map.rs",
    "crates/guard/",
    "crates/kernels/src/",
    "crates/npu-sim/src/memory/arena.rs",
    "crates/npu-sim/src/memory/pinned.rs",
    "crates/npu-sim/src/object.rs",
    "crates/npu-sim/tests/",
    "crates/runtime/src/device/ascend/acl/",
    "crates/runtime/src/device/cpu/columns.rs",
    "crates/runtime/src/device/cpu/pages.rs",
    "crates/runtime/src/device/cpu/team.rs",
    "crates/runtime/src/device/cuda/driver.rs",
    "crates/runtime/src/device/cuda/driver/",
    "crates/runtime/src/ranges.rs",
    "crates/cli/src/os.rs",
    "crates/python/",
];

/// Rooms whose job is to show something to a person, and the declaration of codecs, whose tests say what they
/// skip; and the room that may end a process at a finding, for a debugger.
const PRINTING_ROOMS: &[&str] = &[
    "crates/cli/",
    "crates/blocks/src/dispatch.rs",
    "crates/npu-sim/src/finding.rs",
    "tests/",
    "/tests/",
    "/benches/",
    "scripts/candle_peer/",
];

fn lies_in(source: &Source, rooms: &[&str]) -> bool {
    rooms
        .iter()
        .any(|room| if room.starts_with('/') { source.path.contains(room) } else { source.path.starts_with(room) })
}

/// Lines that hold one of the words outside of comments, as `path:line: word`.
fn lines_with(source: &Source, words: &[&str]) -> Vec<String> {
    let code = source.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        let found = words.iter().filter(move |word| line.contains(**word));
        found.map(move |word| format!("{}:{}: {word}", source.path, number + 1))
    })
    .collect()
}

#[test]
fn unsafe_stands_only_where_it_may_and_says_why() {
    let opening = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| !source.path.contains("tidy/")) {
        let uses = lines_with(source, &opening);
        if !uses.is_empty() && !lies_in(source, UNSAFE_ROOMS) {
            faults.extend(uses);
            continue;
        }
        let blocks = source.text.matches("unsafe {").count() + source.text.matches("unsafe impl").count();
        let notes = source.text.matches("SAFETY:").count();
        if notes < blocks {
            faults.push(format!("{}: {blocks} unsafe blocks, {notes} SAFETY notes", source.path));
        }
    }
    report("unsafe only in its rooms, each with its SAFETY note", &faults);
}

#[test]
fn only_the_command_line_prints_and_exits() {
    let words = ["println!", "eprintln!", "print!(", "eprint!(", "dbg!(", "process::exit", "process::abort"];
    let quiet = sources().into_iter().filter(|source| !lies_in(source, PRINTING_ROOMS));
    report(
        "printing and exiting belong to the command line",
        &quiet.flat_map(|source| lines_with(&source, &words)).collect::<Vec<_>>(),
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = ["TO", "FIX", "XX", "HA"].iter().zip(["DO", "ME", "X", "CK"]).map(|(a, b)| format!("{a}{b}"));
    let mut words: Vec<String> = marks.collect();
    words.extend(["todo!(", "unimplemented!(", "#[ignore"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let others = sources().into_iter().filter(|source| !source.path.contains("tidy/"));
    let faults = others.flat_map(|source| {
        let lines = source.text.lines().enumerate();
        let found = lines.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        found.map(|(number, _)| format!("{}:{}", source.path, number + 1)).collect::<Vec<_>>()
    });
    report("unfinished work is not committed", &faults.collect::<Vec<_>>());
}

#[test]
fn no_environment_variable_changes_a_result() {
    // What stands in for a vendor's library reads the variables that the vendor's reads, and the one by which a program
    // that passes no file names one. Where a vendor's libraries are installed, its own variables say, and that of the
    // Python environment that is active.
    let interface = [
        "crates/npu-sim/src/world.rs",
        "crates/runtime/src/device/ascend/acl/library.rs",
        "crates/runtime/src/device/cuda/driver/library.rs",
    ];
    let words = ["env::var", "env::vars", "std::env::var_os"];
    let product = sources().into_iter().filter(|source| {
        source.path.starts_with("crates/")
            && !source.path.contains("/tests/")
            && !interface.contains(&source.path.as_str())
    });
    report("options are arguments", &product.flat_map(|source| lines_with(&source, &words)).collect::<Vec<_>>());
}
