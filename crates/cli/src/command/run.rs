//! `trueup run`: what a model says behind prompts.

use crate::command::place::Place;
use crate::command::sampling::SamplingArguments;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value::{self, Ids};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::formats::{SafetensorsArray, write_safetensors};
use trueup::runtime::{GenerateOptions, Generated, ModelFile, Session, generate};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// What `trueup run` takes.
#[derive(Args)]
#[command(
    group = ArgGroup::new("input").args(["prompts", "files", "ids"]).required(true).multiple(true),
    after_help = "Examples:\n  trueup run model.gguf -p \"Once upon a time\" -n 100\n  \
        trueup run model.gguf -p \"Hello\" -p \"Good night\" --temp 0.8 -s 7\n  \
        trueup run model.gguf --ids \"1 439 440\" -n 16 --json --logits logits.safetensors"
)]
pub struct Arguments {
    /// The GGUF file
    model: PathBuf,
    /// A prompt; may be given several times, for a batch
    #[arg(short = 'p', long = "prompt", value_name = "TEXT")]
    prompts: Vec<String>,
    /// A file that holds a prompt; its last newline is kept
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A prompt as token ids; nothing is added to them
    #[arg(long, value_name = "IDS", value_parser = value::ids)]
    ids: Vec<Ids>,
    /// Tokens to generate at most; without it, to the end of the text or of the context. 0 computes the prompts alone
    #[arg(short = 'n', long = "n-predict", value_name = "TOKENS")]
    tokens: Option<usize>,
    /// Go on behind the end of a text
    #[arg(long)]
    ignore_eos: bool,
    /// Add no bos or eos to prompts; special tokens written in the text are still recognised
    #[arg(long)]
    no_special: bool,
    /// A tokenizer.bin, tokenizer.model or tokenizer.json that replaces the model's
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
    /// Do not compute a token before the clock starts
    #[arg(long)]
    no_warmup: bool,
    /// Write the logits of prompts and generated tokens to a safetensors file
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs.
pub fn run(arguments: Arguments) -> Result {
    let model = Arc::new(ModelFile::open(&arguments.model)?);
    let words = Words::new(&model, &arguments)?;
    let prompts = words.prompts(&arguments)?;
    let sequences = prompts.len();
    let mut session = Session::new(arguments.place.weights(model)?, &arguments.place.session(sequences))?;
    if !arguments.no_warmup {
        session.warm_up()?;
    }
    let options = GenerateOptions {
        tokens_max: arguments.tokens,
        ignore_eos: arguments.ignore_eos,
        sampling: arguments.sampling.sampling(),
        keep_logits: arguments.logits.is_some(),
        ..GenerateOptions::default()
    };
    let results = if arguments.json || sequences > 1 || words.0.is_none() {
        generate(&mut session, &prompts, &options, &mut |_, _| ControlFlow::Continue(()))?
    } else {
        words.stream(&mut session, &prompts, &options)?
    };
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
struct Words(Option<Tokenizer>);

impl Words {
    fn new(model: &ModelFile, arguments: &Arguments) -> Result<Words> {
        let needed = !arguments.prompts.is_empty() || !arguments.files.is_empty() || arguments.tokenizer.is_some();
        let opened = text::open_tokenizer(model.path(), arguments.tokenizer.as_deref());
        match opened {
            Ok(tokenizer) => Ok(Words(Some(tokenizer))),
            Err(error) if needed => Err(error.into()),
            Err(_) => Ok(Words(None)),
        }
    }

    /// All prompts as ids: texts, files, ids, in this order.
    fn prompts(&self, arguments: &Arguments) -> Result<Vec<Vec<u32>>> {
        let mut texts = arguments.prompts.clone();
        for file in &arguments.files {
            texts.push(text::read_text(file)?);
        }
        let mut prompts = Vec::new();
        if let Some(tokenizer) = &self.0 {
            for text in &texts {
                prompts.push(tokenizer.encode(text, !arguments.no_special)?);
            }
        }
        prompts.extend(arguments.ids.iter().map(|Ids(ids)| ids.clone()));
        Ok(prompts)
    }

    /// Generates behind a single prompt and prints each piece of text as soon as it is whole.
    fn stream(&self, session: &mut Session, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generated>> {
        let Some(tokenizer) = &self.0 else { return Err(Failure::new("there is no tokenizer")) };
        output::text(&self.text(&prompts[0], true))?;
        let mut stream = tokenizer.stream(true, false);
        let mut broken = None;
        let results = generate(session, prompts, options, &mut |_, id| match output::text(&stream.push(id)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                broken = Some(failure);
                ControlFlow::Break(())
            }
        })?;
        match broken {
            Some(failure) => Err(failure),
            None => {
                output::line(&stream.finish())?;
                Ok(results)
            }
        }
    }

    /// Ids as text, without special tokens; empty when there is no tokenizer.
    fn text(&self, ids: &[u32], at_start: bool) -> String {
        let Some(tokenizer) = &self.0 else { return String::new() };
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
            "finish": finish(result),
            "prompt_ms": result.prompt_ms,
            "decode_ms": result.decode_ms,
        })
    }

    /// What was not printed while it came, and how long it took.
    fn print(&self, prompts: &[Vec<u32>], results: &[Generated]) -> Result<()> {
        for (number, (ids, result)) in prompts.iter().zip(results).enumerate() {
            if self.0.is_none() {
                let ids: Vec<String> = result.ids.iter().map(u32::to_string).collect();
                output::line(&ids.join(" "))?;
            } else if prompts.len() > 1 {
                let (prompt, text) = (self.text(ids, true), self.text(&result.ids, false));
                output::line(&format!("[{}] {prompt}{text}\n", number + 1))?;
            }
            output::note(&timing(ids.len(), result));
        }
        Ok(())
    }
}

/// Why a generation ended, as scripts see it.
fn finish(result: &Generated) -> &'static str {
    use trueup::runtime::Finish;
    match result.finish {
        Finish::EndOfGeneration => "stop",
        Finish::Length => "length",
        Finish::ContextFull => "context",
        Finish::Stopped => "stopped",
    }
}

fn timing(prompt_tokens: usize, result: &Generated) -> String {
    let rate = |tokens: usize, ms: f64| if ms > 0.0 { 1e3 * tokens as f64 / ms } else { 0.0 };
    // The first token comes out of the prompt phase.
    let decoded = result.ids.len().saturating_sub(1);
    format!(
        "prompt {prompt_tokens} tokens in {:.1} ms ({:.1}/s), then {decoded} in {:.1} ms ({:.1}/s); ended by {}",
        result.prompt_ms,
        rate(prompt_tokens, result.prompt_ms),
        result.decode_ms,
        rate(decoded, result.decode_ms),
        finish(result)
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
