//! `trueup plan`: how a model would be computed.

use crate::command::place::Place;
use crate::failure::{Code, Result};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use trueup::runtime::{ModelFile, Session};

/// What `trueup plan` takes.
#[derive(Args)]
#[command(after_help = "Examples:\n  trueup plan model.gguf\n  trueup plan model.gguf --tokens 512 --json")]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    /// Tokens computed at once: 1 is the decode phase
    #[arg(long, default_value_t = 1)]
    tokens: usize,
    /// Tokens in the sequence behind this computation
    #[arg(long, value_name = "TOKENS")]
    length: Option<usize>,
    #[command(flatten)]
    place: Place,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Plans.
pub fn run(arguments: Arguments) -> Result {
    let model = Arc::new(ModelFile::open(&arguments.model)?);
    let weights = arguments.place.weights(model)?;
    let length = arguments.length.unwrap_or(arguments.tokens);
    let plan = Session::plan(&weights, &arguments.place.session(1), arguments.tokens, 1, length)?;
    let report = plan.report();
    if arguments.json {
        output::json(&report)?
    } else {
        output::line(&report.to_string())?
    }
    Ok(Code::Done)
}
