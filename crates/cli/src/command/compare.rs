//! `trueup compare`: measures the quality of a model on a corpus, alone or against a reference.

use crate::command::converted::Conversion;
use crate::command::place::{ModelWithTokenizer, Place, note_tokenizer};
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::progress::chunk_bar;
use crate::table::{Column, Side, table};
use crate::target::{Targets, is_same};
use crate::value;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::formats::{self, LogitsFile, LogitsShape, LogitsWriter, OpenOptions, SourceFile, quote};
use trueup::quality::{
    AgainstFigures, CompareOptions, Comparison, Corpus, Estimate, PageFacts, Percentile, Reference, WorstPosition,
    compare,
};
use trueup::runtime::{ModelFile, Session, SessionOptions, Weights};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Measure the quality of a model on a text: perplexity, and KL divergence from a reference

The reference is a second model with the same vocabulary, or a file of logits from --save-logits or llama-perplexity. \
With --kv and without --against, it is the same model with an f16 KV cache. Without a reference, only the perplexity is \
measured.

A model that is not a GGUF file, such as a Hugging Face directory, is converted to a temporary GGUF file first. The \
matrices keep their types.

The text is divided into chunks of 512 tokens. In each chunk, the first half is context only; at each position of the \
second half except the last, the prediction of the next token is scored. Chunks and formulas are those of \
llama-perplexity.";

const EXAMPLES: &str = "\
Examples:
  trueup compare model-q4_0.gguf --against model-f16.gguf --corpus wiki.txt
  trueup compare model-q4_0.gguf --against hf-model/ --corpus wiki.txt
  trueup compare model.gguf --kv q8_0 --corpus wiki.txt
  trueup compare model-f16.gguf --corpus wiki.txt --save-logits f16.logits
  trueup compare model-q4_0.gguf --against f16.logits --json -";

/// Tokens of a chunk, if the model allows them.
const CHUNK_DEFAULT: usize = 512;

/// Tokens of a chunk: the given number, which the model must allow.
pub fn chunk_size(model: &ModelFile, given: Option<usize>) -> Result<usize> {
    let spec = model.model().spec();
    let (most, size) = (spec.context_max(), given.unwrap_or(CHUNK_DEFAULT.min(spec.context_length())));
    if !(4..=most).contains(&size) {
        return Err(Failure::new(format!(
            "-c: expected 4 to {most} tokens per chunk ({most} is the model's context), found {size}"
        )));
    }
    Ok(size)
}

/// Arguments of `trueup compare`.
#[derive(Args)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("context", |argument| argument
        .help("Tokens per chunk [default: 512, or the model's context size if that is smaller]"))
)]
pub struct Arguments {
    /// GGUF file of the model, or a model that `trueup convert` reads
    model: PathBuf,
    /// Reference: a GGUF file, a model that `trueup convert` reads, or a file of logits
    #[arg(long, value_name = "MODEL|DIR|LOGITS")]
    against: Option<PathBuf>,
    /// Directory for the temporary GGUF file of a model that is converted [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Evaluation text; omit it if --against is a file of logits, which contains the tokens
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Use at most N chunks of the text [default: all]
    #[arg(long, value_name = "N", value_parser = value::tokens, allow_negative_numbers = true)]
    chunks: Option<usize>,
    /// Save the logits of the reference to FILE, or those of the model if there is no reference
    ///
    /// The format is that of `llama-perplexity --kl-divergence-base`, with 16 bits per logit.
    #[arg(long, value_name = "FILE")]
    save_logits: Option<PathBuf>,
    /// Show the N positions with the largest KL divergence
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value::whole::<usize>,
        allow_negative_numbers = true)]
    worst: usize,
    /// Write the results as JSON to FILE; without FILE, or with -, print them instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the results with plots as an HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup compare`.
pub fn run(arguments: Arguments) -> Result {
    let against = Against::open(&arguments)?;
    let conversion = Conversion { folder: arguments.temp_dir.clone(), threads: arguments.place.threads() };
    conversion.check()?;
    let text = check_inputs(&arguments, &against)?;
    // A conversion takes long, so everything else that can fail comes first.
    let devices = arguments.place.open()?;
    let opened = ModelWithTokenizer::of(open(&conversion, &arguments.model)?);
    let model = opened.model.clone();
    let tokenizer = opened.tokenizer()?;
    note_tokenizer(tokenizer);
    let other = against.model(&conversion, &arguments.model, &model)?;
    check_vocabulary(&model, other.as_deref(), &against)?;
    let options = arguments.place.session(1);
    let corpus = corpus(&arguments, &text, &model, tokenizer, &against)?;
    let options = SessionOptions { context: Some(corpus.context()), ..options };
    let weights = arguments.place.weights_on(devices, model.clone())?;
    let mut session = arguments.place.open_session(weights.clone(), &options)?;
    let mut reference = against.session(&arguments.place, other, &weights, &options)?;
    let mut writer = writer(&arguments, &model, &corpus)?;
    let bar = chunk_bar("compare", corpus.chunks());
    let measured = CompareOptions { worst: arguments.worst, ..CompareOptions::default() };
    let mut reference = match (&mut reference, &against) {
        (Some(session), _) => Reference::Model(session),
        (None, Against::Logits(file)) => Reference::File(file),
        (None, _) => Reference::Nothing,
    };
    let comparison =
        compare(&mut session, &mut reference, &corpus, tokenizer, writer.as_mut(), measured, &mut |_| bar.inc(1))?;
    bar.finish_and_clear();
    writer.map_or(Ok(()), LogitsWriter::finish)?;
    let names = Names { model: &arguments.model, reference: against.name(&arguments) };
    if let Some(file) = &arguments.json {
        output::document(file, &names.json(&comparison).to_string())?;
    }
    if let Some(file) = &arguments.html {
        let facts = PageFacts {
            model: shown(&arguments.model),
            reference: names.reference.clone(),
            corpus: arguments.corpus.as_deref().map_or_else(|| "tokens of the reference".to_owned(), shown),
            device: weights.about().name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        output::document(file, &comparison.to_html(&facts).map_err(Failure::new)?)?;
    }
    if ![&arguments.json, &arguments.html].iter().any(|file| file.as_deref() == Some(Path::new("-"))) {
        output::line(&names.text(&comparison))?;
    }
    Ok(Code::Done)
}

/// Opens a model that computes logits.
fn open(conversion: &Conversion, path: &Path) -> Result<Arc<ModelFile>> {
    let model = conversion.open(path)?;
    model.expect_generation()?;
    model.expect_no_encoder("compare", "use a decoder model")?;
    Ok(model)
}

/// What the model is compared with.
enum Against {
    /// Nothing.
    Nothing,
    /// The same model with a KV cache of the default type.
    Itself,
    /// Another model, in this file or directory.
    Model(PathBuf),
    /// Stored logits.
    Logits(LogitsFile),
}

impl Against {
    /// The reference that the arguments ask for.
    fn open(arguments: &Arguments) -> Result<Against> {
        let Some(path) = &arguments.against else {
            let has_kv = arguments.place.session(1).kv.is_some();
            return Ok(if has_kv { Against::Itself } else { Against::Nothing });
        };
        if matches!(path.try_exists(), Ok(false)) {
            return Err(Failure::new(format!(
                "--against: {}: expected a model or a file of logits, found no such file; check the path",
                shown(path)
            )));
        }
        if path.is_file() && LogitsFile::is_one(&SourceFile::open(path)?) {
            if arguments.save_logits.is_some() {
                let problem = "--save-logits: the reference is already a file of logits; remove the option";
                return Err(Failure::new(problem));
            }
            return Ok(Against::Logits(LogitsFile::open(path)?));
        }
        Ok(Against::Model(path.clone()))
    }

    /// The reference, if it is a model: `opened` itself if its path, `known`, is the same.
    fn model(&self, conversion: &Conversion, known: &Path, opened: &Arc<ModelFile>) -> Result<Option<Arc<ModelFile>>> {
        match self {
            Against::Model(path) if is_same(path, known) => Ok(Some(opened.clone())),
            Against::Model(path) => open(conversion, path).map(Some).map_err(no_reference),
            Against::Nothing | Against::Itself | Against::Logits(_) => Ok(None),
        }
    }

    /// A session of the reference, if it is a model.
    fn session(
        &self,
        place: &Place,
        other: Option<Arc<ModelFile>>,
        weights: &Arc<Weights>,
        options: &SessionOptions,
    ) -> Result<Option<Session>> {
        let options = SessionOptions { kv: None, ..*options };
        let weights = match (self, other) {
            (_, Some(model)) => place.weights(model)?,
            (Against::Itself, None) => weights.clone(),
            (Against::Nothing | Against::Logits(_) | Against::Model(_), None) => return Ok(None),
        };
        place.open_session(weights, &options).map(Some)
    }

    /// How the reference is named in results.
    fn name(&self, arguments: &Arguments) -> Option<String> {
        match self {
            Against::Nothing => None,
            Against::Itself => Some(format!("{} with --kv f16", shown(&arguments.model))),
            Against::Model(_) | Against::Logits(_) => arguments.against.as_deref().map(shown),
        }
    }
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

/// The error of a reference that cannot be opened. A file of an unknown format could have been meant as either kind of
/// reference.
fn no_reference(failure: Failure) -> Failure {
    let problem = failure.sentence().unwrap_or_default();
    let help = if problem.contains(": magic at byte 0: ") { "; pass a model or a file of logits" } else { "" };
    Failure::new(format!("--against: {problem}{help}"))
}

fn no_corpus() -> Failure {
    Failure::new("--corpus is required unless --against is a file of logits; pass --corpus FILE")
}

/// Checks the outputs and reads the corpus before any work. The text is empty if the reference has the tokens.
fn check_inputs(arguments: &Arguments, against: &Against) -> Result<String> {
    let is_corpus_needed = !matches!(against, Against::Logits(_));
    if !is_corpus_needed && (arguments.corpus.is_some() || arguments.place.session(1).context.is_some()) {
        let option = if arguments.corpus.is_some() { "--corpus" } else { "-c" };
        let problem = "the file of logits contains the tokens and their chunks";
        return Err(Failure::new(format!("{option}: {problem}; remove the option")));
    }
    if is_corpus_needed && arguments.corpus.is_none() {
        return Err(no_corpus());
    }
    check_targets(arguments, against)?;
    Ok(arguments.corpus.as_deref().map(text::read_text).transpose()?.unwrap_or_default())
}

/// Fails if the vocabulary of the reference does not have the size of the model's.
fn check_vocabulary(model: &ModelFile, other: Option<&ModelFile>, against: &Against) -> Result<()> {
    let size_of = |model: &ModelFile| model.model().spec().vocabulary_size();
    let expected = size_of(model);
    let found = match (against, other) {
        (Against::Logits(file), _) => file.shape().vocabulary,
        (_, other) => other.map_or(expected, size_of),
    };
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--against: expected the same vocabulary as in the model ({expected} tokens), found {found} tokens; compare \
         models with the same tokenizer"
    )))
}

/// Checks the outputs.
fn check_targets(arguments: &Arguments, against: &Against) -> Result<()> {
    let targets = [&arguments.json, &arguments.html, &arguments.save_logits].map(Option::as_deref);
    if targets.iter().all(Option::is_none) {
        return Ok(());
    }
    let checkpoint = formats::open(&arguments.model, &OpenOptions::default())?;
    let other = match against {
        Against::Model(other) => {
            let opened = formats::open(other, &OpenOptions::default());
            Some(opened.map_err(|error| no_reference(error.into()))?)
        }
        Against::Nothing | Against::Itself | Against::Logits(_) => None,
    };
    let mut sources = checkpoint.sources();
    sources.extend(other.iter().flat_map(|other| other.sources()));
    if let Against::Logits(file) = against {
        sources.push(file.source());
    }
    let read: Vec<&Path> = arguments.corpus.as_deref().into_iter().collect();
    Targets::files(targets.into_iter().flatten()).check(&sources, &read)
}

/// The chunks of the text, or those of the reference's file.
fn corpus(
    arguments: &Arguments,
    text: &str,
    model: &ModelFile,
    tokenizer: &Tokenizer,
    against: &Against,
) -> Result<Corpus> {
    let vocabulary = tokenizer.vocabulary();
    let bos = vocabulary.special().bos.filter(|_| vocabulary.adds_bos());
    match (against, &arguments.corpus) {
        (Against::Logits(file), _) => {
            text::check_ids(tokenizer, file.ids())?;
            Ok(Corpus::of_ids(file.ids().to_vec(), file.shape().context, bos, arguments.chunks)?)
        }
        (_, Some(file)) => {
            let context = chunk_size(model, arguments.place.session(1).context)?;
            Corpus::new(tokenizer, text, context, arguments.chunks)
                .map_err(|error| Failure::new(format!("{}: {error}", shown(file))))
        }
        (_, None) => Err(no_corpus()),
    }
}

/// The file that receives logits.
fn writer(arguments: &Arguments, model: &ModelFile, corpus: &Corpus) -> Result<Option<LogitsWriter>> {
    let Some(path) = &arguments.save_logits else { return Ok(None) };
    let vocabulary = model.model().spec().vocabulary_size();
    let shape = LogitsShape { context: corpus.context(), vocabulary, chunks: corpus.chunks() };
    Ok(Some(LogitsWriter::create(path, &shape, corpus.ids(), &[])?))
}

/// How the model and the reference are named.
struct Names<'a> {
    model: &'a Path,
    reference: Option<String>,
}

impl Names<'_> {
    /// The results as JSON.
    fn json(&self, comparison: &Comparison) -> serde_json::Value {
        json!({"model": self.model.to_string_lossy(), "reference": self.reference, "result": comparison})
    }

    /// The results as text.
    fn text(&self, comparison: &Comparison) -> String {
        let figures = &comparison.figures;
        let mut head = vec![format!("model:     {}", shown(self.model))];
        head.extend(self.reference.iter().map(|reference| format!("reference: {reference}")));
        head.push(format!(
            "corpus:    {} of {} tokens, {}",
            formats::counted(comparison.chunks, "chunk"),
            comparison.context,
            formats::counted(figures.positions, "scored position")
        ));
        let Some(against) = &figures.against else {
            return format!("{}\n\nperplexity: {}", head.join("\n"), with_error(figures.perplexity, 4));
        };
        let mut parts = vec![head.join("\n"), quality(figures.perplexity, against), percentile_table(against)];
        parts.extend(layers(comparison));
        if !comparison.worst.is_empty() {
            parts.push(worst(&comparison.worst));
        }
        parts.join("\n\n")
    }
}

fn with_error(estimate: Estimate, digits: usize) -> String {
    format!("{} ± {:.digits$}", fixed(estimate.value, digits), estimate.error)
}

fn percent(estimate: Estimate, digits: usize) -> String {
    format!("{}% ± {:.digits$}%", fixed(100.0 * estimate.value, digits), 100.0 * estimate.error)
}

/// A number with `digits` decimals; without a sign if all of them are zero.
fn fixed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let is_zero = |text: &str| text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    text.strip_prefix('-').filter(|rest| is_zero(rest)).map(str::to_owned).unwrap_or(text)
}

/// A change in percent, with a sign unless it is shown as zero.
fn change(value: f64) -> String {
    let text = fixed(100.0 * value, 3);
    let is_plus = !text.starts_with('-') && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    format!("{}{text}%", if is_plus { "+" } else { "" })
}

/// Text of a model, safe to print on one line; newlines are shown as `\n`.
fn on_one_line(text: &str) -> String {
    quote(&text.replace('\n', "\\n"))
}

/// The main figures.
fn quality(perplexity: Estimate, against: &AgainstFigures) -> String {
    let rows = [
        ["perplexity of the model".to_owned(), with_error(perplexity, 4)],
        ["perplexity of the reference".to_owned(), with_error(against.reference_perplexity, 4)],
        ["ratio of the perplexities".to_owned(), with_error(against.ratio, 6)],
        ["mean KL divergence".to_owned(), with_error(against.kl.mean, 6)],
        ["same most probable token".to_owned(), percent(against.same_top, 3)],
        ["RMS change of the next token's probability".to_owned(), percent(against.probability.rms, 3)],
        ["mean change of the next token's probability".to_owned(), percent(against.probability.mean, 3)],
    ];
    table([Column("", Side::Left), Column("value ± standard error", Side::Left)], &rows)
}

/// KL divergence and change of probability by percentile.
fn percentile_table(against: &AgainstFigures) -> String {
    let (kl, probability) = (&against.kl, &against.probability);
    let value = |percentiles: &[Percentile], percent: f64| {
        percentiles.iter().find(|known| known.percent == percent).map(|known| known.value)
    };
    let row = |name: String, kl: Option<f64>, change: Option<f64>| {
        [name, kl.map_or_else(String::new, |kl| fixed(kl, 6)), change.map_or_else(String::new, self::change)]
    };
    let mut rows = vec![row("maximum".to_owned(), Some(kl.maximum), Some(probability.maximum))];
    rows.extend(probability.percentiles.iter().map(|known| {
        let name = if known.percent == 50.0 { "median".to_owned() } else { format!("{}%", known.percent) };
        row(name, value(&kl.percentiles, known.percent), Some(known.value))
    }));
    rows.push(row("minimum".to_owned(), Some(kl.minimum), Some(probability.minimum)));
    let columns = [
        Column("percentile", Side::Left),
        Column("KL divergence", Side::Right),
        Column("change of probability", Side::Right),
    ];
    table(columns, &rows)
}

/// The error of the hidden states, in one sentence.
fn layers(comparison: &Comparison) -> Option<String> {
    let layers = comparison.layers.as_deref()?;
    let (first, last) = (layers.first()?, layers.last()?);
    let verdict = match comparison.first_drift {
        Some(layer) => format!("layer {layer} is the first that drifts"),
        None => "no layer drifts".to_owned(),
    };
    Some(format!(
        "error of the hidden states (NMSE): {} after layer {}, {} after layer {}; {verdict}",
        formats::significant(first.nmse, 2),
        first.layer,
        formats::significant(last.nmse, 2),
        last.layer
    ))
}

/// The positions with the largest KL divergence.
fn worst(worst: &[WorstPosition]) -> String {
    let token = |token: &str, probability: Option<f64>| {
        let probability = probability.map_or_else(String::new, |share| format!(" ({:.1}%)", 100.0 * share));
        format!("\"{}\"{probability}", on_one_line(token))
    };
    let rows: Vec<[String; 6]> = worst
        .iter()
        .map(|position| {
            let start = position.context.char_indices().rev().nth(39).map_or(0, |(start, _)| start);
            [
                fixed(position.kl, 4),
                format!("{}:{}", position.chunk, position.position),
                format!("…{}", on_one_line(&position.context[start..])),
                format!(
                    "{} {:.1}%, reference {:.1}%",
                    token(&position.next, None),
                    100.0 * position.probability,
                    100.0 * position.reference_probability
                ),
                token(&position.top, None),
                token(&position.reference_top, None),
            ]
        })
        .collect();
    let columns = [
        Column("KL", Side::Right),
        Column("chunk:position", Side::Left),
        Column("text", Side::Left),
        Column("next token", Side::Left),
        Column("model's top", Side::Left),
        Column("reference's top", Side::Left),
    ];
    format!("positions with the largest KL divergence:\n{}", table(columns, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(
            [-0.0, -0.000_000_4, 0.0, -0.000_000_6].map(|value| fixed(value, 6)).join(" "),
            "0.000000 0.000000 0.000000 -0.000001"
        );
        assert_eq!(
            [-0.0, -0.000_004, 0.000_004, -0.5, 0.5].map(change).join(" "),
            "0.000% 0.000% 0.000% -50.000% +50.000%"
        );
    }

    #[test]
    fn newlines_in_texts_are_escaped() {
        assert_eq!(on_one_line("a\nb\t"), "a\\nb\\u{9}");
    }
}
