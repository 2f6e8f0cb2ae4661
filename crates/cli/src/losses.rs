//! Table of the types and quantization errors of all tensors; `quantize` and `convert` to .flm print it.

use crate::failure::Result;
use crate::output;
use crate::table::{Column, Side, table};
use serde::Serialize;
use std::path::{Path, PathBuf};
use trueup::formats::{counted, quote, significant};
use trueup::quality::Estimate;
use trueup::quantize::{Report, TensorReport};

/// The result of a run with a target.
#[derive(Serialize)]
pub struct Outcome {
    /// Maximum size of the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<u64>,
    /// Maximum KL divergence, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_kl: Option<f64>,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Bits of the whole file per weight.
    pub bits_per_weight: f64,
    /// KL divergence that the measurements predict, in nats.
    pub predicted_kl: f64,
    /// KL divergence of the file; `None` if it was not written.
    pub measured_kl: Option<Estimate>,
    /// Positions of the text that were scored.
    pub positions: usize,
    /// The file with the measurements.
    pub measurements: String,
}

impl Outcome {
    /// As lines of text.
    fn text(&self) -> String {
        let limit = match (self.target_bytes, self.max_kl) {
            (Some(bytes), _) => format!("target of {bytes} bytes"),
            (None, kl) => format!("KL divergence of at most {}", kl.unwrap_or_default()),
        };
        let verb = if self.measured_kl.is_some() { "has" } else { "would have" };
        let predicted = significant(self.predicted_kl, 4);
        let kl = match self.measured_kl {
            Some(Estimate { value, error }) => {
                format!("predicted {predicted}, measured {} ± {}", significant(value, 4), significant(error, 2))
            }
            None => format!("predicted {predicted}"),
        };
        format!(
            "{limit}: the file {verb} {} bytes, {:.3} bits per weight with metadata\n\
             KL divergence: {kl} ({})\nmeasurements: {}",
            self.file_bytes,
            self.bits_per_weight,
            counted(self.positions, "position"),
            quote(&self.measurements)
        )
    }
}

/// Output options of the table.
pub struct How {
    /// Print JSON instead of text.
    pub json: bool,
    /// Also write JSON to this file; `-` prints it to stdout instead of the text.
    pub report: Option<PathBuf>,
    /// The result of a run with a target.
    pub target: Option<Outcome>,
}

impl How {
    /// The report as JSON.
    fn json(&self, report: &Report) -> Result<serde_json::Value> {
        let mut json = serde_json::to_value(report)?;
        if let (Some(target), Some(fields)) = (&self.target, json.as_object_mut()) {
            fields.insert("target".to_owned(), serde_json::to_value(target)?);
        }
        Ok(json)
    }
}

/// Prints what was written to `output`, or with `dry_run` what would be written.
pub fn print(report: &Report, output: &Path, dry_run: bool, how: &How) -> Result<()> {
    report.notes.iter().for_each(|note| output::note(note));
    report.resumed.iter().for_each(|resumed| output::note(&resumed.sentence()));
    let to_stdout = how.report.as_deref() == Some(Path::new("-"));
    if let Some(file) = &how.report {
        output::document(file, &serde_json::to_string_pretty(&how.json(report)?)?)?;
    }
    if how.json && !to_stdout {
        output::json(&how.json(report)?)?;
    } else if !to_stdout {
        let verb = if dry_run { "would write" } else { "wrote" };
        let file = quote(&output.to_string_lossy());
        let target = how.target.as_ref().map_or_else(String::new, |target| format!("\n{}", target.text()));
        output::line(&format!("{}\n{verb} {file} ({}){target}", rows(report), sum(report)))?;
    }
    Ok(())
}

/// The table, one row per tensor.
fn rows(report: &Report) -> String {
    let columns = [
        Column("tensor", Side::Left),
        Column("from", Side::Left),
        Column("to", Side::Left),
        Column("bits", Side::Right),
        Column("RMSE", Side::Right),
        Column("cosine", Side::Right),
        Column("max error", Side::Right),
        Column("note", Side::Left),
    ];
    table(columns, &report.tensors.iter().map(row).collect::<Vec<_>>())
}

fn sum(report: &Report) -> String {
    let ratio = report.bytes as f64 / report.source_bytes.max(1) as f64;
    let (tensors, bits) = (counted(report.tensors.len(), "tensor"), report.bits_per_weight());
    format!("{tensors}, {} bytes, {bits:.2} bits per weight, {:.1}% of the source", report.bytes, 100.0 * ratio)
}

fn row(tensor: &TensorReport) -> [String; 8] {
    let number =
        |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
    let short = |value: Option<f64>| match value {
        None => String::new(),
        Some(value) => significant(value, 4),
    };
    [
        quote(&tensor.name),
        tensor.source_type.to_owned(),
        tensor.dtype.to_owned(),
        format!("{:.2}", tensor.bits_per_weight),
        short(tensor.rmse),
        number(tensor.cosine, 6),
        short(tensor.max_error),
        tensor.note.clone(),
    ]
}
