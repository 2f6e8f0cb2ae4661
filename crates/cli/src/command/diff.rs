//! `trueup diff`: compares two models of any format, tensor by tensor.

use crate::failure::{Code, Result};
use crate::output;
use crate::table::{Column, Side, table};
use crate::value;
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::convert::{Diff, DiffOptions, Difference, Kind, diff};
use trueup::formats::{self, Checkpoint, Importance, OpenOptions, counted, quote, significant};

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Compare two models of any format, tensor by tensor

Both models are compared as if converted to GGUF: tensor names, shapes, order of rows, and metadata. Values are \
compared as numbers, so the same weights in different types are equal if no precision was lost. Metadata is compared \
by meaning; keys that only describe how a file is stored (name, type, alignment, split) are ignored.";

const DETAILS: &str = "\
Exit codes:
  0  The models are equal
  1  The models differ
  2  A model cannot be read

Examples:
  trueup diff path/to/hf-model model.gguf
  trueup diff path/to/hf-model model-q4_0.gguf --allow-rounding --json
  trueup diff model.gguf model-q4_k_m.gguf --allow-rounding --imatrix imatrix.gguf";

/// Arguments of `trueup diff`.
#[derive(Args)]
#[command(after_long_help = DETAILS)]
pub struct Arguments {
    /// First model: a Hugging Face directory, a GGUF file, a FastLLM .flm file or a llama2.c .bin file
    a: PathBuf,
    /// Second model
    b: PathBuf,
    /// Treat rounded tensors as equal
    ///
    /// A tensor counts as rounded if converting the other model's values to its type gives exactly the same values.
    #[arg(long)]
    allow_rounding: bool,
    /// Importance matrix that one of the models was quantized with, for an exact comparison
    ///
    /// Without it, a tensor is reported as quantized with an importance matrix if its RMSE is at most 4 times that of
    /// plain quantization and its cosine at least 0.75.
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) for the first model
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `trueup diff`.
pub fn run(arguments: Arguments) -> Result {
    let a = open(&arguments.a, arguments.tokenizer)?;
    let b = open(&arguments.b, None)?;
    let importance = arguments.imatrix.as_deref().map(Importance::open).transpose()?;
    let (allow_rounding, threads) = (arguments.allow_rounding, arguments.threads);
    let options = DiffOptions { allow_rounding, importance: importance.as_ref(), threads };
    let found = diff(a.as_ref(), b.as_ref(), options)?;
    if arguments.json {
        output::json(&serde_json::to_value(&found)?)?;
    } else {
        found.notes.iter().for_each(|note| output::note(note));
        print(&found)?;
    }
    Ok(if found.equal { Code::Done } else { Code::Mismatch })
}

fn open(path: &Path, tokenizer: Option<PathBuf>) -> Result<Box<dyn Checkpoint>> {
    Ok(formats::join_split_scale(formats::open(path, &OpenOptions { tokenizer })?)?)
}

fn print(found: &Diff) -> Result<()> {
    let columns = ["kind", "name", "a", "b", "difference"].map(|title| Column(title, Side::Left));
    let rows = found.differences.iter().map(|line| {
        let kind = match line.kind {
            Kind::Key => "key",
            Kind::Tensor => "tensor",
        };
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        [kind.to_owned(), quote(&line.name), side(&line.a), side(&line.b), values(line)]
    });
    if !found.equal {
        output::line(&table(columns, &rows.collect::<Vec<_>>()))?;
    }
    let others = found.tensors - found.exact - found.rounded - found.weighted;
    let weighted = match found.weighted {
        0 => String::new(),
        count => format!("{count} quantized with an importance matrix, "),
    };
    let verdict = if found.equal { "equal" } else { "different" };
    output::line(&format!(
        "{verdict}: compared {}, {}: {} exact, {} rounded, {weighted}{others} different",
        counted(found.keys, "key"),
        counted(found.tensors, "tensor"),
        found.exact,
        found.rounded
    ))
}

fn values(line: &Difference) -> String {
    let Some(values) = &line.values else { return String::new() };
    let how = match (values.rounded, values.weighted) {
        (true, _) => "rounded",
        (false, true) => "quantized with an importance matrix",
        (false, false) => "DIFFERENT",
    };
    let place: Vec<String> = values.first.iter().map(u64::to_string).collect();
    format!(
        "{how}: {}, first at [{}]; RMSE {}, max {}{}",
        counted(values.elements, "element"),
        place.join(", "),
        significant(values.rmse, 4),
        significant(values.max_abs, 4),
        if values.weighted { format!(", cosine {}", significant(values.cosine, 6)) } else { String::new() }
    )
}
