//! Flags that say which prompts to compute; `run`, `verify` and `trace` share them.

use crate::failure::Result;
use crate::value::{self, Ids};
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// Prompts, several at once: texts come first, then files, then ids.
#[derive(Args, Clone)]
pub struct Input {
    /// A prompt; `run` and `verify` take several, as a batch, a trace is of one
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    /// A file that holds a prompt; its last newline is kept
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A prompt as token ids, like "1 5 9"; nothing is added to them. Texts come first, then files, then ids
    #[arg(long, value_name = "IDS", value_parser = value::ids)]
    ids: Vec<Ids>,
}

impl Input {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        !self.needs_tokenizer() && self.ids.is_empty()
    }

    /// The files that are read.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Whether there is text among the prompts.
    pub fn needs_tokenizer(&self) -> bool {
        !(self.prompts.is_empty() && self.files.is_empty())
    }

    /// All prompts as ids. `tokenizer` is asked for only when there is text.
    pub fn encode<'a>(
        &self,
        tokenizer: impl Fn() -> Result<&'a Tokenizer>,
        add_special: bool,
    ) -> Result<Vec<Vec<u32>>> {
        let mut prompts = Vec::new();
        for prompt in &self.prompts {
            prompts.push(tokenizer()?.encode(prompt, add_special)?);
        }
        for file in &self.files {
            prompts.push(tokenizer()?.encode(&text::read_text(file)?, add_special)?);
        }
        prompts.extend(self.ids.iter().map(|Ids(ids)| ids.clone()));
        Ok(prompts)
    }
}
