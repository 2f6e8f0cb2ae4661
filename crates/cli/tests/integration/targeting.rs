//! `trueup quantize --target` and `--max-kl`: sizes, predictions, kept measurements, and what is refused.

use crate::trueup::{Outcome, Scratch, stories, tiny, trueup};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// The file with the measurements.
const MEASUREMENTS: &str = "m.json";

/// A text of about 1000 tokens.
fn corpus(scratch: &Scratch, name: &str) -> String {
    let (names, things) = (["Lily", "Tom", "Mia", "Ben", "Sue"], ["ball", "dog", "tree", "boat", "cake", "bird"]);
    let mut text = String::new();
    for (number, thing) in things.iter().cycle().take(24).enumerate() {
        let (one, other) = (names[number % 5], names[(3 * number + 1) % 5]);
        text += &format!(
            "Once upon a time, {one} saw a big {thing} in the park. {other} said, \"Can I have the {thing}?\" "
        );
        text += &format!("{one} was happy and they played with it all day. ");
    }
    let file = scratch.path(name);
    fs::write(&file, text).expect("files can be written");
    file
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path} in {report}"))
}

/// The story model with a text, and the file for measurements.
struct Setting {
    scratch: Scratch,
    model: String,
    corpus: String,
    measurements: String,
}

impl Setting {
    fn new() -> Setting {
        let scratch = Scratch::new();
        let model = scratch.gguf(&stories(), "whole.gguf");
        let (corpus, measurements) = (corpus(&scratch, "corpus.txt"), scratch.path(MEASUREMENTS));
        Setting { scratch, model, corpus, measurements }
    }

    fn quantize(&self, output: &str, arguments: &[&str]) -> Outcome {
        let call = ["quantize", &self.model, output, "--corpus", &self.corpus, "--chunks", "2", "--json", "-q"];
        trueup(&[&call[..], &["--measurements", &self.measurements], arguments].concat())
    }

    fn size(&self, file: &str) -> u64 {
        fs::metadata(file).expect("the file exists").len()
    }
}

#[test]
fn files_fill_their_targets_and_predictions_come_true() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let mut divergences: Vec<f64> = Vec::new();
    let mut measured = Vec::new();
    for bits in ["4.9", "5.3", "5.77", "6.5", "8.1", "12"] {
        let report = setting.quantize(&output, &["--target", &format!("{bits}bpw")]).exits(0).json();
        let (target, file) = (number(&report, "/target/target_bytes"), number(&report, "/target/file_bytes"));
        assert!(file <= target && file > 0.97 * target, "{bits}: {file} of {target}");
        assert_eq!(file, setting.size(&output) as f64, "{bits}");
        let (predicted, kl) = (number(&report, "/target/predicted_kl"), number(&report, "/target/measured_kl/value"));
        assert!((predicted - kl).abs() < 0.5 * kl + 1e-3, "{bits}: predicted {predicted}, measured {kl}");
        divergences.push(kl);
        let now = fs::read(&setting.measurements).expect("measurements are kept");
        assert!(measured.is_empty() || measured == now, "the second target measures nothing");
        measured = now;
    }
    assert!(divergences.is_sorted_by(|a, b| a > b) && divergences[0] > 10.0 * divergences[5], "{divergences:?}");
    trueup(&["verify", &output, "-p", "Once upon a time", "--steps", "1", "-q"]).exits(0);
}

/// `compare` computes the divergence from all tokens, the target from the most probable ones.
#[test]
fn a_file_has_the_divergence_that_compare_measures() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let report = setting.quantize(&output, &["--target", "5.5bpw"]).exits(0).json();
    let call = ["compare", &output, "--against", &setting.model, "--corpus", &setting.corpus, "--chunks", "2"];
    let compared = trueup(&[&call[..], &["--json", "-", "-q"]].concat()).exits(0).json();
    let expected = number(&compared, "/result/figures/against/kl/mean/value");
    let found = number(&report, "/target/measured_kl/value");
    assert!((found - expected).abs() < 2e-3 * expected, "{found}, expected {expected}");
    assert_eq!(number(&report, "/target/positions"), number(&compared, "/result/figures/positions"));

    // Better than one type for all matrices of the same size.
    let uniform = setting.scratch.path("uniform.gguf");
    trueup(&["quantize", &setting.model, &uniform, "--type", "q4_0", "--pure", "-q"]).exits(0);
    let size = setting.size(&uniform).to_string();
    let report = setting.quantize(&output, &["--target", &size]).exits(0).json();
    let call = ["compare", &uniform, "--against", &setting.model, "--corpus", &setting.corpus, "--chunks", "2"];
    let compared = trueup(&[&call[..], &["--json", "-", "-q"]].concat()).exits(0).json();
    let of_uniform = number(&compared, "/result/figures/against/kl/mean/value");
    let found = number(&report, "/target/measured_kl/value");
    assert!(found < of_uniform, "{found}, q4_0 has {of_uniform}");
}

/// The names of the types whose divergence was measured, in each group.
fn measured_types(file: &str) -> Vec<Vec<String>> {
    let measurements: Value = serde_json::from_slice(&fs::read(file).expect("readable")).expect("JSON");
    let groups = measurements["groups"].as_object().expect("groups").values();
    groups.map(|group| group["kl"].as_object().expect("divergences").keys().cloned().collect()).collect()
}

#[test]
fn every_type_is_measured_on_request() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    // One free group.
    let rules = ["--rule", r"blk\.[1-9]=q4_0", "--rule", "blk.0.attn|output|token=q4_0", "--rule", "ffn_down=q4_0"];
    let target = [&["--target", "4.9bpw"][..], &rules].concat();
    setting.quantize(&output, &target).exits(0);
    let some = measured_types(&setting.measurements);
    assert!(some.iter().all(|types| types.len() <= 2), "{some:?}");
    let report = setting.quantize(&output, &[&target[..], &["--measure-all"]].concat()).exits(0).json();
    let all = measured_types(&setting.measurements);
    let types = ["iq4_nl", "mxfp4", "q4_0", "q4_1", "q5_0", "q5_1"];
    assert!(all.iter().any(|found| found == &types), "{all:?}");
    assert!(number(&report, "/target/measured_kl/value") < 1.0);
}

#[test]
fn kept_measurements_give_the_same_bytes() {
    let setting = Setting::new();
    let (first, second, third) =
        (setting.scratch.path("1.gguf"), setting.scratch.path("2.gguf"), setting.scratch.path("3.gguf"));
    setting.quantize(&first, &["--target", "6bpw"]).exits(0);
    let statement = setting.scratch.path("2.intoto.json");
    setting.quantize(&second, &["--target", "6bpw", "-t", "1", "--attest", &statement]).exits(0);
    // An interrupted run has measured a part.
    let text = fs::read_to_string(&setting.measurements).expect("measurements are kept");
    let mut part: Value = serde_json::from_str(&text).expect("measurements are JSON");
    let groups = part["groups"].as_object_mut().expect("groups");
    assert_eq!(groups.len(), 6 * 5 + 1);
    groups.retain(|name, _| !name.starts_with("blk.3") && !name.starts_with("token_embd"));
    fs::write(&setting.measurements, part.to_string()).expect("files can be written");
    setting.quantize(&third, &["--target", "6bpw"]).exits(0);
    assert_eq!(fs::read_to_string(&setting.measurements).expect("measurements are kept"), text);
    let bytes = |file: &str| fs::read(file).expect("the file exists");
    assert!(bytes(&first) == bytes(&second) && bytes(&first) == bytes(&third), "the files differ");
    // An attested run is repeated with the chosen types, without the text and the measurements.
    let attested: Value = serde_json::from_slice(&bytes(&statement)).expect("an attestation is JSON");
    let recipe = &attested["predicate"]["buildDefinition"]["externalParameters"]["recipe"];
    assert!(recipe["tensor_types"].as_object().is_some_and(|types| types.len() > 6 * 5), "{recipe}");
    for file in [&setting.corpus, &setting.measurements] {
        fs::remove_file(file).expect("files can be removed");
    }
    trueup(&["reproduce", &statement, "-q"]).exits(0);
}

#[test]
fn a_limit_of_the_divergence_gives_a_small_file_below_it() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let mut sizes = Vec::new();
    for limit in ["0.1", "0.02", "0.004"] {
        let report = setting.quantize(&output, &["--max-kl", limit]).exits(0).json();
        let (kl, most) = (number(&report, "/target/measured_kl/value"), limit.parse::<f64>().expect("a number"));
        assert!(kl <= most && kl > 0.5 * most, "{kl} for {most}");
        sizes.push(number(&report, "/target/file_bytes"));
    }
    // The activations of a model in q8_0 are rounded more than this allows: some groups stay in the source's type.
    for limit in ["0.001", "0.0003"] {
        let report = setting.quantize(&output, &["--max-kl", limit]).exits(0).json();
        let (kl, most) = (number(&report, "/target/measured_kl/value"), limit.parse::<f64>().expect("a number"));
        assert!(kl <= most && kl > 0.2 * most, "{kl} for {most}");
        sizes.push(number(&report, "/target/file_bytes"));
        assert_eq!(sizes.last(), Some(&(setting.size(&output) as f64)));
    }
    sizes.push(setting.size(&setting.model) as f64);
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
}

/// Rows of 64 weights are not blocks of q2_k: the rule gives q4_0.
#[test]
fn sizes_and_predictions_count_the_type_that_a_rule_gives() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let report = setting.quantize(&output, &["--target", "6.5bpw", "--rule", "ffn_.*=q2_k"]).exits(0).json();
    let tensors = report["tensors"].as_array().expect("tensors");
    let of_rule = tensors.iter().filter(|tensor| tensor["name"].as_str().is_some_and(|name| name.contains(".ffn_up")));
    assert!(of_rule.clone().count() > 0 && of_rule.clone().all(|tensor| tensor["type"] == "q4_0"), "{tensors:?}");
    let (target, file) = (number(&report, "/target/target_bytes"), number(&report, "/target/file_bytes"));
    assert!(file <= target && file > 0.97 * target && file == setting.size(&output) as f64, "{file} of {target}");
    let (predicted, kl) = (number(&report, "/target/predicted_kl"), number(&report, "/target/measured_kl/value"));
    assert!((predicted - kl).abs() < 0.5 * kl, "predicted {predicted}, measured {kl}");
}

/// q4_0 stores these weights without loss, so the costs of other types cannot be estimated from its cost.
#[test]
fn types_without_loss_are_chosen_for_weights_on_their_grid() {
    let mut setting = Setting::new();
    let (blocks, output) = (setting.scratch.path("blocks.gguf"), setting.scratch.path("out.gguf"));
    trueup(&["quantize", &setting.model, &blocks, "--type", "q4_0", "--pure", "-q"]).exits(0);
    let on_grid = setting.scratch.path("grid.gguf");
    trueup(&["quantize", &blocks, &on_grid, "--type", "f16", "-q"]).exits(0);
    setting.model = on_grid;
    let size = setting.size(&blocks);
    let report = setting.quantize(&output, &["--target", &size.to_string()]).exits(0).json();
    let (predicted, kl) = (number(&report, "/target/predicted_kl"), number(&report, "/target/measured_kl/value"));
    assert!(predicted < 0.005 && kl < 0.005, "predicted {predicted}, measured {kl}");
    let report = setting.quantize(&output, &["--max-kl", "0.01"]).exits(0).json();
    let (bytes, kl) = (number(&report, "/target/file_bytes"), number(&report, "/target/measured_kl/value"));
    assert!(bytes <= size as f64 && kl <= 0.01, "{bytes} bytes, measured {kl}");

    // Smaller than q4_0.
    let report = setting.quantize(&output, &["--target", &(size - 28_768).to_string()]).exits(0).json();
    let (predicted, kl) = (number(&report, "/target/predicted_kl"), number(&report, "/target/measured_kl/value"));
    assert!((predicted - kl).abs() < 0.5 * kl, "predicted {predicted}, measured {kl}");
}

#[test]
fn importance_of_another_model_is_refused_before_anything_is_measured() {
    let setting = Setting::new();
    let (output, imatrix) = (setting.scratch.path("out.gguf"), setting.scratch.path("imatrix.gguf"));
    let call = ["imatrix", &setting.model, "--corpus", &setting.corpus, "-o", &imatrix, "--chunks", "2", "-q"];
    trueup(&call).exits(0);
    let model = setting.scratch.gguf(&tiny("mixtral"), "model.gguf");
    let call = ["quantize", &model, &output, "--target", "9bpw", "--corpus", &setting.corpus, "-q"];
    let with = ["--imatrix", &imatrix, "--measurements", &setting.measurements];
    trueup(&[&call[..], &with].concat()).refuses(&[
        "have a different number of columns or matrices than their tensors: ",
        "use an importance matrix of this model",
    ]);
    assert!(!setting.scratch.names().iter().any(|name| name == "out.gguf" || name == MEASUREMENTS));
}

#[test]
fn rules_and_importance_apply_and_nothing_is_written_by_a_dry_run() {
    let setting = Setting::new();
    let (output, imatrix) = (setting.scratch.path("out.gguf"), setting.scratch.path("imatrix.gguf"));
    trueup(&["imatrix", &setting.model, "--corpus", &setting.corpus, "-o", &imatrix, "--chunks", "2", "-q"]).exits(0);
    let arguments = ["--target", "6bpw", "--imatrix", &imatrix, "--rule", r"blk\.2\..*=q5_1"];
    let planned = setting.quantize(&output, &[&arguments[..], &["--dry-run"]].concat()).exits(0).json();
    assert!(planned["target"]["measured_kl"].is_null() && !setting.scratch.names().contains(&"out.gguf".to_owned()));
    let report = setting.quantize(&output, &arguments).exits(0).json();
    let tensors = report["tensors"].as_array().expect("tensors");
    let dtype = |tensor: &Value| tensor["type"].as_str().expect("a type").to_owned();
    let of_layer =
        tensors.iter().filter(|tensor| tensor["name"].as_str().is_some_and(|name| name.starts_with("blk.2.")));
    let types: BTreeSet<String> = of_layer.map(dtype).filter(|dtype| dtype != "f32").collect();
    assert_eq!(types.into_iter().collect::<Vec<_>>(), ["q5_1"]);
    assert!(number(&report, "/target/file_bytes") <= number(&report, "/target/target_bytes"));
    assert!((number(&report, "/target/predicted_kl") - number(&planned, "/target/predicted_kl")).abs() < 1e-12);
    let keys = trueup(&["inspect", &output, "--json"]).exits(0).stdout;
    assert!(keys.contains("quantize.imatrix.file") && !keys.contains("general.file_type"), "{keys}");
    let of_imatrix = ["--target", "6bpw", "--imatrix", &imatrix];
    setting.quantize(&output, &of_imatrix).refuses(&["the same rules and options for the types of tensors"]);
    let exact = [&arguments[..], &["--imatrix-exact"]].concat();
    setting.quantize(&output, &exact).refuses(&["expected measurements with the same --imatrix-exact"]);
    // The same measurements without the importance matrix are others.
    setting
        .quantize(&output, &["--target", "6bpw"])
        .refuses(&["expected measurements with the same importance matrix"]);
}

#[test]
fn experts_share_a_type() {
    let scratch = Scratch::new();
    let (model, corpus) = (scratch.gguf(&tiny("mixtral"), "model.gguf"), corpus(&scratch, "corpus.txt"));
    let output = scratch.path("out.gguf");
    let call = ["quantize", &model, &output, "--target", "9bpw", "--corpus", &corpus, "--json", "-q"];
    let report = trueup(&call).exits(0).json();
    let tensors = report["tensors"].as_array().expect("tensors");
    let dtype = |name: &str| tensors.iter().find(|tensor| tensor["name"] == name).map(|tensor| tensor["type"].clone());
    let gate = dtype("blk.0.ffn_gate_exps.weight");
    assert!(gate.is_some() && gate == dtype("blk.0.ffn_up_exps.weight"), "{report}");
    assert!(number(&report, "/target/file_bytes") <= number(&report, "/target/target_bytes"));
    let kept = scratch.names().into_iter().find(|name| name.ends_with(".measurements.json")).expect("measurements");
    assert!(
        kept.starts_with("model-")
            && report["target"]["measurements"].as_str().is_some_and(|path| path.ends_with(&kept))
    );
}

#[test]
fn targets_that_cannot_be_reached_name_the_limits() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let refuses = |target: &str, words: &[&str]| {
        setting.quantize(&output, &["--target", target]).refuses(words);
    };
    refuses("1000", &["--target: expected at least", "the smallest possible file, found 1000 bytes"]);
    refuses("2bpw", &["the smallest possible file"]);
    refuses(
        "40bpw",
        &["--target: expected at most", "the size with the largest candidate types", "or --type instead of --target"],
    );
    assert!(
        !setting.scratch.names().iter().any(|name| name == "out.gguf" || name == MEASUREMENTS),
        "nothing is written"
    );
}

#[test]
fn arguments_and_texts_that_do_not_fit_are_refused() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    for bad in ["0", "0bpw", "4.5", "q4_0", "-1bpw"] {
        setting.quantize(&output, &[&format!("--target={bad}")]).refuses(&["--target", "expected a size"]);
    }
    setting.quantize(&output, &["--max-kl=0"]).refuses(&["--max-kl", "expected a number above 0"]);
    for other in [["--type", "q4_0"], ["-b", "4"], ["--max-kl", "0.1"], ["--layout", "split"]] {
        let arguments = [&["--target", "6bpw"][..], &other].concat();
        setting.quantize(&output, &arguments).refuses(&["--target <SIZE>", "cannot be used with", other[0]]);
    }
    let plain = |arguments: &[&str]| trueup(&[&["quantize", &setting.model, &output, "-q"][..], arguments].concat());
    plain(&["--target", "6bpw"]).refuses(&["--target requires an evaluation text; pass --corpus FILE"]);
    plain(&["-b", "4", "--corpus", &setting.corpus]).refuses(&["--corpus"]);
    let file = |name: &str, bytes: &[u8]| {
        let path = setting.scratch.path(name);
        fs::write(&path, bytes).expect("files can be written");
        path
    };
    let short = ["short.txt", "expected at least 512 tokens (2 chunks of 256), found", "use a longer text"];
    plain(&["--target", "6bpw", "--corpus", &file(short[0], b"Once upon a time")]).refuses(&short);
    let empty = ["empty.txt", "expected a text, found an empty file"];
    plain(&["--target", "6bpw", "--corpus", &file(empty[0], b"")]).refuses(&empty);
    plain(&["--target", "6bpw", "--corpus", &file("binary.txt", &[0xC0, 0xFF, 0, 1])]).refuses(&["binary.txt"]);
    plain(&["--target", "6bpw", "--corpus", &setting.scratch.path("none.txt")]).refuses(&["none.txt"]);
    let flm = setting.scratch.path("out.flm");
    setting.quantize(&flm, &["--target", "6bpw"]).refuses(&["expected GGUF output, found .flm output"]);
    assert!(!setting.scratch.names().iter().any(|name| name.starts_with("out") || name == MEASUREMENTS));
}

#[test]
fn measurements_of_something_else_are_refused_and_kept() {
    let setting = Setting::new();
    let output = setting.scratch.path("out.gguf");
    let target = ["--target", "6bpw"];
    for text in ["", "{", "{\"format\": 1}", "{}\n"] {
        fs::write(&setting.measurements, text).expect("files can be written");
        setting.quantize(&output, &target).refuses(&[MEASUREMENTS, "expected", "found", "or delete this one"]);
        assert_eq!(fs::read_to_string(&setting.measurements).expect("the file exists"), text);
    }
    fs::remove_file(&setting.measurements).expect("files can be removed");
    setting.quantize(&output, &target).exits(0);

    let other = corpus(&setting.scratch, "other.txt");
    fs::write(&other, fs::read_to_string(&other).expect("text").replace("Lily", "Anna")).expect("files can be written");
    let call = ["quantize", &setting.model, &output, "--corpus", &other, "--chunks", "2", "-q", "--target", "6bpw"];
    trueup(&[&call[..], &["--measurements", &setting.measurements]].concat())
        .refuses(&["expected measurements with the same corpus and --chunks as this run, found different ones"]);
    trueup(&[&call[..], &["--measurements", &setting.model]].concat()).refuses(&["the output path is also an input"]);
    trueup(&[&call[..], &["--measurements", &output]].concat()).refuses(&["this path is given for two outputs"]);
}
