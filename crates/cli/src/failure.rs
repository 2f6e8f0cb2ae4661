//! Errors that end a command, and exit codes.

use std::process::ExitCode;

/// Exit codes. Scripts rely on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Success; every check passed.
    Done = 0,
    /// A comparison failed.
    Mismatch = 1,
    /// Usage error, invalid input, missing device, or I/O error.
    Unusable = 2,
    /// Too little could be checked.
    Inconclusive = 3,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// An error that ends the command with exit code 2. `None` if the reader of stdout is gone and nothing is reported.
#[derive(Debug)]
pub struct Failure(Option<String>);

impl Failure {
    /// Creates a failure with an error message.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(Some(sentence.into()))
    }

    /// The reader of standard output closed the pipe, as `head` does.
    pub fn reader_gone() -> Failure {
        Failure(None)
    }

    /// The error message.
    pub fn sentence(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The exit code.
    pub fn code(&self) -> Code {
        Code::Unusable
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(Some(error.to_string()))
    }
}

/// The result of a command.
pub type Result<T = Code> = std::result::Result<T, Failure>;
