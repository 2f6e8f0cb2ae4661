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
    let steps = ["trace", &model, "--ids", "1 2", "--steps", "99999", "--print"];
    trueup(&steps).refuses(&["a prompt of 2 tokens and 99999 steps exceed the context of"]);
    trueup(&["run", &model, "--ids", "1 2", "--logits", "-"]).refuses(&["--logits -: logits are not text"]);
    for name in ["x.npz", "x.TXT", "x.gguf"] {
        let other = scratch.path(name);
        trueup(&["trace", &model, "--ids", "1 2", "-o", &other])
            .refuses(&[name, "expected a name ending in .safetensors"]);
        assert!(!Path::new(&other).exists(), "{name}");
    }
    trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "2", "-o", &file, "-q"]).exits(0);
    let outcome =
        trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "0", "--print", "--nodes", "^l_out"]).exits(0);
    assert!(
        outcome.stdout.starts_with("0/l_out-0 = add(ffn_out-0 f32[64, 3], ffn_inp-0 f32[64, 3]): f32[64, 3]\n"),
        "{outcome:?}"
    );
    assert_eq!(outcome.stdout.lines().filter(|line| line.trim_start().starts_with("sum = ")).count(), 2, "{outcome:?}");

    let answer = trueup(&["verify", &model, "--ref", &file, "--json", "-"]).exits(0).json();
    assert_eq!((&answer["result"], &answer["trace"]["result"]), (&"pass".into(), &"pass".into()));
    assert_eq!(
        (&answer["trace"]["checked"], &answer["trace"]["same_model"]),
        (&answer["trace"]["graph_nodes"], &true.into())
    );
    assert_eq!(answer["trace"]["tokens"], serde_json::json!([3, 1, 1]));
    trueup(&["verify", &model, "--ref", &file, "--ids", "1 8"])
        .refuses(&["different token IDs", "token 1 is 7 in the trace and 8 in the prompt"]);
    trueup(&["verify", &model, "--ref", &file, "--ids", "1 7"])
        .refuses(&["different token IDs", "first step of the trace has 3 of its 5 tokens, and the prompt has 2"]);
    trueup(&["verify", &model, "--ref", &file, "-p", "The sky"]).refuses(&["different token IDs"]);
    trueup(&["verify", &model, "--ref", &file, "--ids", "1 7 42", "-q"]).exits(0);
    trueup(&["verify", &model, "--ref", &file, "--ids", "1 7 42", "--ids", "3"]).refuses(&["found 2 prompts"]);
    trueup(&["verify", &model, "--ref", &scratch.path("missing.safetensors")]).refuses(&["missing.safetensors"]);
    trueup(&["verify", &model, "--ref", "nofile"])
        .refuses(&["--ref: expected a device (ref, cpu, ", ") or a trace file, found nofile, which is neither"]);
    let weights = tiny("llama2").join("model.safetensors").to_string_lossy().into_owned();
    trueup(&["verify", &model, "--ref", &weights]).refuses(&["expected a trace, found a model checkpoint"]);
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
    let outcome = trueup(&["verify", &coarse, "--ref", &traces("llama2.safetensors")]).exits(1);
    assert!(outcome.stdout.starts_with("FAIL: First faulty node of the trace "), "{outcome:?}");
    assert!(outcome.stdout.contains(": inp_embd (get_rows), weight token_embd.weight"), "{outcome:?}");
    trueup(&["verify", &scratch.gguf(&stories(), "stories.gguf"), "--ref", &traces("llama2.safetensors")])
        .refuses(&["expected shape"]);
}

#[test]
fn printed_tensors_have_step_operator_shapes_ends_and_sum() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("qwen2"), "qwen2.gguf"), scratch.path("trace.safetensors"));
    let call = ["trace", &model, "--ids", "3 5", "--steps", "1", "--print", "--out", &file, "-q"];
    let outcome = trueup(&call).exits(0);
    let heads: Vec<&str> = outcome.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(outcome.stdout.lines().count(), 3 * heads.len(), "{outcome:?}");
    assert!(heads.contains(&"1/Kcur-0 = mul_mat(blk.0.attn_k.weight bf16[64, 32], attn_norm-0 f32[64]): f32[32]"));
    // What is printed is what the file holds.
    let trace = trueup::formats::Trace::open(&file).unwrap();
    assert_eq!(trace.tensors().len(), heads.len());
    let trueup::formats::TraceValues::All(values) = trace.read(trace.find(1, "l_out-1").unwrap()).unwrap() else {
        panic!("safetensors hold all values")
    };
    let place = outcome.stdout.find("\n1/l_out-1 = ").expect("the node is printed");
    let lines: Vec<&str> = outcome.stdout[place + 1..].lines().take(3).collect();
    let number = |text: &str| text.trim().parse::<f64>().unwrap();
    let ends: Vec<&str> = lines[1].trim().trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(ends.len(), 7, "{lines:?}");
    assert!((number(ends[0]) - values[0]).abs() < 1e-6 && (number(ends[6]) - values[63]).abs() < 1e-6, "{lines:?}");
    assert!((number(lines[2].trim_start_matches("    sum =")) - values.iter().sum::<f64>()).abs() < 1e-5, "{lines:?}");

    // An earlier file is replaced; a place that is none is refused before any work.
    trueup(&["trace", &model, "--ids", "3", "--steps", "0", "-o", &file, "-q"]).exits(0);
    assert_eq!(trueup::formats::Trace::open(&file).unwrap().tokens(1).unwrap(), [1]);
    trueup(&["trace", &model, "--ids", "3", "-o", &scratch.path("none/trace")]).refuses(&["does not exist; create it"]);
    trueup(&["trace", &model, "--ids", "3", "-o", &scratch.path("")]).refuses(&["found a directory"]);
    trueup(&["trace", &model, "--ids", "3", "-o", "-"]).refuses(&["pass a file name"]);
    trueup(&["trace", &model, "--ids", "3", "--print", "--nodes", "^none$"]).refuses(&["matches no node"]);
}

#[test]
fn a_trace_that_lacks_nodes_is_inconclusive_in_every_report() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("qwen3"), "qwen3.gguf"), scratch.path("trace.safetensors"));
    let nodes = ["--nodes", "^l_out|^ffn_|^result"];
    trueup(&[&["trace", &model, "--ids", "1 7 42", "--steps", "1", "-o", &file, "-q"][..], &nodes].concat()).exits(0);
    let reports = ["html", "junit", "summary"].map(|form| (form, scratch.path(form)));
    let mut call = vec!["verify", &model, "--ref", &file, "--json", "-"];
    let flags = ["--html", "--junit", "--summary"];
    reports.iter().zip(flags).for_each(|((_, path), flag)| call.extend([flag, path.as_str()]));
    let answer = trueup(&call).exits(3).json();
    let trace = &answer["trace"];
    assert_eq!((&answer["result"], &trace["result"]), (&"inconclusive".into(), &"inconclusive".into()));
    let number = |key: &str| trace["coverage"][key].as_u64().unwrap();
    assert_eq!(number("judged") + number("computed") + number("missing"), number("results"));
    assert_eq!(trace["untraced"]["count"], number("computed") + number("missing"));
    assert_eq!(trace["untraced"]["nodes"][0], "0/inp_embd");
    assert_eq!(trace["untraced"]["steps_count"], 0);
    let outcome = format!("{} of {} results in 2 steps judged", number("judged"), number("results"));
    assert!(answer["sentence"].as_str().unwrap().contains(&outcome), "{outcome}");
    for (form, path) in reports {
        assert!(fs::read_to_string(&path).unwrap().contains(&outcome), "{form}: {outcome}");
    }
    let call = ["verify", &model, "--ref", &file, "-q"];
    assert!(trueup(&call).exits(3).stdout.contains("first 0/inp_embd"));
    // Less can be asked for, by the flag or by a gate; the flag counts.
    let with = |more: &[&str]| trueup(&[&call[..], more].concat());
    assert!(with(&["--coverage", "0.2"]).exits(0).stdout.contains(&outcome));
    assert!(with(&["--coverage", "0.9"]).exits(3).stdout.contains("0.9 required"));
    let gate = scratch.path("gate.toml");
    fs::write(&gate, "coverage = 0.2\n").unwrap();
    with(&["--gate", &gate]).exits(0);
    with(&["--gate", &gate, "--coverage", "1"]).exits(3);
    for share in ["0", "1.1", "nan", "-1", "most"] {
        with(&[&format!("--coverage={share}")]).refuses(&["a share above 0"]);
    }
    // Other programs' traces need not hold all, unless it is asked for.
    let theirs = traces("qwen3.safetensors");
    trueup(&["verify", &model, "--ref", &theirs, "-q"]).exits(0);
    trueup(&["verify", &model, "--ref", &theirs, "--coverage", "1", "-q"]).exits(3);
}

#[test]
fn traces_of_other_models_are_refused() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("qwen3"), "qwen3.gguf"), scratch.path("trace.safetensors"));
    trueup(&["trace", &model, "--ids", "1 7 42", "--steps", "0", "-o", &file, "-q"]).exits(0);
    let other = scratch.gguf(&tiny("llama2"), "llama2.gguf");
    trueup(&["verify", &other, "--ref", &file]).refuses(&[
        "expected a trace of this model, found one of another model",
        "in the trace and",
        "more tensors differ",
    ]);
    let coarse = scratch.path("coarse.gguf");
    trueup(&["quantize", &model, &coarse, "-b", "8"]).exits(0);
    trueup(&["verify", &coarse, "--ref", &file]).refuses(&[
        "expected a trace of this model, found one of another model",
        "sha256",
        "token_embd.weight",
    ]);
    trueup(&["verify", &other, "--ref", &traces("qwen3.safetensors")]).refuses(&["expected shape", "do not fit"]);
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
