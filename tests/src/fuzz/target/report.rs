//! Files about runs: repro files, gate files, earlier reports.

use super::super::grammar::{json, split_frames};
use super::super::node::{Cursor, Node, Unit, Width};
use super::super::seeds::{device, verified};
use super::super::{Answer, law, refused};
use serde_json::Value;
use std::fs;
use std::path::Path;
use trueup::verify::{Baseline, Date, Policy, Report, Repro};

/// The entry of the header that describes the node.
const KEY: &str = "trueup.repro";

/// Days since 1970 of the day that gates are judged on.
const TODAY: u32 = 20_700;

/// A repro file as it stands, or its description and the rest of the header as JSON each, put together into a file.
///
/// ```text
/// 0 | file           1 | description | tensors of the header, each behind its length | data
/// ```
pub fn repro(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("node.repro.safetensors");
    let bytes = match input {
        [1, parts @ ..] => assembled(parts),
        [_, file @ ..] => file.to_vec(),
        [] => Vec::new(),
    };
    fs::write(&path, bytes).map_err(|problem| format!("the input cannot be written: {problem}"))?;
    let repro = match Repro::open(&path) {
        Ok(repro) => repro,
        Err(problem) => return refused(&problem),
    };
    let recorded = repro.recorded();
    refused(&recorded)?;
    match repro.run(&*device()) {
        Ok(result) => {
            serde_json::to_string(&result).map_err(|problem| format!("the result is no JSON: {problem}"))?;
            law(!result.sentence.is_empty(), "there is no sentence")?;
            Ok(Answer::Accepted("computed"))
        }
        Err(problem) => refused(&problem),
    }
}

/// Both forms of the files of failing nodes.
pub fn repro_seeds() -> Vec<Vec<u8>> {
    let files = &verified().repros;
    let parts = files.iter().filter_map(|file| parts(file));
    parts.chain(files.iter().take(1).map(|file| [&[0][..], file].concat())).collect()
}

/// A file as description, tensors and data.
fn parts(file: &[u8]) -> Option<Vec<u8>> {
    let mut cursor = Cursor(file);
    let length = usize::try_from(cursor.number(8)?).ok()?;
    let mut header: Value = serde_json::from_slice(cursor.take(length)?).ok()?;
    let metadata = header.as_object_mut()?.remove("__metadata__")?;
    let about = metadata.get(KEY)?.as_str()?.as_bytes().to_vec();
    let frames = [about, header.to_string().into_bytes()];
    Some([&[1][..], &super::super::grammar::join_frames(&frames), cursor.0].concat())
}

/// The file of parts.
fn assembled(parts: &[u8]) -> Vec<u8> {
    let frames = split_frames(parts, 2);
    let text = Value::from(String::from_utf8_lossy(&frames[0]).into_owned()).to_string();
    let tensors = frames[1].strip_prefix(b"{").unwrap_or(&frames[1]);
    let comma = if tensors.starts_with(b"}") { "" } else { "," };
    let header = [format!("{{\"__metadata__\":{{\"{KEY}\":{text}}}{comma}").as_bytes(), tensors].concat();
    let data = parts.get(8 + frames[0].len() + frames[1].len()..).unwrap_or_default();
    [&(header.len() as u64).to_le_bytes(), &header[..], data].concat()
}

/// Fields of both forms.
pub fn repro_grammar(bytes: &[u8]) -> Node {
    match bytes.split_first() {
        Some((1, parts)) => {
            let frames = split_frames(parts, 2);
            let data = parts.get(8 + frames[0].len() + frames[1].len()..).unwrap_or_default();
            let part = |frame: &Vec<u8>| Node::counted(Width::Bytes(4), Unit::Bytes, vec![json(frame)]);
            let mut fields = vec![Node::Bytes(vec![1])];
            fields.extend(frames.iter().map(part));
            fields.push(Node::Bytes(data.to_vec()));
            Node::Group(fields)
        }
        Some((form, file)) => Node::Group(vec![Node::Bytes(vec![*form]), super::super::grammar::safetensors(file)]),
        None => Node::Bytes(Vec::new()),
    }
}

/// Gate files with all that they can say.
pub fn gate_seeds() -> Vec<Vec<u8>> {
    let whole = "coverage = 0.9\nrequire_device = false\n\n[budgets]\nkl_mean = 0.001\nkl_max = 0.1\nlogit_sigma = 2.0\nflips = 3\nrms_z = 1.5\n\n\
        [[waiver]]\nnode = \"Qcur-*\"\nop = \"mul_mat\"\nverdict = \"structural_bug\"\nreason = \"known\"\nexpires = 2027-01-31\n\n\
        [[waiver]]\nnode = \"*_?orm-0\"\nverdict = \"undeclared_precision\"\nreason = \"for now\"\nexpires = 1999-12-31\n";
    vec![whole.as_bytes().to_vec(), b"coverage = 1.0\n".to_vec(), b"[budgets]\nflips = 0\n".to_vec()]
}

/// A gate file, applied to a report of a failing device.
pub fn gate(input: &[u8], _: &Path) -> Result<Answer, String> {
    match Policy::parse(&String::from_utf8_lossy(input)) {
        Ok(policy) => {
            let mut report = verified().report.clone();
            report.apply_policy(&policy, "gate.toml", Date::from_days(TODAY));
            written(&report)
        }
        Err(problem) => refused(&problem),
    }
}

/// The report itself is an earlier report.
pub fn baseline_seeds() -> Vec<Vec<u8>> {
    vec![serde_json::to_vec(&verified().report).expect("a report is JSON")]
}

/// An earlier report, compared with this one.
pub fn baseline(input: &[u8], _: &Path) -> Result<Answer, String> {
    match Baseline::parse(input) {
        Ok(baseline) => {
            let mut report = verified().report.clone();
            report.compare_with(&baseline, "earlier.json");
            written(&report)
        }
        Err(problem) => refused(&problem),
    }
}

/// All forms of a report can be written, and none moves a terminal.
fn written(report: &Report) -> Result<Answer, String> {
    serde_json::to_string(report).map_err(|problem| format!("the report is no JSON: {problem}"))?;
    report.to_html().map_err(|problem| format!("the page cannot be made: {problem}"))?;
    report.to_junit().map_err(|problem| format!("the JUnit report cannot be made: {problem}"))?;
    let shown = [report.to_terminal(), report.to_summary(), report.to_annotation().unwrap_or_default()];
    let moving = shown.iter().flat_map(|text| text.chars()).find(|c| super::super::moves_terminal(*c) && *c != '\n');
    law(moving.is_none(), &format!("a report shows {:?}", moving.map(|c| c.escape_unicode().to_string())))?;
    Ok(Answer::Accepted("report"))
}
