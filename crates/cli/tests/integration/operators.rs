//! `trueup ops list`, `test` and `perf`: what they say, and their exit codes.

use crate::trueup::{Scratch, trueup};
use serde_json::{Value, json};
use std::fs;

#[test]
fn right_operators_pass_and_every_line_can_be_computed_again() {
    let scratch = Scratch::new();
    let file = scratch.path("ops.json");
    let told = trueup(&["ops", "test", "--op", "add|reshape", "--seed", "7", "--json", &file, "-q"]).exits(0);
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    let results = report["results"].as_array().expect("results");
    assert_eq!(report["cases"], json!(results.len()));
    assert_eq!((&report["failed"], &report["skipped"], &report["passed"]), (&json!(0), &json!(0), &report["cases"]));
    assert_eq!(told.stdout.lines().count(), results.len() + 1, "{told:?}");
    for (line, result) in told.stdout.lines().zip(results) {
        let name = result["name"].as_str().expect("a name");
        assert!(line.starts_with(&format!("pass {name} ")) && line.contains(", seed 7: "), "{line}");
        assert!(name.starts_with("add/") || name.starts_with("reshape/"), "{name}");
        assert!(result["verdict"].is_string() && result["profile"].is_object() && result["seed"] == 7, "{result}");
    }
    assert!(told.stdout.ends_with(&format!("{} passed, 0 failed, 0 skipped, seed 7\n", results.len())), "{told:?}");
    let again = trueup(&["ops", "test", "--case", "add/4", "--seed", "7", "--json", "-", "-t", "1"]).exits(0).json();
    assert_eq!(again["results"], json!([results[4]]));
    let other = trueup(&["ops", "test", "--case", "add/4", "--seed", "8", "--json", "-"]).exits(0).json();
    assert_eq!(other["results"][0]["seed"], 8);
}

#[test]
fn devices_and_instruction_sets_can_be_chosen() {
    for call in [&["--dev", "ref"][..], &["--isa", "scalar"], &["--no-repack"]] {
        let call = [&["ops", "test", "--op", "swiglu", "--json", "-"], call].concat();
        let report = trueup(&call).exits(0).json();
        assert_eq!((&report["failed"], &report["skipped"]), (&json!(0), &json!(0)));
    }
    let answers = trueup(&["ops", "list", "--dev", "ref", "--op", "add", "--json", "-"]).exits(0).json();
    let add = &answers["operators"][0];
    assert_eq!(
        (&answers["device"], &add["op"], &add["profile"]["accumulator"]),
        (&json!("ref"), &json!("add"), &json!("f64"))
    );
    let told = trueup(&["ops", "list"]).exits(0).stdout;
    for name in ["add", "mul_mat", "rope", "swiglu"] {
        assert!(told.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name} in {told}");
    }
    assert!(told.contains("f32, f16 -> f32"), "{told}");
}

#[test]
fn what_is_not_known_is_refused() {
    trueup(&["ops", "test", "--op", "no_such"]).refuses(&["mul_.*, found no_such", "`trueup ops list` shows"]);
    trueup(&["ops", "test", "--op", "("]).refuses(&["regular expression"]);
    trueup(&["ops", "test", "--case", "add/99999"]).refuses(&["add/99999"]);
    trueup(&["ops", "test", "--case", "add/4", "--op", "mul.*"]).refuses(&["add/4", "does not match --op mul.*"]);
    trueup(&["ops", "perf", "--dev", "cuda"]).refuses(&["cuda"]);
    trueup(&["ops", "list", "--json", "/no/such/folder/x.json"]).refuses(&["does not exist"]);
    trueup(&["ops", "test", "--seed", "x"]).exits(2);
}

#[test]
fn speeds_are_shares_of_a_roof_of_the_same_run() {
    let report = trueup(&["ops", "perf", "--op", "rms_norm", "--json", "-", "-q"]).exits(0).json();
    let roof = &report["roof"];
    for unit in ["read_gb_per_s", "copy_gb_per_s", "multiply_gflop_per_s", "int8_gop_per_s"] {
        assert!(roof[unit].as_f64().is_some_and(|speed| speed > 0.01), "{unit} in {roof}");
    }
    let results = report["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(result["nodes"].as_u64().is_some_and(|nodes| (1..=8192).contains(&nodes)), "{result}");
        for unit in ["time_us", "gb_per_s", "roof_share"] {
            assert!(result[unit].as_f64().is_some_and(|number| number > 0.0), "{unit} in {result}");
        }
        assert!(result["gflop_per_s"].is_null() && result["skipped"].is_null(), "{result}");
    }
}
