//! `trueup inspect --doctor`: checks a model for damage. docs/doctor.md lists the findings.

use crate::failure::{Code, Result};
use crate::output;
use crate::progress::Bar;
use serde_json::{Value, json};
use std::path::Path;
use trueup::convert::doctor::{Diagnosis, Finding, Severity, diagnose};
use trueup::formats::{counted, quote};

/// Version of the JSON document.
const DOCUMENT_VERSION: u32 = 1;

/// Runs `trueup inspect --doctor`.
pub fn run(file: &Path, threads: Option<usize>, as_json: bool) -> Result {
    let diagnosis = diagnose(file, threads, &Bar::new("checking"))?;
    if as_json {
        output::json(&document(&diagnosis))?;
    } else {
        output::line(&page(&diagnosis))?;
    }
    Ok(match diagnosis.worst() {
        Some(Severity::Error | Severity::Warning) => Code::Mismatch,
        Some(Severity::Note) | None => Code::Done,
    })
}

/// The JSON document.
fn document(diagnosis: &Diagnosis) -> Value {
    let count = |severity| diagnosis.count(severity);
    json!({
        "version": DOCUMENT_VERSION,
        "model": diagnosis.path.to_string_lossy(),
        "format": diagnosis.format,
        "result": diagnosis.worst().map_or("healthy", Severity::name),
        "counts": {
            "errors": count(Severity::Error), "warnings": count(Severity::Warning), "notes": count(Severity::Note),
        },
        "looked_at": {"tensors": diagnosis.tensors, "bytes": diagnosis.bytes},
        "findings": diagnosis.findings,
    })
}

/// The text report: each finding with its reason and its remedy, then the counts.
fn page(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![format!("{}: {}", quote(&diagnosis.path.to_string_lossy()), diagnosis.format)];
    for finding in &diagnosis.findings {
        lines.push(format!("\n{} {}: {}: {}", finding.severity.name(), finding.name, place(finding), finding.found));
        if finding.more > 0 {
            lines.push(format!("  and in {}", counted(finding.more, "other place")));
        }
        lines.push(format!("  why: {}", finding.why));
        lines.push(format!("  fix: {}", finding.remedy));
    }
    let count = |severity, noun| counted(diagnosis.count(severity), noun);
    let sum = [count(Severity::Error, "error"), count(Severity::Warning, "warning"), count(Severity::Note, "note")];
    let read = format!("checked {} and {}", counted(diagnosis.tensors, "tensor"), counted(diagnosis.bytes, "byte"));
    lines.push(format!("\n{}: {}; {read}", diagnosis.verdict(), sum.join(", ")));
    lines.join("\n")
}

/// The place of a finding: the file, tensor, key and element that are known.
fn place(finding: &Finding) -> String {
    let place = &finding.place;
    let named = |what: &str, name: &Option<String>| name.as_ref().map(|name| format!("{what} {name}"));
    let element = place.element.as_ref().map(|element| format!("element {element:?}"));
    let parts =
        [place.file.clone(), named("tensor", &place.tensor), named("key", &place.key), place.at.clone(), element];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
