//! `trueup plan`: shows the execution plan of a model.

use crate::command::place::{Place, open_model};
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use trueup::formats::counted;
use trueup::runtime::plan::{Plan, PlanReport};
use trueup::runtime::{CONTEXT_DEFAULT, Session};

const EXAMPLES: &str = "\
Examples:
  trueup plan model.gguf
  trueup plan model.gguf --tokens 512 --json";

/// Arguments of `trueup plan`.
#[derive(Args)]
#[command(mut_arg("nvtx", |nvtx| nvtx.hide(true)), after_long_help = EXAMPLES)]
pub struct Arguments {
    /// GGUF file of the model
    model: PathBuf,
    /// Number of tokens computed at once; 1 plans the decode phase
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = value::tokens,
        allow_negative_numbers = true)]
    tokens: usize,
    /// Length of the sequence after this computation [default: the value of --tokens]
    ///
    /// The plan of an encoder-decoder model also contains the encoder, for a text of this length.
    #[arg(long, value_name = "TOKENS", value_parser = value::tokens, allow_negative_numbers = true)]
    length: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup plan`.
pub fn run(arguments: Arguments) -> Result {
    arguments.place.expect_no_nvtx()?;
    let model = open_model(&arguments.model)?;
    let length = arguments.length.unwrap_or(arguments.tokens);
    if length < arguments.tokens {
        let tokens = arguments.tokens;
        return Err(Failure::new(format!(
            "--length {length}: expected at least {tokens}, the value of --tokens; increase --length or lower --tokens"
        )));
    }
    let mut session = arguments.place.session(1);
    let spec = model.model().spec();
    let (context, usual) = (session.context.unwrap_or(spec.context_max()), spec.context_length().min(CONTEXT_DEFAULT));
    if length > context {
        let option = if arguments.length.is_some() { "--length" } else { "--tokens" };
        let longer = if context < spec.context_max() { ", or increase -c" } else { "" };
        return Err(Failure::new(format!(
            "the sequence has {length} tokens, but the context holds {context}; decrease {option}{longer}"
        )));
    }
    if session.context.is_none() && length > usual {
        session.context = Some(length);
    }
    let weights = arguments.place.weights(model)?;
    let plan = Session::plan(&weights, &session, arguments.tokens, 1, length)?;
    let encoder = Session::encoder_plan(&weights, &session, length)?;
    let plans: Vec<&Plan> = encoder.iter().chain([&plan]).collect();
    arguments.place.foresee(&weights, &plans)?;
    let reports = Reports { decoder: plan.report(), encoder: encoder.as_ref().map(Plan::report) };
    match &reports {
        reports if arguments.json => output::json(reports)?,
        Reports { decoder, encoder: None } => output::line(&decoder.to_string())?,
        Reports { decoder, encoder: Some(encoder) } => {
            output::line(&format!("encoder, for a text of {}:\n{encoder}\n", counted(length, "token")))?;
            output::line(&format!("decoder:\n{decoder}"))?
        }
    }
    Ok(Code::Done)
}

/// What `--json` writes.
#[derive(Serialize)]
struct Reports {
    #[serde(flatten)]
    decoder: PlanReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoder: Option<PlanReport>,
}
