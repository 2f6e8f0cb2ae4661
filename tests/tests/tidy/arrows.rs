//! Which crate may use which. An arrow that is not here is a change of the design: see ARCHITECTURE.md.

use crate::{report, root};
use std::fs;

/// Each crate with the crates of this workspace that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("guard", &[]),
    ("blocks", &["guard"]),
    ("formats", &["blocks"]),
    ("tokenizer", &["blocks", "formats"]),
    ("graph", &["blocks", "formats"]),
    ("models", &["blocks", "formats", "graph"]),
    ("quantize", &["blocks", "formats"]),
    ("convert", &["blocks", "formats", "graph", "models", "quantize", "tokenizer"]),
    ("kernels", &["blocks", "graph", "guard"]),
    ("runtime", &["blocks", "formats", "graph", "guard", "kernels", "models", "tokenizer"]),
    ("quality", &["blocks", "formats", "graph", "quantize", "runtime", "tokenizer"]),
    ("verify", &["blocks", "formats", "graph", "models", "runtime", "tokenizer"]),
    (
        "trueup",
        &["blocks", "formats", "graph", "models", "quantize", "convert", "tokenizer", "runtime", "quality", "verify"],
    ),
    ("cli", &["trueup"]),
    ("python", &["kernels", "trueup"]),
    ("npu-sim", &["blocks"]),
];

#[test]
fn crates_use_only_what_lies_to_their_left() {
    let mut faults = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/ is there") {
        let folder = entry.expect("entries can be read").path();
        let name = folder.file_name().expect("a directory has a name").to_string_lossy().into_owned();
        let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| *crate_name == name) else {
            faults.push(format!("crates/{name} has no line in tests/tests/tidy/arrows.rs"));
            continue;
        };
        for dependency in dependencies(&folder.join("Cargo.toml")) {
            let room = if dependency == "trueup" { "trueup" } else { dependency.strip_prefix("trueup-").unwrap_or("") };
            // A crate's tests may turn on a feature of that crate.
            let is_ours = !room.is_empty() && room != name;
            if is_ours && !allowed.contains(&room) {
                faults.push(format!("crates/{name} may not use crates/{room}"));
            }
        }
    }
    report("arrows between crates", &faults);
}

#[test]
fn every_dependency_is_justified_in_the_root_manifest() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the root manifest is there");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("it has dependencies");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let unjustified = lines.filter(|line| line.contains('=') && !line.contains("path =") && !line.contains("# "));
    report("a dependency needs its reason behind #", &unjustified.map(str::to_owned).collect::<Vec<_>>());
}

/// Names under `[dependencies]`, `[build-dependencies]` and `[dev-dependencies]`, for all targets and for single ones.
fn dependencies(manifest: &std::path::Path) -> Vec<String> {
    let text = fs::read_to_string(manifest).expect("each crate has a manifest");
    let table: toml::Table = text.parse().expect("manifests are TOML");
    let targets = table.get("target").and_then(toml::Value::as_table);
    let single = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    let of = |table: &toml::Table| {
        let tables = sections.iter().filter_map(|section| table.get(*section)?.as_table());
        tables.flat_map(|table| table.keys().cloned()).collect::<Vec<String>>()
    };
    [of(&table)].into_iter().chain(single.map(of)).flatten().collect()
}
