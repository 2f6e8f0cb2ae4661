//! What may lie in the repository, and that the two READMEs say the same.

use crate::{report, root, tracked_files};
use std::fs;

/// Folders and files of the top level.
const TOP: &[&str] = &[
    ".ci/",
    ".github/",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "README.zh.md",
    "SECURITY.md",
    "SECURITY.zh.md",
    "crates/",
    "deny.toml",
    "docs/",
    "fixtures/",
    "fuzz/",
    "kernels/",
    "rustfmt.toml",
    "scripts/",
    "tests/",
];

/// Endings that belong here; anything else is a stray.
const ENDINGS: &[&str] = &[
    "rs",
    "toml",
    "md",
    "lock",
    "yml",
    "json",
    "safetensors",
    "bin",
    "model",
    "tiktoken",
    "py",
    "sh",
    "txt",
    "jinja",
    "css",
    "cu",
    "cuh",
    "cpp",
    "h",
    "ptx",
    "js",
    "png",
    "gguf",
    "flm",
    "pyi",
    "c",
];

/// Files without an ending.
const NAMES: &[&str] = &["run", ".gitignore", "LICENSE-MIT", "LICENSE-APACHE", "py.typed"];

const FIXTURES_BYTES_MAX: u64 = 32 << 20;
const FIXTURE_BYTES_MAX: u64 = 400 << 10;
/// The one trained model.
const MODEL: &str = "fixtures/stories-1M/model.safetensors";

#[test]
fn no_stray_files() {
    let is_known = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ending_fits = path.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending));
        let place_fits = TOP.iter().any(|top| path == *top || (top.ends_with('/') && path.starts_with(top)));
        place_fits && (ending_fits || NAMES.contains(&name))
    };
    report(
        "files that belong nowhere",
        &tracked_files().into_iter().filter(|path| !is_known(path)).collect::<Vec<_>>(),
    );
}

#[test]
fn fixtures_stay_small() {
    let fixtures: Vec<(String, u64)> = tracked_files()
        .into_iter()
        .filter(|path| path.starts_with("fixtures/"))
        .map(|path| (path.clone(), fs::metadata(root().join(&path)).expect("it was listed").len()))
        .collect();
    let total: u64 = fixtures.iter().map(|(_, bytes)| bytes).sum();
    assert!(
        total <= FIXTURES_BYTES_MAX,
        "fixtures take {total} bytes together, at most {FIXTURES_BYTES_MAX} are allowed"
    );
    let large = fixtures.iter().filter(|(path, bytes)| *bytes > FIXTURE_BYTES_MAX && path != MODEL);
    report("fixtures over 400 KiB", &large.map(|(path, bytes)| format!("{path}: {bytes} bytes")).collect::<Vec<_>>());
}

#[test]
fn both_readmes_give_the_same_commands() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("both READMEs are there");
    let (english, chinese) = (commands(&read("README.md")), commands(&read("README.zh.md")));
    assert!(english.len() >= 2, "the README has a block for the demo and one for the tests");
    assert!(english[0].contains("demo"), "the first block runs the demo, not: {}", english[0]);
    assert!(english[1].contains("cargo test"), "the second block runs the tests, not: {}", english[1]);
    assert_eq!(english, chinese, "README.md and README.zh.md must give the same commands");
}

/// The fenced blocks of a page, without comments.
fn commands(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&mut open, line.starts_with("```")) {
            (None, true) => open = Some(String::new()),
            (Some(block), true) => {
                blocks.push(block.trim().to_owned());
                open = None;
            }
            (Some(block), false) => {
                let code = line.split("  #").next().unwrap_or(line).trim_end();
                block.push_str(code);
                block.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}
