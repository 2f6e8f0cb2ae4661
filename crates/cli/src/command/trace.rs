//! `trueup trace`: writes every intermediate tensor of a device to a file, or prints it.

use crate::command::input::Input;
use crate::command::place::{ModelWithTokenizer, Place, check_target};
use crate::command::verify::prompts;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value;
use clap::{ArgGroup, Args};
use regex::Regex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::{TraceWriter, counted, quote};
use trueup::runtime::{SessionOptions, Weights};
use trueup::verify::{Follow, Recorded, Recording, record};

/// Number of values printed from each end of a tensor.
const SHOWN: usize = 3;

/// File extensions of other formats, which are rejected.
const OTHER_EXTENSIONS: [&str; 3] = ["npz", "txt", "gguf"];

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Record every intermediate tensor that a device computes

Without a prompt, a short built-in text is used.";

const EXAMPLES: &str = "\
Examples:
  trueup trace model.gguf -p \"The sky is\" -o trace.safetensors
  trueup trace model.gguf --ids \"1 5 9\" --steps 0 --print --nodes \"^l_out\"
  trueup verify model.gguf --ref trace.safetensors";

/// Arguments of `trueup trace`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("target").args(["out", "print"]).required(true).multiple(true),
    // The other commands that have this argument accept several prompts.
    mut_arg("prompts", |prompt| prompt.help("Prompt text").long_help("Prompt text")),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// GGUF file of the model
    model: PathBuf,
    /// Write a safetensors file with the token IDs and an array STEP/NODE for each tensor
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print a summary of each tensor
    ///
    /// The summary shows the step, name, operator, inputs, shape, first and last values, and sum.
    #[arg(long)]
    print: bool,
    /// Record only nodes whose name matches REGEX
    ///
    /// A trace with missing nodes does not pass `trueup verify`.
    #[arg(long, value_name = "REGEX", value_parser = value::regex)]
    nodes: Option<Regex>,
    /// Decode N tokens after the prompt, greedily [default: 1, or 0 for an encoder]
    #[arg(long, value_name = "N", value_parser = value::whole::<usize>)]
    steps: Option<usize>,
    #[command(flatten)]
    input: Input,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the model's
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup trace`.
pub fn run(arguments: Arguments) -> Result {
    let opened = ModelWithTokenizer::open(&arguments.model, arguments.tokenizer.as_deref())?;
    let model = opened.model.clone();
    model.expect_no_encoder("trace", "use `trueup run` or `trueup verify`")?;
    if arguments.out.as_deref() == Some(Path::new("-")) {
        return Err(Failure::new("--out -: a trace is not text; pass a file name, or print a summary with --print"));
    }
    let read: Vec<&Path> = arguments.input.files().chain(arguments.tokenizer.as_deref()).collect();
    check_target(arguments.out.as_deref(), &model, &read)?;
    expect_safetensors_name(arguments.out.as_deref())?;
    let prompts = prompts(&opened, &arguments.input)?;
    let [prompt] = prompts.as_slice() else {
        let count = prompts.len();
        return Err(Failure::new(format!("expected one prompt, found {count}; write a separate trace for each")));
    };
    let has_logits = model.model().spec().has_logits();
    if !has_logits && arguments.steps.is_some_and(|steps| steps > 0) {
        return Err(Failure::new("--steps: an encoder generates no tokens; remove the option"));
    }
    let steps = arguments.steps.unwrap_or(usize::from(has_logits));
    let mut options = arguments.place.session(1);
    let room = options.context.unwrap_or(usize::MAX).min(model.model().spec().context_max());
    if prompt.len().checked_add(steps).is_none_or(|tokens| tokens > room) {
        let (tokens, steps) = (counted(prompt.len(), "token"), counted(steps, "step"));
        let longer = if room < model.model().spec().context_max() { "increase -c, or " } else { "" };
        return Err(Failure::new(format!(
            "a prompt of {tokens} and {steps} exceed the context of {room}; {longer}use fewer steps or a shorter prompt"
        )));
    }
    let weights = arguments.place.weights(model)?;
    options.context = options.context.or(prompt.len().checked_add(steps));
    let selects = |node: &str| arguments.nodes.as_ref().is_none_or(|nodes| nodes.is_match(node));
    let mut shown: Result<()> = Ok(());
    let mut show = |recorded: &Recorded<'_>| {
        if arguments.print && shown.is_ok() {
            shown = output::text(&printed(recorded));
        }
        shown.is_ok()
    };
    let follow = Follow::Greedy(steps);
    match &arguments.out {
        Some(file) => write(&weights, &options, prompt, &follow, &selects, file, &mut show)?,
        None => {
            let mut count = 0;
            record(&weights, &options, prompt, &follow, &selects, &mut |recorded| {
                show(recorded);
                count += 1;
                Ok(())
            })?;
            expect_some(count)?;
        }
    }
    shown?;
    if let Some(file) = &arguments.out {
        output::note(&format!("wrote {}", quote(&file.to_string_lossy())));
    }
    Ok(Code::Done)
}

/// Fails if the output file has the extension of another format.
fn expect_safetensors_name(target: Option<&Path>) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    let extension = target.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.filter(|extension| OTHER_EXTENSIONS.contains(&extension.as_str())) {
        None => Ok(()),
        Some(extension) => Err(Failure::new(format!(
            "--out {}: expected a name ending in .safetensors, found .{extension}; rename the output file",
            quote(&target.to_string_lossy())
        ))),
    }
}

/// Fails if no node was selected.
fn expect_some(count: usize) -> Result<()> {
    if count > 0 {
        Ok(())
    } else {
        Err(Failure::new(
            "--nodes: the expression matches no node; list the names with `trueup plan MODEL`, and those of nodes \
             inside fused ones with `trueup plan MODEL --fusion off`",
        ))
    }
}

/// Records tensors to a file, and passes each one to `show`.
fn write(
    weights: &Arc<Weights>,
    options: &SessionOptions,
    prompt: &[u32],
    follow: &Follow,
    selects: &dyn Fn(&str) -> bool,
    file: &Path,
    show: &mut dyn FnMut(&Recorded<'_>) -> bool,
) -> Result<()> {
    let mut writer = TraceWriter::create(file, &[])?;
    let mut count = 0;
    let recording = record(weights, options, prompt, follow, selects, &mut |recorded| {
        show(recorded);
        count += 1;
        let shape = shape(recorded);
        Ok(writer.add(recorded.step, &recorded.node.name, &shape, recorded.ty.dtype, &recorded.bytes)?)
    })?;
    expect_some(count)?;
    let Recording { ids, tokens, texts } = recording;
    Ok(writer.finish(&ids, &tokens, &texts)?)
}

/// Writes the tensors that one side computed for a verified prompt and its continuation.
pub fn dump(
    folder: &Path,
    side: &str,
    number: usize,
    weights: &Arc<Weights>,
    prompt: &[u32],
    further: &[u32],
    session: &SessionOptions,
) -> Result<()> {
    let folder = folder.join(side);
    std::fs::create_dir_all(&folder).map_err(|error| {
        Failure::new(format!("{}: cannot create this directory: {error}", quote(&folder.to_string_lossy())))
    })?;
    let context = Some(prompt.len() + further.len());
    let options = SessionOptions { context, ..*session };
    let file = folder.join(format!("p{number}.safetensors"));
    write(weights, &options, prompt, &Follow::Given(further.to_vec()), &|_| true, &file, &mut |_| true)
}

/// The shape with the innermost size first, without outer sizes of 1.
fn shape(recorded: &Recorded<'_>) -> Vec<u64> {
    let sizes = recorded.ty.shape.sizes();
    let used = sizes.iter().rposition(|size| *size != 1).map_or(1, |last| last + 1);
    sizes[..used].iter().map(|size| *size as u64).collect()
}

/// The printed summary of a tensor: three lines.
fn printed(recorded: &Recorded<'_>) -> String {
    let Recorded { step, graph, node, ty, bytes } = recorded;
    let inputs = node.inputs.iter().map(|input| graph.value(*input));
    let inputs: Vec<String> = inputs.map(|value| format!("{} {}", quote(&value.name), value.ty)).collect();
    let heading = format!("{step}/{} = {}({}): {ty}\n", node.name, node.op.name(), inputs.join(", "));
    let values = values(ty.dtype, bytes);
    let list = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", ");
    let sum: f64 = values.iter().sum();
    let ends = if values.len() > 2 * SHOWN {
        format!("{}, ..., {}", list(&values[..SHOWN]), list(&values[values.len() - SHOWN..]))
    } else {
        list(&values)
    };
    format!("{heading}    [{ends}]\n    sum = {}\n", number(sum))
}

/// Decodes the elements of a tensor, including indices.
fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let Some(codec) = dtype.codec() else {
        return bytes.as_chunks::<4>().0.iter().map(|bytes| f64::from(i32::from_le_bytes(*bytes))).collect();
    };
    let mut values = vec![0.0; bytes.len() / dtype.block_bytes()];
    (codec.decode_exact)(bytes, &mut values);
    values
}

/// Formats a number with six decimals, or with an exponent if it is very small or very large.
fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-3..1e6).contains(&size) || !size.is_finite() {
        format!("{value:.6}")
    } else {
        format!("{value:.6e}")
    }
}
