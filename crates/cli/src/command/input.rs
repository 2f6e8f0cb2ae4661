//! Options for prompts, shared by `run`, `verify` and `trace`.

use crate::command::place::note_tokenizer;
use crate::failure::Result;
use crate::value::{self, Ids};
use clap::Args;
use std::path::{Path, PathBuf};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// Prompts. Texts come first, then files, then token IDs.
#[derive(Args, Clone)]
pub struct Input {
    /// Prompt text; may be repeated
    ///
    /// Several prompts are computed as one batch, or one by one for an encoder. Their order is: texts, files, token
    /// IDs.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompts: Vec<String>,
    /// Read a prompt from FILE; a newline at its end is part of the prompt
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Prompt as token IDs, such as "1 5 9"; no BOS or EOS token is added
    #[arg(long, value_name = "IDS", value_parser = value::ids)]
    ids: Vec<Ids>,
}

impl Input {
    /// Whether no prompt was given.
    pub fn is_empty(&self) -> bool {
        !self.needs_tokenizer() && self.ids.is_empty()
    }

    /// The prompt files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Whether a prompt is text.
    pub fn needs_tokenizer(&self) -> bool {
        !(self.prompts.is_empty() && self.files.is_empty())
    }

    /// Encodes all prompts. Calls `tokenizer` only if a prompt is text.
    pub fn encode<'a>(
        &self,
        tokenizer: impl Fn() -> Result<&'a Tokenizer>,
        add_special: bool,
    ) -> Result<Vec<Vec<u32>>> {
        let mut prompts = Vec::new();
        if self.needs_tokenizer() {
            note_tokenizer(tokenizer()?);
        }
        for prompt in &self.prompts {
            prompts.push(tokenizer()?.encode(prompt, add_special)?);
        }
        for file in &self.files {
            prompts.push(tokenizer()?.encode(&text::read_prompt(file)?, add_special)?);
        }
        prompts.extend(self.ids.iter().map(|Ids(ids)| ids.clone()));
        Ok(prompts)
    }
}
