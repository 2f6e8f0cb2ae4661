//! `trueup chat`: a conversation that uses the chat template of the model and streams the answers.

use crate::command::context::ContextArguments;
use crate::command::place::{ModelWithTokenizer, Place, note_tokenizer};
use crate::command::sampling::SamplingArguments;
use crate::command::screen::Screen;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value::{self, TokensMax};
use clap::Args;
use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::SystemTime;
use trueup::formats::{counted, quote};
use trueup::runtime::{Finish, GenerateOptions, Session, generate};
use trueup::text;
use trueup::tokenizer::{ChatTemplate, Date, Message, Tokenizer};

/// The metadata key of the chat template.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Description in `--help`.
pub const LONG_ABOUT: &str = "\
Chat with a model

Each line of standard input is one user message. An empty line or the end of the input ends the conversation. \
Without --context-shift, the conversation ends when the context is full. With it, the oldest messages are dropped \
until half of the context is free.";

/// Help of `--context-shift`.
const SHIFT: &str = "When the context is full, drop the oldest messages until half of the context is free";
const SHIFT_DETAILS: &str = "\
If an answer fills the context, the oldest half of the tokens in the context is dropped, except those selected with --keep. The \
remaining tokens are recomputed, so the result is exact, and each shift costs as much as a prompt of half the context. \
Without this option, the conversation ends when the context (-c) is full.";

const EXAMPLES: &str = "\
Examples:
  trueup chat model.gguf --system \"Answer in one sentence.\"
  echo \"Tell me a story\" | trueup chat model.gguf
  trueup chat model.gguf --chat-template chat_template.jinja --date 2024-07-26";

/// Arguments of `trueup chat`.
#[derive(Args)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("context_shift", |shift| shift.help(SHIFT).long_help(format!("{SHIFT}\n\n{SHIFT_DETAILS}")))
)]
pub struct Arguments {
    /// GGUF file of the model
    model: PathBuf,
    /// System message
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the model's
    ///
    /// The chat template of the model is still used, unless --chat-template gives another one.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Chat template to use instead of the one in the model file
    ///
    /// A Jinja file as in Hugging Face repositories, such as chat_template.jinja.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Date that the chat template sees, such as 2024-07-26 or 2024-07-26T14:30:00 [default: now, in UTC]
    ///
    /// Some templates write the current date into the system prompt. Set the date to make answers reproducible.
    #[arg(long, value_name = "DATE")]
    date: Option<Date>,
    /// Stop each answer after N tokens; -1 means no limit
    #[arg(short = 'n', long = "n-predict", value_name = "N", value_parser = value::tokens_max,
        allow_negative_numbers = true)]
    tokens: Option<TokensMax>,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
}

/// Runs `trueup chat`.
pub fn run(arguments: Arguments) -> Result {
    let opened = ModelWithTokenizer::open(&arguments.model, arguments.tokenizer.as_deref())?;
    opened.model.expect_generation()?;
    note_tokenizer(opened.tokenizer()?);
    let template = template(&arguments, &opened)?;
    let session = arguments.place.begin_one(arguments.place.weights(opened.model.clone())?)?;
    let options = GenerateOptions {
        tokens_max: arguments.tokens.and_then(|TokensMax(most)| most),
        sampling: arguments.sampling.sampling(),
        // The answer ends at the end-of-generation tokens of the tokenizer in use: see `Conversation::answer`.
        ignore_eos: opened.is_replaced(),
        reuse: true,
        context_shift: arguments.context.shift(),
        ..GenerateOptions::default()
    };
    let mut conversation =
        Conversation { tokenizer: opened.tokenizer()?, template, session, options, messages: Vec::new() };
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

/// Returns the template from the arguments, otherwise the one of the model, with the date of the arguments.
fn template(arguments: &Arguments, opened: &ModelWithTokenizer) -> Result<ChatTemplate> {
    let vocabulary = opened.tokenizer()?.vocabulary();
    let metadata = opened.model.metadata();
    let template = match &arguments.chat_template {
        Some(file) => ChatTemplate::with_tokens_of(vocabulary, &text::read_text(file)?, file)?,
        None if opened.is_replaced() && metadata.value(CHAT_TEMPLATE).is_some() => {
            let text = metadata.string(CHAT_TEMPLATE).map_err(|error| error.in_file(opened.model.path()))?;
            ChatTemplate::with_tokens_of(vocabulary, text, opened.model.path())?
        }
        None => ChatTemplate::of(vocabulary)?.ok_or_else(|| {
            Failure::new(format!(
                "{}: expected a chat template, found none; pass one with --chat-template FILE, or generate text with \
                 `trueup run` instead",
                quote(&arguments.model.to_string_lossy())
            ))
        })?,
    };
    let now = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Date::from_unix_seconds(since.map_or(0, |since| since.as_secs()))
    };
    Ok(template.at(arguments.date.unwrap_or_else(now)))
}

/// The messages of a conversation, and the session that computes it.
struct Conversation<'a> {
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    session: Session,
    options: GenerateOptions,
    messages: Vec<Message>,
}

impl Conversation<'_> {
    /// Encodes the conversation. With `--context-shift`, drops the oldest user messages and answers that do not fit.
    /// Keeps the system message and the last user message.
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
            output::note(&format!("the context of {context} tokens is full; dropped the oldest {messages}"));
        }
        Ok(ids)
    }

    fn ids(&self) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(&self.template.render(&self.messages, true)?, false)?)
    }

    /// Prints the answer to a user message while it is generated, and adds both to the conversation.
    fn answer(&mut self, turn: String) -> Result<()> {
        self.messages.push(Message { role: "user".to_owned(), content: turn });
        let ids = self.remembered()?;
        let (count, context) = (ids.len(), self.session.context());
        if count > context {
            let shifts = self.options.context_shift.is_some();
            let remedy = if shifts { "shorten the message" } else { "drop the oldest messages with --context-shift" };
            return Err(Failure::new(format!(
                "the conversation has {count} tokens, but the context holds {context}; {remedy}, or increase the \
                 context with -c"
            )));
        }
        let mut screen = Screen::answer(self.tokenizer);
        let tokenizer = self.tokenizer;
        // A replaced tokenizer may have other end-of-generation tokens than the model.
        let generated = generate(&mut self.session, &[ids], &self.options, &mut |_, id| {
            let next = screen.push(id);
            if tokenizer.is_end_of_generation(id) { ControlFlow::Break(()) } else { next }
        });
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
            let most = self.session.model().model().spec().context_max();
            let longer = if context < most { "increase the context with -c, or " } else { "" };
            output::note(&format!(
                "the context of {context} tokens is full and the answer is incomplete; {longer}use --context-shift"
            ));
        }
        self.messages.push(Message { role: "assistant".to_owned(), content: answer });
        Ok(())
    }
}
