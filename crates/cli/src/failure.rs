//! Why a command did not do its work, and the exit code that says so.

use std::process::ExitCode;

/// The exit codes that scripts rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Done, and every check passed.
    Done = 0,
    /// A comparison failed: the thing is not what it should be.
    Mismatch = 1,
    /// Usage, bad input, environment, I/O.
    Unusable = 2,
    /// Not enough was checked to say.
    Inconclusive = 3,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

/// One sentence for the user; ends the command with exit code 2. Without a sentence nobody is left to read one.
#[derive(Debug)]
pub struct Failure(Option<String>);

impl Failure {
    /// A failure with this sentence.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(Some(sentence.into()))
    }

    /// The reader of standard output went away, as `head` does.
    pub fn reader_gone() -> Failure {
        Failure(None)
    }

    /// What to tell the user.
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

/// What a command returns.
pub type Result<T = Code> = std::result::Result<T, Failure>;
