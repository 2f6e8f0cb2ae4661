//! `trueup tokenize`: converts text to token IDs, and token IDs to text.

use crate::command::place::note_tokenizer;
use crate::failure::{Code, Result};
use crate::output;
use crate::value::{self, Ids};
use clap::{ArgGroup, Args};
use serde_json::json;
use std::path::PathBuf;
use trueup::formats::quote;
use trueup::text;

const EXAMPLES: &str = "\
Examples:
  trueup tokenize model.gguf -p \"Once upon a time\"
  trueup tokenize model.gguf -f story.txt --json
  trueup tokenize model.gguf --decode \"1 439 440\"";

/// Arguments of `trueup tokenize`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("input").args(["prompt", "file", "decode"]).required(true),
    after_long_help = EXAMPLES
)]
pub struct Arguments {
    /// Model: a GGUF file, a Hugging Face directory, a FastLLM .flm file or a llama2.c .bin file
    model: PathBuf,
    /// Text to tokenize
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Read the text from FILE; a newline at its end is part of the text
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Decode token IDs to text instead, such as "1 439 440"
    #[arg(long, value_name = "IDS", value_parser = value::ids)]
    decode: Option<Ids>,
    /// Do not add BOS or EOS tokens; special tokens in the text are still recognized
    #[arg(long)]
    no_special: bool,
    /// Use this tokenizer file (.json, .model, .tiktoken, vocab.txt or tokenizer.bin) instead of the model's
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `trueup tokenize`.
pub fn run(arguments: Arguments) -> Result {
    let tokenizer = text::open_tokenizer(&arguments.model, arguments.tokenizer.as_deref())?;
    note_tokenizer(&tokenizer);
    if let Some(Ids(ids)) = &arguments.decode {
        text::check_ids(&tokenizer, ids)?;
        let decoded = String::from_utf8_lossy(&tokenizer.decode(ids, false)).into_owned();
        if arguments.json {
            output::json(&json!({"text": decoded}))?
        } else {
            output::line(&output::visible(&decoded))?
        }
        return Ok(Code::Done);
    }
    let prompt = match (&arguments.prompt, &arguments.file) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(file)) => text::read_prompt(file)?,
        (None, None) => String::new(),
    };
    let ids = tokenizer.encode(&prompt, !arguments.no_special)?;
    let pieces: Vec<&str> = ids.iter().map(|id| tokenizer.piece(*id).unwrap_or_default()).collect();
    if arguments.json {
        output::json(&json!({"ids": ids, "pieces": pieces}))?;
    } else {
        for (id, piece) in ids.iter().zip(pieces) {
            output::line(&format!("{id:>8}  {}", quote(piece)))?;
        }
    }
    Ok(Code::Done)
}
