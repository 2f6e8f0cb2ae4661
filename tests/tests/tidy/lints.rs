//! Code that reads hostile files keeps its lints: no index, no panic, no silent conversion, no arithmetic that may
//! overflow; and what computes sizes from such files keeps its overflow checks in release. No unit test is in a library
//! whose manifest turns them off.

use crate::{report, root, sources};
use std::fs;

/// Heads of crates and modules that look at what a file claims. A head covers the modules below it.
const READERS: &[&str] = &[
    "crates/formats/src/lib.rs",
    "crates/models/src/lib.rs",
    "crates/runtime/src/model_file.rs",
    "crates/tokenizer/src/lib.rs",
    "crates/trueup/src/lib.rs",
    "crates/verify/src/baseline.rs",
    "crates/verify/src/policy.rs",
    "crates/verify/src/repro/file.rs",
    "crates/verify/src/trace/fit.rs",
    "crates/verify/src/trace/model_facts.rs",
    "crates/verify/src/trace/program.rs",
];

/// What they deny.
const LINTS: &[&str] = &[
    "clippy::indexing_slicing",
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic",
    "clippy::as_conversions",
    "clippy::arithmetic_side_effects",
];

/// Crates where sizes from files are computed with.
const CHECKED: &[&str] =
    &["trueup-formats", "trueup-tokenizer", "trueup-graph", "trueup-models", "trueup-quantize", "trueup-convert"];

/// The text of the `deny(...)` in the head of a file: it applies outside of tests.
fn denied(text: &str) -> Option<&str> {
    let head = text.split("#![cfg_attr(").nth(1)?;
    let (condition, rest) = head.split_once("deny(")?;
    let (lints, _) = rest.split_once(')')?;
    (condition.trim() == "not(test),").then_some(lints)
}

#[test]
fn readers_deny_what_a_hostile_file_could_use() {
    let mut faults = Vec::new();
    for path in READERS {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default();
        let lints: Vec<&str> = denied(&text).unwrap_or_default().split(',').map(str::trim).collect();
        faults.extend(LINTS.iter().filter(|lint| !lints.contains(lint)).map(|lint| format!("{path} allows {lint}")));
    }
    report("lints of code that reads files", &faults);
}

#[test]
fn sizes_from_files_are_computed_with_overflow_checks() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the root manifest is there");
    let manifest: toml::Table = manifest.parse().expect("manifests are TOML");
    let packages = manifest["profile"]["release"]["package"].as_table().expect("single packages have settings");
    let checks =
        |name: &&&str| packages.get(**name).is_some_and(|settings| settings["overflow-checks"].as_bool() == Some(true));
    let faults: Vec<String> =
        CHECKED.iter().filter(|name| !checks(name)).map(|name| format!("{name} has none")).collect();
    report("overflow checks in release", &faults);
}

#[test]
fn libraries_without_unit_tests_have_none() {
    let mut faults = Vec::new();
    for source in sources() {
        let Some((package, _)) = source.path.split_once("/src/") else { continue };
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).expect("each crate has a manifest");
        let manifest: toml::Table = manifest.parse().expect("manifests are TOML");
        let is_off = manifest.get("lib").is_some_and(|lib| lib.get("test") == Some(&false.into()));
        if is_off && source.text.contains("#[test]") {
            faults.push(format!("{} has a test that cargo never runs", source.path));
        }
    }
    report("unit tests of libraries with `test = false`", &faults);
}

#[test]
fn a_head_without_its_lints_is_seen() {
    let head = "//! Reads.\n#![cfg_attr(\n    not(test),\n    deny(clippy::panic, clippy::unwrap_used)\n)]\n";
    assert_eq!(denied(head), Some("clippy::panic, clippy::unwrap_used"));
    assert_eq!(denied(&head.replace("not(test)", "test")), None);
    assert_eq!(denied("//! deny(clippy::panic)\n"), None);
}
