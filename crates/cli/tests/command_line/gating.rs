//! `verify` with reports and gates: files, exit codes, and what is refused.

use crate::trueup::{Scratch, argument, tiny, trueup};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(path).expect("a report")
}

#[test]
fn all_reports_are_written_and_say_the_same_sentence() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let [json, html, junit, summary] = ["r.json", "r.html", "r.xml", "r.md"].map(|name| scratch.path(name));
    let call = ["verify", &model, "--steps", "2", "-q", "--json", &json, "--html", &html, "--junit", &junit];
    let told = trueup(&[&call[..], &["--summary", &summary]].concat()).exits(0);
    let report: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let sentence = report["sentence"].as_str().expect("a sentence");
    assert!(told.stdout.starts_with(&format!("PASS: {sentence}\n")) && told.stderr.is_empty(), "{told:?}");
    assert!(
        report["run"]["command"].as_str().is_some_and(|command| command.contains("--steps 2")),
        "{}",
        report["run"]
    );
    assert!(read(&html).starts_with("<!doctype html>") && read(&html).contains(sentence));
    assert!(read(&junit).contains(sentence) && read(&junit).contains("failures=\"0\""));
    assert!(read(&summary).starts_with("### ✓ PASS"));
    let page = trueup(&["verify", &model, "--steps", "1", "-q", "--html", "-"]).exits(0).stdout;
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn the_gate_of_the_documentation_passes_and_a_narrow_one_does_not() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let example = argument(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/gate.toml"));
    let told = trueup(&["verify", &model, "-q", "--gate", &example]).exits(0);
    assert!(told.stdout.contains("is not needed by any node") && told.stdout.contains("budget"), "{told:?}");
    let narrow = scratch.path("narrow.toml");
    fs::write(&narrow, "[budgets]\nlogit_sigma = 1e-9\n").expect("a file");
    let (summary, json) = (scratch.path("r.md"), scratch.path("r.json"));
    let call = ["verify", &model, "-q", "--gate", &narrow, "--summary", &summary, "--json", &json];
    let told = trueup(&call).exits(1);
    assert!(told.stdout.starts_with("FAIL: ") && told.stdout.contains("beyond its budget"), "{told:?}");
    assert!(told.stderr.starts_with("::error title=trueup verify failed::"), "{told:?}");
    assert!(read(&summary).contains("exceeded**"));
    let report: Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert_eq!((&report["result"], &report["gate"]["budgets"][0]["holds"]), (&"fail".into(), &false.into()));
}

#[test]
fn a_baseline_is_kept_or_drifted_from() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("qwen3"), "model.gguf");
    let before = scratch.path("before.json");
    trueup(&["verify", &model, "--steps", "2", "-q", "--json", &before]).exits(0);
    let told = trueup(&["verify", &model, "--steps", "2", "-q", "--baseline", &before]).exits(0);
    assert!(told.stdout.contains("0 changes, 0 of them drifts"), "{told:?}");
    let mut report: Value = serde_json::from_str(&read(&before)).expect("JSON");
    report["coverage"]["checked"] = 10_000.into();
    fs::write(&before, report.to_string()).expect("a file");
    let told = trueup(&["verify", &model, "--steps", "2", "-q", "--baseline", &before]).exits(1);
    assert!(told.stdout.contains("nodes checked went from 10000 to"), "{told:?}");
}

#[test]
fn bad_gates_and_places_are_refused_before_any_work() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("mistral"), "model.gguf");
    let (gate, report) = (scratch.path("gate.toml"), scratch.path("report.json"));
    fs::write(&gate, "coverage = 1.0\n\n[[waiver]]\nnode = \"a\"\n").expect("a file");
    trueup(&["verify", &model, "--gate", &gate]).refuses(&["gate.toml", "line 3", "verdict"]);
    fs::write(&gate, [b'a', b'\n', 0xff]).expect("a file");
    trueup(&["verify", &model, "--gate", &gate]).refuses(&["line 2", "UTF-8"]);
    fs::write(&report, "{\"version\":1}").expect("a file");
    trueup(&["verify", &model, "--baseline", &report]).refuses(&["report.json", "no report of trueup verify"]);
    trueup(&["verify", &model, "--baseline", &report, "--json", &report]).refuses(&["is read by this command"]);
    trueup(&["verify", &model, "--json", "-", "--html", "-"]).refuses(&["cannot go to one place"]);
    trueup(&["verify", &model, "--html", &model]).refuses(&["is read by this command"]);
    trueup(&["verify", &model, "--junit", &scratch.path("none/r.xml")]).refuses(&["there is no folder"]);
    trueup(&["verify", &model, "--gate", &scratch.path("none.toml")]).refuses(&["none.toml"]);
}
