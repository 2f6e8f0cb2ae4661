//! Traces of llama.cpp on quantized models: its own pass, and each fault put into a model or a trace is named.

use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::formats::{SafetensorsArray, write_safetensors};
use trueup::verify::{Outcome, TraceReport};
use trueup_tests::{compared, quantized_fixture, root, with_number, with_tensor};

/// Types in blocks of 32 of which there is a trace of `llama2`.
const SHORT_BLOCKS: [DType; 5] = [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0];

fn trace_of(dtype: DType) -> PathBuf {
    root().join(format!("fixtures/traces/llama2.{dtype}.llama_cpp.safetensors"))
}

fn k_quants(extension: &str) -> PathBuf {
    root().join("fixtures/traces/k-quants").with_extension(extension)
}

/// `llama2` in this type.
fn model(folder: &Path, dtype: DType) -> PathBuf {
    quantized_fixture(folder, "llama2", dtype)
}

fn first_bad(report: &TraceReport) -> &str {
    &report.first_bad.as_ref().unwrap_or_else(|| panic!("{}", report.sentence)).node
}

/// The arrays of a trace by name, with their shapes, innermost first.
type Arrays = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

/// A copy of a trace in which `change` was made to its arrays.
fn with_arrays(source: &Path, folder: &Path, change: impl Fn(&mut Arrays)) -> PathBuf {
    let file = fs::read(source).expect("the trace exists");
    let (_, header) = SafeTensors::read_metadata(&file).expect("the trace is a safetensors file");
    let texts: Vec<(String, String)> = header.metadata().clone().unwrap_or_default().into_iter().collect();
    let parsed = SafeTensors::deserialize(&file).expect("the trace is a safetensors file");
    let mut arrays: Arrays = parsed
        .iter()
        .map(|(name, view)| {
            let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            (name.to_owned(), (view.shape().iter().rev().map(|size| *size as u64).collect(), values))
        })
        .collect();
    change(&mut arrays);
    let listed: Vec<SafetensorsArray> =
        arrays.iter().map(|(name, (shape, values))| SafetensorsArray::f32(name, shape, values)).collect();
    let target = folder.join("changed.safetensors");
    write_safetensors(&target, &listed, &texts, &[]).unwrap_or_else(|error| panic!("{error}"));
    target
}

fn values<'a>(arrays: &'a mut Arrays, name: &str) -> &'a mut Vec<f32> {
    &mut arrays.get_mut(name).unwrap_or_else(|| panic!("the trace has {name}")).1
}

#[test]
fn llama_cpp_traces_of_quantized_models_pass() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for dtype in SHORT_BLOCKS {
        let report = compared(&model(scratch.path(), dtype), &trace_of(dtype));
        assert_eq!(report.result, Outcome::Pass, "{dtype}: {}", report.sentence);
        assert_eq!(report.coverage.missing, 0, "{dtype}: {}", report.sentence);
        assert!(report.checked >= 37, "{dtype}: {} nodes are checked", report.checked);
        assert!(report.program.starts_with("llama.cpp"), "{}", report.program);
    }
    let report = compared(&k_quants("gguf"), &k_quants("safetensors"));
    assert_eq!((report.result, report.tokens.as_slice()), (Outcome::Pass, &[3, 1][..]), "{}", report.sentence);
    let report = compared(&k_quants("gguf"), &k_quants("txt"));
    assert_eq!((report.result, report.tokens.as_slice()), (Outcome::Pass, &[10][..]), "{}", report.sentence);
}

#[test]
fn a_trace_does_not_pass_as_that_of_another_type() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for (file, traced) in [(DType::Q4_0, DType::Q4_1), (DType::Q5_1, DType::Q5_0), (DType::Q8_0, DType::Q4_0)] {
        let report = compared(&model(scratch.path(), file), &trace_of(traced));
        assert_eq!(report.result, Outcome::Fail, "{file} {traced}: {}", report.sentence);
    }
}

/// Multiplies the f16 at a place by 1 + 2^-5 or so.
fn scale(place: usize) -> impl Fn(&mut [u8]) {
    move |bytes| bytes[place] ^= 0x20
}

/// Changes the lowest bit of a byte of codes.
fn code(place: usize) -> impl Fn(&mut [u8]) {
    move |bytes| bytes[place] ^= 0x01
}

type Change = Box<dyn Fn(&mut [u8])>;

#[test]
fn one_changed_block_of_a_k_quant_is_named_in_every_type_and_layer() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let cases: [(&str, &str, Change); 11] = [
        ("blk.0.ffn_gate.weight", "ffn_gate-0", Box::new(scale(144 * 70))),
        ("blk.0.ffn_gate.weight", "ffn_gate-0", Box::new(code(144 * 201 + 16 + 77))),
        ("blk.0.attn_k.weight", "Kcur-0", Box::new(scale(176 * 9 + 2))),
        ("blk.0.ffn_up.weight", "ffn_up-0", Box::new(code(176 * 100 + 16))),
        ("blk.0.ffn_down.weight", "ffn_out-0", Box::new(code(210 * 255 + 100))),
        ("blk.0.ffn_down.weight", "ffn_out-0", Box::new(|bytes: &mut [u8]| bytes.swap(210 * 40 + 3, 210 * 40 + 4))),
        ("blk.1.ffn_gate.weight", "ffn_gate-1", Box::new(code(84 * 130 + 16 + 40))),
        ("blk.1.ffn_up.weight", "ffn_up-1", Box::new(scale(110 * 66 + 108))),
        ("blk.1.ffn_up.weight", "ffn_up-1", Box::new(|bytes: &mut [u8]| bytes.swap(110 * 70 + 40, 110 * 70 + 41))),
        ("blk.1.attn_output.weight", "attn_out-1", Box::new(scale(48 * 90 + 2))),
        ("output.weight", "result_output", Box::new(scale(210 * 11 + 208))),
    ];
    for (tensor, node, change) in cases {
        let file = with_tensor(&k_quants("gguf"), scratch.path(), tensor, change);
        let report = compared(&file, &k_quants("safetensors"));
        assert_eq!(first_bad(&report), node, "{tensor}: {}", report.sentence);
    }
}

#[test]
fn one_changed_block_of_32_is_named_in_every_type_and_layer() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let cases: [(DType, &str, &str, Change); 9] = [
        (DType::Q4_0, "blk.0.attn_q.weight", "Qcur-0", Box::new(|bytes: &mut [u8]| bytes.swap(36 * 7 + 3, 36 * 7 + 4))),
        (DType::Q4_0, "blk.1.ffn_up.weight", "ffn_up-1", Box::new(code(36 * 50 + 20))),
        (DType::Q4_1, "blk.1.attn_v.weight", "Vcur-1", Box::new(scale(40 * 33 + 2))),
        (DType::Q4_1, "blk.0.ffn_gate.weight", "ffn_gate-0", Box::new(code(40 * 90 + 5))),
        (
            DType::Q4_1,
            "blk.1.ffn_up.weight",
            "ffn_up-1",
            Box::new(|bytes: &mut [u8]| bytes.swap(40 * 7 + 5, 40 * 7 + 6)),
        ),
        (DType::Q5_0, "blk.1.attn_k.weight", "Kcur-1", Box::new(scale(44 * 12))),
        (DType::Q5_1, "blk.1.ffn_down.weight", "ffn_out-1", Box::new(scale(72 * 60))),
        (DType::Q8_0, "blk.1.attn_output.weight", "attn_out-1", Box::new(code(68 * 5 + 9))),
        (DType::Q8_0, "blk.1.attn_norm.weight", "attn_norm-1", Box::new(scale(4 * 30 + 2))),
    ];
    for (dtype, tensor, node, change) in cases {
        let file = with_tensor(&model(scratch.path(), dtype), scratch.path(), tensor, change);
        let report = compared(&file, &trace_of(dtype));
        assert_eq!(first_bad(&report), node, "{dtype} {tensor}: {}", report.sentence);
    }
}

#[test]
fn another_base_or_epsilon_is_named_in_quantized_traces() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for (key, value, node) in [
        ("llama.rope.freq_base", 10_100.0, "Qcur_rope-0"),
        ("llama.attention.layer_norm_rms_epsilon", 1.5e-5, "attn_norm-0"),
    ] {
        let file = with_number(&k_quants("gguf"), scratch.path(), key, value);
        assert_eq!(first_bad(&compared(&file, &k_quants("safetensors"))), node, "{key}");
        let source = model(scratch.path(), DType::Q4_1);
        let file = with_number(&source, scratch.path(), key, value);
        assert_eq!(first_bad(&compared(&file, &trace_of(DType::Q4_1))), node, "{key}");
    }
}

/// Rotates the queries of the last layer with this base, neighbours together, as llama.cpp does.
fn rotate(arrays: &mut Arrays, head_size: usize, base: f64) {
    let (shape, queries) = arrays.get("0/Qcur-1").expect("the trace has queries").clone();
    let (width, rotated) = (shape[0] as usize, values(arrays, "0/Qcur_rope-1"));
    for (place, pair) in queries.chunks(2).enumerate() {
        let (token, pair_of_head) = (2 * place / width, place % (head_size / 2));
        let angle = token as f64 * base.powf(-2.0 * pair_of_head as f64 / head_size as f64);
        let [x, y] = [pair[0], pair[1]].map(f64::from);
        rotated[2 * place] = (x * angle.cos() - y * angle.sin()) as f32;
        rotated[2 * place + 1] = (x * angle.sin() + y * angle.cos()) as f32;
    }
}

#[test]
fn another_base_is_named_in_the_last_layer_too() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let short = (model(scratch.path(), DType::Q4_1), trace_of(DType::Q4_1), 16);
    for (file, trace, head_size) in [short, (k_quants("gguf"), k_quants("safetensors"), 32)] {
        let again = with_arrays(&trace, scratch.path(), |arrays| rotate(arrays, head_size, 10_000.0));
        let report = compared(&file, &again);
        assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
        let other = with_arrays(&trace, scratch.path(), |arrays| rotate(arrays, head_size, 10_100.0));
        let report = compared(&file, &other);
        assert_eq!(first_bad(&report), "Qcur_rope-1", "{}", report.sentence);
    }
}

#[test]
fn a_wrong_result_in_a_quantized_trace_is_named() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    type Change = fn(&mut Arrays);
    let cases: [(&str, Change); 6] = [
        ("kqv_out-1", |arrays| *values(arrays, "0/kqv_out-1") = values(arrays, "0/kqv_out-0").clone()),
        ("Qcur_rope-1", |arrays| values(arrays, "0/Qcur_rope-1").rotate_left(32)),
        ("l_out-0", |arrays| *values(arrays, "0/l_out-0") = values(arrays, "0/ffn_out-0").clone()),
        ("Vcur-1", |arrays| values(arrays, "0/Vcur-1")[40] *= 1.001),
        ("kq_soft_max-1", |arrays| values(arrays, "1/kq_soft_max-1").swap(0, 2)),
        ("ffn_gate-0", |arrays| values(arrays, "1/ffn_gate-0").swap(8, 9)),
    ];
    for (node, change) in cases {
        let trace = with_arrays(&k_quants("safetensors"), scratch.path(), change);
        let report = compared(&k_quants("gguf"), &trace);
        assert_eq!(first_bad(&report), node, "{}", report.sentence);
    }
    let cut = with_arrays(&k_quants("safetensors"), scratch.path(), |arrays| {
        arrays.retain(|name, _| !name.ends_with("-1") && !name.starts_with("1/result"));
    });
    let report = compared(&k_quants("gguf"), &cut);
    assert_eq!(report.result, Outcome::Inconclusive, "{}", report.sentence);
}

#[test]
fn a_printed_text_of_a_k_quant_shows_faults_in_printed_rows() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for (tensor, node, place) in [
        ("blk.0.attn_v.weight", "Vcur-0", 208),
        ("blk.0.ffn_gate.weight", "ffn_gate-0", 0),
        ("blk.1.attn_v.weight", "Vcur-1", 0),
    ] {
        let file = with_tensor(&k_quants("gguf"), scratch.path(), tensor, |bytes| bytes[place + 1] ^= 0x04);
        assert_eq!(first_bad(&compared(&file, &k_quants("txt"))), node, "{tensor}");
    }
    let file = with_number(&k_quants("gguf"), scratch.path(), "llama.rope.freq_base", 9_000.0);
    assert_eq!(first_bad(&compared(&file, &k_quants("txt"))), "Qcur_rope-0");
}
