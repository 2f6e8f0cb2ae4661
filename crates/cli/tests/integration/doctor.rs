//! `inspect --doctor`: exit codes, the page for people and the document for programs.

use crate::trueup::{Scratch, argument, stories, tiny, trueup};
use serde_json::json;
use std::fs;

#[test]
fn a_healthy_model_exits_with_0_and_may_have_notes() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let told = trueup(&["inspect", &model, "--doctor"]).exits(0);
    let sum = "healthy: 0 errors, 0 warnings, 2 notes; checked 56 tensors and 2480640 bytes\n";
    assert!(told.stdout.ends_with(sum) && told.stderr.is_empty(), "{told:?}");
    let answer = trueup(&["inspect", &argument(&tiny("qwen2")), "--doctor", "--json", "-t", "1"]).exits(0).json();
    assert_eq!(
        (&answer["version"], &answer["result"], &answer["format"]),
        (&json!(1), &json!("healthy"), &json!("safetensors"))
    );
    assert_eq!(answer["counts"], json!({"errors": 0, "warnings": 0, "notes": 0}));
    assert_eq!(answer["looked_at"], json!({"tensors": 26, "bytes": 175_232}));
    assert_eq!(answer["findings"], json!([]));
}

#[test]
fn a_damaged_model_exits_with_1_and_says_where_why_and_what_to_do() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("qwen2"), "cut.gguf");
    let bytes = fs::read(&model).expect("a model");
    fs::write(&model, &bytes[..bytes.len() - 100]).expect("a file");
    let told = trueup(&["inspect", &model, "--doctor"]).exits(1);
    for words in
        ["error tensor-outside-file: ", "tensor output_norm.weight", "\n  why: ", "\n  fix: ", "\ndamaged: 1 error, "]
    {
        assert!(told.stdout.contains(words), "no {words:?} in {told:?}");
    }
    let answer = trueup(&["inspect", &model, "--doctor", "--json"]).exits(1).json();
    assert_eq!(answer["result"], "error");
    let findings = answer["findings"].as_array().expect("a list");
    let named = |name: &str| findings.iter().find(|finding| finding["name"] == name);
    assert!(named("tensor-missing").is_none(), "what is cut is there: {findings:?}");
    let finding = named("tensor-outside-file").expect("the tensor is cut");
    assert_eq!((&finding["severity"], &finding["tensor"]), (&json!("error"), &json!("output_norm.weight")));
    assert_eq!((&finding["file"], &finding["element"], &finding["more"]), (&json!(model), &json!(null), &json!(0)));
}

#[test]
fn few_descriptors_are_enough_and_want_of_them_is_no_damage() {
    let scratch = Scratch::new();
    let model = scratch.path("split.gguf");
    trueup(&["convert", &argument(&tiny("qwen2")), &model, "--split-max-size", "20K", "--quiet"]).exits(0);
    let names = scratch.names();
    let first = names.iter().find(|name| name.contains("-00001-of-")).expect("the first file");
    let (first, files) = (scratch.path(first), names.len());
    assert!(files >= 6, "{files} files");
    let look = |limit: usize| {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let mut command = assert_cmd::Command::new("bash");
        command.args([
            "-c",
            &script,
            env!("CARGO_BIN_EXE_trueup"),
            "inspect",
            &first,
            "--doctor",
            "-t",
            "1",
            "--quiet",
        ]);
        command.output().expect("the binary starts")
    };
    // Standard streams, and what the runtime may open.
    let enough = look(files + 8);
    assert_eq!(enough.status.code(), Some(0), "{enough:?}");
    let few = look(files);
    let told = String::from_utf8_lossy(&few.stderr);
    assert_eq!(few.status.code(), Some(2), "{few:?}");
    assert!(few.stdout.is_empty() && told.contains("Too many open files") && told.contains("ulimit -n"), "{told}");
}

#[test]
fn what_is_no_model_exits_with_2() {
    let scratch = Scratch::new();
    let file = scratch.path("notes.txt");
    fs::write(&file, "this is no model at all").expect("a file");
    trueup(&["inspect", &file, "--doctor"]).refuses(&["notes.txt"]);
    trueup(&["inspect", &scratch.path("nothing"), "--doctor", "--json"]).refuses(&["nothing"]);
    trueup(&["inspect", &file, "--doctor", "--hash"]).exits(2);
}

#[test]
fn a_trace_is_not_taken_for_a_model() {
    let scratch = Scratch::new();
    let (model, trace) = (scratch.gguf(&tiny("qwen2"), "model.gguf"), scratch.path("trace.safetensors"));
    trueup(&["trace", &model, "-p", "fox", "-o", &trace, "-q"]).exits(0);
    trueup(&["inspect", &trace]).exits(0);
    trueup(&["inspect", &trace, "--doctor"]).refuses(&["expected a model, found a trace; judge it with"]);
}
