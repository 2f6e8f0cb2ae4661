//! Traces that lack something or hold something broken: each one a clear answer, and no pass for what was not looked
//! at.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::{Trace, TraceValues, TraceWriter};
use trueup::quantize::Layout;
use trueup::runtime::{DeviceOptions, ModelFile, SessionOptions, Weights, open_device};
use trueup::verify::{Follow, Outcome, TraceOptions, TraceReport, Verdict, compare_trace, record};
use trueup_tests::{convert, fixture, quantize, root};

/// One tensor: step, node, shape with the innermost size first, type, bytes.
#[derive(Clone)]
struct Tensor {
    step: usize,
    node: String,
    shape: Vec<u64>,
    dtype: DType,
    bytes: Vec<u8>,
}

/// A trace in pieces.
#[derive(Clone)]
struct Parts {
    tensors: Vec<Tensor>,
    ids: Vec<u32>,
    tokens: Vec<usize>,
    texts: Vec<(String, String)>,
}

impl Parts {
    fn find(&mut self, step: usize, node: &str) -> &mut Tensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.step == step && tensor.node == node);
        found.unwrap_or_else(|| panic!("no {step}/{node}"))
    }

    fn write(&self, path: &Path) {
        let mut writer = TraceWriter::create(path, &[]).unwrap_or_else(|error| panic!("{error}"));
        for Tensor { step, node, shape, dtype, bytes } in &self.tensors {
            writer.add(*step, node, shape, *dtype, bytes).unwrap_or_else(|error| panic!("{error}"));
        }
        writer.finish(&self.ids, &self.tokens, &self.texts).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The model in f32 and its traces: this program's, and that of transformers.
fn prepared(folder: &Path) -> (PathBuf, [(&'static str, Parts); 2]) {
    let (source, target) = (folder.join("source.gguf"), folder.join("llama2.gguf"));
    convert(&fixture("llama2").folder, &source, None, None);
    quantize(&source, &target, DType::F32, Layout::Block);
    let parts = [("own", own(&target, false)), ("foreign", foreign(&fixtures().join("llama2.safetensors")))];
    (target, parts)
}

fn fixtures() -> PathBuf {
    root().join("fixtures/traces")
}

fn own(file: &Path, fusion: bool) -> Parts {
    let model = Arc::new(ModelFile::open(file).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let weights = Arc::new(Weights::new(model, device, None));
    let options = SessionOptions { context: Some(16), fusion, ..SessionOptions::default() };
    let mut tensors = Vec::new();
    let recording = record(&weights, &options, &[1, 7, 42, 9], &Follow::Greedy(1), &|_| true, &mut |recorded| {
        let shape = recorded.ty.shape.sizes().iter().map(|size| *size as u64).collect();
        let (step, node, dtype) = (recorded.step, recorded.node.name.clone(), recorded.ty.dtype);
        tensors.push(Tensor { step, node, shape, dtype, bytes: recorded.bytes.clone() });
        Ok(())
    });
    let recording = recording.unwrap_or_else(|error| panic!("{error}"));
    Parts { tensors, ids: recording.ids, tokens: recording.tokens, texts: recording.texts }
}

fn foreign(path: &Path) -> Parts {
    let trace = Trace::open(path).unwrap_or_else(|error| panic!("{error}"));
    let tensor = |tensor: &trueup::formats::TraceTensor| {
        let TraceValues::All(values) = trace.read(tensor).unwrap_or_else(|error| panic!("{error}")) else {
            panic!("safetensors hold all values")
        };
        let bytes = values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
        Tensor { step: tensor.step, node: tensor.node.clone(), shape: tensor.shape.clone(), dtype: tensor.dtype, bytes }
    };
    let ids = trace.ids().expect("the fixture says its ids").to_vec();
    let tokens = trace.tokens(ids.len()).unwrap_or_else(|error| panic!("{error}"));
    Parts { tensors: trace.tensors().iter().map(tensor).collect(), ids, tokens, texts: Vec::new() }
}

/// What comes of a trace: a report, or one sentence.
fn compared(model: &Path, trace: &Path) -> Result<TraceReport, String> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let trace = Trace::open(trace).map_err(|error| error.to_string())?;
    compare_trace(model, device, &trace, &TraceOptions::default()).map_err(|error| error.to_string())
}

fn inconclusive(told: &Result<TraceReport, String>, words: &str, what: &str) {
    let report = told.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(report.result, Outcome::Inconclusive, "{what}: {}", report.sentence);
    assert!(report.sentence.contains(words), "{what}: {}", report.sentence);
    assert!(report.first_bad.is_none(), "{what}");
}

fn refused(told: &Result<TraceReport, String>, words: &str, what: &str) {
    let error = match told {
        Ok(report) => panic!("{what}: {}", report.sentence),
        Err(error) => error,
    };
    assert!(error.contains(words) && error.lines().count() == 1, "{what}: {error}");
}

/// The layer of a node.
fn layer(node: &str) -> Option<&str> {
    node.rsplit_once('-').map(|(_, layer)| layer)
}

#[test]
fn a_trace_without_a_step_a_layer_or_its_end_is_inconclusive() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    type Keep = fn(usize, &str) -> bool;
    let cases: [(&str, Keep, &str); 6] = [
        ("a step is missing", |step, _| step == 0, "it contains nothing for step 1"),
        ("a layer is missing", |_, node| layer(node) != Some("1"), "it contains nothing for layer 1 in step 0"),
        ("a layer of a step", |step, node| step == 0 || layer(node) != Some("0"), "nothing for layer 0 in step 1"),
        ("logits alone", |_, node| node == "result_output", "it contains nothing for layer 0 in step 0"),
        ("no end", |_, node| !node.starts_with("result"), "the last result of step 0 (result_output or result_norm)"),
        ("names of another program", |_, node| node.is_empty(), "the names differ"),
    ];
    for (whose, parts) in &all {
        for (what, keep, words) in cases {
            let mut parts = parts.clone();
            parts.tensors.retain(|tensor| keep(tensor.step, &tensor.node));
            if parts.tensors.is_empty() {
                let (node, shape, dtype) = ("model.norm".to_owned(), vec![1], DType::F32);
                parts.tensors.push(Tensor { step: 0, node, shape, dtype, bytes: vec![0; 4] });
            }
            parts.write(&path);
            inconclusive(&compared(&model, &path), words, &format!("{whose}: {what}"));
        }
    }
}

#[test]
fn our_own_traces_hold_every_node_and_others_lead_to_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    for (whose, parts) in &all {
        let mut parts = parts.clone();
        let before = parts.tensors.len();
        parts.tensors.retain(|tensor| (tensor.step, tensor.node.as_str()) != (1, "ffn_up-1"));
        assert_eq!(parts.tensors.len() + 1, before, "{whose}");
        parts.write(&path);
        let told = compared(&model, &path);
        if *whose == "own" {
            inconclusive(&told, "it lacks 1 of 96 results that its program computed, first 1/ffn_up-1", whose);
        }
        let report = told.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(report.coverage.missing, 0, "{whose}");
        assert!(report.untraced.nodes.iter().any(|node| node == "1/ffn_up-1"), "{whose}: {:?}", report.untraced);
        assert!(report.unchecked.iter().any(|node| node == "ffn_up-1"), "{whose}");
        if *whose == "foreign" {
            assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
            assert!(
                report.sentence.contains("69 of 76 results in 2 steps judged, 7 intermediate results recomputed"),
                "{}",
                report.sentence
            );
        }
    }
    // The head may be left out, and that is said.
    let mut parts = all[1].1.clone();
    parts.tensors.retain(|tensor| tensor.node != "result_output");
    parts.write(&path);
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.result, report.coverage.missing), (Outcome::Pass, 2), "{}", report.sentence);
    assert!(report.sentence.contains("and 2 not checked"), "{}", report.sentence);
    // Of all steps, not of one.
    for step in [0, 1] {
        let mut parts = all[1].1.clone();
        parts.tensors.retain(|tensor| (tensor.step, tensor.node.as_str()) != (step, "result_output"));
        parts.write(&path);
        let words = format!("it lacks {step}/result_output, which it contains for another step");
        inconclusive(&compared(&model, &path), &words, &format!("no head in step {step}"));
    }
}

#[test]
fn nodes_that_were_computed_together_with_another_need_not_be_there() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, [(_, mut parts), _]) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    let is_piece = |node: &str| node.starts_with("ffn_gate-") || node.starts_with("ffn_up-");
    parts.tensors.retain(|tensor| !is_piece(&tensor.node));
    parts.write(&path);
    inconclusive(&compared(&model, &path), "it lacks 8 of 96 results", "the program says that it computed them");
    for piece in ["ffn_gate-0", "ffn_gate-1", "ffn_up-0", "ffn_up-1"] {
        let (_, text) = parts.texts.iter_mut().find(|(key, _)| key == "profiles").expect("ours declare profiles");
        *text = text.replace(&format!("\"{piece}\","), "").replace(&format!(",\"{piece}\""), "");
    }
    parts.write(&path);
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    assert_eq!((report.coverage.judged, report.coverage.computed, report.coverage.asked), (88, 8, 88));
    // Nothing is asked of a trace that names no node; that is no pass either.
    parts.texts.iter_mut().filter(|(key, _)| key == "profiles").for_each(|(_, text)| *text = "[]".to_owned());
    parts.write(&path);
    inconclusive(&compared(&model, &path), "it names no node", "no profiles");
}

/// Ours, whose prompt was computed in fused nodes and the steps behind it in pieces.
fn fused_in_the_prompt(file: &Path) -> Parts {
    let (mut parts, pieces) = (own(file, true), own(file, false));
    assert_eq!((&parts.ids, &parts.tokens), (&pieces.ids, &pieces.tokens));
    parts.tensors.retain(|tensor| tensor.step == 0);
    parts.tensors.extend(pieces.tensors.iter().filter(|tensor| tensor.step > 0).cloned());
    let listed = |parts: &Parts, key: &str, other: &str| -> Vec<serde_json::Value> {
        let text = parts.texts.iter().find(|(known, _)| known == key).map(|(_, text)| text.as_str());
        let mut all: Vec<serde_json::Value> = serde_json::from_str(text.expect("ours say it")).expect("it is JSON");
        all.iter_mut().for_each(|entry| entry[other] = serde_json::json!([]));
        all
    };
    let mixed = |key: &str| {
        let all: Vec<_> = listed(&parts, key, "one").into_iter().chain(listed(&pieces, key, "many")).collect();
        serde_json::to_string(&all).expect("JSON is written")
    };
    let texts = ["profiles", "fused"].map(|key| (key.to_owned(), mixed(key)));
    parts.texts.retain(|(key, _)| texts.iter().all(|(other, _)| other != key));
    parts.texts.extend(texts);
    parts
}

#[test]
fn steps_may_fuse_differently_and_each_place_is_of_its_own_step() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, _) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    let parts = fused_in_the_prompt(&model);
    let has = |step, node| parts.tensors.iter().any(|tensor| tensor.step == step && tensor.node == node);
    assert!(!has(0, "ffn_up-0") && has(1, "ffn_up-0"), "the prompt is fused, the step is not");
    parts.write(&path);
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    assert_eq!((report.checked, report.unchecked.as_slice()), (report.graph_nodes, &[][..]));
    for (node, index, op, place) in [
        ("result_output", 300, "mul_mat", "row 300, token 0"),
        ("ffn_up-1", 77, "mul_mat", "row 77, token 0"),
        ("ffn_swiglu-1", 70, "swiglu", "row 70, token 0"),
    ] {
        let mut parts = parts.clone();
        parts.find(1, node).bytes[4 * index..][..4].copy_from_slice(&1e3f32.to_le_bytes());
        parts.write(&path);
        let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
        let bad = report.first_bad.as_ref().unwrap_or_else(|| panic!("{node}: {}", report.sentence));
        assert_eq!((bad.node.as_str(), bad.op.as_str()), (node, op), "{}", report.sentence);
        let worst = bad.worst.as_ref().map(|worst| (worst.step, worst.element.as_str()));
        assert_eq!(worst, Some((1, place)), "{}", report.sentence);
    }
    // A gap of a step is that of its own graph.
    let mut parts = parts.clone();
    parts.tensors.retain(|tensor| (tensor.step, tensor.node.as_str()) != (1, "ffn_up-1"));
    parts.find(1, "ffn_swiglu-1").bytes[..4].copy_from_slice(&1e3f32.to_le_bytes());
    parts.write(&path);
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.before_first_bad, ["ffn_up-1"], "{}", report.sentence);
    assert_eq!(report.unchecked, ["ffn_up-1"]);
}

/// The text with no row of logits in its first step, as llama.cpp prints pieces of a prompt; in both steps, where `all`
/// says so.
fn without_logits(text: &str, all: bool) -> String {
    let (mut kept, mut steps, mut skips) = (String::new(), 0, false);
    for line in text.lines() {
        if line.starts_with("common_debug_cb_eval:") {
            steps += usize::from(line.contains("GET_ROWS(token_embd.weight"));
            let wanted = line.contains("ffn_inp-1 =") || kept.contains("{64, 0, 1, 1}") && line.contains(", 1, 1, 1}");
            skips = (steps == 1 || all && steps == 2 && line.contains("result_")) && wanted;
        }
        match line.rsplit_once("= {") {
            Some((head, sizes)) if skips => {
                kept.push_str(&format!("{head}= {{{}\n", sizes.replacen(", 1,", ", 0,", 1)))
            }
            None if skips => {}
            Some(_) | None => kept.push_str(&format!("{line}\n")),
        }
    }
    kept
}

#[test]
fn pieces_of_a_prompt_need_no_logits_but_the_last_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, _) = prepared(scratch.path());
    let text = fs::read_to_string(fixtures().join("llama2.flash_attn.txt")).expect("the fixture is there");
    let path = scratch.path().join("trace.txt");
    fs::write(&path, without_logits(&text, false)).expect("a scratch file");
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.result, report.coverage.missing), (Outcome::Pass, 0), "{}", report.sentence);
    assert!(report.coverage.judged < 66, "{:?}", report.coverage);
    fs::write(&path, without_logits(&text, true)).expect("a scratch file");
    inconclusive(&compared(&model, &path), "the last result of step 1", "no logits at all");
}

#[test]
fn attention_to_positions_that_no_token_has_is_none() {
    const POSITIONS: usize = 256;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, [_, (_, mut parts)]) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    let tensor = parts.find(1, "kq_soft_max-1");
    let row = 4 * tensor.shape[0] as usize;
    let padded = |row: &[u8]| [row, &vec![0; 4 * POSITIONS - row.len()]].concat();
    tensor.bytes = tensor.bytes.chunks(row).flat_map(padded).collect();
    tensor.shape[0] = POSITIONS as u64;
    parts.write(&path);
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    for value in [f32::MIN_POSITIVE, f32::NAN] {
        parts.find(1, "kq_soft_max-1").bytes[4 * (POSITIONS - 1)..4 * POSITIONS].copy_from_slice(&value.to_le_bytes());
        parts.write(&path);
        let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
        let bad = report.first_bad.as_ref().unwrap_or_else(|| panic!("{}", report.sentence));
        assert_eq!(bad.node, "kq_soft_max-1", "{}", report.sentence);
        assert!(report.sentence.contains(": a masked position after the last token of step 1"), "{}", report.sentence);
    }
}

#[test]
fn a_text_without_its_first_embedding_has_no_wrong_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, _) = prepared(scratch.path());
    let text = fs::read_to_string(fixtures().join("llama2.flash_attn.txt")).expect("the fixture is there");
    let lines: Vec<&str> = text.lines().collect();
    let first =
        lines.iter().position(|line| line.contains("GET_ROWS(token_embd")).expect("it begins with the embedding");
    let heading = |line: &&str| line.starts_with("common_debug_cb_eval:");
    let next = first + 1 + lines[first + 1..].iter().position(heading).expect("more tensors follow");
    let path = scratch.path().join("trace.txt");
    fs::write(&path, [&lines[..first], &lines[next..]].concat().join("\n")).expect("a scratch file");
    let report = compared(&model, &path).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.result == Outcome::Pass && report.first_bad.is_none(), "{}", report.sentence);
    assert_eq!(report.untraced.nodes[0], "0/inp_embd", "{:?}", report.untraced);
    assert_eq!(report.tokens, [2, 1]);
}

#[test]
fn what_is_no_number_fails_at_its_node() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    for (whose, parts) in &all {
        for (bits, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "infinity")] {
            let mut parts = parts.clone();
            parts.find(1, "ffn_norm-1").bytes[20..24].copy_from_slice(&bits.to_le_bytes());
            parts.write(&path);
            let report = compared(&model, &path).unwrap_or_else(|error| panic!("{whose} {name}: {error}"));
            assert_eq!(report.result, Outcome::Fail, "{whose} {name}: {}", report.sentence);
            let bad = report.first_bad.as_ref().expect("a failure has a node");
            assert_eq!((bad.node.as_str(), bad.verdict), ("ffn_norm-1", Verdict::NotFinite), "{whose} {name}");
        }
        let mut parts = parts.clone();
        for tensor in parts.tensors.iter_mut().filter(|tensor| tensor.dtype == DType::F32) {
            tensor.bytes = tensor.bytes.chunks(4).flat_map(|_| f32::NAN.to_le_bytes()).collect();
        }
        parts.write(&path);
        let report = compared(&model, &path).unwrap_or_else(|error| panic!("{whose}: {error}"));
        assert_eq!(report.result, Outcome::Fail, "{whose}: {}", report.sentence);
        assert_eq!(report.first_bad.map(|bad| bad.node).as_deref(), Some("inp_embd"), "{whose}");
    }
}

#[test]
fn tensors_of_other_shapes_layers_or_ids_are_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    for (whose, parts) in &all {
        type Change = fn(&mut Parts);
        let cases: [(&str, Change, &str); 5] = [
            (
                "turned",
                |parts| parts.find(0, "ffn_up-0").shape = vec![4, 96],
                "0/ffn_up-0: expected shape [96, 4], found [4, 96]",
            ),
            (
                "few tokens",
                |parts| {
                    let tensor = parts.find(0, "l_out-1");
                    tensor.shape = vec![64, 2];
                    tensor.bytes.truncate(64 * 2 * 4);
                },
                "0/l_out-1: expected shape [64, 4], found [64, 2]",
            ),
            (
                "a further layer",
                |parts| parts.find(0, "l_out-1").node = "l_out-2".to_owned(),
                "expected nodes of 2 layers",
            ),
            ("an id too few", |parts| parts.ids.truncate(4), "expected 2 steps that add up to 4 token IDs"),
            ("a step too few", |parts| parts.tokens = vec![5], "expected 2 steps that add up to 5 token IDs"),
        ];
        for (what, change, words) in cases {
            let mut parts = parts.clone();
            change(&mut parts);
            parts.write(&path);
            refused(&compared(&model, &path), words, &format!("{whose}: {what}"));
        }
    }
    let mut parts = all[0].1.clone();
    parts.texts.iter_mut().filter(|(key, _)| key == "model_tensors").for_each(|(_, text)| text.truncate(20));
    parts.write(&path);
    refused(&compared(&model, &path), "text model_tensors: expected a list of tensors", "cut text");
    // The last token alone is what other programs keep; ours keep all.
    for (whose, parts) in &all {
        let mut parts = parts.clone();
        let tensor = parts.find(0, "result_output");
        let row = tensor.bytes.len() / 4;
        (tensor.shape, tensor.bytes) = (vec![tensor.shape[0], 1], tensor.bytes[3 * row..].to_vec());
        parts.write(&path);
        let told = compared(&model, &path);
        if *whose == "own" {
            refused(&told, "0/result_output: expected shape", whose);
        } else {
            assert_eq!(told.map(|report| report.result), Ok(Outcome::Pass));
        }
    }
}

#[test]
fn the_order_of_tensors_means_nothing_and_names_are_there_once() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    for (whose, parts) in &all {
        parts.write(&path);
        let usual = compared(&model, &path).unwrap_or_else(|error| panic!("{whose}: {error}"));
        let mut shuffled = parts.clone();
        shuffled.tensors.sort_by_key(|tensor| (tensor.node.chars().rev().collect::<String>(), tensor.step));
        shuffled.write(&path);
        assert_eq!(compared(&model, &path), Ok(usual), "{whose}");

        parts.write(&path);
        let mut file = fs::read(&path).expect("the trace is there");
        let name = b"\"1/ffn_up-1\"";
        let place = file.windows(name.len()).position(|window| window == name).expect("a name stands in the header");
        file[place + 1] = b'0';
        fs::write(&path, file).expect("a scratch file");
        refused(&compared(&model, &path), "0/ffn_up-1", whose);
    }
}

#[test]
fn a_file_that_is_cut_is_never_a_pass() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (model, all) = prepared(scratch.path());
    let path = scratch.path().join("trace.safetensors");
    for (whose, parts) in &all {
        parts.write(&path);
        let file = fs::read(&path).expect("the trace is there");
        for kept in [0, 7, 9, 1000, file.len() / 2, file.len() - 1] {
            fs::write(&path, &file[..kept]).expect("a scratch file");
            let told = compared(&model, &path);
            assert!(told.is_err(), "{whose}: {kept} bytes: {:?}", told.map(|report| report.sentence));
        }
    }
    for name in ["llama2.llama_cpp.txt", "llama2.flash_attn.txt"] {
        let text = fs::read_to_string(fixtures().join(name)).expect("the fixture is there");
        let lines: Vec<&str> = text.lines().collect();
        let mut answers: HashMap<&str, usize> = HashMap::new();
        let path = scratch.path().join("trace.txt");
        for kept in (5..lines.len() - 1).step_by(29) {
            fs::write(&path, lines[..kept].join("\n")).expect("a scratch file");
            let answer = match compared(&model, &path) {
                Ok(report) => {
                    assert_eq!(report.result, Outcome::Inconclusive, "{name} at {kept}: {}", report.sentence);
                    "inconclusive"
                }
                Err(_) => "refused",
            };
            *answers.entry(answer).or_default() += 1;
        }
        assert!(answers.len() == 2 && answers.values().all(|count| *count > 1), "{name}: {answers:?}");
    }
}
