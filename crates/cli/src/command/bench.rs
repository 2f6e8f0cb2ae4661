//! `trueup bench`: measures the speed of a model on a device, also as a share of the hardware limit.

use crate::command::place::{Place, check_target, open_model};
use crate::command::roof;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::table::{Column, Side, table};
use crate::value;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use trueup::formats::{counted, quote};
use trueup::runtime::ModelFile;
use trueup::runtime::bench::{
    BenchOptions, BenchReport, OperatorTime, ParallelReport, PhaseOperators, PhaseReport, bench,
};
use trueup::synthetic;

/// Prefix of the name of a synthetic model.
const SYNTHETIC: &str = "synth:";

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Measure the speed of a model, and the share of the hardware limit that it reaches

The hardware limit is measured in the same run, before and after the model, with all threads: reading a large array, \
and multiplying in registers. For each phase, the share of the limit is the shortest time in which the hardware could \
read the weights and the KV cache and compute the products, divided by the measured time. If the weights fit in the \
caches, the share can exceed 100%; such results are marked as cached.

synth:NAME:TYPE is a model with random weights, created in memory. NAME is llama-1b, llama-8b, qwen2-0.5b, qwen2-1.5b, \
qwen2-3b, qwen2-7b, llama-110m, llama-15m, chatglm-6b, mixtral-8x7b or qwen3-30b-a3b; TYPE is the type of \
the matrices, such as q4_0, q8_0 or q4_k; recipes such as q4_k_m are not accepted.";

const EXAMPLES: &str = "\
Examples:
  trueup bench model.gguf
  trueup bench synth:llama-1b:q4_0 --per-op
  trueup bench model.gguf --prompt 32 --generate 64 -t 2 --parallel 1,2,4,16 --json -";

/// Arguments of `trueup bench`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// GGUF file of the model, or synth:NAME:TYPE
    model: PathBuf,
    /// Length of the prompt in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = value::tokens,
        allow_negative_numbers = true)]
    prompt: usize,
    /// Number of tokens to decode after the prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = value::tokens,
        allow_negative_numbers = true)]
    generate: usize,
    /// Measure each phase N times and report the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value::tokens,
        allow_negative_numbers = true)]
    repetitions: usize,
    /// Also measure each operator
    ///
    /// The operators are computed one at a time, so the sum of their times can differ from the time of the phase.
    #[arg(long)]
    per_op: bool,
    /// Also measure decoding of N sequences at once, for each N of the list
    ///
    /// The prompts have at most 32 tokens.
    #[arg(
        long, value_name = "N,N,..", value_delimiter = ',', value_parser = value::tokens, allow_negative_numbers = true
    )]
    parallel: Vec<usize>,
    /// Write the results as JSON to FILE; without FILE, or with -, print them instead of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup bench`.
pub fn run(arguments: Arguments) -> Result {
    let started = Instant::now();
    let target = arguments.json.as_deref();
    let model = open(&arguments.model, target)?;
    model.expect_no_encoder("bench", "use `trueup run` or `trueup verify`")?;
    let weights = arguments.place.weights(model)?;
    let options = BenchOptions {
        prompt: arguments.prompt,
        generate: arguments.generate,
        repetitions: arguments.repetitions,
        per_operator: arguments.per_op,
        parallel: arguments.parallel,
    };
    let session = arguments.place.session(1);
    let report = bench(&weights, &session, &options, started, &mut |what| output::note(what))?;
    if let Some(file) = target {
        output::document(file, &serde_json::to_string(&report)?)?;
    }
    if target != Some(Path::new("-")) {
        output::line(&text(&report))?;
    }
    Ok(Code::Done)
}

/// Opens a file or creates a synthetic model. Fails if the results cannot be written.
fn open(model: &Path, target: Option<&Path>) -> Result<Arc<ModelFile>> {
    let Some(described) = model.to_str().and_then(|model| model.strip_prefix(SYNTHETIC)) else {
        let model = open_model(model)?;
        check_target(target.filter(|target| *target != Path::new("-")), &model, &[])?;
        return Ok(model);
    };
    target.map_or(Ok(()), |target| output::check_target(target, &[]))?;
    let refuse = |problem: &str| Failure::new(format!("{SYNTHETIC}{}: {problem}", quote(described)));
    let (name, dtype) = described.rsplit_once(':').ok_or_else(|| {
        refuse(&format!(
            "expected a name and a type, found no colon between them; use synth:NAME:TYPE, where NAME is one of {}",
            synthetic::names()
        ))
    })?;
    let dtype = value::tensor_type(dtype).map_err(|types| refuse(&format!("unknown type: {types}")))?;
    Ok(Arc::new(synthetic::model(name, dtype)?))
}

/// The text report.
fn text(report: &BenchReport) -> String {
    let mut parts = vec![facts(report), phases(report), roof::line(report.roof.as_ref(), &report.device)];
    parts.extend(report.per_op.iter().flatten().map(operators));
    parts.extend(report.parallel.as_deref().map(parallel));
    parts.join("\n\n")
}

/// The first part of the report: device, model, load time and memory.
fn facts(report: &BenchReport) -> String {
    let model = &report.model;
    let types: Vec<String> = model.types.iter().map(|(name, bytes)| format!("{name} {}", megabytes(*bytes))).collect();
    let peak = report.peak_memory_bytes.map_or_else(|| "unknown".to_owned(), megabytes);
    format!(
        "device: {} ({})\nmodel: {} ({}), {:.1} million parameters, {} ({}), {} read per token; KV cache {}\n\
         load: {:.2} s; first token {:.2} s after start; prompt to first token: {:.3} s\n\
         peak memory: {peak}; weights: {} copied, {} in the mapped file",
        report.device,
        report.description,
        quote(&model.name),
        model.architecture,
        model.parameters as f64 / 1e6,
        megabytes(model.bytes),
        types.join(", "),
        megabytes(model.token_bytes),
        report.kv,
        report.load_seconds,
        report.first_token_seconds,
        report.prompt.seconds.median,
        megabytes(report.weights.copied_bytes),
        megabytes(report.weights.mapped_bytes),
    )
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.1}%", 100.0 * share))
}

/// The table of the two phases.
fn phases(report: &BenchReport) -> String {
    let columns = [
        ("phase", Side::Left),
        ("tokens", Side::Right),
        ("tokens/s", Side::Right),
        ("min", Side::Right),
        ("max", Side::Right),
        ("GB/s", Side::Right),
        ("GOP/s", Side::Right),
        ("of limit", Side::Right),
        ("note", Side::Left),
    ];
    let note = if report.model.cached { "cached" } else { "" };
    let row = |(name, phase): (&str, &PhaseReport)| {
        let speed = |seconds: f64| format!("{:.1}", phase.tokens as f64 / seconds.max(f64::MIN_POSITIVE));
        let (least, most) = (speed(phase.seconds.max), speed(phase.seconds.min));
        let (bytes, operations) = (format!("{:.1}", phase.gb_per_s), format!("{:.1}", phase.gop_per_s));
        let (tokens, median) = (phase.tokens.to_string(), format!("{:.1}", phase.tokens_per_s));
        let share = percent(phase.roof_share);
        [name.to_owned(), tokens, median, least, most, bytes, operations, share, note.to_owned()]
    };
    let rows: Vec<_> = [("prompt", &report.prompt), ("decode", &report.decode)].into_iter().map(row).collect();
    table(columns.map(|(title, side)| Column(title, side)), &rows)
}

/// The table of operators of one phase.
fn operators(phase: &PhaseOperators) -> String {
    let columns = [
        ("operator", Side::Left),
        ("weights", Side::Left),
        ("shape", Side::Left),
        ("calls", Side::Right),
        ("ms", Side::Right),
        ("share", Side::Right),
        ("GB/s", Side::Right),
        ("GOP/s", Side::Right),
    ];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    let row = |time: &OperatorTime| {
        let (ms, share) = (format!("{:.3}", 1e3 * time.seconds), percent(Some(time.share)));
        let (op, weights, shape) = (time.op.to_owned(), time.weights.clone(), time.shape.clone());
        [op, weights, shape, time.calls.to_string(), ms, share, number(time.gb_per_s), number(time.gop_per_s)]
    };
    let rows: Vec<_> = phase.operators.iter().map(row).collect();
    format!(
        "{}, {}: {:.1} ms computed one operator at a time, {:.1} ms without a stop after each operator\n{}",
        phase.phase,
        counted(phase.tokens, "token"),
        1e3 * phase.seconds,
        1e3 * phase.whole_seconds,
        table(columns.map(|(title, side)| Column(title, side)), &rows)
    )
}

/// The table of parallel sequences.
fn parallel(reports: &[ParallelReport]) -> String {
    let columns = [
        ("sequences", Side::Right),
        ("tokens/s", Side::Right),
        ("per sequence", Side::Right),
        ("speedup", Side::Right),
        ("of limit", Side::Right),
        ("KV cache", Side::Right),
    ];
    let row = |report: &ParallelReport| {
        let (all, each) = (format!("{:.1}", report.tokens_per_s), format!("{:.1}", report.tokens_per_s_each));
        let (ratio, memory) = (format!("{:.2}", report.ratio_to_one), megabytes(report.kv_bytes));
        [report.sequences.to_string(), all, each, ratio, percent(report.roof_share), memory]
    };
    let rows: Vec<_> = reports.iter().map(row).collect();
    table(columns.map(|(title, side)| Column(title, side)), &rows)
}
