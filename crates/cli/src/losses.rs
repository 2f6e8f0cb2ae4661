//! Table of the types and quantization errors of all tensors; `quantize` and `convert` to .flm print it.

use crate::failure::Result;
use crate::output;
use crate::table::{Column, Side, table};
use std::path::{Path, PathBuf};
use trueup::formats;
use trueup::quantize::{Report, TensorReport};

/// Output options of the table.
pub struct How {
    /// Print JSON instead of text.
    pub json: bool,
    /// Also write JSON to this file; `-` prints it to stdout instead of the text.
    pub report: Option<PathBuf>,
}

/// Prints what was written to `output`, or with `dry_run` what would be written.
pub fn print(report: &Report, output: &Path, dry_run: bool, how: &How) -> Result<()> {
    report.notes.iter().for_each(|note| output::note(note));
    report.resumed.iter().for_each(|resumed| output::note(&resumed.sentence()));
    let to_stdout = how.report.as_deref() == Some(Path::new("-"));
    if let Some(file) = &how.report {
        output::document(file, &serde_json::to_string_pretty(report)?)?;
    }
    if how.json && !to_stdout {
        output::json(report)?;
    } else if !to_stdout {
        let verb = if dry_run { "would write" } else { "wrote" };
        let file = formats::quote(&output.to_string_lossy());
        output::line(&format!("{}\n{verb} {file} ({})", rows(report), sum(report)))?;
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
    let (tensors, bits) = (formats::counted(report.tensors.len(), "tensor"), report.bits_per_weight());
    format!("{tensors}, {bits:.2} bits per weight, {} bytes, {:.1}% of the source", report.bytes, 100.0 * ratio)
}

fn row(tensor: &TensorReport) -> [String; 8] {
    let number =
        |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
    let short = |value: Option<f64>| match value {
        None => String::new(),
        Some(value) => formats::significant(value, 4),
    };
    [
        formats::quote(&tensor.name),
        tensor.source_type.to_owned(),
        tensor.dtype.to_owned(),
        format!("{:.2}", tensor.bits_per_weight),
        short(tensor.rmse),
        number(tensor.cosine, 6),
        short(tensor.max_error),
        tensor.note.clone(),
    ]
}
