//! `trueup run`: generates text from prompts.

use crate::command::context::ContextArguments;
use crate::command::input::Input;
use crate::command::place::{ModelWithTokenizer, Place, check_target};
use crate::command::sampling::SamplingArguments;
use crate::command::screen::Screen;
use crate::failure::{Code, Failure, Result};
use crate::output;
use crate::value::{self, TokensMax};
use clap::{ArgGroup, Args};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use trueup::formats::{SafetensorsArray, counted, quote, write_safetensors};
use trueup::models::ModelResult;
use trueup::runtime::{Finish, GenerateOptions, Generated, Session, Watch, generate_each};
use trueup::tokenizer::Tokenizer;

const EXAMPLES: &str = "\
Examples:
  trueup run model.gguf -p \"Once upon a time\" -n 100
  trueup run model.gguf -p \"Hello\" -p \"Good night\" --temp 0.8 -s 7
  trueup run model.gguf -p \"Once upon a time\" -n 5000 -c 512 --context-shift --keep 16 --ignore-eos
  trueup run model.gguf --ids \"1 439 440\" -n 16 --json --logits logits.safetensors";

/// Arguments of `trueup run`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("input").args(["prompts", "files", "ids"]).required(true).multiple(true),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// GGUF file of the model
    model: PathBuf,
    #[command(flatten)]
    input: Input,
    /// Stop after N tokens; -1 means no limit
    ///
    /// By default, generation stops at an end-of-generation token or when the context is full. With 0, only the prompts
    /// are computed.
    #[arg(short = 'n', long = "n-predict", value_name = "N", value_parser = value::tokens_max,
        allow_negative_numbers = true)]
    tokens: Option<TokensMax>,
    /// Continue after end-of-generation tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Do not add BOS or EOS tokens to prompts; special tokens in the text are still recognized
    #[arg(long)]
    no_special: bool,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the model's
    ///
    /// Generation stops at its end-of-generation tokens, in addition to those of the model.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Skip the warm-up before the timed computation
    #[arg(long)]
    no_warmup: bool,
    /// Write the logits to a safetensors file
    ///
    /// The arrays are p0_logits for the first prompt, p0_generated_logits for its generated tokens, p1_logits for the
    /// second prompt, and so on. For an encoder-decoder model, p0_logits has one row: the logits after the decoder's
    /// start token. An encoder writes p0_embedding, the embedding of the first prompt, or p0_hidden_states, one row per
    /// token, if it does not pool.
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    place: Place,
}

impl Arguments {
    /// The first given option that only affects generation.
    fn for_generation(&self) -> Option<&'static str> {
        let generates = self.tokens.is_some_and(|TokensMax(most)| most != Some(0));
        let options = [("--n-predict", generates), ("--ignore-eos", self.ignore_eos)];
        let option = options.into_iter().find_map(|(name, is_given)| is_given.then_some(name));
        option.or(self.context.given()).or(self.sampling.given())
    }
}

/// Runs `trueup run`.
pub fn run(arguments: Arguments) -> Result {
    if arguments.logits.as_deref() == Some(Path::new("-")) {
        return Err(Failure::new("--logits -: logits are not text; pass a file name"));
    }
    let opened = ModelWithTokenizer::open(&arguments.model, arguments.tokenizer.as_deref())?;
    let model = &opened.model;
    let read: Vec<&Path> = arguments.input.files().chain(arguments.tokenizer.as_deref()).collect();
    check_target(arguments.logits.as_deref(), model, &read)?;
    let is_encoder = !model.model().spec().has_logits();
    if arguments.logits.is_none() {
        model.expect_generation()?;
    } else if let Some(option) = arguments.for_generation().filter(|_| is_encoder) {
        return Err(Failure::new(format!("{option}: an encoder generates no tokens; remove the option")));
    }
    let prompts = arguments.input.encode(|| opened.tokenizer(), !arguments.no_special)?;
    let continues = !model.model().spec().has_encoder();
    let words = Words { tokenizer: opened.tokenizer().ok(), ignore_eos: arguments.ignore_eos, continues };
    let weights = arguments.place.weights(model.clone())?;
    let mut session = arguments.place.begin(weights, &prompts)?;
    if !arguments.no_warmup {
        session.warm_up()?;
    }
    if let Some(file) = arguments.logits.as_deref().filter(|_| is_encoder) {
        return vectors(&mut session, &prompts, file, arguments.json);
    }
    let options = GenerateOptions {
        tokens_max: arguments.tokens.and_then(|TokensMax(most)| most),
        // With another tokenizer, the ends of the model's tokenizer are ordinary tokens.
        ignore_eos: arguments.ignore_eos || opened.is_replaced(),
        sampling: arguments.sampling.sampling(),
        keep_logits: arguments.logits.is_some(),
        context_shift: arguments.context.shift(),
        ..GenerateOptions::default()
    };
    let streams = !arguments.json && prompts.len() == 1;
    let said = words.generate(&mut session, &prompts, &options, streams)?;
    if let Some(failure) = failure(&said)
        && said.iter().all(|said| said.result.is_err() && said.ids.is_empty())
    {
        return Err(failure);
    }
    if let Some(file) = &arguments.logits {
        write_logits(file, &said)?;
    }
    if arguments.json {
        let entries = prompts.iter().zip(&said).map(|(ids, said)| words.entry(ids, said));
        output::json(&json!({"prompts": entries.collect::<Vec<Value>>()}))?;
    } else {
        words.print(&prompts, &said)?;
    }
    failure(&said).map_or(Ok(Code::Done), Err)
}

/// Computes the vectors of an encoder for each prompt, and writes them: `pN_embedding` [hidden size], or
/// `pN_hidden_states` [tokens, hidden size] if the model does not pool the vectors of the tokens.
fn vectors(session: &mut Session, prompts: &[Vec<u32>], file: &Path, prints_json: bool) -> Result {
    let is_pooled = matches!(session.model().model().spec().result(), ModelResult::Pooled(_));
    let (mut arrays, mut entries) = (Vec::new(), Vec::new());
    for (number, ids) in prompts.iter().enumerate() {
        let rows = session.compute_text(ids)?;
        let (name, shape) = match is_pooled {
            true => (format!("p{number}_embedding"), vec![rows.width() as u64]),
            false => (format!("p{number}_hidden_states"), vec![rows.width() as u64, rows.rows() as u64]),
        };
        entries.push(json!({"ids": ids, "array": name}));
        arrays.push(SafetensorsArray::f32(name, &shape, &rows.to_f32()));
    }
    write_safetensors(file, &arrays, &[], &[])?;
    if prints_json {
        output::json(&json!({"prompts": entries}))?;
    } else {
        let (texts, name) = (counted(prompts.len(), "prompt"), quote(&file.to_string_lossy()));
        let what = if is_pooled { "embeddings" } else { "hidden states" };
        output::note(&format!("wrote the {what} of {texts} to {name}"));
    }
    Ok(Code::Done)
}

/// The generated tokens of a prompt, and the result.
struct Said {
    ids: Vec<u32>,
    result: trueup::runtime::Result<Generated>,
}

/// The error of the first prompt that failed.
fn failure(said: &[Said]) -> Option<Failure> {
    let problem = |(number, said): (usize, &Said)| said.result.as_ref().err().map(|error| (number, error.to_string()));
    let (number, problem) = said.iter().enumerate().find_map(problem)?;
    Some(Failure::new(if said.len() == 1 { problem } else { format!("prompt {number}: {problem}") }))
}

/// Receives tokens as they are generated. With one prompt, `screen` prints them.
struct Listener<'w, 't> {
    words: &'w Words<'t>,
    screen: Option<Screen<'t>>,
    /// The generated tokens of each prompt.
    heard: Vec<Vec<u32>>,
}

impl Watch for Listener<'_, '_> {
    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()> {
        self.heard[prompt].push(id);
        let read = self.screen.as_mut().map_or(ControlFlow::Continue(()), |screen| screen.push(id));
        if self.words.ends(id) { ControlFlow::Break(()) } else { read }
    }
}

/// The tokenizer. `None` if the model has no tokenizer; such a model runs on token IDs.
struct Words<'t> {
    tokenizer: Option<&'t Tokenizer>,
    ignore_eos: bool,
    /// Whether generated text continues its prompt, and is printed after it. A decoder writes a new text.
    continues: bool,
}

impl Words<'_> {
    /// Generates tokens. With `streams`, prints the only prompt and its text while it is generated.
    fn generate(
        &self,
        session: &mut Session,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        streams: bool,
    ) -> Result<Vec<Said>> {
        let tokenizer = self.tokenizer.filter(|_| streams);
        let screen = tokenizer.map(|tokenizer| self.screen(tokenizer, &prompts[0]));
        let mut listener = Listener { words: self, screen, heard: vec![Vec::new(); prompts.len()] };
        let results = generate_each(session, prompts, options, &mut listener)?;
        match listener.screen {
            Some(screen) if results.iter().all(std::result::Result::is_ok) => drop(screen.finish()?),
            Some(screen) => screen.interrupt(),
            None => (),
        }
        Ok(listener.heard.into_iter().zip(results).map(|(ids, result)| Said { ids, result }).collect())
    }

    /// A screen for what follows a prompt.
    fn screen<'t>(&self, tokenizer: &'t Tokenizer, prompt: &[u32]) -> Screen<'t> {
        match self.continues {
            true => Screen::new(tokenizer, self.text(prompt, true)),
            false => Screen::of_text(tokenizer),
        }
    }

    /// Whether a token ends the text: another tokenizer may have other end-of-generation tokens than the model.
    fn ends(&self, id: u32) -> bool {
        !self.ignore_eos && self.tokenizer.is_some_and(|tokenizer| tokenizer.is_end_of_generation(id))
    }

    /// Decodes token IDs, without special tokens. Returns an empty string if there is no tokenizer.
    fn text(&self, ids: &[u32], at_start: bool) -> String {
        let Some(tokenizer) = self.tokenizer else { return String::new() };
        let mut stream = tokenizer.stream(true, at_start);
        let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
        text.push_str(&stream.finish());
        text
    }

    fn entry(&self, ids: &[u32], said: &Said) -> Value {
        let mut entry = json!({
            "ids": ids,
            "generated_ids": said.ids,
            "text": self.text(&said.ids, !self.continues),
        });
        let how = match &said.result {
            Ok(result) => json!({
                "finish": self.finish(result),
                "context_shifts": result.shifts,
                "prompt_ms": microseconds_kept(result.prompt_ms),
                "decode_ms": microseconds_kept(result.decode_ms),
            }),
            Err(error) => json!({"finish": "error", "error": error.to_string()}),
        };
        if let (Value::Object(entry), Value::Object(how)) = (&mut entry, how) {
            entry.extend(how);
        }
        entry
    }

    /// Prints the texts that were not streamed, and the timing.
    fn print(&self, prompts: &[Vec<u32>], all: &[Said]) -> Result<()> {
        for (number, (ids, said)) in prompts.iter().zip(all).enumerate() {
            let mark = if prompts.len() > 1 { format!("[{number}] ") } else { String::new() };
            if self.tokenizer.is_none() {
                let ids: Vec<String> = said.ids.iter().map(u32::to_string).collect();
                output::line(&format!("{mark}{}", ids.join(" ")))?;
            } else if prompts.len() > 1 {
                let prompt = if self.continues { self.text(ids, true) } else { String::new() };
                let text = prompt + &self.text(&said.ids, !self.continues);
                output::line(&format!("{mark}{}\n", output::visible(&text)))?;
            }
            match &said.result {
                Ok(result) => {
                    let shifts = match result.shifts {
                        0 => String::new(),
                        shifts => format!(", {}", counted(shifts, "context shift")),
                    };
                    let (timing, finish) = (timing(ids.len(), result), self.finish(result));
                    output::note(&format!("{mark}{timing}{shifts}; finish reason: {finish}"));
                }
                Err(error) if prompts.len() > 1 => output::note(&format!("{mark}failed: {error}")),
                // With one prompt, the error is the failure of the command.
                Err(_) => (),
            }
        }
        Ok(())
    }

    /// The finish reason in JSON output.
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

/// Rounds milliseconds to three decimals.
fn microseconds_kept(milliseconds: f64) -> f64 {
    (milliseconds * 1e3).round() / 1e3
}

fn timing(prompt_tokens: usize, result: &Generated) -> String {
    let rate = |tokens: usize, ms: f64| if ms > 0.0 { 1e3 * tokens as f64 / ms } else { 0.0 };
    // The prompt phase computes the first token.
    let decoded = result.ids.len().saturating_sub(1);
    format!(
        "prompt: {} in {:.1} ms ({:.1} tokens/s); decode: {} in {:.1} ms ({:.1} tokens/s)",
        counted(prompt_tokens, "token"),
        result.prompt_ms,
        rate(prompt_tokens, result.prompt_ms),
        counted(decoded, "token"),
        result.decode_ms,
        rate(decoded, result.decode_ms),
    )
}

/// Writes `pN_logits` [tokens, vocabulary] for each prompt that did not fail (of a decoder, for its first token), and
/// `pN_generated_logits` for its output.
fn write_logits(file: &Path, all: &[Said]) -> Result<()> {
    let mut arrays = Vec::new();
    for (number, said) in all.iter().enumerate() {
        let Ok(result @ Generated { logits: Some(kept), .. }) = &said.result else { continue };
        let shape = |rows: usize| [kept.vocabulary as u64, rows as u64];
        let rows = kept.prompt.len() / kept.vocabulary.max(1);
        arrays.push(SafetensorsArray::f32(format!("p{number}_logits"), &shape(rows), &kept.prompt));
        if !result.ids.is_empty() {
            let name = format!("p{number}_generated_logits");
            arrays.push(SafetensorsArray::f32(name, &shape(result.ids.len()), &kept.generated));
        }
    }
    write_safetensors(file, &arrays, &[], &[])?;
    Ok(())
}
