//! `trueup chat`: a conversation through the model's chat template, answers as they come.

use crate::command::place::Place;
use crate::command::sampling::SamplingArguments;
use crate::failure::{Code, Failure, Result};
use crate::output;
use clap::Args;
use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use trueup::runtime::{GenerateOptions, ModelFile, Session, generate};
use trueup::tokenizer::{ChatTemplate, Message, Tokenizer};

/// What `trueup chat` takes.
#[derive(Args)]
#[command(
    after_help = "Each line of standard input is one turn; an empty line or the end of input ends the conversation.\n\n\
        Examples:\n  trueup chat model.gguf --system \"Answer in one sentence.\"\n  echo \"Tell me a story\" | trueup chat model.gguf"
)]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Tokens of one answer at most
    #[arg(short = 'n', long = "n-predict", value_name = "TOKENS")]
    tokens: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
}

/// Talks.
pub fn run(arguments: Arguments) -> Result {
    let model = Arc::new(ModelFile::open(&arguments.model)?);
    let template = ChatTemplate::of(model.tokenizer()?.vocabulary())?;
    let template = template.ok_or_else(|| {
        Failure::new(format!("{}: the model has no chat template; use run", arguments.model.display()))
    })?;
    let session = Session::new(arguments.place.weights(model.clone())?, &arguments.place.session(1))?;
    let options = GenerateOptions {
        tokens_max: arguments.tokens,
        sampling: arguments.sampling.sampling(),
        reuse: true,
        ..GenerateOptions::default()
    };
    let mut conversation =
        Conversation { tokenizer: model.tokenizer()?, template, session, options, messages: Vec::new() };
    if let Some(system) = arguments.system {
        conversation.messages.push(Message { role: "system".to_owned(), content: system });
    }
    let asks = io::stdin().is_terminal();
    let mut lines = io::stdin().lock().lines();
    loop {
        if asks {
            output::text("> ")?;
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|error| Failure::new(format!("standard input: {error}")))?;
        if line.trim().is_empty() {
            break;
        }
        conversation.answer(line)?;
    }
    Ok(Code::Done)
}

/// A conversation and the session that remembers it.
struct Conversation<'a> {
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    session: Session,
    options: GenerateOptions,
    messages: Vec<Message>,
}

impl Conversation<'_> {
    /// Prints the answer to one turn as it comes, and keeps both.
    fn answer(&mut self, turn: String) -> Result<()> {
        self.messages.push(Message { role: "user".to_owned(), content: turn });
        let ids = self.tokenizer.encode(&self.template.render(&self.messages, true)?, false)?;
        let mut stream = self.tokenizer.stream(true, false);
        let mut answer = String::new();
        let mut broken = None;
        let mut print = |text: String| {
            answer.push_str(&text);
            match output::text(&text) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    broken = Some(failure);
                    ControlFlow::Break(())
                }
            }
        };
        generate(&mut self.session, &[ids], &self.options, &mut |_, id| print(stream.push(id)))?;
        let _ = print(stream.finish());
        if let Some(failure) = broken {
            return Err(failure);
        }
        output::line("")?;
        self.messages.push(Message { role: "assistant".to_owned(), content: answer.trim().to_owned() });
        Ok(())
    }
}
