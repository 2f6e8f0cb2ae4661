//! The house's own rules, as tests: which crate may use which, how long functions and files get, where `unsafe` and
//! printing are allowed, what may lie in the repository.
//!
//! Lengths are held by a ratchet: `ratchet.toml` lists what is over the limit today and how far. Nothing may grow past
//! its entry, and an entry that is no longer needed must go.

mod architectures;
mod arrows;
mod files;
mod language;
mod lengths;
mod limits;
mod lints;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository has a root")
}

/// A Rust source of the workspace, by its path from the root.
struct Source {
    path: String,
    text: String,
}

/// All Rust sources under `crates/` and `tests/`.
fn sources() -> Vec<Source> {
    let paths = tracked_files();
    let rust = paths.iter().filter(|path| path.ends_with(".rs"));
    rust.map(|path| Source {
        path: path.clone(),
        text: fs::read_to_string(root().join(path)).expect("sources are UTF-8"),
    })
    .collect()
}

/// Every file of the repository but build output and git's own, as paths from the root with `/`.
fn tracked_files() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("directories of the repository can be read") {
            let path = entry.expect("entries can be read").path();
            let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
            let is_output = ["target", ".git", "__pycache__"]
                .iter()
                .any(|output| name == *output || name.ends_with(&format!("/{output}")));
            if is_output || name.ends_with(".partial") || name.ends_with(".proptest-regressions") {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { files.push(name) }
        }
    }
    files.sort();
    files
}

/// Fails with all faults at once.
fn report(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}
