//! The kernels that the program carries are those of the sources: each file of `kernels/cuda/ptx` begins with the hash
//! of what it was made from.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files of a folder whose names end so, in order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a directory").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

/// The hash that `scripts/kernels.py` writes: of the hashes of itself, the source and the headers.
fn digest(source: &Path, headers: &[PathBuf]) -> String {
    let script = root().join("scripts/kernels.py");
    let mut total = Sha256::new();
    for part in [script.as_path(), source].into_iter().chain(headers.iter().map(PathBuf::as_path)) {
        let bytes = fs::read(part).unwrap_or_else(|error| panic!("{}: {error}", part.display()));
        total.update(Sha256::digest(bytes));
    }
    total.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn every_module_is_made_from_its_source() {
    let folder = root().join("kernels/cuda");
    let headers = files(&folder, ".cuh");
    let sources = files(&folder, ".cu");
    assert!(sources.len() > 20 && !headers.is_empty(), "kernels and what they share");
    let mut stale = Vec::new();
    for source in &sources {
        let target = folder.join("ptx").join(format!("{}.ptx", stem(source)));
        let text = fs::read_to_string(&target).unwrap_or_default();
        if text.lines().next() != Some(&format!("// {}", digest(source, &headers))) {
            stale.push(stem(source));
        }
    }
    assert!(stale.is_empty(), "{} changed and were not compiled: run scripts/kernels.sh", stale.join(", "));
    let made: Vec<String> = files(&folder.join("ptx"), ".ptx").iter().map(|path| stem(path)).collect();
    assert_eq!(
        made,
        sources.iter().map(|path| stem(path)).collect::<Vec<_>>(),
        "a module for each source, and no other"
    );
}

#[test]
fn the_program_carries_every_module() {
    let list = fs::read_to_string(root().join("crates/runtime/src/device/cuda/kernels.rs")).expect("the list");
    let missing = files(&root().join("kernels/cuda"), ".cu").into_iter().map(|path| stem(&path));
    let missing: Vec<String> = missing.filter(|name| !list.contains(&format!("\"{name}\","))).collect();
    assert!(missing.is_empty(), "{} have no line in device/cuda/kernels.rs", missing.join(", "));
}
