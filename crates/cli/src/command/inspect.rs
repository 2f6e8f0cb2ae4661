//! `trueup inspect`: what is in a model file of any format.

use super::doctor;
use crate::failure::{Code, Result};
use crate::output;
use crate::table::{Column, Side, table};
use crate::value;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use trueup::formats::{self, Checkpoint, Description, counted, gguf, quote};
use trueup::manifest::{self, TensorHash};

/// What `trueup inspect` takes.
#[derive(Args)]
#[command(
    after_help = "With --doctor, exit code 0 means that no error and no warning was found (there may be notes), 1 that one was, and 2 that \
    nothing of a model could be read.\n\nExamples:\n  trueup inspect model.gguf\n  trueup inspect hf-model/ --json\n  \
    trueup inspect model.gguf --hash > model.sha256\n  trueup inspect copy.gguf --check model.sha256\n  \
    trueup inspect model.gguf --doctor"
)]
pub struct Arguments {
    /// The model: a GGUF file, a Hugging Face directory, a FastLLM .flm file, a llama2.c file; or a safetensors file of arrays
    file: PathBuf,
    /// Print the SHA-256 of each tensor, as a list that --check takes
    #[arg(long)]
    hash: bool,
    /// Compare the tensors' SHA-256 with a list; exit code 1 when they differ
    #[arg(long, value_name = "MANIFEST", conflicts_with = "hash")]
    check: Option<PathBuf>,
    /// Look at the model's health: is it whole, does it agree with itself, are its numbers numbers; exit code 1 when it is not
    #[arg(long, conflicts_with_all = ["hash", "check"])]
    doctor: bool,
    /// Threads that hash or look at values; one per core by default
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects.
pub fn run(arguments: Arguments) -> Result {
    if arguments.doctor {
        return doctor::run(&arguments.file, arguments.threads, arguments.json);
    }
    let checkpoint = trueup::open_arrays(&arguments.file)?;
    if let Some(list) = &arguments.check {
        let hashes = manifest::hash_tensors_on(checkpoint.as_ref(), arguments.threads)?;
        return check(&hashes, list, arguments.json);
    }
    let hashes = match arguments.hash {
        true => manifest::hash_tensors_on(checkpoint.as_ref(), arguments.threads)?,
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

/// The largest list that is read.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

fn check(hashes: &[TensorHash], list: &Path, as_json: bool) -> Result {
    let bytes = formats::SourceFile::open(list)?.read_all(MANIFEST_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| formats::Error::new(list, "is not text"))?;
    let differences = manifest::compare_manifest(hashes, &text, list)?;
    if as_json {
        output::json(&json!({"equal": differences.is_empty(), "tensors": hashes.len(), "differences": differences}))?;
    } else if differences.is_empty() {
        output::line(&format!("{}, all as listed", counted(hashes.len(), "tensor")))?;
    } else {
        let sum = format!("{} in {}", counted(differences.len(), "difference"), counted(hashes.len(), "tensor"));
        output::line(&format!("{}\n{sum}", differences.join("\n")))?;
    }
    Ok(if differences.is_empty() { Code::Done } else { Code::Mismatch })
}

/// Everything as JSON.
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

/// Hyper-parameters and other facts, as JSON.
fn metadata(checkpoint: &dyn Checkpoint) -> Map<String, Value> {
    match checkpoint.description() {
        Description::Json(map) => map.clone(),
        Description::Gguf(metadata) => metadata.iter().map(|(key, value)| (key.to_owned(), json_of(value))).collect(),
    }
}

/// A value of a GGUF file as JSON; numbers that JSON has no word for become null.
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

/// The number with the fewest decimals that still gives the same f32.
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

/// Everything for people: long lists and texts are cut.
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
            Some(stored) => format!("{stored}, read as {}", tensor.dtype),
            None => tensor.dtype.to_string(),
        };
        [quote(&tensor.name), dtype, format!("{:?}", tensor.shape), tensor.bytes.to_string()]
    });
    lines.push(format!("\n{}\n", table(columns.map(|(title, side)| Column(title, side)), &rows.collect::<Vec<_>>())));
    let bytes: u64 = checkpoint.tensors().iter().map(|tensor| tensor.bytes).sum();
    let elements: u64 = checkpoint.tensors().iter().map(|tensor| tensor.elements()).sum();
    let is_read_otherwise = (0..checkpoint.tensors().len()).any(|place| checkpoint.stored(place).is_some());
    lines.push(format!(
        "{}, {}, {}{}",
        counted(checkpoint.tensors().len(), "tensor"),
        counted(elements, "element"),
        counted(bytes, "byte"),
        if is_read_otherwise { " as they are read" } else { "" }
    ));
    lines.join("\n")
}

/// A value on one line: the first items of a list, the first line of a text.
fn shortened(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 6 => {
            let first: Vec<String> = items.iter().take(6).map(shortened).collect();
            format!("[{}, … {} items]", first.join(", "), items.len())
        }
        other => quote(&other.to_string()),
    }
}
