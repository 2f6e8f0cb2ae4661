//! `trueup chat`: a conversation through the model's chat template, answers as they come.

use crate::command::context::ContextArguments;
use crate::command::place::{Place, open_model};
use crate::command::sampling::SamplingArguments;
use crate::command::screen::Screen;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value::{self, TokensMax};
use clap::Args;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use trueup::formats::{counted, quote};
use trueup::runtime::{Finish, GenerateOptions, Session, generate};
use trueup::tokenizer::{ChatTemplate, Message, Tokenizer};

/// What `trueup chat` takes.
#[derive(Args)]
#[command(
    after_help = "Each line of standard input is one turn; an empty line or the end of input ends the conversation. With --context-shift it does \
        not end with the context: a long answer goes on as with run, and turns that no longer fit are forgotten, the oldest first, until half \
        of the context is free.\n\n\
        Examples:\n  trueup chat model.gguf --system \"Answer in one sentence.\"\n  echo \"Tell me a story\" | trueup chat model.gguf"
)]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Tokens of one answer at most; without it, or with -1, to its end or the end of the context
    #[arg(short = 'n', long = "n-predict", value_name = "TOKENS", value_parser = value::tokens_max, allow_negative_numbers = true)]
    tokens: Option<TokensMax>,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
}

/// Talks.
pub fn run(arguments: Arguments) -> Result {
    let model = open_model(&arguments.model)?;
    let template = ChatTemplate::of(model.tokenizer()?.vocabulary())?;
    let template = template.ok_or_else(|| {
        Failure::new(format!(
            "{}: the model has no chat template; continue a text with trueup run instead",
            quote(&arguments.model.to_string_lossy())
        ))
    })?;
    let session = arguments.place.begin(arguments.place.weights(model.clone())?, 1)?;
    let options = GenerateOptions {
        tokens_max: arguments.tokens.and_then(|TokensMax(most)| most),
        sampling: arguments.sampling.sampling(),
        reuse: true,
        context_shift: arguments.context.shift(),
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
    /// The conversation as ids. Where the context shifts, what does not fit is forgotten: turns with their answers, not what the model was
    /// told before, and not the last turn.
    fn remembered(&mut self) -> Result<Vec<u32>> {
        let mut ids = self.ids()?;
        let context = self.session.context();
        if self.options.context_shift.is_none() || ids.len() <= context {
            return Ok(ids);
        }
        let first = self.messages.iter().position(|message| message.role == "user").unwrap_or(0);
        let mut forgotten = 0usize;
        while ids.len() > context / 2 && first + 2 < self.messages.len() {
            self.messages.drain(first..first + 2);
            forgotten += 2;
            ids = self.ids()?;
        }
        if forgotten > 0 {
            let messages = counted(forgotten, "message");
            output::note(&format!("the context of {context} tokens is full: the oldest {messages} were forgotten"));
        }
        Ok(ids)
    }

    fn ids(&self) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(&self.template.render(&self.messages, true)?, false)?)
    }

    /// Prints the answer to one turn as it comes, and keeps both.
    fn answer(&mut self, turn: String) -> Result<()> {
        self.messages.push(Message { role: "user".to_owned(), content: turn });
        let ids = self.remembered()?;
        let (count, context) = (ids.len(), self.session.context());
        if count > context {
            let shifts = self.options.context_shift.is_some();
            let remedy = if shifts { "write less" } else { "use --context-shift, which forgets the oldest turns" };
            return Err(Failure::new(format!(
                "the conversation has {count} tokens, more than the context of {context}; {remedy}, or make the context larger with -c"
            )));
        }
        let mut screen = Screen::answer(self.tokenizer);
        let generated = generate(&mut self.session, &[ids], &self.options, &mut |_, id| screen.push(id));
        let generated = match generated {
            Ok(generated) => generated,
            Err(error) => {
                screen.interrupt();
                return Err(error.into());
            }
        };
        let answer = screen.finish()?.trim().to_owned();
        if generated.iter().any(|generated| generated.finish == Finish::ContextFull) {
            let context = self.session.context();
            output::note(&format!(
                "the context of {context} tokens is full: the answer stops here, and so does the conversation"
            ));
        }
        self.messages.push(Message { role: "assistant".to_owned(), content: answer });
        Ok(())
    }
}
