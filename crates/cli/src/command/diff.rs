//! `trueup diff`: two model files of any format, tensor by tensor.

use crate::failure::{Code, Result};
use crate::output;
use crate::table::{Column, Side, table};
use crate::value;
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::convert::{Diff, DiffOptions, Difference, Kind, diff};
use trueup::formats::{self, Checkpoint, OpenOptions, counted, quote};

/// What `trueup diff` takes.
#[derive(Args)]
#[command(
    after_help = "Names, shapes, the order of rows and keys are compared as GGUF has them, whatever the formats. Values are \
    compared as numbers: the same weights in another type are equal where nothing was lost. Keys are compared by what they mean; \
    those that only say how a file is stored (name, type, alignment, pieces) are not.\n\n\
    Exit codes: 0 equal; 1 different; 2 a model cannot be read.\n\nExamples:\n  \
    trueup diff path/to/hf-model model.gguf\n  trueup diff path/to/hf-model model-q4_0.gguf --allow-rounding --json"
)]
pub struct Arguments {
    /// A Hugging Face directory, a GGUF file, a FastLLM .flm file or a llama2.c .bin file
    a: PathBuf,
    /// Another one
    b: PathBuf,
    /// Count a tensor as equal where the values of one side are exactly what its type makes of the other's
    #[arg(long)]
    allow_rounding: bool,
    /// A tokenizer.bin, tokenizer.model or tokenizer.json for the first model
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Threads; one per core by default
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Compares.
pub fn run(arguments: Arguments) -> Result {
    let a = open(&arguments.a, arguments.tokenizer)?;
    let b = open(&arguments.b, None)?;
    let options = DiffOptions { allow_rounding: arguments.allow_rounding, threads: arguments.threads };
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
    let columns = ["", "name", "a", "b", "difference"].map(|title| Column(title, Side::Left));
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
    let others = found.tensors - found.exact - found.rounded;
    let verdict = if found.equal { "equal" } else { "different" };
    output::line(&format!(
        "{verdict}: {} compared, {}: {} exact, {} rounded, {others} different",
        counted(found.keys, "key"),
        counted(found.tensors, "tensor"),
        found.exact,
        found.rounded
    ))
}

fn values(line: &Difference) -> String {
    let Some(values) = &line.values else { return String::new() };
    let how = if values.rounded { "rounded" } else { "DIFFERENT" };
    let place: Vec<String> = values.first.iter().map(u64::to_string).collect();
    format!(
        "{how}: {}, the first at [{}]; RMSE {:.3e}, max {:.3e}",
        counted(values.elements, "element"),
        place.join(", "),
        values.rmse,
        values.max_abs
    )
}
