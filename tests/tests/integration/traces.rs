//! Traces of other programs, and of this one, against model files: right ones pass, one changed weight is named.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::{Trace, TraceWriter};
use trueup::runtime::{DeviceOptions, ModelFile, SessionOptions, Weights, open_device};
use trueup::verify::{Follow, Outcome, TraceOptions, TraceReport, compare_trace, record};
use trueup_tests::{compared, quantized_fixture, root, with_number, with_tensor};

/// Fixtures with a trace of the transformers library: all architectures, and the scalings of rope.
const TRACED: [&str; 6] = ["llama2", "llama3", "llama-yarn", "mistral", "qwen2", "qwen3"];

fn traces() -> PathBuf {
    root().join("fixtures/traces")
}

/// The file with byte `byte` of a tensor changed by `change`.
fn altered(source: &Path, tensor: &str, byte: usize, change: impl Fn(u8) -> u8) -> PathBuf {
    let folder = source.parent().expect("the model is in a directory");
    with_tensor(source, folder, tensor, |bytes| bytes[byte] = change(bytes[byte]))
}

/// Byte 2 of an f32 holds its highest bits of mantissa.
fn weight(index: usize) -> usize {
    4 * index + 2
}

fn first_bad(report: &TraceReport) -> (&str, Option<&str>) {
    let bad = report.first_bad.as_ref().unwrap_or_else(|| panic!("{}", report.sentence));
    (&bad.node, bad.tensor.as_deref())
}

#[test]
fn what_transformers_computes_is_what_the_file_gives() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in TRACED {
        // All weights of the fixtures are exact in f16.
        for dtype in [DType::F32, DType::F16] {
            let file = quantized_fixture(scratch.path(), name, dtype);
            let report = compared(&file, &traces().join(format!("{name}.safetensors")));
            assert_eq!(report.result, Outcome::Pass, "{name} as {dtype}: {}", report.sentence);
            assert_eq!((report.tokens.as_slice(), report.unknown), (&[4, 1][..], 0), "{name}");
            assert!(report.checked >= 35, "{name}: {} nodes are compared", report.checked);
            assert!(report.free.logits.as_ref().is_some_and(|logits| logits.positions == 5), "{name}");
        }
    }
}

#[test]
fn one_changed_weight_is_named_in_every_architecture() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let cases = [
        ("llama2", "blk.0.ffn_up.weight", "ffn_up-0", ""),
        ("llama2", "token_embd.weight", "inp_embd", ""),
        ("llama3", "blk.1.attn_k.weight", "Kcur-1", ""),
        ("llama3", "blk.1.ffn_norm.weight", "ffn_norm-1", ""),
        ("mistral", "blk.0.attn_output.weight", "attn_out-0", ""),
        ("llama-yarn", "blk.1.ffn_down.bias", "ffn_out_bias-1", "ffn_out-1"),
        ("qwen2", "blk.1.attn_q.weight", "Qcur_bias-1", "Qcur-1"),
        ("qwen3", "blk.0.attn_k_norm.weight", "Kcur_normed-0", ""),
        ("qwen3", "output.weight", "result_output", ""),
    ];
    for (name, tensor, node, untraced) in cases {
        let file = quantized_fixture(scratch.path(), name, DType::F32);
        // Row 1 of the embedding is token 1's; elements 3 of other tensors are seen whatever the shape.
        let index = if tensor.starts_with("token_embd") { 64 + 3 } else { 3 };
        let file = altered(&file, tensor, weight(index), |byte| byte ^ 0x04);
        let report = compared(&file, &traces().join(format!("{name}.safetensors")));
        assert_eq!(report.result, Outcome::Fail, "{name} {tensor}: {}", report.sentence);
        assert_eq!(first_bad(&report).0, node, "{name} {tensor}: {}", report.sentence);
        let gaps: Vec<&str> = report.before_first_bad.iter().map(String::as_str).collect();
        assert_eq!(gaps.join(" "), untraced, "{name} {tensor}");
    }
}

#[test]
fn another_formula_is_named_by_the_first_node_that_uses_it() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = quantized_fixture(scratch.path(), "llama2", DType::F32);
    let trace = traces().join("llama2.safetensors");
    for (key, value, node, cause) in [
        ("llama.attention.layer_norm_rms_epsilon", 1.5e-5f32, "attn_norm-0", "its program uses an epsilon of 1e-5"),
        ("llama.rope.freq_base", 10_100.0, "Qcur_rope-0", "its program uses a RoPE frequency base of 10000"),
    ] {
        let changed = with_number(&source, scratch.path(), key, value);
        let report = compared(&changed, &trace);
        assert_eq!(first_bad(&report).0, node, "{key}: {}", report.sentence);
        assert!(report.sentence.contains(cause) && report.sentence.contains("trueup inspect"), "{}", report.sentence);
    }
}

#[test]
fn what_llama_cpp_prints_is_what_the_file_gives() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "llama2", DType::F32);
    let text = traces().join("llama2.llama_cpp.txt");
    let report = compared(&file, &text);
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    assert_eq!((report.ids.as_slice(), report.checked), (&[1, 7, 42][..], 37));
    assert!(
        report.sentence.contains("only the printed values and the sum of each result were compared"),
        "{}",
        report.sentence
    );
    // A weight of a row that is printed, one of a row that only the sum holds, and one behind the first layer.
    for (tensor, index, node) in [
        ("blk.0.ffn_up.weight", 70, "ffn_up-0"),
        ("blk.0.attn_v.weight", 64 * 40 + 5, "Vcur-0"),
        ("blk.1.attn_q.weight", 2, "Qcur-1"),
    ] {
        let file = altered(&file, tensor, 4 * index + 3, |byte| byte ^ 0x01);
        let report = compared(&file, &text);
        assert_eq!(first_bad(&report), (node, Some(tensor)), "{}", report.sentence);
    }
}

#[test]
fn fused_attention_of_llama_cpp_is_judged_by_its_own_noise() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "llama2", DType::F32);
    let text = traces().join("llama2.flash_attn.txt");
    let report = compared(&file, &text);
    assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
    assert_eq!((report.tokens.as_slice(), report.coverage.missing), (&[2, 1][..], 0));
    let fused = ["0/kq-0", "0/kq_soft_max-0", "0/kq-1", "0/kq_soft_max-1", "0/result_rows"];
    assert_eq!(report.untraced.nodes[..5], fused, "{:?}", report.untraced);
    let mixed = report.nodes.iter().find(|node| node.node == "kqv_out-1").expect("attention has a result");
    assert!(mixed.steps == 2 && mixed.verdict.passes(), "{mixed:?}");
    // Weights before attention, inside of it, and behind it.
    for (tensor, index, node) in [
        ("blk.0.attn_v.weight", 64 * 40 + 5, "Vcur-0"),
        ("blk.0.attn_output.weight", 2, "attn_out-0"),
        ("blk.1.attn_k.weight", 64 + 1, "Kcur-1"),
        ("blk.1.ffn_up.weight", 70, "ffn_up-1"),
        ("output.weight", 64 + 3, "result_output"),
    ] {
        let file = altered(&file, tensor, 4 * index + 3, |byte| byte ^ 0x01);
        let report = compared(&file, &text);
        assert_eq!(first_bad(&report), (node, Some(tensor)), "{}", report.sentence);
    }
    // A result of attention that keys and values do not give.
    let printed = fs::read_to_string(&text).expect("the fixture is there");
    let line = printed.lines().position(|line| line.contains("FLASH_ATTN_EXT")).expect("attention is fused");
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    let row =
        lines[line..].iter().position(|line| line.trim_start().starts_with("[  ")).expect("rows are shown") + line;
    lines[row] = lines[row].replace('.', ".1");
    let changed = scratch.path().join("changed.txt");
    fs::write(&changed, lines.join("\n")).expect("a scratch file");
    let report = compared(&file, &changed);
    assert_eq!(first_bad(&report).0, "kqv_out-0", "{}", report.sentence);
}

/// The text with the first value of these blocks changed, each given by its number among the headings with the words,
/// and the words.
fn misprinted(text: &str, blocks: &[(usize, &str)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (number, words) in blocks {
        let mut headings = (0..lines.len()).filter(|line| lines[*line].contains(words));
        let heading = headings.nth(*number).unwrap_or_else(|| panic!("no {words} number {number}"));
        let row = (heading + 1..lines.len()).find(|line| lines[*line].contains("[  ")).expect("rows are shown");
        lines[row] = lines[row].replacen('.', "7.", 1);
    }
    lines.join("\n")
}

#[test]
fn the_first_node_of_the_graph_is_named_though_an_earlier_step_fails_behind_it() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "llama2", DType::F32);
    let text = fs::read_to_string(traces().join("llama2.flash_attn.txt")).expect("the fixture is there");
    let path = scratch.path().join("trace.txt");
    let (product, norm) = ("Qcur-1 = (f32)    MUL_MAT", "ffn_norm-1 = (f32)");
    for (blocks, node, step) in [
        (&[(0, norm), (1, product)][..], "Qcur-1", 1),
        (&[(0, product), (1, product), (1, norm)], "Qcur-1", 0),
        (&[(1, norm)], "ffn_norm-1", 1),
    ] {
        fs::write(&path, misprinted(&text, blocks)).expect("a scratch file");
        let report = compared(&file, &path);
        assert_eq!(first_bad(&report).0, node, "{}", report.sentence);
        let worst = report.first_bad.as_ref().and_then(|bad| bad.worst.as_ref()).expect("an element is the worst");
        assert_eq!(worst.step, step, "{}", report.sentence);
        assert!(report.sentence.contains(&format!("of step {step}:")), "{}", report.sentence);
    }
}

#[test]
fn attention_to_cells_behind_the_last_token_is_none() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "llama2", DType::F32);
    let text = fs::read_to_string(traces().join("llama2.llama_cpp.txt")).expect("the fixture is there");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let heading = lines.iter().position(|line| line.contains("kq_soft_max-1 = ")).expect("weights are shown");
    let row = &mut lines[heading + 3];
    assert!(row.ends_with("0.0000],"), "{row}");
    row.replace_range(row.len() - "0.0000],".len().., "0.9000],");
    let path = scratch.path().join("trace.txt");
    fs::write(&path, lines.join("\n")).expect("a scratch file");
    let report = compared(&file, &path);
    assert_eq!(first_bad(&report).0, "kq_soft_max-1", "{}", report.sentence);
    assert!(report.sentence.contains("after the last token"), "{}", report.sentence);
}

#[test]
fn a_trace_of_this_program_shows_one_code_of_a_quantized_weight() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "llama2", DType::Q8_0);
    for device in ["cpu", "ref"] {
        let trace = scratch.path().join(format!("{device}.safetensors"));
        let model = Arc::new(ModelFile::open(&file).unwrap_or_else(|error| panic!("{error}")));
        let device = open_device(device, &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let weights = Arc::new(Weights::new(model, device, None));
        let mut writer = TraceWriter::create(&trace, &[]).unwrap_or_else(|error| panic!("{error}"));
        let options = SessionOptions { context: Some(16), ..SessionOptions::default() };
        let recording = record(&weights, &options, &[1, 7, 42, 9], &Follow::Greedy(2), &|_| true, &mut |recorded| {
            let shape: Vec<u64> = recorded.ty.shape.sizes().iter().map(|size| *size as u64).collect();
            Ok(writer.add(recorded.step, &recorded.node.name, &shape, recorded.ty.dtype, &recorded.bytes)?)
        });
        let recording = recording.unwrap_or_else(|error| panic!("{error}"));
        writer.finish(&recording.ids, &recording.tokens, &recording.texts).unwrap_or_else(|error| panic!("{error}"));

        let report = compared(&file, &trace);
        assert_eq!(report.result, Outcome::Pass, "{}", report.sentence);
        assert_eq!((report.checked, report.same_model), (report.graph_nodes, Some(true)));
        assert_eq!(report.tokens, [4, 1, 1]);
        // Behind the scale of the first block: one code, one step up.
        let changed = altered(&file, "blk.1.attn_output.weight", 2 + 7, |code| code.wrapping_add(1));
        let report = compared(&changed, &trace);
        assert_eq!(first_bad(&report), ("attn_out-1", Some("blk.1.attn_output.weight")), "{}", report.sentence);
        assert_eq!(report.same_model, Some(false));
    }
}

#[test]
fn traces_that_are_not_of_the_model_are_refused_in_a_sentence() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "qwen2", DType::F32);
    let open = |path: &Path| Arc::new(ModelFile::open(path).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let trace = Trace::open(traces().join("llama2.safetensors")).unwrap_or_else(|error| panic!("{error}"));
    let error = compare_trace(open(&file), device.clone(), &trace, &TraceOptions::default());
    let told = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("0/Kcur-0: expected shape [32, 4], found [64, 4]"), "{told}");

    let unnamed = scratch.path().join("unnamed.safetensors");
    let array = trueup::formats::SafetensorsArray::f32("0/inp_embd", &[64, 1], &[0.0; 64]);
    trueup::formats::write_safetensors(&unnamed, &[array], &[], &[]).unwrap_or_else(|error| panic!("{error}"));
    let trace = Trace::open(&unnamed).unwrap_or_else(|error| panic!("{error}"));
    let compare = |ids: Option<Vec<u32>>| {
        let options = TraceOptions { ids, ..TraceOptions::default() };
        compare_trace(open(&file), device.clone(), &trace, &options)
    };
    let told = compare(None).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("pass them with --ids"), "{told}");
    let told = compare(Some(vec![1_000_000])).err().map(|error| error.to_string()).unwrap_or_default();
    let expected = "expected token IDs from 0 to 399, found 1000000 in --ids; use IDs of this model";
    assert!(told.contains("unnamed.safetensors") && told.ends_with(expected), "{told}");
    let report = compare(Some(vec![1])).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(first_bad(&report), ("inp_embd", Some("token_embd.weight")));
}

#[test]
fn profiles_that_no_device_has_are_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = quantized_fixture(scratch.path(), "qwen2", DType::F32);
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let profile = |lanes: u64, ulp: f64, output: &str| {
        format!(
            r#"[{{"profile": {{"activations": "unchanged", "products": "exact", "accumulator": "f32", "lanes": {lanes},
            "output": "{output}", "function_ulp": {ulp}, "angles": "f64"}}, "many": ["inp_embd"], "one": ["inp_embd"]}}]"#
        )
    };
    for (profiles, told) in [
        (profile(1 << 40, 1.0, "f32"), "expected the profile of a device"),
        (profile(1, 1e30, "f32"), "expected the profile of a device"),
        (profile(1, -1.0, "f32"), "expected the profile of a device"),
        (profile(1, 1.0, "q8_0"), "expected the profile of a device"),
        (profile(1, 1.0, "f77"), "text profiles"),
        ("[{".to_owned(), "text profiles"),
    ] {
        let path = scratch.path().join("profiles.safetensors");
        let array = trueup::formats::SafetensorsArray::f32("0/inp_embd", &[64, 1], &[0.0; 64]);
        let texts = [("ids".to_owned(), "1".to_owned()), ("profiles".to_owned(), profiles)];
        trueup::formats::write_safetensors(&path, &[array], &texts, &[]).unwrap_or_else(|error| panic!("{error}"));
        let trace = Trace::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let model = Arc::new(ModelFile::open(&file).unwrap_or_else(|error| panic!("{error}")));
        let error = compare_trace(model, device.clone(), &trace, &TraceOptions::default());
        let found = error.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(told), "{found}");
    }
}
