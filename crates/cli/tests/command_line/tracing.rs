//! `trace`, `verify --ref FILE`, `verify --dump`.

use crate::trueup::{Scratch, argument, stories, tiny, trueup};
use std::fs;
use std::path::Path;

fn traces(name: &str) -> String {
    argument(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name))
}

#[test]
fn a_trace_is_written_printed_and_verified() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("qwen3"), "qwen3.gguf"), scratch.path("trace.safetensors"));
    trueup(&["trace", &model]).refuses(&["--out", "--print"]);
    trueup(&["trace", &model, "--ids", "1 2", "--ids", "3", "-o", &file]).refuses(&["one prompt", "2"]);
    trueup(&["trace", &model, "--ids", "1 2", "-o", &model]).refuses(&["qwen3.gguf"]);
    trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "2", "-o", &file, "-q"]).exits(0);
    let told = trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "0", "--print", "--nodes", "^l_out"]).exits(0);
    assert!(
        told.stdout.starts_with("0/l_out-0 = add(ffn_out-0 f32[64, 3], ffn_inp-0 f32[64, 3]): f32[64, 3]\n"),
        "{told:?}"
    );
    assert_eq!(told.stdout.lines().filter(|line| line.trim_start().starts_with("sum = ")).count(), 2, "{told:?}");

    let answer = trueup(&["verify", &model, "--ref", &file, "--json", "-"]).exits(0).json();
    assert_eq!((&answer["result"], &answer["trace"]["result"]), (&"pass".into(), &"pass".into()));
    assert_eq!(
        (&answer["trace"]["checked"], &answer["trace"]["same_model"]),
        (&answer["trace"]["graph_nodes"], &true.into())
    );
    assert_eq!(answer["trace"]["tokens"], serde_json::json!([3, 1, 1]));
    trueup(&["verify", &model, "--ref", &file, "--ids", "1 8"]).refuses(&["other token ids"]);
    trueup(&["verify", &model, "--ref", &scratch.path("missing.safetensors")]).refuses(&["missing.safetensors"]);
}

#[test]
fn traces_of_other_programs_are_compared() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama2"), "llama2.gguf");
    trueup(&["verify", &model, "--ref", &traces("llama2.safetensors"), "-q"]).exits(0);
    // llama.cpp printed its text on the model in f32; in f16 it rounds activations too.
    let wide = scratch.path("llama2-f32.gguf");
    trueup(&["quantize", &model, &wide, "--type", "f32"]).exits(0);
    trueup(&["verify", &wide, "--ref", &traces("llama2.llama_cpp.txt"), "-q"]).exits(0);
    trueup(&["verify", &wide, "--ref", &traces("llama2.safetensors"), "--steps", "1"]).refuses(&["--steps"]);
    let coarse = scratch.path("coarse.gguf");
    trueup(&["quantize", &model, &coarse, "-b", "4"]).exits(0);
    let told = trueup(&["verify", &coarse, "--ref", &traces("llama2.safetensors")]).exits(1);
    assert!(told.stdout.starts_with("FAIL: The first bad node of the trace "), "{told:?}");
    assert!(told.stdout.contains(" is inp_embd (get_rows) with token_embd.weight"), "{told:?}");
    trueup(&["verify", &scratch.gguf(&stories(), "stories.gguf"), "--ref", &traces("llama2.safetensors")])
        .refuses(&["expected shape"]);
}

#[test]
fn both_sides_are_dumped() {
    let scratch = Scratch::new();
    let (model, folder) = (scratch.gguf(&tiny("qwen2"), "qwen2.gguf"), scratch.path("dump"));
    let steps = ["--steps", "1", "--dump", &folder, "-q"];
    trueup(&[&["verify", &model, "--ids", "1 2 3", "--ids", "4"][..], &steps].concat()).exits(0);
    for side in ["device", "reference"] {
        for prompt in ["p0", "p1"] {
            let file = format!("{folder}/{side}/{prompt}.safetensors");
            assert!(fs::metadata(&file).is_ok_and(|facts| facts.len() > 1000), "{file}");
            trueup(&["verify", &model, "--ref", &file, "-q"]).exits(0);
        }
    }
}
