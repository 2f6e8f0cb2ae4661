//! `trueup imatrix`: computes an importance matrix from a text.

use crate::command::compare::chunk_size;
use crate::command::place::{ModelWithTokenizer, Place, note_tokenizer};
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::progress::{Bar, chunk_bar};
use crate::target::Targets;
use crate::value;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trueup::formats::{self, ImportanceSums, OpenOptions, WeightSums, counted, quote};
use trueup::quality::{Corpus, Estimate, ImatrixOptions, collect, hash_files};
use trueup::runtime::{self, SessionOptions};
use trueup::text;

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Compute an importance matrix for quantization from a text

For each column of each weight matrix in the layers, the squares of its inputs are summed over the text. The file has \
the format of llama-imatrix. It is written after every 10 chunks, so that --resume can continue an interrupted run.";

const EXAMPLES: &str = "\
Examples:
  trueup imatrix model-f16.gguf --corpus calibration.txt -o imatrix.gguf
  trueup imatrix model-f16.gguf --corpus calibration.txt -o imatrix.gguf --chunks 100 --resume";

/// Chunks after which the file is written.
const SAVED_EVERY: u32 = 10;

/// Arguments of `trueup imatrix`.
#[derive(Args)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("context", |argument| argument
        .help("Tokens per chunk [default: 512, or the model's context size if that is smaller]"))
)]
pub struct Arguments {
    /// GGUF file of the model, usually in f16, bf16 or f32
    model: PathBuf,
    /// Text that the model processes
    #[arg(long, value_name = "FILE")]
    corpus: PathBuf,
    /// Importance matrix to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Use at most N chunks of the text [default: all]
    #[arg(long, value_name = "N", value_parser = value::tokens, allow_negative_numbers = true)]
    chunks: Option<usize>,
    /// Also compute the importance of the output head, in addition to the matrices of the layers
    #[arg(long)]
    output_head: bool,
    /// Continue an earlier run from its output file
    #[arg(long)]
    resume: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup imatrix`.
pub fn run(arguments: Arguments) -> Result {
    let opened = ModelWithTokenizer::open(&arguments.model, None)?;
    let model = opened.model.clone();
    model.expect_generation()?;
    model.expect_no_encoder("imatrix", "use a decoder model")?;
    if arguments.output_head && model.model().weight("output.weight").is_none() {
        let problem = "--output-head has no effect: the model has no separate output head; omit the option";
        return Err(Failure::new(problem.to_owned()));
    }
    let tokenizer = opened.tokenizer()?;
    note_tokenizer(tokenizer);
    let checkpoint = formats::open(model.path(), &OpenOptions::default())?;
    Targets::files([arguments.output.as_path()]).check(&checkpoint.sources(), &[&arguments.corpus])?;
    let options = arguments.place.session(1);
    let context = chunk_size(&model, options.context)?;
    let text = text::read_text(&arguments.corpus)?;
    let corpus = Corpus::new(tokenizer, &text, context, arguments.chunks)
        .map_err(|error| Failure::new(format!("{}: {error}", shown(&arguments.corpus))))?;
    let model_hash = hash_files(&checkpoint.sources(), &Bar::new("hash"))?;
    let mut sums = begin(&arguments, &corpus, model_hash)?;
    // Nodes that were fused have no separate inputs.
    let options = SessionOptions { context: Some(corpus.context()), fusion: false, ..options };
    let mut session = arguments.place.open_session(arguments.place.weights(model)?, &options)?;
    let bar = chunk_bar("imatrix", corpus.chunks());
    bar.set_position(u64::from(sums.chunks));
    let collected = ImatrixOptions { output_head: arguments.output_head };
    let mut perplexity = None;
    collect(&mut session, &corpus, &mut sums, collected, &mut |sums, estimate| {
        bar.inc(1);
        perplexity = Some(estimate);
        if sums.chunks % SAVED_EVERY == 0 {
            sums.write(&arguments.output)?;
        }
        runtime::Result::Ok(())
    })?;
    bar.finish_and_clear();
    sums.write(&arguments.output)?;
    if arguments.json {
        output::json(&document(&arguments, &sums, perplexity))?;
    } else {
        output::line(&summary(&arguments, &sums, perplexity))?;
    }
    Ok(Code::Done)
}

/// What was written, as JSON: for each weight the number of its matrices, and the numbers of those without tokens.
fn document(arguments: &Arguments, sums: &ImportanceSums, perplexity: Option<Estimate>) -> Value {
    let weight = |(name, entry): (&String, &WeightSums)| {
        let (matrices, unseen) = (entry.counts.len(), entry.unseen());
        json!({"name": name, "matrices": matrices, "unseen": unseen})
    };
    json!({
        "file": arguments.output.to_string_lossy(),
        "chunks": sums.chunks,
        "context": sums.chunk_size,
        "perplexity": perplexity,
        "weights": sums.entries.iter().map(weight).collect::<Vec<Value>>(),
    })
}

/// Empty sums, or those of the run that is continued.
fn begin(arguments: &Arguments, corpus: &Corpus, model_hash: String) -> Result<ImportanceSums> {
    let too_long = |what: &str| Failure::new(format!("{what} is too large for the format; use a smaller number"));
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (name, model) = (name_of(&arguments.corpus), name_of(&arguments.model));
    let chunk_size = u32::try_from(corpus.context()).map_err(|_| too_long("-c"))?;
    u32::try_from(corpus.chunks()).map_err(|_| too_long("the number of chunks"))?;
    if !arguments.resume || !arguments.output.exists() {
        return Ok(ImportanceSums { model, model_hash, data_set: name, chunk_size, ..ImportanceSums::default() });
    }
    let sums = ImportanceSums::read(&arguments.output)?;
    let differs = |what: &str, found: String, expected: String| {
        Failure::new(format!(
            "{}: --resume: expected {what} {expected}, found {found}; resume with the same files and options, or remove \
             --resume to start again",
            shown(&arguments.output)
        ))
    };
    if sums.model != model {
        return Err(differs("the model", quote(&sums.model), quote(&model)));
    }
    if sums.data_set != name {
        return Err(differs("the corpus", quote(&sums.data_set), quote(&name)));
    }
    if sums.chunk_size != chunk_size {
        return Err(differs(
            "chunks of",
            counted(sums.chunk_size as usize, "token"),
            counted(corpus.context(), "token"),
        ));
    }
    if u64::from(sums.chunks) > corpus.chunks() as u64 {
        return Err(differs("at most", counted(sums.chunks as usize, "chunk"), counted(corpus.chunks(), "chunk")));
    }
    // Same name, different contents.
    let changed = |what: &str| {
        Failure::new(format!(
            "{}: --resume: the {what} has changed since the earlier run, or the file has no hash of it; remove --resume",
            shown(&arguments.output)
        ))
    };
    let hash = (0..sums.chunks as usize).fold(String::new(), |before, chunk| corpus.hash_through(chunk, &before));
    if sums.model_hash != model_hash {
        return Err(changed("model"));
    }
    if sums.text_hash != hash {
        return Err(changed("text"));
    }
    if sums.output_head != arguments.output_head {
        let how = |has_head: bool| if has_head { "with the output head" } else { "without the output head" }.to_owned();
        return Err(differs("sums", format!("sums {}", how(sums.output_head)), how(arguments.output_head)));
    }
    Ok(sums)
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// What was written, in a few lines.
fn summary(arguments: &Arguments, sums: &ImportanceSums, perplexity: Option<Estimate>) -> String {
    let mut lines = vec![format!(
        "{}: {} from {} of {} tokens",
        shown(&arguments.output),
        counted(sums.entries.len(), "weight"),
        counted(sums.chunks as usize, "chunk"),
        sums.chunk_size
    )];
    let scope = if arguments.resume { " of the chunks of this run" } else { "" };
    lines
        .extend(perplexity.map(|estimate| format!("perplexity{scope}: {:.4} ± {:.4}", estimate.value, estimate.error)));
    for (name, entry) in &sums.entries {
        let unseen = entry.unseen().len();
        if unseen > 0 {
            let all = entry.counts.len();
            let name = quote(name);
            lines.push(format!("{name}: no tokens were routed to {unseen} of {all} experts; use a longer text"));
        }
    }
    lines.join("\n")
}
