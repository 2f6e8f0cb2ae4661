//! `trueup quantize`: a GGUF file with smaller types, and what each tensor lost.

use crate::failure::{Code, Failure, Result};
use crate::losses::{self, How};
use crate::output;
use crate::progress::Bar;
use crate::target;
use crate::value;
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;
use trueup::blocks::DType;
use trueup::convert::{FlmOptions, to_flm};
use trueup::formats::{self, flm::is_flm};
use trueup::quantize::{Layout, Options, Recipe, Rule, quantize};

/// What `trueup quantize` takes.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").args(["bits", "dtype", "layout"]).required(true).multiple(true),
    after_help = "Examples:\n  trueup quantize -b 4 model.gguf model-q4_0.gguf\n  \
        trueup quantize --type q8_0 --rule 'ffn_down=f16' model.gguf out.gguf --report losses.json\n  \
        trueup quantize -b 8 model.flm model-int8.flm\n  trueup quantize -b 4 --layout split model.gguf npu.gguf\n  trueup quantize --layout block npu.gguf back.gguf"
)]
pub struct Arguments {
    /// The GGUF file to start from; for a .flm file any model
    input: PathBuf,
    /// The file to write; one that ends in .flm becomes a file of FastLLM
    output: PathBuf,
    /// Bits per weight: 4 is q4_0, 8 is q8_0, 16 is f16
    #[arg(short, long, value_parser = ["4", "8", "16"], conflicts_with = "dtype")]
    bits: Option<String>,
    /// The type of matrices: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q8_1
    #[arg(long = "type", value_name = "TYPE", value_parser = value::tensor_type)]
    dtype: Option<DType>,
    /// Give tensors whose name the pattern finds another type; the first rule that matches wins
    #[arg(long = "rule", value_name = "REGEX=TYPE")]
    rules: Vec<Rule>,
    /// Give the embedding and the output head the type too, instead of q8_0
    #[arg(long)]
    pure: bool,
    /// Refuse matrices whose rows are not whole blocks, instead of keeping them as f16
    #[arg(long)]
    strict: bool,
    /// How blocks are laid out; alone, it changes the layout and nothing else
    #[arg(long, value_enum)]
    layout: Option<LayoutName>,
    /// Write the table as JSON to a file too ("-" is stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show what would be done, write nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep what is finished when the run is interrupted, and go on with what an earlier such run finished
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Threads; one per core by default
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Print the table as JSON instead of text
    #[arg(long)]
    json: bool,
}

/// How blocks are laid out.
#[derive(Clone, Copy, ValueEnum)]
enum LayoutName {
    /// Blocks, as GGUF programs read them
    Block,
    /// Values and scales as two tensors, as NPUs want them
    Split,
}

/// Quantizes.
pub fn run(arguments: Arguments) -> Result {
    let bits = arguments.bits.as_deref().map(|bits| match bits {
        "4" => DType::Q4_0,
        "8" => DType::Q8_0,
        _ => DType::F16,
    });
    let recipe = Recipe::new(bits.or(arguments.dtype)).pure(arguments.pure).strict(arguments.strict);
    let layout = match arguments.layout {
        None | Some(LayoutName::Block) => Layout::Block,
        Some(LayoutName::Split) => Layout::Split,
    };
    let options = Options {
        recipe: recipe.rules(arguments.rules),
        layout,
        threads: arguments.threads,
        dry_run: arguments.dry_run,
        resume: arguments.resume,
    };
    let source = formats::join_split_scale(formats::open(&arguments.input, &formats::OpenOptions::default())?)?;
    if let Some(file) = &arguments.report {
        output::check_target(file, &source.sources())?;
        if target::is_same(file, &arguments.output) {
            return Err(Failure::new("the report and the model would have the same name; choose another for --report"));
        }
    }
    let how = How { json: arguments.json, report: arguments.report };
    let report = if is_flm(&arguments.output) {
        let bits = arguments.bits.as_deref().and_then(|bits| bits.parse().ok());
        let options = FlmOptions::of_quantization(&arguments.output, bits, &options)?;
        to_flm(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    } else {
        quantize(source.as_ref(), &arguments.output, &options, &Bar::new("quantize"))?
    };
    losses::print(&report, &arguments.output, arguments.dry_run, &how)?;
    Ok(Code::Done)
}
