//! `trueup compare`: figures of models, saved logits, and what is refused.

use crate::trueup::{Scratch, argument, stories, tiny, trueup};
use ::trueup::formats::ImportanceSums;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// About 300 tokens of the story model.
fn corpus(scratch: &Scratch) -> String {
    let file = scratch.path("corpus.txt");
    let story = "Once upon a time, there was a little girl named Lily. She liked to play in the park with her dog. ";
    fs::write(&file, story.repeat(8) + "One day, they found a big red ball under a tree.")
        .expect("files can be written");
    file
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path} in {report}"))
}

#[test]
fn a_quantized_model_is_compared_with_its_source() {
    let scratch = Scratch::new();
    let (whole, small) = (scratch.gguf(&stories(), "whole.gguf"), scratch.quantized_stories("q4_0"));
    let corpus = corpus(&scratch);
    let logits = scratch.path("whole.logits");
    let call = ["compare", &small, "--against", &whole, "--corpus", &corpus, "-c", "64"];
    let answer = trueup(&[&call[..], &["--save-logits", &logits, "--json", "-", "-q"]].concat()).exits(0);
    let report = answer.json();
    let result = &report["result"];
    assert!(number(result, "/chunks") >= 3.0 && number(result, "/context") == 64.0, "{result}");
    assert_eq!(number(result, "/figures/positions"), 31.0 * number(result, "/chunks"));
    let kl = number(result, "/figures/against/kl/mean/value");
    assert!((1e-4..1.0).contains(&kl), "{kl}");
    let same = number(result, "/figures/against/same_top/value");
    assert!((0.5..=1.0).contains(&same), "{same}");
    assert_eq!(result["layers"].as_array().expect("layers").len(), 6, "{result}");
    assert_eq!(result["worst"].as_array().expect("positions").len(), 5);
    let worst: Vec<f64> = (0..5).map(|place| number(result, &format!("/worst/{place}/kl"))).collect();
    assert!(
        worst.is_sorted_by(|a, b| a >= b) && worst[0] == number(result, "/figures/against/kl/maximum"),
        "{worst:?}"
    );

    // Stored logits have 16 bits.
    let stored = trueup(&["compare", &small, "--against", &logits, "--json", "-", "-q"]).exits(0).json();
    let stored_kl = number(&stored, "/result/figures/against/kl/mean/value");
    assert!((stored_kl - kl).abs() < 1e-4, "{stored_kl} for {kl}");
    assert_eq!(stored["result"]["figures"]["perplexity"], result["figures"]["perplexity"]);

    let page = scratch.path("quality.html");
    let text = trueup(&[&call[..], &["--chunks", "1", "-q", "--html", &page]].concat()).exits(0).stdout;
    let page = fs::read_to_string(page).expect("a page");
    for words in ["<!doctype html>", "Mean KL divergence", "KL divergence by percentile", "No layer drifts"] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "the page needs nothing else");
    for words in ["1 chunk of 64 tokens, 31 scored positions", "mean KL divergence", "median", "no layer drifts"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn a_model_equals_itself_and_differs_with_another_cache() {
    let scratch = Scratch::new();
    let (model, corpus) = (scratch.gguf(&tiny("llama3"), "model.gguf"), corpus(&scratch));
    let figures = |arguments: &[&str]| {
        let call = ["compare", &model, "--corpus", &corpus, "-c", "32", "--json", "-", "-q"];
        trueup(&[&call[..], arguments].concat()).exits(0).json()["result"]["figures"].clone()
    };
    let same = figures(&["--against", &model]);
    assert_eq!((number(&same, "/against/kl/maximum"), number(&same, "/against/same_top/value")), (0.0, 1.0));
    assert_eq!(same["perplexity"], same["against"]["reference_perplexity"]);
    let alone = figures(&[]);
    assert_eq!((&alone["perplexity"], &alone["against"]), (&same["perplexity"], &Value::Null));
}

#[test]
fn the_type_of_the_cache_is_compared_with_f16() {
    let scratch = Scratch::new();
    let (model, corpus) = (scratch.gguf(&tiny("qwen3"), "model.gguf"), corpus(&scratch));
    let call = ["compare", &model, "--kv", "q8_0", "--corpus", &corpus, "-c", "32", "--json", "-", "-q"];
    let report = trueup(&call).exits(0).json();
    assert!(report["reference"].as_str().expect("a name").ends_with("with --kv f16"), "{report}");
    let kl = number(&report, "/result/figures/against/kl/mean/value");
    assert!(kl > 0.0 && kl < 1e-2, "{kl}");
}

#[test]
fn checkpoints_are_converted_to_a_temporary_file() {
    let scratch = Scratch::new();
    let fixture = tiny("llama3");
    let (model, corpus) = (scratch.gguf(&fixture, "model.gguf"), corpus(&scratch));
    let (folder, temporary) = (fixture.to_string_lossy().into_owned(), scratch.path("temporary"));
    fs::create_dir(&temporary).expect("directories can be created");
    let is_clean = || fs::read_dir(&temporary).expect("readable").next().is_none();
    let call = ["compare", "--corpus", &corpus, "-c", "32", "--temp-dir", &temporary];
    let compared = |arguments: &[&str]| trueup(&[&call[..], arguments].concat());
    for (model, against) in [(&model, &folder), (&folder, &model)] {
        let page = scratch.path("page.html");
        let answer = compared(&[model, "--against", against, "--json", "-", "--html", &page]).exits(0);
        let words = format!("{folder} is converted to a temporary GGUF file of ");
        assert!(answer.stderr.contains(&words), "{}", answer.stderr);
        let report = answer.json();
        assert_eq!((report["model"].as_str(), report["reference"].as_str()), (Some(&**model), Some(&**against)));
        assert_eq!(number(&report, "/result/figures/against/kl/maximum"), 0.0);
        assert!(is_clean());
    }
    // One path is converted once.
    let answer = compared(&[&folder, "--against", &format!("{folder}/."), "--json", "-"]).exits(0);
    assert_eq!(answer.stderr.matches("is converted to a temporary GGUF file").count(), 1, "{}", answer.stderr);
    assert_eq!(number(&answer.json(), "/result/figures/against/kl/maximum"), 0.0);
    // Refused before the conversion, and by it.
    let missing = scratch.path("missing");
    let refused_early = |arguments: &[&str], word: &str| {
        let answer = trueup(&[&["compare", &folder, "--temp-dir", &temporary], arguments].concat()).refuses(&[word]);
        assert!(!answer.stderr.contains("is converted to"), "{}", answer.stderr);
    };
    refused_early(&["--corpus", &corpus, "--device", "cuda:99"], "cuda:99");
    refused_early(&["--corpus", &missing], "missing");
    let inside = format!("{folder}/config.json");
    compared(&[&model, "--against", &folder, "--html", &inside, "-q"]).refuses(&["config.json"]);
    let broken = scratch.path("broken");
    fs::create_dir(&broken).expect("directories can be created");
    fs::copy(fixture.join("config.json"), format!("{broken}/config.json")).expect("a copy");
    compared(&[&model, "--against", &broken, "-q"]).refuses(&["--against: ", "broken"]);
    compared(&[&model, "--against", &missing, "--json", "-", "-q"]).refuses(&[
        "--against: ",
        "missing",
        "found no such file",
    ]);
    assert!(is_clean());
    for model in [&folder, &model] {
        let problem = "expected a directory for the temporary GGUF file, found none; pass another one with --temp-dir";
        trueup(&["compare", model, "--corpus", &corpus, "--temp-dir", &missing]).refuses(&[problem]);
    }
}

#[test]
fn inputs_that_cannot_be_compared_are_refused() {
    let scratch = Scratch::new();
    let (model, other) = (scratch.gguf(&tiny("llama3"), "model.gguf"), scratch.gguf(&tiny("qwen2"), "other.gguf"));
    let corpus = corpus(&scratch);
    let refuses = |arguments: &[&str], words: &[&str]| {
        trueup(&[&["compare", &model, "-q"][..], arguments].concat()).refuses(words);
    };
    refuses(&[], &["--corpus is required unless --against is a file of logits; pass --corpus FILE"]);
    let file = |name: &str, bytes: &[u8]| {
        let path = scratch.path(name);
        fs::write(&path, bytes).expect("files can be written");
        path
    };
    refuses(&["--corpus", &file("empty.txt", b"")], &["empty.txt", "expected a text, found an empty file"]);
    let short = ["short.txt", "expected at least", "use a longer text or a smaller chunk size"];
    refuses(&["--corpus", &file("short.txt", b"Once upon a time")], &short);
    refuses(&["--corpus", &file("binary.txt", &[0xC0, 0xFF, 0, 1])], &["binary.txt"]);
    refuses(&["--corpus", &corpus, "--against", &other, "-c", "32"], &["expected the same vocabulary"]);
    refuses(&["--corpus", &corpus, "-c", "2"], &["-c: expected 4 to ", "tokens per chunk", "found 2"]);
    refuses(&["--corpus", &corpus, "-c", "32", "--save-logits", &model], &["the output path is also an input"]);
    let logits = scratch.path("base.logits");
    trueup(&["compare", &model, "--corpus", &corpus, "-c", "32", "--save-logits", &logits, "-q"]).exits(0);
    refuses(&["--against", &logits, "--corpus", &corpus], &["--corpus: the file of logits contains the tokens"]);
    refuses(&["--against", &logits, "-c", "32"], &["-c: the file of logits contains the tokens"]);
    let bytes = fs::read(&logits).expect("readable");
    let cut = file("cut.logits", &bytes[..bytes.len() - 1]);
    refuses(&["--against", &cut], &["cut.logits", "expected", "bytes for", "write the file again"]);
}

/// Texts without two chunks, and files that are no text, by the sentence of both commands.
#[test]
fn unusable_texts_are_refused_by_compare_and_imatrix() {
    let scratch = Scratch::new();
    let (model, output) = (scratch.gguf(&tiny("llama3"), "model.gguf"), scratch.path("imatrix.gguf"));
    let too_short = "expected at least 64 tokens (2 chunks of 32), found ";
    let utf16: Vec<u8> = "Once upon a time ".repeat(40).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("empty.txt", Vec::new(), "expected a text, found an empty file"),
        ("space.txt", b" ".to_vec(), too_short),
        ("tiny.txt", b"Once".to_vec(), too_short),
        ("nul.txt", vec![0; 4096], "byte 0: expected text, found a NUL character; pass a text file in UTF-8"),
        ("utf16.txt", utf16, "byte 1: expected text, found a NUL character"),
        ("binary.txt", vec![0xff; 4096], "expected UTF-8 text, found other bytes"),
    ];
    for (name, bytes, sentence) in cases {
        let corpus = scratch.path(name);
        fs::write(&corpus, bytes).expect("files can be written");
        let place = ["--corpus", &corpus, "-c", "32", "-q"];
        let commands = [vec!["compare", &model], vec!["imatrix", &model, "-o", &output]];
        for command in commands {
            trueup(&[&command[..], &place].concat()).refuses(&[name, sentence]);
        }
    }
    assert!(!scratch.names().contains(&"imatrix.gguf".to_owned()), "nothing is written");
}

#[test]
fn an_importance_matrix_is_continued_to_the_same_file() {
    let scratch = Scratch::new();
    let (model, corpus) = (scratch.gguf(&tiny("mixtral"), "model.gguf"), corpus(&scratch));
    let (whole, parts) = (scratch.path("whole.gguf"), scratch.path("parts.gguf"));
    let imatrix = |output: &str, arguments: &[&str]| {
        let call = ["imatrix", &model, "--corpus", &corpus, "-c", "32", "-q", "-o", output];
        trueup(&[&call[..], arguments].concat())
    };
    let answer = imatrix(&whole, &["--chunks", "5", "--output-head"]).exits(0).stdout;
    assert!(answer.contains("17 weights from 5 chunks of 32 tokens") && answer.contains("perplexity: "), "{answer}");
    imatrix(&parts, &["--chunks", "2", "--output-head", "--resume"]).exits(0);
    let answer = imatrix(&parts, &["--chunks", "5", "--output-head", "--resume"]).exits(0).stdout;
    assert!(answer.contains("perplexity of the chunks of this run: "), "{answer}");
    assert!(fs::read(&whole).expect("readable") == fs::read(&parts).expect("readable"), "the files differ");

    let answer = imatrix(&whole, &["--chunks", "1", "--json"]).exits(0).json();
    assert_eq!((&answer["chunks"], &answer["context"]), (&1.into(), &32.into()));
    let weights = answer["weights"].as_array().expect("weights");
    assert_eq!(weights.len(), 16);
    let experts = weights.iter().find(|weight| weight["name"] == "blk.0.ffn_up_exps.weight").expect("experts");
    assert!(experts["matrices"].as_u64() > Some(1) && experts["unseen"].is_array(), "{experts}");

    imatrix(&parts, &["--chunks", "2", "--resume"]).refuses(&["--resume: expected at most 2 chunks, found 5 chunks"]);
    let changed = fs::read_to_string(&corpus).expect("readable").replacen("girl", "bear", 1);
    let unchanged = fs::read(&corpus).expect("readable");
    fs::write(&corpus, changed).expect("files can be written");
    let continued = ["--chunks", "6", "--output-head", "--resume"];
    imatrix(&parts, &continued).refuses(&["--resume: the text has changed since the earlier run"]);
    fs::write(&corpus, unchanged).expect("files can be written");
    let weights = fs::read(&model).expect("readable");
    let mut other = weights.clone();
    *other.last_mut().expect("a byte") ^= 1;
    fs::write(&model, other).expect("files can be written");
    imatrix(&parts, &continued).refuses(&["--resume: the model has changed since the earlier run"]);
    fs::write(&model, weights).expect("files can be written");
    imatrix(&parts, &["--chunks", "6", "--resume"])
        .refuses(&["--resume: expected sums without the output head, found sums with the output head"]);
    imatrix(&model, &[]).refuses(&["the output path is also an input"]);
    let other = ["imatrix", &model, "--corpus", &corpus, "-c", "64", "-q", "-o", &parts, "--resume"];
    trueup(&other).refuses(&["--resume: expected chunks of 64 tokens, found 32 tokens"]);
    trueup(&["imatrix", &model, "--corpus", &corpus, "-o", &corpus]).refuses(&["the output path is also an input"]);
}

#[test]
fn a_conversion_with_an_importance_matrix_checks_itself() {
    let scratch = Scratch::new();
    let (model, corpus) = (scratch.gguf(&stories(), "model.gguf"), corpus(&scratch));
    let (matrix, output) = (scratch.path("matrix.gguf"), scratch.path("output.gguf"));
    trueup(&["imatrix", &model, "--corpus", &corpus, "-c", "32", "-q", "-o", &matrix]).exits(0);
    let convert = |source: &str, dtype: &str, matrix: &str| {
        trueup(&["convert", source, &output, "--type", dtype, "--imatrix", matrix, "--check", "--json"])
    };
    for dtype in ["q4_0", "q4_k_m", "iq4_xs"] {
        let answer = convert(&argument(&stories()), dtype, &matrix).exits(0).json();
        assert_eq!(answer["equal"], true, "{dtype}");
        let checks = answer["checks"].as_array().expect("checks");
        let rounded = checks.iter().filter(|check| check["agreement"]["result"] == "rounded").count();
        assert!(rounded > 20, "{dtype}: {rounded} of {} rounded", checks.len());
    }
}

/// Their files store several graph weights as one tensor.
#[test]
fn models_with_fused_tensors_are_quantized_with_their_importance_matrix() {
    let scratch = Scratch::new();
    let (corpus, matrix, output) = (corpus(&scratch), scratch.path("matrix.gguf"), scratch.path("output.gguf"));
    for name in ["phi4", "gpt2", "falcon-40b", "openelm", "chatglm3", "mamba", "mamba2"] {
        let model = scratch.gguf(&tiny(name), "model.gguf");
        let call = ["imatrix", &model, "--corpus", &corpus, "-c", "32", "--chunks", "1", "-q", "-o", &matrix, "--json"];
        let report = trueup(&call).exits(0).json();
        let weights = report["weights"].as_array().expect("weights");
        for other in ["attn_q.", "attn_k.", "attn_v.", "ssm_in_x", "ssm_x_dt"] {
            let is_slice = |weight: &Value| weight["name"].as_str().is_some_and(|name| name.contains(other));
            assert!(!weights.iter().any(is_slice), "{name}: {other} in {weights:?}");
        }
        trueup(&["quantize", &model, &output, "--type", "q4_0", "--imatrix", &matrix, "-q"]).exits(0);
    }
}

#[test]
fn sums_of_parts_of_a_tensor_are_not_continued() {
    let scratch = Scratch::new();
    let (model, corpus, matrix) = (scratch.gguf(&tiny("phi4"), "model.gguf"), corpus(&scratch), scratch.path("m.gguf"));
    let imatrix = |arguments: &[&str]| {
        let call = ["imatrix", &model, "--corpus", &corpus, "-c", "32", "-q", "-o", &matrix];
        trueup(&[&call[..], arguments].concat())
    };
    imatrix(&["--chunks", "1"]).exits(0);
    let mut sums = ImportanceSums::read(Path::new(&matrix)).expect("sums");
    let entry = sums.entries.remove("blk.0.attn_qkv.weight").expect("sums of the tensor");
    sums.entries.insert("blk.0.attn_q.weight".to_owned(), entry);
    sums.write(Path::new(&matrix)).expect("files can be written");
    imatrix(&["--chunks", "2", "--resume"]).refuses(&[
        "--resume: expected sums of blk.0.attn_qkv.weight, found sums of blk.0.attn_q.weight, which is a part",
    ]);
}

#[test]
fn the_output_head_of_a_tied_model_is_not_collected() {
    let scratch = Scratch::new();
    let (model, corpus, matrix) =
        (scratch.gguf(&tiny("gemma3"), "model.gguf"), corpus(&scratch), scratch.path("m.gguf"));
    trueup(&["imatrix", &model, "--corpus", &corpus, "-c", "32", "-q", "-o", &matrix, "--output-head"])
        .refuses(&["--output-head has no effect: the model has no separate output head"]);
}
