//! One damage is told once: what follows from it, or cannot be judged because of it, is no finding of its own.

use super::damage::Scratch;
use super::{folders, gguf_files, look};
use serde_json::{Value, json};
use std::path::PathBuf;
use trueup_convert::doctor::Severity;
use trueup_formats::{OpenOptions, open};

/// Names of all findings but notes, each as often as it is there.
fn names(diagnosis: &trueup_convert::doctor::Diagnosis) -> Vec<&'static str> {
    let findings = diagnosis.findings.iter().filter(|finding| finding.severity != Severity::Note);
    findings.map(|finding| finding.name).collect()
}

#[test]
fn any_file_of_a_healthy_split_model_can_be_named() {
    let scratch = Scratch::new();
    let second = gguf_files::later_part(&scratch);
    let first = second.with_file_name("model-00001-of-00003.gguf");
    let healthy = look(&first);
    assert_eq!(healthy.findings, [], "named by its first file there is nothing to say");
    for name in ["model-00002-of-00003.gguf", "model-00003-of-00003.gguf"] {
        let diagnosis = look(&first.with_file_name(name));
        let found: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.name).collect();
        assert_eq!(found, ["not-the-first-file"], "{:#?}", diagnosis.findings);
        assert_eq!((diagnosis.tensors, diagnosis.bytes), (healthy.tensors, healthy.bytes));
    }
}

#[test]
fn without_the_first_file_the_description_is_not_judged() {
    let scratch = Scratch::new();
    let second = gguf_files::first_part_missing(&scratch);
    for path in [second.with_file_name("model-00003-of-00003.gguf"), second] {
        let diagnosis = look(&path);
        assert_eq!(names(&diagnosis), ["part-missing"], "{:#?}", diagnosis.findings);
        assert_eq!(diagnosis.findings.len(), 1, "no notes either: {:#?}", diagnosis.findings);
        assert!(diagnosis.tensors > 0);
        let missing = &diagnosis.findings[0];
        assert!(missing.place.file.as_ref().is_some_and(|file| file.ends_with("model-00001-of-00003.gguf")));
    }
    let scratch = Scratch::new();
    let diagnosis = look(&folders::no_config(&scratch));
    assert_eq!(names(&diagnosis), ["file-missing"], "{:#?}", diagnosis.findings);
}

#[test]
fn a_tensor_with_a_fault_is_not_missing_too() {
    type Make = fn(&Scratch) -> PathBuf;
    let cases: [(Make, &[&str]); 13] = [
        (gguf_files::cut_short, &["tensor-outside-file"]),
        (gguf_files::half, &["tensor-outside-file"]),
        (gguf_files::all_but_three, &["tensor-outside-file"]),
        (gguf_files::misaligned, &["tensor-misaligned"]),
        (gguf_files::retired_type, &["type-unknown"]),
        (gguf_files::rows_of_33, &["rows-not-blocks"]),
        (gguf_files::empty_dimension, &["shape-invalid"]),
        (gguf_files::overlap, &["tensors-overlap"]),
        (folders::cut_short, &["tensor-outside-file"]),
        (folders::shard_cut, &["tensor-outside-file"]),
        (folders::unread_type, &["type-unknown"]),
        (|scratch| gguf_files::half_of_split_scale(scratch, true), &["tensor-outside-file"]),
        (|scratch| gguf_files::half_of_split_scale(scratch, false), &["tensor-outside-file"]),
    ];
    for (number, (make, expected)) in cases.into_iter().enumerate() {
        let diagnosis = look(&make(&Scratch::new()));
        let mut found = names(&diagnosis);
        found.dedup();
        assert_eq!(found, expected, "case {number}: {:#?}", diagnosis.findings);
    }
}

#[test]
fn a_tensor_with_a_fault_is_not_missing_inside_a_wrapper() {
    for damaged in ["model.norm.weight", "model.embed_tokens.weight"] {
        for prefix in ["", "module.", "base_model.model."] {
            let scratch = Scratch::new();
            let diagnosis = look(&folders::wrapped(&scratch, prefix, damaged));
            assert_eq!(names(&diagnosis), ["type-unknown"], "{:#?}", diagnosis.findings);
            let unknown = diagnosis.findings.iter().find(|finding| finding.name == "type-unknown").unwrap();
            assert!(unknown.found.contains(&format!("found {prefix}{damaged} (")), "{unknown:?}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_told_once() {
    let mut keys = 0;
    while let Some((key, path)) = gguf_files::key_of_other_type(&Scratch::new(), keys) {
        keys += 1;
        let diagnosis = look(&path);
        let told = diagnosis.findings.iter().map(|finding| {
            let named = finding.place.key.iter().filter(|place| **place == key).count();
            named.max(finding.found.matches(&format!("key {key}: ")).count())
        });
        let told: usize = told.sum();
        let is_read = !["general.type", "general.name", "general.file_type"].contains(&key.as_str());
        assert_eq!(told, usize::from(is_read), "{key}: {:#?}", diagnosis.findings);
        assert_eq!(diagnosis.findings.len(), usize::from(is_read), "{key}: {:#?}", diagnosis.findings);
    }
    assert!(keys > 20, "{keys} keys");
}

#[test]
fn a_tokenizer_that_is_no_json_is_got_again() {
    for (text, name, remedy) in [
        ("{", "file-unreadable", "get the file again"),
        (super::POINTER, "lfs-pointer", "git lfs pull"),
        (super::PAGE, "web-page", "download the file again"),
    ] {
        let diagnosis = look(&folders::with_text(&Scratch::new(), "tokenizer.json", text));
        let findings: Vec<_> = diagnosis.findings.iter().map(|finding| (finding.name, finding.remedy)).collect();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].0 == name && findings[0].1.contains(remedy), "{findings:?}");
    }
}

#[test]
fn what_stands_in_for_a_file_is_named_by_opening_too() {
    let refusal = |path: &PathBuf| match open(path, &OpenOptions::default()) {
        Ok(_) => panic!("{} opens", path.display()),
        Err(error) => error.to_string(),
    };
    let scratch = Scratch::new();
    for (name, text, expected) in [
        ("model.gguf", super::POINTER, "a Git LFS pointer to a file of 12345 bytes; run `git lfs pull`"),
        ("model.safetensors", super::POINTER, "a Git LFS pointer to a file of 12345 bytes; run `git lfs pull`"),
        ("model.bin", super::PAGE, "a web page (HTML or XML); download the file again"),
        ("model.gguf", super::PAGE, "a web page (HTML or XML); download the file again"),
    ] {
        let path = scratch.folder().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        let error = refusal(&path);
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    let gguf = refusal(&gguf_files::part_is_pointer(&scratch));
    assert!(gguf.contains("model-00002-of-00003.gguf: expected the file itself"), "{gguf}");
    let folder = refusal(&folders::shard_is_page(&scratch));
    assert!(folder.contains("model-00002-of-00002.safetensors: expected the file itself"), "{folder}");
}

#[test]
fn a_file_that_is_a_pointer_is_counted_among_the_files() {
    for make in [gguf_files::part_is_pointer, folders::shard_is_pointer, folders::shard_is_page] {
        let diagnosis = look(&make(&Scratch::new()));
        let mut found = names(&diagnosis);
        found.dedup();
        let [stand_in, "tensor-missing"] = found[..] else { panic!("{:#?}", diagnosis.findings) };
        assert!(["lfs-pointer", "web-page"].contains(&stand_in));
    }
}

#[test]
fn an_error_is_not_repeated_by_a_general_finding() {
    let scratch = Scratch::new();
    let diagnosis = look(&gguf_files::end_outside(&scratch));
    assert_eq!(names(&diagnosis), ["role-outside-vocabulary"], "{:#?}", diagnosis.findings);
}

#[test]
fn the_verdict_follows_from_the_findings() {
    type Make = fn(&Scratch) -> PathBuf;
    let cases: [(Make, &str); 8] = [
        (|scratch| scratch.fixture("qwen2"), "healthy"),
        (folders::quantized, "cannot be used"),
        (gguf_files::projector, "cannot be used"),
        (gguf_files::unknown_architecture, "not completely checked"),
        (gguf_files::unknown_tokenizer, "not completely checked"),
        (gguf_files::epsilon, "questionable"),
        (gguf_files::heads, "damaged"),
        (gguf_files::cut_short, "damaged"),
    ];
    for (make, expected) in cases {
        let diagnosis = look(&make(&Scratch::new()));
        assert_eq!(diagnosis.verdict(), expected, "{:#?}", diagnosis.findings);
    }
}

#[test]
fn the_remedies_for_a_checkpoint_are_not_those_for_a_gguf_file() {
    let remedy = |path: PathBuf, name: &str| {
        let diagnosis = look(&path);
        let finding = diagnosis.findings.iter().find(|finding| finding.name == name);
        finding.unwrap_or_else(|| panic!("{name}: {:#?}", diagnosis.findings)).remedy
    };
    let scratch = Scratch::new();
    assert!(remedy(gguf_files::tensor_missing(&scratch), "tensor-missing").contains("convert the model again"));
    assert!(remedy(folders::tensor_renamed(&scratch), "tensor-missing").contains("config.json"));
}

#[test]
fn a_wrong_number_of_layers_is_one_finding() {
    for (layers, found) in [
        (
            1,
            "expected 1 layer (config.json), found 9 tensors of other layers, such as model.layers.1.input_layernorm.weight",
        ),
        (3, "expected 2 layers in config.json, the number of layers with tensors, found 3"),
        (9, "expected 2 layers in config.json, the number of layers with tensors, found 9"),
    ] {
        let diagnosis = look(&folders::layers(&Scratch::new(), layers));
        assert_eq!(names(&diagnosis), ["layer-count-differs"], "{:#?}", diagnosis.findings);
        assert_eq!(diagnosis.findings[0].found, found);
    }
    let diagnosis = look(&gguf_files::more_layers(&Scratch::new()));
    assert_eq!(names(&diagnosis), ["layer-count-differs"], "{:#?}", diagnosis.findings);
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.place.key.as_deref(), Some("qwen2.block_count"));
    assert_eq!(finding.found, "expected 2, the number of layers with tensors, found 5");
    let diagnosis = look(&gguf_files::without_first_layer(&Scratch::new()));
    assert_eq!(names(&diagnosis), ["layer-count-differs"], "{:#?}", diagnosis.findings);
    assert_eq!(diagnosis.findings[0].found, "expected tensors of the layer blk.0, found none");
}

#[test]
fn a_number_of_a_set_of_another_type_is_shown() {
    let diagnosis = look(&gguf_files::part_number_a_text(&Scratch::new()));
    let finding = diagnosis.findings.iter().find(|finding| finding.name == "part-number-wrong");
    assert_eq!(finding.map(|finding| finding.found.as_str()), Some("expected 1 from its name, found string \"x\""));
}

#[test]
fn ends_that_are_no_ids_are_told() {
    let refused: [(Value, &str); 4] = [
        (json!(["<eos>", 392]), "found \"<eos>\""),
        (json!(-5), "found -5"),
        (json!([392, 1.5]), "found 1.5"),
        (json!([392, 4_294_967_296_u64]), "found 4294967296"),
    ];
    for (value, expected) in refused {
        let diagnosis = look(&folders::ends(&Scratch::new(), value));
        let refusal = diagnosis.findings.iter().find(|finding| finding.name == "tokenizer-refused");
        let refusal = refusal.unwrap_or_else(|| panic!("{expected}: {:#?}", diagnosis.findings));
        assert!(refusal.found.contains(expected), "{}", refusal.found);
        assert_eq!(refusal.place.at.as_deref(), Some("eos_token_id in generation_config.json"));
    }
    let outside = look(&folders::ends(&Scratch::new(), json!([392, 400])));
    assert_eq!(names(&outside), ["role-outside-vocabulary"], "{:#?}", outside.findings);
    for nothing in [json!(null), json!(-1), json!([392, -1])] {
        let diagnosis = look(&folders::ends(&Scratch::new(), nothing));
        assert_eq!(names(&diagnosis), [""; 0], "{:#?}", diagnosis.findings);
    }
}
