//! `trueup bench`: what it measures, and what it refuses.

use crate::trueup::{Scratch, trueup};
use serde_json::{Value, json};
use std::fs;

/// A model whose weights no cache holds.
const MODEL: &str = "synth:llama-110m:q4_0";

/// Asserts a number above zero.
#[track_caller]
fn positive(object: &Value, field: &str) -> f64 {
    let number = object[field].as_f64().filter(|number| *number > 0.0 && number.is_finite());
    number.unwrap_or_else(|| panic!("{field} in {object}"))
}

#[test]
fn phases_are_shares_of_a_roof_of_the_same_run() {
    let report = trueup(&["bench", MODEL, "--prompt", "8", "--generate", "3", "--json", "-", "-q"]).exits(0).json();
    for (phase, tokens) in [("prompt", 8), ("decode", 3)] {
        let phase = &report[phase];
        assert_eq!(phase["tokens"], json!(tokens));
        assert!((0.0..=1.5).contains(&positive(phase, "roof_share")), "{phase}");
        let median = positive(&phase["seconds"], "median");
        assert!(positive(&phase["seconds"], "min") <= median && median <= positive(&phase["seconds"], "max"));
        assert!((positive(phase, "tokens_per_s") * median / f64::from(tokens) - 1.0).abs() < 1e-9);
        positive(phase, "gb_per_s");
        positive(phase, "gop_per_s");
    }
    for field in ["read_gb_per_s", "copy_gb_per_s", "multiply_gflop_per_s", "int8_gop_per_s"] {
        positive(&report["roof"], field);
    }
    assert!(positive(&report, "first_token_seconds") > positive(&report, "load_seconds"));
    let model = &report["model"];
    assert!(positive(&report, "peak_memory_bytes") > positive(model, "bytes"), "{report}");
    assert_eq!(
        (&model["name"], &model["parameters"], &model["cached"]),
        (&json!(MODEL), &json!(109_529_856), &json!(false))
    );
    // 24,576,000 weights of the embedding, 84,934,656 of the layers, and the norms.
    assert_eq!(model["types"], json!({"f32": 76_800, "q4_0": 47_775_744, "q8_0": 26_112_000}));
    assert_eq!(positive(model, "token_bytes"), 76_800.0 + 47_775_744.0 + 26_112_000.0 + 816.0);
    assert_eq!((&report["per_op"], &report["parallel"], &report["kv"]), (&Value::Null, &Value::Null, &json!("f16")));
}

#[test]
fn operators_and_sequences_are_listed_where_they_are_asked_for() {
    let scratch = Scratch::new();
    let file = scratch.path("bench.json");
    let call = ["bench", "synth:llama-15m:f16", "--prompt", "5", "--generate", "2", "--repetitions", "2", "--per-op"];
    let call = [&call[..], &["--parallel", "3,2", "--kv", "f32", "--json", &file, "-t", "1", "-q"]].concat();
    let told = trueup(&call).exits(0);
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).expect("a report")).expect("JSON");
    assert_eq!(
        (&report["kv"], &report["roof"]["threads"], &report["model"]["cached"]),
        (&json!("f32"), &json!(1), &json!(true))
    );
    let phases = report["per_op"].as_array().expect("two phases");
    assert_eq!(phases.iter().map(|phase| &phase["phase"]).collect::<Vec<_>>(), ["prompt", "decode"]);
    for phase in phases {
        let operators = phase["operators"].as_array().expect("operators");
        let sum = |field: &str| operators.iter().map(|operator| positive(operator, field)).sum::<f64>();
        assert!((sum("share") - 1.0).abs() < 1e-9 && (sum("seconds") / positive(phase, "seconds") - 1.0).abs() < 1e-9);
        let head = operators.iter().find(|operator| operator["shape"] == "[288, 32000]" && operator["op"] == "mul_mat");
        let head = head.expect("the output head");
        assert_eq!(head["weights"], "f16");
        positive(head, "gop_per_s");
    }
    let parallel = report["parallel"].as_array().expect("sequences");
    assert_eq!(parallel.iter().map(|at_once| &at_once["sequences"]).collect::<Vec<_>>(), [1, 2, 3]);
    for at_once in parallel {
        let (count, each) = (positive(at_once, "sequences"), positive(at_once, "tokens_per_s_each"));
        assert!((each * count / positive(at_once, "tokens_per_s") - 1.0).abs() < 1e-9, "{at_once}");
        let alone = positive(&parallel[0], "tokens_per_s");
        assert!((positive(at_once, "ratio_to_one") * alone / positive(at_once, "tokens_per_s") - 1.0).abs() < 1e-9);
        // Keys and values of 6 layers, 288 f32 in each of 64 positions.
        assert_eq!(positive(at_once, "kv_bytes"), count * 2.0 * 6.0 * 64.0 * 288.0 * 4.0);
    }
    for line in [
        "device: cpu",
        "model: synth:llama-15m:f16 (llama)",
        "peak memory: ",
        "prompt ",
        "decode ",
        "hardware limit of 1 thread",
        "sequences ",
    ] {
        assert!(told.stdout.contains(&format!("\n{line}")) || told.stdout.starts_with(line), "{line} in {told:?}");
    }
    assert!(told.stdout.contains("cached") && told.stdout.contains("one operator at a time"), "{told:?}");
}

#[test]
fn a_file_is_measured_too_and_is_never_overwritten() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let call = ["bench", &model, "--prompt", "4", "--generate", "2", "--repetitions", "1", "--json", "-q"];
    let report = trueup(&call).exits(0).json();
    assert_eq!(report["model"]["name"], json!(model));
    positive(&report["decode"], "roof_share");
    trueup(&["bench", &model, "--prompt", "4", "--json", &model]).refuses(&["the output path is also an input"]);
    trueup(&["bench", &model, "--prompt", "4000", "--generate", "4000"]).refuses(&["exceed the context of"]);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    trueup(&["bench", "-m", MODEL]).refuses(&["`trueup bench MODEL`"]);
    trueup(&["bench", "synth:llama-2b:q4_0"]).refuses(&[
        "llama-2b",
        "llama-1b, llama-8b, qwen2-0.5b, qwen2-1.5b, qwen2-3b, qwen2-7b, llama-110m, llama-15m",
    ]);
    trueup(&["bench", "synth:llama-15m:q9"]).refuses(&["synth:llama-15m:q9: unknown type: expected one of f32, f16"]);
    trueup(&["bench", "synth:llama-15m"]).refuses(&["expected a name and a type", "use synth:NAME:TYPE"]);
    trueup(&["run", "synth:llama-15m:q4_0", "--ids", "1"]).exits(2);
    trueup(&["bench", "synth:llama-15m:q4_0", "--json", "/no/such/folder/x.json"]).refuses(&["does not exist"]);
    trueup(&["bench", "synth:llama-15m:q4_0", "-c", "20"]).refuses(&["exceed the context of 20"]);
    for zero in ["--prompt", "--generate", "--repetitions", "--parallel"] {
        let told = trueup(&["bench", MODEL, zero, "0"]).exits(2);
        assert!(told.stderr.contains("above 0"), "{told:?}");
    }
    let told = trueup(&["bench", MODEL, "--isa", "mmx"]).exits(2);
    assert!(told.stderr.contains("scalar"), "{told:?}");
    assert_eq!(told.stderr.contains("avx512"), cfg!(target_arch = "x86_64"), "{told:?}");
}
