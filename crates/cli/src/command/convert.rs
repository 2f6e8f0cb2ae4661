//! `trueup convert`: converts a checkpoint to GGUF, or a model to `.flm`.

use crate::command::recipe::{ImportanceArguments, RecipeArguments};
use crate::failure::{Code, Failure, Result};
use crate::losses::{self, How};
use crate::output;
use crate::progress::Bar;
use crate::table::{Column, Side, table};
use crate::value;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use trueup::convert::{
    Agreement, FlmOptions, Options, Override, Report, Slim, TensorCheck, check_with, convert_with, to_flm,
};
use trueup::formats::flm::is_flm;
use trueup::formats::gguf::Split;
use trueup::formats::{self, Gguf, OpenOptions, counted, quote, significant};
use trueup::models::Architecture;
use trueup::quantize::Scheme;

const EXAMPLES: &str = "\
Examples:
  trueup convert path/to/hf-model model.gguf --check
  trueup convert path/to/hf-model model-q4_k_m.gguf --type q4_k_m --imatrix imatrix.gguf
  trueup convert stories.bin stories.gguf --tokenizer tokenizer.bin --type f16
  trueup convert path/to/hf-model model.gguf --split-max-size 2G --dry-run
  trueup convert path/to/hf-model model.gguf --split layers
  trueup convert chatglm-6b chatglm-6b.gguf --prune-vocab drop:0-19999";

/// The examples and the supported models.
fn details() -> String {
    let mut text = format!("{EXAMPLES}\n\nSupported models, by class in config.json (and GGUF architecture):");
    let mut room = 0;
    for (class, name) in Architecture::supported() {
        let entry = format!("{class} ({name})");
        if entry.len() + 2 > room {
            room = COLUMNS;
            text.push_str("\n ");
        }
        room -= entry.len() + 2;
        text.push_str(&format!(" {entry},"));
    }
    text.trim_end_matches(',').to_owned()
}

/// Width of the list of models.
const COLUMNS: usize = 98;

/// Arguments of `trueup convert`.
#[derive(Args)]
#[command(after_long_help = details())]
pub struct Arguments {
    /// Model to convert: a Hugging Face directory, a safetensors, FastLLM .flm or llama2.c .bin file
    ///
    /// For .flm output, a GGUF file is also accepted.
    source: PathBuf,
    /// GGUF file to write; a name ending in .flm selects FastLLM's format
    output: PathBuf,
    /// Type of the matrices: auto, f32, f16, bf16 or a quantized type
    ///
    /// auto keeps the types of the source; tensors that the conversion computes, such as ternary matrices, are written
    /// as f32. A quantized type or a recipe, such as q4_k_m, quantizes during the conversion, as `trueup quantize`
    /// does.
    #[arg(long = "type", value_name = "TYPE", default_value = "auto", value_parser = type_or_auto)]
    dtype: TypeOrAuto,
    #[command(flatten)]
    recipe: RecipeArguments,
    #[command(flatten)]
    importance: ImportanceArguments,
    /// Read the output back and compare every tensor with its source
    ///
    /// The comparison inverts every transform of the conversion. If a tensor differs, the exit code is 1.
    #[arg(long, conflicts_with = "dry_run")]
    check: bool,
    /// Show what would be written, without writing it
    #[arg(long)]
    dry_run: bool,
    /// Save progress when interrupted, and continue from an earlier interrupted run
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Split the output into files of at most SIZE, such as 2G
    ///
    /// The files are named NAME-00001-of-0000N.gguf.
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    split_max_size: Option<u64>,
    /// Split the output at fixed points, regardless of the file sizes
    #[arg(long, value_name = "MODE", conflicts_with = "split_max_size")]
    split: Option<SplitAt>,
    /// Remove tokens from the vocabulary: ids:FILE, corpus:FILE or drop:A-B
    ///
    /// ids:FILE keeps the token IDs that FILE lists. corpus:FILE keeps the tokens that the text in FILE needs. drop:A-B
    /// removes the token IDs from A to B.
    #[arg(long, alias = "slim-vocab", value_name = "SPEC")]
    prune_vocab: Option<Slim>,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the source's
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Set a metadata key of the output; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<Override>,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Split modes.
#[derive(Clone, Copy, ValueEnum)]
enum SplitAt {
    /// One file for the embedding, one for each layer, and one for the output head
    Layers,
}

/// A tensor type or a recipe, or `None` to keep the types of the source.
#[derive(Clone, Copy)]
struct TypeOrAuto(Option<Scheme>);

fn type_or_auto(text: &str) -> std::result::Result<TypeOrAuto, String> {
    if text == "auto" {
        return Ok(TypeOrAuto(None));
    }
    let scheme = value::scheme(text).map_err(|types| types.replacen("one of", "auto or one of", 1))?;
    Ok(TypeOrAuto(Some(scheme)))
}

/// Runs `trueup convert`.
pub fn run(arguments: Arguments) -> Result {
    let source = formats::open(&arguments.source, &OpenOptions { tokenizer: arguments.tokenizer.clone() })?;
    let options = Options {
        recipe: arguments.recipe.recipe(arguments.dtype.0),
        split: arguments.split.map_or(arguments.split_max_size.into(), |SplitAt::Layers| Split::Layers),
        slim: arguments.prune_vocab,
        overrides: arguments.metadata,
        threads: arguments.threads,
        dry_run: arguments.dry_run,
        resume: arguments.resume,
    };
    let importance = arguments.importance.open()?;
    if is_flm(&arguments.output) {
        if importance.is_some() {
            return Err(Failure::new("--imatrix: expected GGUF output, found .flm output; remove --imatrix"));
        }
        let options = FlmOptions::of_conversion(&arguments.output, options, arguments.check)?;
        let report = to_flm(source.as_ref(), &arguments.output, &options, &Bar::new("convert"))?;
        losses::print(
            &report,
            &arguments.output,
            options.dry_run,
            &How { json: arguments.json, report: None, target: None },
        )?;
        return Ok(Code::Done);
    }
    let bar = Bar::new("convert");
    let report = convert_with(source.as_ref(), &arguments.output, &options, importance.as_ref(), &bar)?;
    report.notes.iter().for_each(|note| output::note(note));
    report.resumed.iter().for_each(|resumed| output::note(&resumed.sentence()));
    let checks = match report.files.first() {
        Some(first) if arguments.check => {
            check_with(source.as_ref(), &Gguf::open(first)?, importance.as_ref(), arguments.threads)?
        }
        _ => Vec::new(),
    };
    let wrong = checks.iter().any(|check| matches!(check.agreement, Agreement::Wrong { .. }));
    if arguments.json {
        let checks = arguments.check.then_some(&checks);
        output::json(&json!({"report": report, "checks": checks, "equal": arguments.check.then_some(!wrong)}))?;
    } else {
        print(&report, &checks, arguments.dry_run)?;
    }
    Ok(if wrong { Code::Mismatch } else { Code::Done })
}

fn print(report: &Report, checks: &[TensorCheck], dry_run: bool) -> Result<()> {
    let columns =
        ["tensor", "source", "source type", "type", "error", "note", "check"].map(|title| Column(title, Side::Left));
    let rows = report.tensors.iter().enumerate().map(|(number, tensor)| {
        let from = tensor.source.as_deref().map_or_else(|| "(computed)".to_owned(), quote);
        let sorted = if tensor.sorted { "rows permuted for RoPE" } else { "" };
        let checked = checks.get(number).map_or_else(String::new, agreement);
        let remark = if tensor.note.is_empty() { sorted.to_owned() } else { tensor.note.clone() };
        let loss = match (tensor.rmse, tensor.max_error) {
            (Some(rmse), Some(max)) => format!("RMSE {}, max {}", significant(rmse, 4), significant(max, 4)),
            _ => String::new(),
        };
        [quote(&tensor.name), from, tensor.source_type.to_owned(), tensor.dtype.to_owned(), loss, remark, checked]
    });
    let omitted = checks.iter().filter(|check| check.omitted).map(|check| {
        let from = check.source.as_deref().map_or_else(String::new, quote);
        let remark = format!("compared with {}", check.name);
        let source_type = check.source_type.to_owned();
        ["(omitted)".to_owned(), from, source_type, String::new(), String::new(), remark, agreement(check)]
    });
    output::line(&table(columns, &rows.chain(omitted).collect::<Vec<_>>()))?;
    if !checks.is_empty() {
        let exact = checks.iter().filter(|check| check.agreement == Agreement::Exact).count();
        let wrong = checks.iter().filter(|check| matches!(check.agreement, Agreement::Wrong { .. })).count();
        let rounded = checks.len() - exact - wrong;
        let omitted = match checks.iter().filter(|check| check.omitted).count() {
            0 => String::new(),
            count => format!(" ({count} omitted, compared with what replaces them)"),
        };
        output::line(&format!(
            "checked {}: {exact} exact, {rounded} rounded, {wrong} wrong{omitted}",
            counted(checks.len(), "tensor")
        ))?;
    }
    let files = match report.files.as_slice() {
        [first, _, .., last] => format!("{} … {} ({} files)", shown(first), shown(last), report.files.len()),
        files => files.iter().map(|file| shown(file)).collect::<Vec<String>>().join(" and "),
    };
    let verb = if dry_run { "would write" } else { "wrote" };
    output::line(&format!(
        "{verb} {} ({}, {}, {} bytes)",
        files,
        report.architecture,
        counted(report.tensors.len(), "tensor"),
        report.bytes
    ))
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

fn agreement(check: &TensorCheck) -> String {
    match check.agreement {
        Agreement::Exact => "exact".to_owned(),
        Agreement::Rounded { rmse, max_abs, .. } => {
            format!("rounded: RMSE {}, max {}", significant(rmse, 4), significant(max_abs, 4))
        }
        Agreement::Wrong { elements } => format!("WRONG: {}", counted(elements, "element")),
    }
}
