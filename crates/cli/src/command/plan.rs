//! `trueup plan`: how a model would be computed.

use crate::command::place::{Place, open_model};
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value;
use clap::Args;
use std::path::PathBuf;
use trueup::runtime::{CONTEXT_DEFAULT, Session};

/// What `trueup plan` takes.
#[derive(Args)]
#[command(after_help = "Examples:\n  trueup plan model.gguf\n  trueup plan model.gguf --tokens 512 --json")]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    /// Tokens computed at once: 1 is the decode phase
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = value::tokens, allow_negative_numbers = true)]
    tokens: usize,
    /// Tokens that the sequence holds after this computation; as many as are computed by default
    #[arg(long, value_name = "TOKENS", value_parser = value::tokens, allow_negative_numbers = true)]
    length: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Plans.
pub fn run(arguments: Arguments) -> Result {
    let model = open_model(&arguments.model)?;
    let length = arguments.length.unwrap_or(arguments.tokens);
    if length < arguments.tokens {
        let tokens = arguments.tokens;
        return Err(Failure::new(format!(
            "a sequence of {length} tokens cannot hold the {tokens} that are computed; make --length larger"
        )));
    }
    let mut session = arguments.place.session(1);
    let context = session.context.unwrap_or(model.model().hyper().context());
    if length > context {
        return Err(Failure::new(format!("a sequence of {length} tokens is longer than the context of {context}")));
    }
    if session.context.is_none() && length > CONTEXT_DEFAULT {
        session.context = Some(length);
    }
    let weights = arguments.place.weights(model)?;
    let plan = Session::plan(&weights, &session, arguments.tokens, 1, length)?;
    let report = plan.report();
    arguments.place.foresee(&weights, &plan, &report)?;
    if arguments.json {
        output::json(&report)?
    } else {
        output::line(&report.to_string())?
    }
    Ok(Code::Done)
}
