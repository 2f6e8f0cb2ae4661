//! `trueup inspect`: shows the metadata and tensors of a model in any format.

use super::doctor;
use crate::failure::{Code, Result};
use crate::output;
use crate::progress::Bar;
use crate::table::{Column, Side, table};
use crate::value;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use trueup::formats::{self, Checkpoint, Description, counted, gguf, quote};
use trueup::manifest::{self, TensorHash};

const DETAILS: &str = "\
Exit codes with --doctor:
  0  No errors and no warnings; there may be notes
  1  At least one error or warning
  2  No model could be read

Examples:
  trueup inspect model.gguf
  trueup inspect hf-model/ --json
  trueup inspect model.gguf --hash > model.sha256
  trueup inspect copy.gguf --check model.sha256
  trueup inspect model.gguf --doctor";

/// Arguments of `trueup inspect`.
#[derive(Args)]
#[command(after_long_help = DETAILS)]
pub struct Arguments {
    /// Model to inspect
    ///
    /// A GGUF file, a Hugging Face directory, a FastLLM .flm file, a llama2.c .bin file, or a safetensors file.
    file: PathBuf,
    /// Print the SHA-256 hash of each tensor, as a manifest for --check
    #[arg(long)]
    hash: bool,
    /// Compare the hashes of all tensors with a manifest, and exit with 1 if they differ
    #[arg(long, value_name = "MANIFEST", conflicts_with = "hash")]
    check: Option<PathBuf>,
    /// Check the model for damage, and exit with 1 if there are errors or warnings
    ///
    /// Finds missing or truncated data, contradictory metadata, and values that are not finite.
    #[arg(long, conflicts_with_all = ["hash", "check"])]
    doctor: bool,
    /// Number of threads for --hash, --check and --doctor [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `trueup inspect`.
pub fn run(arguments: Arguments) -> Result {
    if arguments.doctor {
        return doctor::run(&arguments.file, arguments.threads, arguments.json);
    }
    let checkpoint = trueup::open_arrays(&arguments.file)?;
    checkpoint.notes().iter().for_each(|note| output::note(note));
    if let Some(list) = &arguments.check {
        let hashes = manifest::hash_tensors_on(checkpoint.as_ref(), arguments.threads, &Bar::new("hash"))?;
        return check(&hashes, list, arguments.json);
    }
    let hashes = match arguments.hash {
        true => manifest::hash_tensors_on(checkpoint.as_ref(), arguments.threads, &Bar::new("hash"))?,
        false => Vec::new(),
    };
    if arguments.json {
        output::json(&document(checkpoint.as_ref(), &hashes))?;
    } else if arguments.hash {
        for hash in &hashes {
            output::line(&format!("{}  {}", hash.sha256, quote(&hash.name)))?;
        }
    } else {
        output::line(&page(checkpoint.as_ref()))?;
    }
    Ok(Code::Done)
}

/// Largest size of a manifest.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

fn check(hashes: &[TensorHash], list: &Path, as_json: bool) -> Result {
    let bytes = formats::SourceFile::open(list)?.read_all(MANIFEST_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        formats::Error::new(list, "expected a manifest in UTF-8 text, found other bytes")
            .help("write one with `trueup inspect MODEL --hash`")
    })?;
    let differences = manifest::compare_manifest(hashes, &text, list)?;
    if as_json {
        output::json(&json!({"equal": differences.is_empty(), "tensors": hashes.len(), "differences": differences}))?;
    } else if differences.is_empty() {
        output::line(&format!("{} compared, no differences", counted(hashes.len(), "tensor")))?;
    } else {
        let sum = format!("{} in {}", counted(differences.len(), "difference"), counted(hashes.len(), "tensor"));
        output::line(&format!("{}\n{sum}", differences.join("\n")))?;
    }
    Ok(if differences.is_empty() { Code::Done } else { Code::Mismatch })
}

/// The JSON document.
fn document(checkpoint: &dyn Checkpoint, hashes: &[TensorHash]) -> Value {
    let tensors = checkpoint.tensors().iter().enumerate().map(|(place, tensor)| {
        let mut entry = json!({
            "name": tensor.name, "type": tensor.dtype.name(), "shape": tensor.shape, "bytes": tensor.bytes,
        });
        if let Some(stored) = checkpoint.stored(place) {
            entry["stored"] = json!(stored);
        }
        if let Some(hash) = hashes.get(place) {
            entry["sha256"] = json!(hash.sha256);
        }
        entry
    });
    json!({
        "format": checkpoint.format(),
        "metadata": metadata(checkpoint),
        "tensors": tensors.collect::<Vec<Value>>(),
    })
}

/// The metadata, as JSON.
fn metadata(checkpoint: &dyn Checkpoint) -> Map<String, Value> {
    match checkpoint.description() {
        Description::Json(map) => map.clone(),
        Description::Gguf(metadata) => metadata.iter().map(|(key, value)| (key.to_owned(), json_of(value))).collect(),
    }
}

/// Converts a GGUF value to JSON. Infinity and NaN become null.
fn json_of(value: &gguf::Value) -> Value {
    match value {
        gguf::Value::U8(number) => json!(number),
        gguf::Value::I8(number) => json!(number),
        gguf::Value::U16(number) => json!(number),
        gguf::Value::I16(number) => json!(number),
        gguf::Value::U32(number) => json!(number),
        gguf::Value::I32(number) => json!(number),
        gguf::Value::F32(number) => json!(shortest(*number)),
        gguf::Value::Bool(truth) => json!(truth),
        gguf::Value::String(text) => json!(text),
        gguf::Value::Array(array) => json_of_array(array),
        gguf::Value::U64(number) => json!(number),
        gguf::Value::I64(number) => json!(number),
        gguf::Value::F64(number) => json!(number),
    }
}

/// The decimal number with the fewest digits that gives the same f32.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn json_of_array(array: &gguf::Array) -> Value {
    match array {
        gguf::Array::U8(items) => json!(items),
        gguf::Array::I8(items) => json!(items),
        gguf::Array::U16(items) => json!(items),
        gguf::Array::I16(items) => json!(items),
        gguf::Array::U32(items) => json!(items),
        gguf::Array::I32(items) => json!(items),
        gguf::Array::F32(items) => json!(items.iter().copied().map(shortest).collect::<Vec<f64>>()),
        gguf::Array::Bool(items) => json!(items),
        gguf::Array::String(items) => json!(items),
        gguf::Array::Array(items) => Value::Array(items.iter().map(json_of_array).collect()),
        gguf::Array::U64(items) => json!(items),
        gguf::Array::I64(items) => json!(items),
        gguf::Array::F64(items) => json!(items),
    }
}

/// The text report. Shortens long lists and texts.
fn page(checkpoint: &dyn Checkpoint) -> String {
    let mut lines = vec![format!("{}: {}", quote(&checkpoint.path().to_string_lossy()), checkpoint.format())];
    if !metadata(checkpoint).is_empty() {
        lines.push(String::new());
    }
    lines.extend(metadata(checkpoint).iter().map(|(key, value)| format!("{} = {}", quote(key), shortened(value))));
    let columns =
        [("tensor", Side::Left), ("type", Side::Left), ("shape (innermost first)", Side::Left), ("bytes", Side::Right)];
    let rows = checkpoint.tensors().iter().enumerate().map(|(place, tensor)| {
        let dtype = match checkpoint.stored(place) {
            Some(stored) => format!("{stored}, decoded as {}", tensor.dtype),
            None => tensor.dtype.to_string(),
        };
        [quote(&tensor.name), dtype, format!("{:?}", tensor.shape), tensor.bytes.to_string()]
    });
    lines.push(format!("\n{}\n", table(columns.map(|(title, side)| Column(title, side)), &rows.collect::<Vec<_>>())));
    let bytes: u64 = checkpoint.tensors().iter().map(|tensor| tensor.bytes).sum();
    let elements: u64 = checkpoint.tensors().iter().map(|tensor| tensor.elements()).sum();
    let is_decoded = (0..checkpoint.tensors().len()).any(|place| checkpoint.stored(place).is_some());
    lines.push(format!(
        "{}, {}, {}{}",
        counted(checkpoint.tensors().len(), "tensor"),
        counted(elements, "element"),
        counted(bytes, "byte"),
        if is_decoded { " when decoded" } else { "" }
    ));
    lines.join("\n")
}

/// A value on one line. Shortens long lists.
fn shortened(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 6 => {
            let first: Vec<String> = items.iter().take(6).map(shortened).collect();
            format!("[{}, … {} items]", first.join(", "), items.len())
        }
        other => quote(&other.to_string()),
    }
}
