//! Why a template cannot be read or rendered.

/// A result of reading or rendering.
pub(crate) type Checked<T> = Result<T, Problem>;

/// A sentence and the line of the template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    line: Option<u32>,
    text: String,
}

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Problem {
        Problem { line: None, text: text.into() }
    }

    /// Adds the line, unless the problem has one already.
    pub(crate) fn at(mut self, line: u32) -> Problem {
        self.line = self.line.or(Some(line));
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}
