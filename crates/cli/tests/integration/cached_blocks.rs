//! `--kv q8_0` of every command that has `--kv`.

use crate::trueup::{Scratch, tiny, trueup};
use serde_json::json;

#[test]
fn a_cache_of_blocks_is_run_verified_planned_timed_and_traced() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("qwen3"), "qwen3.gguf"), scratch.path("trace.safetensors"));
    let of = |kv: &str| trueup(&["run", &model, "--ids", "1 7 42", "-n", "5", "--kv", kv, "--json"]).exits(0).json();
    assert_eq!(of("q8_0")["prompts"][0]["generated_ids"].as_array().map(Vec::len), Some(5));
    trueup(&["verify", &model, "-q", "--steps", "3", "--kv", "q8_0"]).exits(0);
    let found = trueup(&["verify", &model, "-q", "--kv", "q8_0", "--inject-fault", "kv-slot@cache_k-1"]).exits(1);
    assert!(found.stdout.contains("cache_k-1") && found.stdout.contains("--kv q8_0"), "{found:?}");

    // Two layers of keys and values, rows of two heads of 32, in blocks of 34 bytes or elements of two.
    let bytes = |kv: &str| trueup(&["plan", &model, "-c", "64", "--kv", kv, "--json"]).exits(0).json();
    assert_eq!(bytes("q8_0")["devices"][0]["kv_bytes"], json!(2 * 2 * 64 * 2 * 34));
    assert_eq!(bytes("f16")["devices"][0]["kv_bytes"], json!(2 * 2 * 64 * 2 * 32 * 2));

    let bench = ["bench", &model, "--prompt", "5", "--generate", "2", "--repetitions", "1", "--kv", "q8_0", "-q"];
    assert_eq!(trueup(&[&bench[..], &["--json"]].concat()).exits(0).json()["kv"], "q8_0");

    trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "2", "--kv", "q8_0", "-o", &file, "-q"]).exits(0);
    let told = trueup(&["verify", &model, "--ref", &file, "--json", "-", "-q"]).exits(0).json();
    assert_eq!((&told["result"], &told["trace"]["checked"]), (&json!("pass"), &told["trace"]["graph_nodes"]));
    // What the caches hold is part of the proof: without what was stored, the scores follow from computed keys.
    let some = ["--nodes", "^(inp_embd|kq|kqv_out|result_output)"];
    trueup(&[&["trace", &model, "--ids", "1 7 42", "--kv", "q8_0", "-o", &file, "-q"][..], &some].concat()).exits(0);
    trueup(&["verify", &model, "--ref", &file, "-q"]).exits(3);
}

#[test]
fn heads_that_are_no_whole_blocks_are_refused() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "llama3.gguf");
    let bench = ["bench", &model, "--prompt", "5", "--generate", "2"];
    for command in [&["run", &model, "--ids", "1"][..], &["verify", &model], &["plan", &model], &bench] {
        trueup(&[command, &["--kv", "q8_0"]].concat()).refuses(&[
            "q8_0",
            "KV cache type q8_0: expected a head size that is a multiple of 32, found ",
            "use f16 or f32",
        ]);
    }
}
