//! `trueup run`: what a model says behind prompts.

use crate::command::context::ContextArguments;
use crate::command::input::Input;
use crate::command::place::{Place, check_target, open_model};
use crate::command::sampling::SamplingArguments;
use crate::command::screen::Screen;
use crate::failure::{Code, Result};
use crate::output;
use crate::value::{self, TokensMax};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use trueup::formats::{SafetensorsArray, counted, write_safetensors};
use trueup::runtime::{Finish, GenerateOptions, Generated, Session, generate};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// What `trueup run` takes.
#[derive(Args)]
#[command(
    group = ArgGroup::new("input").args(["prompts", "files", "ids"]).required(true).multiple(true),
    after_help = "Examples:\n  trueup run model.gguf -p \"Once upon a time\" -n 100\n  \
        trueup run model.gguf -p \"Hello\" -p \"Good night\" --temp 0.8 -s 7\n  \
        trueup run model.gguf -p \"Once upon a time\" -n 5000 -c 512 --context-shift --keep 16 --ignore-eos\n  \
        trueup run model.gguf --ids \"1 439 440\" -n 16 --json --logits logits.safetensors"
)]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    #[command(flatten)]
    input: Input,
    /// Tokens to generate at most; without it, or with -1, to the end of the text or of the context (--context-shift). 0 computes the
    /// prompts alone
    #[arg(short = 'n', long = "n-predict", value_name = "TOKENS", value_parser = value::tokens_max, allow_negative_numbers = true)]
    tokens: Option<TokensMax>,
    /// Go on behind the end of a text
    #[arg(long)]
    ignore_eos: bool,
    /// Add no bos or eos to prompts; special tokens written in the text are still recognised
    #[arg(long)]
    no_special: bool,
    /// A tokenizer.bin, tokenizer.model or tokenizer.json that replaces the model's; its end tokens end a text as the model's do
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Do not compute a token before the clock starts
    #[arg(long)]
    no_warmup: bool,
    /// Write the logits of prompts and generated tokens to a safetensors file: p0_logits and p0_generated_logits, p1_...
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
}

/// Runs.
pub fn run(arguments: Arguments) -> Result {
    let model = open_model(&arguments.model)?;
    let read: Vec<&Path> = arguments.input.files().chain(arguments.tokenizer.as_deref()).collect();
    check_target(arguments.logits.as_deref(), &model, &read)?;
    let replacement = arguments.tokenizer.as_deref();
    let replaced = replacement.map(|file| text::open_tokenizer(model.path(), Some(file))).transpose()?;
    let tokenizer = || replaced.as_ref().map_or_else(|| Ok(model.tokenizer()?), Ok);
    let prompts = arguments.input.encode(tokenizer, !arguments.no_special)?;
    let words = Words { tokenizer: tokenizer().ok(), ignore_eos: arguments.ignore_eos };
    let weights = arguments.place.weights(model.clone())?;
    let mut session = arguments.place.begin(weights, prompts.len())?;
    if !arguments.no_warmup {
        session.warm_up()?;
    }
    let options = GenerateOptions {
        tokens_max: arguments.tokens.and_then(|TokensMax(most)| most),
        ignore_eos: arguments.ignore_eos,
        sampling: arguments.sampling.sampling(),
        keep_logits: arguments.logits.is_some(),
        context_shift: arguments.context.shift(),
        ..GenerateOptions::default()
    };
    let streams = !arguments.json && prompts.len() == 1;
    let results = words.generate(&mut session, &prompts, &options, streams)?;
    if let Some(file) = &arguments.logits {
        write_logits(file, &prompts, &results)?;
    }
    if arguments.json {
        let entries = prompts.iter().zip(&results).map(|(ids, result)| words.entry(ids, result));
        output::json(&json!({"prompts": entries.collect::<Vec<Value>>()}))?;
    } else {
        words.print(&prompts, &results)?;
    }
    Ok(Code::Done)
}

/// The tokenizer, where there is one: a model without can be run on ids.
struct Words<'t> {
    tokenizer: Option<&'t Tokenizer>,
    ignore_eos: bool,
}

impl Words<'_> {
    /// Generates; with `streams`, prints the one prompt and each piece of text as it comes.
    fn generate(
        &self,
        session: &mut Session,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        streams: bool,
    ) -> Result<Vec<Generated>> {
        let tokenizer = self.tokenizer.filter(|_| streams);
        let mut screen = tokenizer.map(|tokenizer| Screen::new(tokenizer, self.text(&prompts[0], true)));
        let results = generate(session, prompts, options, &mut |_, id| {
            let read = screen.as_mut().map_or(ControlFlow::Continue(()), |screen| screen.push(id));
            if self.ends(id) { ControlFlow::Break(()) } else { read }
        });
        match (results, screen) {
            (Ok(results), Some(screen)) => screen.finish().map(|_| results),
            (Err(error), Some(screen)) => {
                screen.interrupt();
                Err(error.into())
            }
            (results, None) => Ok(results?),
        }
    }

    /// Whether the tokenizer says that a text ends here; one that replaces the model's may know other tokens than the model.
    fn ends(&self, id: u32) -> bool {
        !self.ignore_eos && self.tokenizer.is_some_and(|tokenizer| tokenizer.is_end_of_generation(id))
    }

    /// Ids as text, without special tokens; empty when there is no tokenizer.
    fn text(&self, ids: &[u32], at_start: bool) -> String {
        let Some(tokenizer) = self.tokenizer else { return String::new() };
        let mut stream = tokenizer.stream(true, at_start);
        let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
        text.push_str(&stream.finish());
        text
    }

    fn entry(&self, ids: &[u32], result: &Generated) -> Value {
        json!({
            "ids": ids,
            "generated_ids": result.ids,
            "text": self.text(&result.ids, false),
            "finish": self.finish(result),
            "context_shifts": result.shifts,
            "prompt_ms": microseconds_kept(result.prompt_ms),
            "decode_ms": microseconds_kept(result.decode_ms),
        })
    }

    /// What was not printed while it came, and how long it took.
    fn print(&self, prompts: &[Vec<u32>], results: &[Generated]) -> Result<()> {
        for (number, (ids, result)) in prompts.iter().zip(results).enumerate() {
            let mark = if prompts.len() > 1 { format!("[{number}] ") } else { String::new() };
            if self.tokenizer.is_none() {
                let ids: Vec<String> = result.ids.iter().map(u32::to_string).collect();
                output::line(&format!("{mark}{}", ids.join(" ")))?;
            } else if prompts.len() > 1 {
                let text = self.text(ids, true) + &self.text(&result.ids, false);
                output::line(&format!("{mark}{}\n", output::visible(&text)))?;
            }
            let shifts = if result.shifts > 0 {
                format!(", {}", counted(result.shifts, "context shift"))
            } else {
                String::new()
            };
            output::note(&format!("{mark}{}{shifts}; ended by {}", timing(ids.len(), result), self.finish(result)));
        }
        Ok(())
    }

    /// Why a generation ended, as scripts see it.
    fn finish(&self, result: &Generated) -> &'static str {
        match result.finish {
            Finish::EndOfGeneration => "stop",
            Finish::Stopped if result.ids.last().is_some_and(|id| self.ends(*id)) => "stop",
            Finish::Stopped => "stopped",
            Finish::Length => "length",
            Finish::ContextFull => "context",
        }
    }
}

/// Milliseconds with three decimals.
fn microseconds_kept(milliseconds: f64) -> f64 {
    (milliseconds * 1e3).round() / 1e3
}

fn timing(prompt_tokens: usize, result: &Generated) -> String {
    let rate = |tokens: usize, ms: f64| if ms > 0.0 { 1e3 * tokens as f64 / ms } else { 0.0 };
    // The first token comes out of the prompt phase.
    let decoded = result.ids.len().saturating_sub(1);
    format!(
        "prompt {} in {:.1} ms ({:.1}/s), then {decoded} in {:.1} ms ({:.1}/s)",
        counted(prompt_tokens, "token"),
        result.prompt_ms,
        rate(prompt_tokens, result.prompt_ms),
        result.decode_ms,
        rate(decoded, result.decode_ms),
    )
}

/// `pN_logits` [tokens, vocabulary] of each prompt, `pN_generated_logits` of what came behind it.
fn write_logits(file: &Path, prompts: &[Vec<u32>], results: &[Generated]) -> Result<()> {
    let mut arrays = Vec::new();
    for (number, (ids, result)) in prompts.iter().zip(results).enumerate() {
        let Some(kept) = &result.logits else { continue };
        let shape = |rows: usize| [kept.vocabulary as u64, rows as u64];
        arrays.push(SafetensorsArray::f32(format!("p{number}_logits"), &shape(ids.len()), &kept.prompt));
        if !result.ids.is_empty() {
            let name = format!("p{number}_generated_logits");
            arrays.push(SafetensorsArray::f32(name, &shape(result.ids.len()), &kept.generated));
        }
    }
    write_safetensors(file, &arrays, &[], &[])?;
    Ok(())
}
