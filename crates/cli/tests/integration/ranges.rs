//! Nodes are named to NVIDIA's profilers when that is asked for; a small library stands in for the one that they watch.

#![allow(clippy::print_stdout, reason = "a test says what it skips")]

use crate::trueup::{Scratch, binary, tiny};
use std::path::Path;
use std::process::{Command, Output};

/// Compiles the library into a folder; whether there is a compiler.
#[allow(clippy::print_stdout, reason = "what is skipped is said")]
fn compile(folder: &Path, flags: &[&str]) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/ranges.c");
    let target = folder.join("libnvToolsExt.so.1");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(target).arg(source).args(flags).output();
    match compiled {
        Ok(output) => output.status.success() || panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: names of nodes in profilers' ranges: cc: {error}");
            false
        }
    }
}

#[test]
fn nodes_are_ranges_of_profilers() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let folder = scratch.path("");
    if !compile(Path::new(&folder), &[]) {
        return;
    }
    let run = |flags: &[&str]| -> Output {
        let call = ["run", &model, "--ids", "1 5 9", "-n", "2", "--json"];
        binary().args(call).args(flags).env("LD_LIBRARY_PATH", &folder).output().expect("the binary starts")
    };
    let (plain, named) = (run(&[]), run(&["--nvtx"]));
    let told = String::from_utf8_lossy(&named.stderr);
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("range ") || *line == "end").collect();
    assert!(lines.contains(&"range Qcur-0") && lines.contains(&"range result_output"), "{told}");
    assert!(lines.chunks(2).all(|pair| pair[0].starts_with("range ") && pair[1] == "end"), "{told}");
    assert!(named.status.success() && !String::from_utf8_lossy(&plain.stderr).contains("range "));
    let ids = |output: &Output| {
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        answer["prompts"][0]["generated_ids"].clone()
    };
    assert_eq!(ids(&plain), ids(&named));
    assert!(compile(Path::new(&folder), &["-DWITHOUT"]));
    let refused = run(&["--nvtx"]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("install NVTX") && told.contains("--nvtx"), "{told}");
}
