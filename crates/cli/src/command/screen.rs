//! Prints text while it is generated; `run` and `chat` share it.

use crate::failure::{Failure, Result};
use crate::output;
use std::ops::ControlFlow;
use trueup::tokenizer::{DecodeStream, Tokenizer};

/// Prints each piece of text as soon as its characters are complete, and collects the text.
pub struct Screen<'t> {
    stream: DecodeStream<'t>,
    /// Text to print before the first piece.
    before: Option<String>,
    /// Whether leading white space is omitted.
    trims: bool,
    text: String,
    failure: Option<Failure>,
}

impl<'t> Screen<'t> {
    /// Creates a screen that prints `before` with the first token.
    pub fn new(tokenizer: &'t Tokenizer, before: String) -> Screen<'t> {
        let stream = tokenizer.stream(true, false);
        Screen { stream, before: Some(before), trims: false, text: String::new(), failure: None }
    }

    /// Creates a screen for a text that follows nothing.
    pub fn of_text(tokenizer: &'t Tokenizer) -> Screen<'t> {
        Screen { stream: tokenizer.stream(true, true), ..Screen::new(tokenizer, String::new()) }
    }

    /// Creates a screen for an answer, which omits leading white space.
    pub fn answer(tokenizer: &'t Tokenizer) -> Screen<'t> {
        Screen { trims: true, ..Screen::new(tokenizer, String::new()) }
    }

    /// Prints the characters that this token completes. Breaks if the reader of stdout is gone.
    pub fn push(&mut self, id: u32) -> ControlFlow<()> {
        let piece = self.stream.push(id);
        self.print(piece)
    }

    /// Prints the rest and ends the line. Returns the text without `before`.
    pub fn finish(mut self) -> Result<String> {
        let rest = self.stream.finish();
        let _ = self.print(rest);
        match self.failure {
            Some(failure) => Err(failure),
            None => output::line("").map(|()| self.text),
        }
    }

    /// Ends the current line, so that a message can follow.
    pub fn interrupt(self) {
        if self.before.is_none() {
            output::line("").ok();
        }
    }

    fn print(&mut self, piece: String) -> ControlFlow<()> {
        let begins = self.trims && self.text.trim().is_empty();
        let mut shown = self.before.take().unwrap_or_default();
        shown.push_str(if begins { piece.trim_start() } else { &piece });
        self.text.push_str(&piece);
        match output::text(&output::visible(&shown)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }
}
