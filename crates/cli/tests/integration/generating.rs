//! `run` and `chat`: goldens of other software, the shapes of `--json` and `--logits`, flags that change nothing.

use crate::trueup::{Scratch, argument, golden, ids, ids_argument, stories, tiny, trueup, trueup_with_input};
use serde_json::Value;
use std::fs;
use std::path::Path;
use trueup::formats::SafetensorsFile;

/// Goldens are computed in f32: the oracle is no nearer to them than their own rounding.
const NMSE_MAX: f64 = 1e-9;

#[test]
fn greedy_ids_are_those_of_other_software() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    for prompt in golden(&stories())["prompts"].as_array().expect("prompts") {
        let greedy = ids(&prompt["greedy_ids"]);
        let to_the_end = &greedy[..=prompt["tokens_before_eos"].as_u64().expect("a number") as usize];
        let text = prompt["prompt"].as_str().expect("a text");
        let answer = trueup(&["run", &model, "-p", text, "--json"]).exits(0).json();
        let entry = &answer["prompts"][0];
        assert_eq!(ids(&entry["ids"]), ids(&prompt["ids"]), "{text:?}");
        assert_eq!(ids(&entry["generated_ids"]), to_the_end, "{text:?}");
        assert_eq!(entry["finish"], "stop");

        let call = [
            "run",
            &model,
            "--ids",
            &ids_argument(&prompt["ids"]),
            "-n",
            "200",
            "--ignore-eos",
            "--kv",
            "f32",
            "--json",
        ];
        let answer = trueup(&call).exits(0).json();
        assert_eq!(ids(&answer["prompts"][0]["generated_ids"]), greedy, "{text:?}");
    }
}

#[test]
fn several_prompts_at_once_are_what_each_is_alone() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let file = scratch.path("prompt.txt");
    fs::write(&file, "The dog\n").expect("a file");
    let both =
        trueup(&["run", &model, "-p", "Tom and", "-f", &file, "--ids", "1 439", "-n", "6", "--json"]).exits(0).json();
    let alone = [["-p", "Tom and"], ["-p", "The dog\n"], ["--ids", "1,439"]];
    assert_eq!(both["prompts"].as_array().map(Vec::len), Some(alone.len()));
    for (number, [flag, value]) in alone.into_iter().enumerate() {
        let answer = trueup(&["run", &model, flag, value, "-n", "6", "--json"]).exits(0).json();
        for key in ["ids", "generated_ids", "text"] {
            assert_eq!(both["prompts"][number][key], answer["prompts"][0][key], "{key} of prompt {number}");
        }
    }
}

#[test]
fn the_json_document_has_its_keys() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let outcome = trueup(&["run", &model, "-p", "Once upon a time", "-n", "3", "--json", "--quiet"]).exits(0);
    assert_eq!(outcome.stderr, "");
    let answer = outcome.json();
    let keys: Vec<&str> = answer["prompts"][0].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, ["ids", "generated_ids", "text", "finish", "context_shifts", "prompt_ms", "decode_ms"]);
    assert_eq!(answer["prompts"][0]["text"], ", there was");
    assert!(answer["prompts"][0]["prompt_ms"].is_number() && answer["prompts"][0]["decode_ms"].is_number());
    let nothing = trueup(&["run", &model, "-p", "", "-n", "0", "--json"]).exits(0).json();
    assert_eq!(nothing["prompts"][0]["ids"], serde_json::json!([1]));
    assert_eq!(nothing["prompts"][0]["generated_ids"], serde_json::json!([]));
}

#[test]
fn text_goes_to_stdout_and_notes_to_stderr() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let told = trueup(&["run", &model, "-p", "Once upon a time", "-n", "3"]).exits(0);
    assert_eq!(told.stdout, "Once upon a time, there was\n");
    assert!(told.stderr.starts_with("note: ") && told.stderr.lines().count() == 1, "{told:?}");
    let quiet = trueup(&["run", &model, "-p", "Once upon a time", "-n", "3", "-q"]).exits(0);
    assert_eq!((quiet.stdout, quiet.stderr), (told.stdout, String::new()));
}

#[test]
fn logits_are_those_of_other_software() {
    let scratch = Scratch::new();
    for fixture in [stories(), tiny("qwen3"), tiny("llama3")] {
        let model = scratch.gguf(&fixture, "model.gguf");
        let golden = golden(&fixture);
        let all_ids: Vec<String> =
            golden["prompts"].as_array().expect("prompts").iter().map(|prompt| ids_argument(&prompt["ids"])).collect();
        let file = scratch.path("logits.safetensors");
        let mut call = vec!["run", &model, "--device", "ref", "-n", "2", "--logits", &file, "--json"];
        call.extend(all_ids.iter().flat_map(|ids| ["--ids", ids]));
        trueup(&call).exits(0);
        let wanted = fixture.join("golden.safetensors");
        for number in 0..all_ids.len() {
            let (shape, got) = array(Path::new(&file), &format!("p{number}_logits"));
            let (wanted_shape, wanted) = array(&wanted, &format!("logits_{number}"));
            assert_eq!(shape, wanted_shape);
            let nmse = nmse(&got, &wanted);
            assert!(nmse < NMSE_MAX, "{}, prompt {number}: NMSE {nmse:e}", fixture.display());
            let (generated, _) = array(Path::new(&file), &format!("p{number}_generated_logits"));
            assert_eq!(generated, [shape[0], 2]);
        }
    }
}

#[test]
fn flags_of_the_machine_change_no_choice() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let ids_with = |flags: &[&str]| -> Value {
        let mut call = vec!["run", &model, "-p", "Once upon a time", "-n", "12", "--json"];
        call.extend(flags);
        trueup(&call).exits(0).json()["prompts"][0]["generated_ids"].clone()
    };
    let plain = ids_with(&[]);
    let sets: [&[&str]; 7] = [
        &["-t", "1"],
        &["-t", "2"],
        &["--isa", "scalar"],
        &["--no-repack"],
        &["--fusion", "off"],
        &["--no-warmup"],
        &["--dev", "cpu", "-c", "64"],
    ];
    for flags in sets {
        assert_eq!(ids_with(flags), plain, "{flags:?}");
    }
    let hot = |seed: &str, threads: &str| ids_with(&["--temp", "1.5", "-s", seed, "-t", threads]);
    assert_eq!(hot("7", "1"), hot("7", "2"));
    assert_ne!(hot("7", "2"), hot("8", "2"));
}

#[test]
fn end_tokens_of_a_replaced_tokenizer_end_a_text() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let tokenizer = stories().join("tokenizer.json");
    let call = ["run", &model, "-p", "Tom and Lily", "--tokenizer", tokenizer.to_str().expect("UTF-8"), "--json"];
    let answer = trueup(&call).exits(0).json();
    assert_eq!(answer["prompts"][0]["finish"], "stop");
    let plain = trueup(&["run", &model, "-p", "Tom and Lily", "--json"]).exits(0).json();
    assert_eq!(answer["prompts"][0]["generated_ids"], plain["prompts"][0]["generated_ids"]);
}

#[test]
fn chat_verify_and_trace_take_another_tokenizer() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let tokenizer = argument(&stories().join("tokenizer.json"));
    let broken = scratch.path("broken.gguf");
    // A kind of tokenizer that no program knows.
    let mut bytes = fs::read(&model).expect("a model");
    let name = b"tokenizer.ggml.model\x08\0\0\0\x05\0\0\0\0\0\0\0llama";
    let place = bytes.windows(name.len()).position(|window| window == name).expect("the key");
    bytes[place + name.len() - 5..place + name.len()].copy_from_slice(b"other");
    fs::write(&broken, bytes).expect("a file");
    let chat = |model: &str, options: &[&str]| {
        trueup_with_input(&[&["chat", model, "-q", "-n", "8"], options].concat(), "Once upon a time\n")
    };
    let expected = chat(&model, &[]).exits(0).stdout;
    chat(&broken, &[]).refuses(&["tokenizer.ggml.model", "found other", "--tokenizer"]);
    assert_eq!(chat(&broken, &["--tokenizer", &tokenizer]).exits(0).stdout, expected);
    // Without a limit, the answer ends at the end-of-generation token of the other tokenizer.
    let whole = |model: &str, options: &[&str]| {
        let said = trueup_with_input(&[&["chat", model, "--temp", "0"], options].concat(), "Tom and Lily\n").exits(0);
        assert!(!said.stderr.contains("is full"), "{}", said.stderr);
        said.stdout
    };
    assert_eq!(whole(&broken, &["--tokenizer", &tokenizer]), whole(&model, &[]));
    let verify = ["verify", &broken, "-q", "-p", "The sky", "--steps", "1", "--json", "-", "--tokenizer", &tokenizer];
    assert_eq!(trueup(&verify).exits(0).json()["result"], "pass");
    trueup(&["trace", &broken, "-p", "The sky", "--print", "--tokenizer", &tokenizer]).exits(0);
    trueup(&["trace", &broken, "-p", "The sky", "--print"]).refuses(&["tokenizer.ggml.model", "found other"]);
    // The other remedy: token IDs need no tokenizer.
    let ids = ["-n", "8", "--ids", "1 403 407"];
    trueup(&[&["run", &broken], &ids[..]].concat()).exits(0);
    trueup(&["run", &broken, "-p", "The sky"]).refuses(&["tokenizer.ggml.model", "found other"]);
    trueup(&["verify", &broken, "-q", "--steps", "1", "--ids", "1 403 407"]).exits(0);
}

#[test]
fn another_tokenizer_replaces_an_unknown_splitting_rule() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let tokenizer = argument(&tiny("llama3").join("tokenizer.json"));
    let unknown = scratch.path("unknown.gguf");
    let mut bytes = fs::read(&model).expect("a model");
    let name = b"tokenizer.ggml.pre\x08\0\0\0\x09\0\0\0\0\0\0\0llama-bpe";
    let place = bytes.windows(name.len()).position(|window| window == name).expect("the key");
    bytes[place + name.len() - 3..place + name.len()].copy_from_slice(b"new");
    fs::write(&unknown, bytes).expect("a file");
    let call = |model: &str| trueup(&["run", model, "-p", "The sky", "-n", "4", "--json", "--tokenizer", &tokenizer]);
    let ids = |model: &str| call(model).exits(0).json()["prompts"][0]["generated_ids"].clone();
    assert_eq!(ids(&unknown), ids(&model));
    trueup(&["run", &unknown, "-p", "The sky"]).refuses(&["tokenizer.ggml.pre", "llama-new", "--tokenizer"]);
}

#[test]
fn chat_takes_a_template_and_a_date() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let template = |name: &str, text: &str| {
        let path = scratch.path(name);
        fs::write(&path, text).unwrap();
        path
    };
    let asked = template("asks.jinja", "{{ bos_token }}{{ strftime_now('%B %-d') }} {{ messages[-1]['content'] }}");
    let fixed = template("fixed.jinja", "{{ bos_token }}July 6 {{ messages[-1]['content'] }}");
    let chat = |options: &[&str]| {
        let common = ["chat", &model, "-q", "-n", "8", "--temp", "0", "--chat-template"];
        trueup_with_input(&[&common[..], options].concat(), "Once upon\n")
    };
    let expected = chat(&[&fixed]).exits(0);
    assert_eq!(chat(&[&asked, "--date", "2024-07-06"]).exits(0).stdout, expected.stdout);
    assert_eq!(chat(&[&asked, "--date", "1999-07-06T23:59:59"]).exits(0).stdout, expected.stdout);
    chat(&[&asked]).exits(0);
    chat(&[&asked, "--date", "2024-02-30"]).refuses(&["expected a date such as 2024-07-26"]);
    let broken = template("broken.jinja", "\n{% for %}");
    chat(&[&broken]).refuses(&["broken.jinja: chat template: line 2: expected a name"]);
    chat(&[&scratch.path("missing.jinja")]).refuses(&["missing.jinja"]);
}

#[test]
fn chat_answers_each_line() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let golden = &golden(&stories())["chat"];
    let turn = golden["messages"][0]["content"].as_str().expect("a text");
    let told = trueup_with_input(&["chat", &model, "-q"], &format!("{turn}\n")).exits(0);
    assert_eq!(told.stdout.trim(), golden["text"].as_str().expect("a text").trim());
    let twice = trueup_with_input(&["chat", &model, "-n", "4", "-q"], "Hello\nAgain\n\nnot read\n").exits(0);
    assert_eq!(twice.stdout.lines().count(), 2, "{twice:?}");
    trueup(&["chat", &scratch.gguf(&tiny("llama-linear"), "none\u{1b}[2J.gguf")])
        .refuses(&["none\\u{1b}[2J.gguf", "expected a chat template"]);
}

#[test]
fn values_out_of_bounds_are_refused_before_anything_is_printed() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let bad: [&[&str]; 18] = [
        &["--temp", "-1"],
        &["--temp", "nan"],
        &["--top-p", "2"],
        &["--min-p", "-0.5"],
        &["--top-k", "-1"],
        &["--repeat-penalty", "0"],
        &["-s", "x"],
        &["-n", "-2"],
        &["-c", "0"],
        &["-c", "2"],
        &["-c", "100000"],
        &["-t", "0"],
        &["-t", "1000000"],
        &["--kv", "q4_0"],
        &["--isa", "mmx"],
        &["--device", "toaster"],
        &["--device", "cuda"],
        &["--no-such-flag"],
    ];
    for flags in bad {
        let mut call = vec!["run", &model, "-p", "Once upon a time"];
        call.extend(flags);
        trueup(&call).refuses(&[]);
    }
    trueup(&["run", &model, "--ids", "99999"]).refuses(&["99999"]);
    trueup(&["run", &model, "--ids", ""]).refuses(&["no tokens"]);
    trueup(&["run", &model]).refuses(&["--prompt"]);
}

/// Shape (innermost first) and values of an f32 array.
fn array(file: &Path, name: &str) -> (Vec<u64>, Vec<f64>) {
    let file = SafetensorsFile::open(file).unwrap_or_else(|error| panic!("{error}"));
    let place = file.find(name).unwrap_or_else(|| panic!("no {name} in {:?}", file.tensors()));
    let info = &file.tensors()[place];
    let mut bytes = vec![0; info.bytes as usize];
    file.read(place, 0, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
    let values = bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    (info.shape.clone(), values.collect())
}

fn nmse(got: &[f64], wanted: &[f64]) -> f64 {
    let error: f64 = got.iter().zip(wanted).map(|(got, wanted)| (got - wanted).powi(2)).sum();
    let energy: f64 = wanted.iter().map(|wanted| wanted.powi(2)).sum();
    if (error / energy).is_nan() { f64::INFINITY } else { error / energy }
}

/// An encoder gives vectors, and one clear error where text is asked for.
#[test]
fn an_encoder_writes_vectors() {
    let scratch = Scratch::new();
    let folder = tiny("../encoders/bert");
    let (model, out) = (scratch.gguf(&folder, "bert.gguf"), scratch.path("vectors.safetensors"));
    let answer = trueup(&["run", &model, "-p", "Hana", "-p", "the bridge", "--logits", &out, "--json"]).exits(0).json();
    assert_eq!(answer["prompts"][1]["array"], "p1_embedding");
    let file = SafetensorsFile::open(&out).expect("it was just written");
    let names: Vec<&str> = file.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["p0_embedding", "p1_embedding"]);
    assert_eq!(file.tensors()[0].shape, [64]);
    for call in [
        &["run", &model, "-p", "Hana"][..],
        &["chat", &model],
        &["bench", &model],
        &["run", &model, "-p", "Hana", "--logits", &out, "-n", "4"],
        &["verify", &model, "--steps", "2"],
        &["trace", &model, "--steps", "2", "--print"],
        &["verify", &model, "--kv", "f16"],
    ] {
        let said = trueup(call).exits(2).stderr;
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{call:?}: {said}");
        assert!(said.contains("encoder") || said.contains("has no KV cache"), "{call:?}: {said}");
    }
    let run = ["run", &model, "-p", "Hana", "--logits", &out];
    for (option, value) in [
        ("--temp", "0"),
        ("--top-k", "40"),
        ("--top-p", "0.9"),
        ("--min-p", "0"),
        ("--repeat-penalty", "1"),
        ("--repeat-last-n", "64"),
        ("--seed", "0"),
        ("-n", "-1"),
    ] {
        let name = if option == "-n" { "--n-predict" } else { option };
        trueup(&[&run[..], &[option, value]].concat())
            .refuses(&[&format!("{name}: an encoder generates no tokens; remove the option")]);
    }
    for option in ["--ignore-eos", "--context-shift"] {
        let expected = format!("{option}: an encoder generates no tokens; remove the option");
        trueup(&[&run[..], &[option]].concat()).refuses(&[&expected]);
    }
    trueup(&[&run[..], &["-n", "0", "-q"]].concat()).exits(0);
}

/// `run` writes the same embeddings as transformers.
#[test]
fn vectors_of_an_encoder_are_those_of_transformers() {
    let scratch = Scratch::new();
    let folder = tiny("../encoders/bert");
    let (model, out) = (scratch.gguf(&folder, "bert.gguf"), scratch.path("vectors.safetensors"));
    let golden = golden(&folder);
    let text = |number: usize| golden["prompts"][number]["text"].as_str().expect("a text").to_owned();
    trueup(&["run", &model, "-p", &text(0), "-p", &text(1), "--logits", &out, "-q"]).exits(0);
    for number in 0..2 {
        let (_, got) = array(Path::new(&out), &format!("p{number}_embedding"));
        let (_, expected) = array(&folder.join("golden.safetensors"), &format!("pooled_{number}"));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = dot(&got, &expected) / (dot(&got, &got) * dot(&expected, &expected)).sqrt();
        assert!(got.len() == expected.len() && 1.0 - cosine < 1e-5, "text {number}: cosine {cosine}");
    }
}

/// A model of recurrent states only has no KV cache to choose a type or a place for.
#[test]
fn a_model_without_attention_has_no_kv_cache() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("mamba"), "mamba.gguf");
    for call in [
        &["run", &model, "--ids", "1", "--kv", "f16"][..],
        &["bench", &model, "--kv", "f16"],
        &["verify", &model, "--kv", "f32"],
        &["trace", &model, "--print", "--kv", "f32"],
        &["plan", &model, "--kv", "q8_0"],
    ] {
        trueup(call).refuses(&["--kv: the model has no KV cache; remove the option"]);
    }
    for call in [&["run", &model, "--ids", "1", "--kv-device", "cpu"][..], &["verify", &model, "--kv-device", "cpu"]] {
        trueup(call).refuses(&["--kv-device: the model has no KV cache; remove the option"]);
    }
}
