//! Every finding of the doctor on a model that was damaged for it, healthy models without any, and the page that lists
//! them.
//!
//! ```text
//! fixture ─ one damage ─▶ model ─ diagnose ─▶ the finding, its place ─▶ its row in docs/doctor.md
//! ```

mod damage;
mod faults;
mod folders;
mod gguf_files;
// The parts of a GGUF file that the hostile corpus tells lies in.
#[allow(dead_code, reason = "the corpus uses the rest")]
#[path = "../../../cli/tests/hostile/gguf_parts.rs"]
mod gguf_parts;

/// What Git LFS leaves where a file was not fetched.
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
/// What a site answers with instead of a file.
const PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n";

use damage::{CASES, Scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trueup_convert::doctor::{Diagnosis, Finding, Severity, diagnose, rules};
use trueup_quantize::NoProgress;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn look(path: &Path) -> Diagnosis {
    diagnose(path, None, &NoProgress).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A finding on one line, with no more of paths than the names of files.
fn line(finding: &Finding, folder: &Path) -> String {
    let place = &finding.place;
    let named = |what: &str, name: &Option<String>| name.as_ref().map(|name| format!("{what}`{name}`"));
    let element = place.element.as_ref().map(|element| format!("element {element:?}"));
    let parts =
        [named("", &place.file), named("tensor ", &place.tensor), named("key ", &place.key), place.at.clone(), element];
    let text = format!("{}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "), finding.found);
    let folder = folder.to_str().expect("paths of tests are UTF-8");
    text.replace(&format!("{folder}/"), "").replace(folder, "model").replace('|', "\\|")
}

#[test]
fn every_rule_has_a_case_and_no_name_is_there_twice() {
    let names: Vec<&str> = rules().map(|rule| rule.name).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), unique.len());
    assert_eq!(CASES.iter().map(|case| case.rule).collect::<BTreeSet<_>>(), unique);
    let is_kebab = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    assert!(names.iter().all(|name| is_kebab(name)));
}

#[test]
fn every_damage_is_found_where_it_is_and_the_page_shows_it() {
    // The page escapes `<`, so that mdBook does not read it as HTML.
    let page = fs::read_to_string(root().join("docs/doctor.md")).unwrap_or_default().replace("\\<", "<");
    let mut complaints = Vec::new();
    let mut rows = Vec::new();
    for rule in rules() {
        for (number, case) in CASES.iter().filter(|case| case.rule == rule.name).enumerate() {
            let scratch = Scratch::new();
            let diagnosis = look(&(case.make)(&scratch));
            let Some(finding) = diagnosis.findings.iter().find(|finding| finding.name == case.rule) else {
                complaints.push(format!("{}: not found in {:#?}", case.rule, diagnosis.findings));
                continue;
            };
            let shown = line(finding, scratch.folder());
            for word in case.words.iter().filter(|word| !shown.contains(**word)) {
                complaints.push(format!("{}: no {word:?} in {shown}", case.rule));
            }
            let is_remedy = finding.remedy == rule.remedy || Some(finding.remedy) == rule.checkpoint_remedy;
            if finding.severity != rule.severity || finding.why != rule.why || !is_remedy {
                complaints.push(format!("{}: the finding is not its rule's", case.rule));
            }
            if number == 0 {
                let severity = rule.severity.name();
                let remedy = match rule.checkpoint_remedy {
                    Some(other) => format!("GGUF: {}; checkpoint: {other}", rule.remedy),
                    None => rule.remedy.to_owned(),
                };
                rows.push(format!("| `{}` | {severity} | {shown} | {} | {remedy} |", rule.name, rule.why));
            }
        }
    }
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
    complaints.extend(missing.iter().map(|row| format!("docs/doctor.md lacks the row\n{row}")));
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_page_lists_no_rule_that_is_not_there() {
    let page = fs::read_to_string(root().join("docs/doctor.md")).expect("docs/doctor.md");
    let names: BTreeSet<&str> = rules().map(|rule| rule.name).collect();
    // The page also has tables of JSON fields.
    let is_finding = |rest: &str| ["error", "warning", "note"].iter().any(|s| rest.starts_with(&format!(" | {s} |")));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: Vec<&str> = rows.filter(|(_, rest)| is_finding(rest)).map(|(name, _)| name).collect();
    assert!(listed.len() >= names.len(), "{listed:?}");
    for name in listed {
        assert!(names.contains(name), "{name} is listed and is no rule");
    }
}

#[test]
fn healthy_models_have_notes_at_most() {
    let scratch = Scratch::new();
    let models = fs::read_dir(root().join("fixtures/models")).expect("fixtures");
    let mut folders: Vec<PathBuf> = models.map(|entry| entry.expect("an entry").path()).collect();
    folders.push(root().join("fixtures/stories-1M"));
    assert!(folders.len() >= 9);
    for folder in folders {
        let name = folder.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        let whole = scratch.convert(&folder, &format!("{name}.gguf"), None, None);
        let split = scratch.convert(&folder, &format!("{name}-split.gguf"), None, Some(100_000));
        let small =
            scratch.convert(&folder, &format!("{name}-q8_0.gguf"), trueup_blocks::DType::from_name("q8_0"), None);
        for path in [folder, whole, split, small] {
            let diagnosis = look(&path);
            let bad: Vec<&Finding> =
                diagnosis.findings.iter().filter(|finding| finding.severity != Severity::Note).collect();
            assert!(bad.is_empty(), "{}: {bad:#?}", path.display());
            let whole = trueup_formats::open(&path, &trueup_formats::OpenOptions::default()).expect("a model");
            assert_eq!(diagnosis.tensors, whole.tensors().len(), "{diagnosis:?}");
            assert!(diagnosis.tensors >= 14 && diagnosis.bytes > 50_000, "{diagnosis:?}");
        }
    }
}

#[test]
fn findings_do_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let path = gguf_files::not_finite(&scratch);
    let one = diagnose(&path, Some(1), &NoProgress).expect("it is read");
    assert_eq!(diagnose(&path, Some(3), &NoProgress).expect("it is read"), one);
}

#[test]
fn a_split_model_without_a_part_has_its_other_parts_looked_at() {
    let scratch = Scratch::new();
    let path = gguf_files::missing_part_and_nan(&scratch);
    let names: BTreeSet<&str> = look(&path).findings.iter().map(|finding| finding.name).collect();
    for name in ["part-missing", "tensor-missing", "not-finite"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
}

#[test]
fn what_is_met_often_is_listed_a_few_times_and_counted() {
    let scratch = Scratch::new();
    let diagnosis = look(&gguf_files::nan_everywhere(&scratch));
    let found: Vec<&Finding> = diagnosis.findings.iter().filter(|finding| finding.name == "not-finite").collect();
    assert_eq!((found.len(), found[9].more), (10, 16), "26 tensors");
    assert_eq!(diagnosis.count(Severity::Error), 26);
    assert_eq!(diagnosis.worst(), Some(Severity::Error));
}

#[test]
fn empty_tokens_are_counted_and_not_reported_as_repeated() {
    let diagnosis = look(&gguf_files::tokens_empty(&Scratch::new()));
    let found: Vec<(&str, u64)> = diagnosis.findings.iter().map(|finding| (finding.name, finding.more)).collect();
    assert!(found.contains(&("token-empty", 2)), "{found:?}");
    assert!(!found.iter().any(|(name, _)| *name == "token-repeated"), "{found:?}");
}

#[test]
fn no_byte_is_read_for_two_tensors_and_faults_are_counted_by_kind() {
    let scratch = Scratch::new();
    let healthy = look(&scratch.fixture("qwen2"));
    let diagnosis = look(&gguf_files::faults_of_two_kinds(&scratch, 1500));
    assert_eq!((diagnosis.tensors, diagnosis.bytes), (healthy.tensors, healthy.bytes));
    let count = |name: &str| {
        let of = diagnosis.findings.iter().filter(|finding| finding.name == name);
        of.map(|finding| 1 + finding.more).sum::<u64>()
    };
    let counts = ["tensors-overlap", "tensor-outside-file", "header-broken"].map(count);
    assert_eq!(counts, [1500, 1500, 0], "{:#?}", diagnosis.findings);
}

#[test]
fn values_that_were_never_written_are_not_read() {
    let scratch = Scratch::new();
    let diagnosis = look(&gguf_files::sparse(&scratch));
    assert_eq!((diagnosis.tensors, diagnosis.bytes), (0, 0));
}

#[test]
fn long_lists_of_tokens_are_told_in_a_few_words() {
    const MANY: u64 = 300_000;
    let told = |file: &str, name: &str, count: u64| {
        let diagnosis = look(&folders::many_ends(&Scratch::new(), file, count));
        assert!(diagnosis.findings.iter().all(|finding| finding.found.len() < 600), "{:#?}", diagnosis.findings);
        let finding = diagnosis.findings.into_iter().find(|finding| finding.name == name);
        finding.map(|finding| (finding.found, finding.more)).expect("a finding")
    };
    for file in ["config.json", "generation_config.json"] {
        let (refused, _) = told(file, "tokenizer-refused", MANY);
        assert!(refused.contains("at most 1024 token IDs, found 300000"), "{refused}");
    }
    let (differ, _) = told("generation_config.json", "eos-differs", 1000);
    assert!(
        differ.contains("generation_config.json [400, 401, 402, 403, 404, 405, 406, 407] and 992 more"),
        "{differ}"
    );
    let (outside, more) = told("generation_config.json", "role-outside-vocabulary", MANY);
    assert_eq!((outside.as_str(), more), ("token ID 400 is outside the vocabulary of 400 tokens", 299_999));
}

#[test]
fn what_is_no_model_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.folder().join("notes.txt");
    fs::write(&path, "hello, this is no model at all").expect("a file");
    assert!(diagnose(&path, None, &NoProgress).is_err());
    assert!(diagnose(scratch.folder(), None, &NoProgress).is_err());
    assert!(diagnose(&scratch.folder().join("nothing"), None, &NoProgress).is_err());
}
