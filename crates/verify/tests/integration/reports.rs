//! Reports of devices with and without an injected fault: every output format, and the effect of gates.

use super::tiny_model;
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::{DeviceOptions, ModelFile, SessionOptions, Weights, open_device};
use trueup_verify::{
    Baseline, Date, Follow, Outcome, Policy, Recorded, Reference, Report, RunFacts, Verdict, VerifyOptions,
    WaiverState, planted, record, verify,
};

/// A report of the tiny model on the cpu, with a fault at a node (`FAULT@NODE`) or without.
fn report(fault: Option<&str>) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    tiny_model::write(&path, DType::Q8_0, false);
    let model = Arc::new(ModelFile::open(&path).unwrap());
    let mut device = open_device("cpu", &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap();
    if let Some(fault) = fault {
        device = planted(fault, &model, device).unwrap().device;
    }
    let options = VerifyOptions { prompts: vec![vec![1, 5, 9, 20, 33, 47, 2]], steps: 3, ..VerifyOptions::default() };
    verify(model, device, Reference::Oracle, &options, &mut |_| {}).unwrap()
}

fn today() -> Date {
    // 2026-11-21
    Date::from_days(20_778)
}

fn gate(report: &Report, text: &str) -> Report {
    let mut report = report.clone();
    report.apply_policy(&Policy::parse(text).unwrap(), "gate.toml", today());
    report
}

fn waiver(node: &str, verdict: &str, expires: &str) -> String {
    format!("[[waiver]]\nnode = \"{node}\"\nverdict = \"{verdict}\"\nreason = \"known\"\nexpires = {expires}\n")
}

#[test]
fn one_sentence_stands_in_every_form() {
    for fault in [None, Some("row-unwritten@ffn_out-0")] {
        let report = report(fault);
        let sentence = &report.sentence;
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["sentence"], sentence.as_str());
        assert!(report.to_terminal().lines().next().unwrap().ends_with(sentence.as_str()));
        let in_xml = sentence.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;");
        assert!(report.to_junit().unwrap().contains(&in_xml), "{sentence}");
        let html = report.to_html().unwrap();
        let shown = html.split("<p>").nth(1).unwrap().split("</p>").next().unwrap();
        let plain = shown.replace("&#x2f;", "/").replace("&#x27;", "'").replace("&#39;", "'").replace("&quot;", "\"");
        assert_eq!(&plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"), sentence);
        let bare = |text: &str| text.replace('\\', "").replace("&#58;", ":").replace("&#64;", "@");
        assert!(bare(&report.to_summary()).contains(&bare(sentence)), "{}", report.to_summary());
        assert_eq!(report.to_annotation().is_some(), report.result != Outcome::Pass);
    }
}

#[test]
fn details_say_where_and_how_the_fault_shows() {
    let report = report(Some("row-unwritten@ffn_out-0"));
    let bad = report.nodes.iter().find(|node| node.node == "ffn_out-0").unwrap();
    assert_eq!((bad.verdict, bad.share), (Verdict::StructuralBug, None));
    let detail = bad.phases[0].detail.as_ref().expect("a failing node has its detail");
    assert_eq!(detail.histogram.broken, bad.phases[0].unwritten);
    assert!(detail.map.rows >= 7, "the batch of all prompts has more tokens than the prompt of 7");
    let (last, others) = detail.map.levels[0].split_at(detail.map.levels[0].len() - 1);
    assert_eq!(others, "7", "the last row was never written");
    assert!(last.chars().all(|level| ('0'..='4').contains(&level)), "{last}");
    assert!(detail.worst.iter().take(7).all(|element| element.device.is_none() && element.element.contains("row ")));
    let counted = detail.histogram.counts.iter().sum::<u64>() + detail.histogram.below + detail.histogram.above;
    assert_eq!(counted + detail.histogram.broken, bad.phases[0].elements);
    let with_detail = |report: &Report| report.nodes.iter().filter(|node| node.phases[0].detail.is_some()).count();
    let operators: std::collections::HashSet<&str> = report.nodes.iter().map(|node| node.op.as_str()).collect();
    assert!(with_detail(&report) <= operators.len() + 24, "a report stays small");
}

#[test]
fn worst_elements_say_what_they_were_computed_from() {
    let report = report(Some("sign-flip@ffn_out-0"));
    let json = serde_json::to_value(&report).unwrap();
    let html = report.to_html().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for node in json["nodes"].as_array().unwrap() {
        let phases = node["phases"].as_array().unwrap().iter();
        for element in phases.flat_map(|phase| phase["detail"]["worst"].as_array().into_iter().flatten()) {
            let inputs = &element["inputs"];
            let kind = inputs["kind"].as_str().unwrap_or_else(|| panic!("{node}"));
            let numbers = inputs.to_string().matches(':').count();
            assert!(numbers <= 24, "at most a dozen numbers and their names, not {inputs}");
            kinds.insert((node["op"].as_str().unwrap().to_owned(), kind.to_owned()));
        }
    }
    let kind = |op: &str| kinds.iter().find(|(name, _)| name == op).map(|(_, kind)| kind.as_str());
    assert_eq!(
        [kind("mul_mat"), kind("kv_attention"), kind("rms_norm"), kind("mul_mat_swiglu")],
        [Some("products"), Some("products"), Some("row"), Some("values")]
    );
    // The element with the wrong sign: where the sum has a few large products, these say its sign.
    let bad = &json["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "ffn_out-0").unwrap();
    let worst = &bad["phases"][0]["detail"]["worst"][0];
    let largest = worst["inputs"]["largest"].as_array().unwrap();
    let size = |t: &serde_json::Value| (t["first"].as_f64().unwrap() * t["second"].as_f64().unwrap()).abs();
    assert!(largest.len() == 4 && largest.is_sorted_by(|a, b| size(a) >= size(b)), "{worst}");
    assert!(worst["inputs"]["terms"].as_u64().unwrap() >= 4);
    assert!(html.contains("w × x, largest of") && html.contains("class=\"from\""));
}

#[test]
fn errors_stay_within_what_rounding_adds_up_to_until_the_fault() {
    let sound = report(None);
    for node in &sound.nodes {
        let (Some(total), Some(expected)) = (node.total, node.total_expected) else { panic!("{node:?}") };
        assert!(total <= 8.0 * expected, "{}: {total:e} where {expected:e} is expected", node.node);
    }
    let faulty = report(Some("gain@ffn_gate-0"));
    let output = faulty.nodes.last().unwrap();
    assert!(output.verdict.passes() && output.total > sound.nodes.last().unwrap().total);
}

#[test]
fn a_waiver_needs_its_day_and_its_node() {
    let bad = report(Some("output-f16@ffn_gate-0"));
    assert_eq!((bad.result, bad.coverage.waived), (Outcome::Fail, 0));
    let verdict = "undeclared_precision";
    let cases = [
        (waiver("ffn_gate-*", verdict, "2026-11-21"), Outcome::Pass, 1, WaiverState::Used),
        (waiver("ffn_gate-*", verdict, "2026-11-20"), Outcome::Fail, 0, WaiverState::Expired),
        (waiver("ffn_gate-1", verdict, "2027-01-01"), Outcome::Fail, 0, WaiverState::Unused),
        (waiver("ffn_gate-0", "structural_bug", "2027-01-01"), Outcome::Fail, 0, WaiverState::Unused),
    ];
    for (text, result, waived, state) in cases {
        let judged = gate(&bad, &text);
        assert_eq!((judged.result, judged.coverage.waived), (result, waived), "{text}{}", judged.sentence);
        assert_eq!(judged.policy.as_ref().unwrap().waivers[0].state, state, "{text}");
        assert!(judged.to_terminal().contains("waiver of"), "{}", judged.to_terminal());
        assert!(judged.to_html().unwrap().contains(">Gate</h2>"));
    }
    let waived = gate(&bad, &waiver("ffn_gate-*", verdict, "2026-11-21"));
    assert!(waived.sentence.contains("1 failure is waived"), "{}", waived.sentence);
    assert!(waived.to_junit().unwrap().contains("waived: known"));
}

#[test]
fn the_terminal_report_has_straight_columns_and_full_sentences() {
    let mut report = report(None);
    report.nodes[0].node = "ffn_moe_group_distance-10".to_owned();
    report.nodes[0].phases[0].worst_z = Some(1e3);
    let text = report.to_terminal();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("worst nodes"));
    let column = lines.next().and_then(|line| line.find("operator")).unwrap();
    let first = lines.next().unwrap();
    assert!(first.starts_with("  ffn_moe_group_distance-10 "), "{text}");
    assert_eq!(first[2..].find(' ').map(|end| end + 3), Some(column), "{text}");
    let rows = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    for row in rows {
        let around = row.get(column - 1..=column).unwrap_or_default();
        assert!(around.starts_with(' ') && !around.ends_with(' '), "{text}");
    }
    let coverage = &report.coverage;
    let decoding = format!(" on prompts, {} of {} decoding), ", coverage.checked_decode, coverage.nodes_decode);
    for line in [
        decoding.as_str(),
        "repeat     3 runs without recording give the same bits; recording the nodes does not change them\n",
        "batch      sequences of 7 and 4 tokens, then 2 decode steps, submitted together; each has the same bits",
        " positions (",
        " differences expected); KL divergence mean ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    (report.batch.steps, report.steps) = (0, 0);
    let text = report.to_terminal();
    assert!(text.contains("batch      sequences of 7 and 4 tokens, submitted together; "), "{text}");
    assert!(text.contains(" on prompts), "), "{text}");
}

#[test]
fn all_waived_is_no_pass() {
    let mut bad = report(Some("output-f16@ffn_gate-0"));
    bad.nodes.retain(|node| node.verdict.fails());
    (bad.coverage.nodes, bad.coverage.checked) = (bad.nodes.len(), bad.nodes.len());
    (bad.coverage.checked_prompt, bad.coverage.checked_decode) = (bad.nodes.len(), bad.nodes.len());
    bad.coverage.nodes_decode = bad.nodes.len();
    let judged = gate(&bad, &waiver("*", "undeclared_precision", "2027-01-01"));
    assert_eq!(judged.result, Outcome::Inconclusive);
    assert!(judged.sentence.contains("every node that passes is waived"), "{}", judged.sentence);
}

#[test]
fn budgets_and_coverage_are_kept() {
    let sound = report(None);
    let kept = gate(&sound, "[budgets]\nkl_mean = 0.1\nflips = 2\nrms_z = 3\n");
    assert_eq!((kept.result, kept.policy.as_ref().unwrap().budgets.len()), (Outcome::Pass, 3), "{}", kept.sentence);
    let exceeded = gate(&sound, "[budgets]\nlogit_sigma = 1e-12\n");
    assert_eq!(exceeded.result, Outcome::Fail);
    assert!(exceeded.sentence.contains("logit_sigma") && exceeded.sentence.contains("budget"), "{}", exceeded.sentence);
    let mut partial = sound.clone();
    partial.nodes[3].verdict = Verdict::Unchecked;
    partial.coverage.checked -= 1;
    assert_eq!(gate(&partial, "coverage = 0.9").result, Outcome::Pass);
    assert_eq!(gate(&partial, "coverage = 1.0").result, Outcome::Inconclusive);
}

#[test]
fn logits_that_are_not_finite_are_null_and_their_budgets_say_why() {
    let bad = report(Some("not-a-number@result_output"));
    let json = serde_json::to_value(&bad).unwrap();
    for number in ["kl_mean", "kl_max", "kl_expected", "logit_sigma"] {
        assert!(json["tokens"][number].is_null(), "{number} in {}", json["tokens"]);
    }
    assert!(bad.to_terminal().contains("divergence not finite"), "{}", bad.to_terminal());
    assert!(bad.to_html().unwrap().contains("not finite<small>"));
    let budgets = "[budgets]\nkl_mean = 0.1\nkl_max = 9\nlogit_sigma = 9\nflips = 99\n";
    let judged = gate(&bad, budgets);
    let policy = judged.policy.as_ref().unwrap();
    assert_eq!((judged.result, policy.budgets.len()), (Outcome::Fail, 4));
    for budget in &policy.budgets {
        assert!(!budget.holds && budget.found.is_none(), "{budget:?}");
        let why = "the device's logits are not finite for";
        assert!(budget.problem.as_ref().is_some_and(|problem| problem.starts_with(why)), "{budget:?}");
    }
    let html = judged.to_html().unwrap();
    let page = html.split("id=\"data\">").next().unwrap().to_owned();
    for text in [judged.to_terminal(), page, judged.to_summary()] {
        assert!(text.contains("cannot be evaluated") && !text.contains("exceeded"), "{text}");
    }
    assert!(!judged.sentence.contains("budget"), "the node that fails comes first: {}", judged.sentence);
    // A reference without numbers decides nothing, and neither do the budgets.
    let mut unknown = report(None);
    unknown.tokens.reference_not_finite = 1;
    (unknown.tokens.kl_mean, unknown.tokens.passes) = (None, false);
    let judged = gate(&unknown, "[budgets]\nkl_mean = 0.1\n");
    assert_eq!(judged.result, Outcome::Inconclusive);
    assert!(judged.to_terminal().contains("cannot be evaluated: the reference's logits"), "{}", judged.to_terminal());
}

/// What a trace says which model it was made from.
fn model_sha256(path: &Path) -> String {
    let model = Arc::new(ModelFile::open(path).unwrap());
    let weights = Arc::new(Weights::new(model, open_device("cpu", &DeviceOptions::default()).unwrap(), None));
    let nothing = &mut |_: &Recorded<'_>| Ok(());
    let told = record(&weights, &SessionOptions::default(), &[1], &Follow::Greedy(0), &|_| false, nothing).unwrap();
    told.texts.into_iter().find(|(key, _)| key == "model_sha256").unwrap().1
}

#[test]
fn reports_and_traces_have_one_hash_of_all_bytes_of_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let [path, split] = ["blocks.gguf", "split.gguf"].map(|name| directory.path().join(name));
    tiny_model::write(&path, DType::Q8_0, false);
    tiny_model::write(&split, DType::Q8_0, true);
    let usual = model_sha256(&path);
    assert_eq!(usual, report(None).model_id);
    assert_eq!(usual, model_sha256(&split), "the layout is of no meaning");
    let model = ModelFile::open(&path).unwrap();
    let bytes = model.tensor_bytes("token_embd.weight").unwrap().into_owned();
    let mut file = std::fs::read(&path).unwrap();
    let place = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
    file[place + bytes.len() / 2] ^= 1;
    std::fs::write(&path, file).unwrap();
    assert_ne!(usual, model_sha256(&path), "one bit in the middle of a tensor");
}

#[test]
fn a_report_of_something_else_is_no_baseline() {
    let now = report(None);
    let json = serde_json::to_value(&now).unwrap();
    let compared = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut before = json.clone();
        change(&mut before);
        let mut now = now.clone();
        now.compare_with(&Baseline::parse(before.to_string().as_bytes()).unwrap(), "before.json");
        now
    };
    type Change = fn(&mut serde_json::Value);
    let other: [(Change, &str); 8] = [
        (|before| before["model_id"] = "0".into(), "its model is a different file with the same name, not tiny.gguf"),
        (
            |before| {
                before["model_id"].take();
                before["model"] = "/a/other.gguf".into();
            },
            "its model is other.gguf, not tiny.gguf",
        ),
        (|before| before["device"]["name"] = "ref".into(), "its device is ref, not cpu"),
        (|before| before["reference"]["name"] = "cpu".into(), "its reference is cpu, not ref"),
        (|before| before["kv"] = "f32".into(), "its type of the KV cache is f32, not the default"),
        (|before| before["steps"] = 9.into(), "its number of steps is 9, not 3"),
        (|before| before["prompts"][0][0] = 2.into(), "its prompts differ"),
        (
            |before| before["planted"] = serde_json::json!({"name": "gain", "node": "x"}),
            "had the fault gain injected at x",
        ),
    ];
    for (change, part) in other {
        let report = compared(&change);
        let found = report.baseline.as_ref().unwrap();
        assert_eq!((report.result, found.compared, found.changes.len()), (Outcome::Inconclusive, 0, 0), "{part}");
        assert_eq!(found.differs.len(), 1, "{:?}", found.differs);
        assert!(report.sentence.contains("before.json cannot be used as a baseline") && report.sentence.contains(part));
        assert!(
            report.to_terminal().contains(&format!("not compared: {}", found.differs[0])),
            "{}",
            report.to_terminal()
        );
        assert!(report.to_html().unwrap().contains("Not compared") && report.to_summary().contains("Not compared"));
        assert!(report.to_junit().unwrap().contains("cannot be used as a baseline"));
    }
    let note: [(Change, &str); 3] = [
        (|before| before["environment"]["version"] = "0.0.1".into(), "was made by trueup 0.0.1"),
        (|before| before["device"]["description"] = "a faster one".into(), "device was a faster one"),
        (|before| before["model"] = "renamed.gguf".into(), ""),
    ];
    for (change, part) in note {
        let report = compared(&change);
        let found = report.baseline.as_ref().unwrap();
        assert_eq!((report.result, found.compared), (Outcome::Pass, now.nodes.len()), "{part}: {}", report.sentence);
        assert_eq!(found.notes.iter().any(|note| note.contains(part)), !part.is_empty(), "{:?}", found.notes);
    }
    let mut failing = report(Some("output-f16@ffn_gate-0"));
    let mut before = json;
    before["steps"] = 9.into();
    failing.compare_with(&Baseline::parse(before.to_string().as_bytes()).unwrap(), "before.json");
    assert_eq!(failing.result, Outcome::Fail, "what is wrong is wrong without a baseline");
}

#[test]
fn the_run_says_its_time_and_its_peak_memory() {
    let mut sound = report(None);
    let facts = |peak_memory_bytes| RunFacts {
        date: "2026-11-21".to_owned(),
        seconds: 12.34,
        peak_memory_bytes,
        command: "trueup verify tiny.gguf".to_owned(),
    };
    for (peak, words, shown) in [(Some(1_500_000_000), "1.50 GB", "1.50 GB"), (None, "unknown", "peak memory unknown")]
    {
        sound.run = Some(facts(peak));
        assert!(
            sound.to_terminal().contains(&format!("took       12.3 s, peak memory {words}\n")),
            "{}",
            sound.to_terminal()
        );
        let html = sound.to_html().unwrap();
        assert!(html.contains(&format!("<dt>Time, peak memory</dt><dd>12.3 s, {shown}</dd>")));
        let tokens = sound.prompts.iter().map(Vec::len).sum::<usize>();
        assert!(html.contains(&format!("<dt>Input</dt><dd>1 prompt, {tokens} tokens, ")), "{tokens}");
        assert_eq!(serde_json::to_value(&sound).unwrap()["run"]["peak_memory_bytes"].as_u64(), peak);
    }
}

#[test]
fn a_report_drifts_from_a_better_baseline_and_not_from_itself() {
    let baseline = |report: &Report| Baseline::parse(&serde_json::to_vec(report).unwrap()).unwrap();
    let (sound, bad) = (report(None), report(Some("output-f16@ffn_out-0")));
    let mut same = sound.clone();
    same.compare_with(&baseline(&sound), "before.json");
    let found = same.baseline.as_ref().unwrap();
    assert_eq!((same.result, found.changes.len(), found.compared), (Outcome::Pass, 0, sound.nodes.len()));
    let mut better = sound.clone();
    better.compare_with(&baseline(&bad), "before.json");
    let found = better.baseline.as_ref().unwrap();
    assert_eq!((better.result, found.drifts), (Outcome::Pass, 0), "{found:#?}");
    assert!(found.changes.iter().any(|change| change.node == "ffn_out-0" && change.what == "verdict"));
    let mut worse = sound.clone();
    let sum = worse.nodes.iter_mut().find(|node| node.op == "mul_mat").unwrap();
    sum.phases[0].rms_z = Some(1.9);
    worse.compare_with(&baseline(&sound), "before.json");
    assert_eq!((worse.result, worse.baseline.as_ref().unwrap().drifts), (Outcome::Fail, 1));
    assert!(worse.sentence.contains("rms z, prompt went from"), "{}", worse.sentence);
    let mut fewer = sound.clone();
    let gone = fewer.nodes.pop().unwrap();
    fewer.coverage.checked -= 1;
    fewer.compare_with(&baseline(&sound), "before.json");
    assert!(fewer.baseline.as_ref().unwrap().changes.iter().any(|change| change.node == gone.node && change.drift));
    assert!(fewer.baseline.as_ref().unwrap().changes.iter().any(|change| change.what == "nodes checked"));
}

#[test]
fn text_of_a_model_stays_text() {
    let mut hostile = report(Some("sign-flip@ffn_out-0"));
    let text = "</script><script>alert(1)</script>\"'<!--\u{1b}[2J|\n";
    hostile.model = text.to_owned();
    for node in &mut hostile.nodes {
        node.tensor = Some(text.to_owned());
        node.waived = node.waived.take().or(Some(text.to_owned()));
    }
    let html = hostile.to_html().unwrap();
    assert!(!html.contains("alert(1)</script>") && !html.contains("<!--"), "markup from a model in the page");
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let weights: Vec<&serde_json::Value> = data["nodes"].as_array().unwrap().iter().map(|node| &node[2]).collect();
    assert!(!weights.is_empty() && weights.iter().all(|weight| *weight == text), "{weights:?}");
    let junit = hostile.to_junit().unwrap();
    assert!(!junit.contains('\u{1b}') && !junit.contains("<script>"), "{junit}");
    assert!(!hostile.to_summary().contains("<script>"));
    for page in [&html] {
        for (what, allowed) in [("http://", 0), ("https://", 0), ("@import", 0), ("url(", 0), (" src=", 0)] {
            assert_eq!(page.matches(what).count(), allowed, "{what}: the page needs the network");
        }
    }
}

#[test]
fn layers_that_share_a_column_show_the_worst_of_them() {
    let sound = report(None);
    let mut deep = sound.clone();
    deep.nodes.retain(|node| node.layer.is_some());
    let pattern: Vec<_> = deep.nodes.iter().filter(|node| node.layer == Some(1)).cloned().collect();
    for layer in 2..100 {
        for mut node in pattern.clone() {
            node.node = node.node.replace("-1", &format!("-{layer}"));
            node.layer = Some(layer);
            if node.node == "ffn_out-77" {
                (node.verdict, node.share) = (Verdict::StructuralBug, Some(40.0));
            }
            deep.nodes.push(node);
        }
    }
    let html = deep.to_html().unwrap();
    let columns = html.split("repeat(").nth(1).unwrap().split(',').next().unwrap();
    assert!(columns.parse::<usize>().unwrap() <= 48, "{columns} columns");
    let bad = html.lines().find(|line| line.contains("ffn_out-77: ")).expect("the bad node has its cell");
    assert!(bad.contains("class=\"cell b6") && bad.contains('✕'));
    let isolated = html.split(">Free-running<").next().unwrap();
    assert!(isolated.contains("ffn_out-77: "));
    assert!(!isolated.contains("ffn_out-75: ") && !isolated.contains("ffn_out-76: "), "its neighbors do not");
}

/// A report with 30 layers of 20 nodes each, of which `failing` fail and have figures of a full-size result.
fn deep_report(failing: usize) -> Report {
    let mut deep = report(Some("sign-flip@ffn_out-0"));
    let detailed = deep.nodes.iter().find(|node| node.node == "ffn_out-0").unwrap().clone();
    let plain = deep.nodes.iter().find(|node| node.phases.iter().all(|phase| phase.detail.is_none())).unwrap().clone();
    deep.nodes.clear();
    for place in 0..30 * 20 {
        let mut node = if place < failing { detailed.clone() } else { plain.clone() };
        node.node = format!("a_node_name_{}-{}", place % 20, place / 20);
        node.tensor = Some(format!("blk.{}.a_tensor_name_{}.weight", place / 20, place % 20));
        node.layer = Some(place / 20);
        (node.share, node.total, node.total_expected) = (Some(0.123 + place as f64), Some(1.234e-5), Some(2.345e-5));
        for detail in node.phases.iter_mut().filter_map(|phase| phase.detail.as_mut()) {
            // A result with more than 64 columns and 27 rows fills the map; the level changes every four columns.
            detail.map.levels =
                (0..27).map(|row| (0..64).map(|x| char::from(b'0' + (x / 4 + row) % 8)).collect()).collect();
        }
        deep.nodes.push(node);
    }
    deep
}

#[test]
fn pages_of_deep_models_that_pass_stay_below_a_megabyte() {
    // One detailed node per operator if the model is sound; the first 24 failing nodes in addition if it is not.
    for (detailed, limit) in [(12, 1_000_000), (36, 2_000_000)] {
        let page = deep_report(detailed).to_html().unwrap();
        assert_eq!((page.matches("<article").count(), page.matches("class=\"cell").count()), (detailed, 2 * 600));
        assert!(page.len() < limit, "{} bytes with {detailed} detailed nodes", page.len());
    }
}
