//! `verify` with reports and gates: files, exit codes, and what is refused.

use crate::trueup::{Scratch, argument, tiny, trueup};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(path).expect("a report")
}

#[test]
fn all_reports_are_written_and_say_the_same_sentence() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let [json, html, junit, summary] = ["r.json", "r.html", "r.xml", "r.md"].map(|name| scratch.path(name));
    let call = ["verify", &model, "--steps", "2", "-q", "--json", &json, "--html", &html, "--junit", &junit];
    let outcome = trueup(&[&call[..], &["--summary", &summary]].concat()).exits(0);
    let report: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let sentence = report["sentence"].as_str().expect("a sentence");
    assert!(outcome.stdout.starts_with(&format!("PASS: {sentence}\n")) && outcome.stderr.is_empty(), "{outcome:?}");
    assert!(
        report["run"]["command"].as_str().is_some_and(|command| command.contains("--steps 2")),
        "{}",
        report["run"]
    );
    assert!(read(&html).starts_with("<!doctype html>") && read(&html).contains(sentence));
    assert!(read(&junit).contains(sentence) && read(&junit).contains("failures=\"0\""));
    assert!(read(&summary).starts_with("### ✓ PASS"));
    let page = trueup(&["verify", &model, "--steps", "1", "-q", "--html", "-"]).exits(0).stdout;
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
}

#[test]
fn the_gate_of_the_documentation_passes_and_a_narrow_one_does_not() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let example = argument(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/gate.toml"));
    let outcome = trueup(&["verify", &model, "-q", "--gate", &example]).exits(0);
    assert!(outcome.stdout.contains("matches no failing node") && outcome.stdout.contains("budget"), "{outcome:?}");
    let narrow = scratch.path("narrow.toml");
    fs::write(&narrow, "[budgets]\nlogit_sigma = 1e-9\n").expect("a file");
    let (summary, json) = (scratch.path("r.md"), scratch.path("r.json"));
    let call = ["verify", &model, "-q", "--gate", &narrow, "--summary", &summary, "--json", &json];
    let outcome = trueup(&call).exits(1);
    assert!(outcome.stdout.starts_with("FAIL: ") && outcome.stdout.contains("above its budget"), "{outcome:?}");
    assert!(outcome.stderr.starts_with("::error title=trueup verify failed::"), "{outcome:?}");
    assert!(read(&summary).contains("exceeded**"));
    let report: Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert_eq!((&report["result"], &report["gate"]["budgets"][0]["holds"]), (&"fail".into(), &false.into()));
}

#[test]
fn a_baseline_is_kept_or_drifted_from() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("qwen3"), "model.gguf");
    let before = scratch.path("before.json");
    trueup(&["verify", &model, "--steps", "2", "-q", "--json", &before]).exits(0);
    let outcome = trueup(&["verify", &model, "--steps", "2", "-q", "--baseline", &before]).exits(0);
    assert!(outcome.stdout.contains("0 changes, 0 of them drifts"), "{outcome:?}");
    let mut report: Value = serde_json::from_str(&read(&before)).expect("JSON");
    report["coverage"]["checked"] = 10_000.into();
    fs::write(&before, report.to_string()).expect("a file");
    let outcome = trueup(&["verify", &model, "--steps", "3", "-q", "--baseline", &before]).exits(3);
    assert!(outcome.stdout.contains("cannot be used as a baseline: its number of steps is 2, not 3"), "{outcome:?}");
    let outcome = trueup(&["verify", &model, "--steps", "2", "-q", "--baseline", &before]).exits(1);
    // Each of the four fused nodes stands for three.
    assert!(outcome.stdout.contains("nodes checked went from 10008 to"), "{outcome:?}");
}

#[test]
fn bad_gates_and_places_are_refused_before_any_work() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("mistral"), "model.gguf");
    let (gate, report) = (scratch.path("gate.toml"), scratch.path("report.json"));
    fs::write(&gate, "coverage = 1.0\n\n[[waiver]]\nnode = \"a\"\n").expect("a file");
    trueup(&["verify", &model, "--gate", &gate]).refuses(&["gate.toml", "line 3", "verdict"]);
    fs::write(&gate, [b'a', b'\n', 0xff]).expect("a file");
    trueup(&["verify", &model, "--gate", &gate]).refuses(&["line 2", "UTF-8"]);
    fs::write(&report, "{\"version\":1}").expect("a file");
    trueup(&["verify", &model, "--baseline", &report])
        .refuses(&["report.json", "expected a report of `trueup verify --json`"]);
    trueup(&["verify", &model, "--baseline", &report, "--json", &report])
        .refuses(&["the output path is also an input"]);
    trueup(&["verify", &model, "--json", "-", "--html", "-"]).refuses(&["-: this path is given for two outputs"]);
    trueup(&["verify", &model, "--html", &model]).refuses(&["the output path is also an input"]);
    trueup(&["verify", &model, "--junit", &scratch.path("none/r.xml")]).refuses(&["does not exist; create it"]);
    assert!(!scratch.names().contains(&"r.json".to_owned()));
    trueup(&["verify", &model, "--gate", &scratch.path("none.toml")]).refuses(&["none.toml"]);
}

#[test]
fn two_outputs_never_go_to_one_place() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("mistral"), "model.gguf");
    fs::create_dir(scratch.path("x")).expect("a directory");
    std::os::unix::fs::symlink(scratch.path("x"), scratch.path("same")).expect("a link");
    fs::write(scratch.path("r"), "old").expect("a file");
    std::os::unix::fs::symlink(scratch.path("r"), scratch.path("link")).expect("a link");
    std::os::unix::fs::symlink(&model, scratch.path("m")).expect("a link");
    let before = scratch.names();
    let pairs = [("a", "./a"), ("a", "x/../a"), ("x/a", "same/a"), ("r", "link"), ("a", "a")];
    for (a, b) in pairs.map(|(a, b)| (scratch.path(a), scratch.path(b))) {
        for flags in [["--html", "--json"], ["--json", "--junit"], ["--junit", "--summary"], ["--summary", "--html"]] {
            trueup(&["verify", &model, flags[0], &a, flags[1], &b]).refuses(&["choose another path for one of them"]);
        }
        trueup(&["quantize", &model, &a, "-b", "4", "--report", &b]).refuses(&["is also the output model"]);
    }
    let link = scratch.path("m");
    trueup(&["verify", &model, "--html", &link]).refuses(&["the output path is also an input"]);
    trueup(&["run", &model, "--ids", "1", "--logits", &link]).refuses(&["the output path is also an input"]);
    let (prompt, dots) = (scratch.path("r"), scratch.path("x/../r"));
    trueup(&["verify", &model, "-f", &prompt, "--json", &dots]).refuses(&["the output path is also an input"]);
    trueup(&["run", &model, "-f", &prompt, "--logits", &dots]).refuses(&["the output path is also an input"]);
    trueup(&["trace", &model, "-f", &prompt, "--out", &dots]).refuses(&["the output path is also an input"]);
    let folder = scratch.path("d");
    fs::create_dir_all(scratch.path("d/device")).expect("a directory");
    let inside = scratch.path("d/device/p0.safetensors");
    trueup(&["verify", &model, "--dump", &folder, "--json", &inside])
        .refuses(&["could be overwritten", "another directory"]);
    fs::remove_dir_all(&folder).expect("it was just made");
    assert_eq!((scratch.names(), read(&prompt).as_str()), (before, "old"), "nothing was written");
    let outcome =
        trueup(&["verify", &model, "--steps", "1", "-q", "--json", &scratch.path("a"), "--html", &scratch.path("b")]);
    let outcome = outcome.exits(0);
    assert!(outcome.stdout.contains("\ntook  "), "{outcome:?}");
    let report: Value = serde_json::from_str(&read(&scratch.path("a"))).expect("JSON");
    let peak = &report["run"]["peak_memory_bytes"];
    assert_eq!(peak.as_u64().is_some_and(|bytes| bytes > 1_000_000), cfg!(target_os = "linux"), "{peak}");
}

#[test]
fn flips_are_shown_with_their_text() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let (json, html) = (scratch.path("r.json"), scratch.path("r.html"));
    let call =
        ["verify", &model, "-p", "Once upon a time", "--steps", "2", "-q", "--inject-fault", "always-42@result_output"];
    let outcome = trueup(&[&call[..], &["--json", &json, "--html", &html]].concat()).exits(1);
    let report: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let flips = report["tokens"]["flip_list"].as_array().expect("flips");
    let text = |flip: &Value, what: &str| flip["text"][what].as_str().expect("a text").to_owned();
    let whole = flips.iter().find(|flip| text(flip, "before").ends_with("Once upon a time")).expect("the whole prompt");
    // The word that the golden continuation of this prompt begins with.
    assert_eq!(text(whole, "reference"), ",");
    assert_eq!((whole["explained"].is_boolean(), whole["device"].as_u64()), (true, Some(0)));
    let piece = format!("\"{}\" (0) instead of", text(whole, "device"));
    assert!(outcome.stdout.contains(&piece), "{piece} in {outcome:?}");
    let page = read(&html);
    assert!(page.contains("Once upon a time</span>") && page.contains("<small>0</small>"));
}

#[test]
fn a_failure_alone_says_what_was_recorded_first() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let folder = scratch.path("repro");
    let call = ["verify", &model, "-q", "--steps", "1", "--inject-fault", "row-unwritten", "--repro-dir", &folder];
    trueup(&call).exits(1);
    let file = fs::read_dir(&folder).expect("a directory").next().expect("a file").expect("an entry").path();
    let file = argument(&file);
    let outcome = trueup(&["repro", &file]).exits(0);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [recorded, now, hint] = lines.as_slice() else { panic!("{outcome:?}") };
    assert!(recorded.starts_with("recorded: structural bug, worst z") && recorded.contains(" on cpu, "), "{outcome:?}");
    assert!(now.starts_with("now: ") && now.contains(") passes on cpu: "), "{outcome:?}");
    assert!(hint.contains(&format!("`trueup repro {file} --inject-fault row-unwritten`")), "{outcome:?}");
    let outcome = trueup(&["repro", &file, "--inject-fault", "row-unwritten"]).exits(1);
    assert!(
        outcome.stdout.contains("now with the fault row-unwritten: ") && outcome.stdout.contains(") fails on cpu: ")
    );
    let answer = trueup(&["repro", &file, "--json"]).exits(0).json();
    assert_eq!(answer["recorded"]["planted"], "row-unwritten");
    assert_eq!((answer["result"].as_str(), answer["planted"].is_null()), (Some("pass"), true));
    let answer = trueup(&["repro", &file, "--inject-fault", "row-unwritten", "--json"]).exits(1).json();
    assert_eq!((answer["result"].as_str(), answer["planted"].as_str()), (Some("fail"), Some("row-unwritten")));
    // Which command is to be pasted where the path has a space.
    let spaced = scratch.path("a file.safetensors");
    fs::copy(&file, &spaced).expect("a copy");
    let outcome = trueup(&["repro", &spaced]).exits(0);
    assert!(outcome.stdout.contains(&format!("`trueup repro '{spaced}' --inject-fault row-unwritten`")), "{outcome:?}");
    trueup(&["repro", &file, "--inject-fault", "rope-base"])
        .refuses(&["the fault rope-base does not apply", "needs rope"]);
}

#[test]
fn commands_repeat_how_the_device_computes() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let (folder, html, junit) = (scratch.path("repro"), scratch.path("r.html"), scratch.path("r.xml"));
    let how = ["--kv", "f32", "--isa", "scalar", "--no-repack", "--fusion", "off"];
    let reports = ["--repro-dir", &folder, "--html", &html, "--junit", &junit];
    let call = [&["verify", &model, "-q", "--steps", "1", "--inject-fault", "gain"], how.as_slice(), &reports].concat();
    let outcome = trueup(&call).exits(1);
    let how = how.join(" ");
    assert!(
        outcome.stdout.contains("Next: the fault gain was injected at ")
            && outcome
                .stdout
                .contains(&format!("to verify without it, run `trueup verify {model} --steps 1 {how}` on the")),
        "{outcome:?}"
    );
    let next = format!("trueup verify {model} --steps 1 {how}");
    let page = read(&html).replace("&#x2f;", "/");
    assert!(page.contains(&next) && page.contains("--dev cpu --isa scalar --no-repack --inject-fault gain"), "{next}");
    assert!(read(&junit).contains("Likely cause: a factor of"));
    let file = fs::read_dir(&folder).expect("a directory").next().expect("a file").expect("an entry").path();
    let alone = trueup(&["repro", &argument(&file), "--isa", "scalar", "--no-repack"]).exits(0);
    assert!(alone.stdout.contains(&format!("with {how}, with the fault gain")), "{alone:?}");
    // A fault that is waived is no silent pass.
    let gate = scratch.path("gate.toml");
    let node = outcome.stdout.split("was injected at ").nth(1).and_then(|rest| rest.split(';').next()).expect("a node");
    let waiver = "verdict = \"structural_bug\"\nreason = \"known\"\nexpires = 2999-01-01\n";
    fs::write(&gate, format!("[[waiver]]\nnode = \"{node}\"\n{waiver}")).expect("a file");
    let outcome =
        trueup(&["verify", &model, "-q", "--inject-fault", &format!("gain@{node}"), "--gate", &gate]).exits(0);
    assert!(outcome.stdout.contains("the fault gain, injected at"), "{outcome:?}");
}
