//! Problems of one file, collected for one message. Problems beyond a limit are only counted.

use std::collections::HashSet;
use std::path::Path;
use trueup_formats::{Error, Result, listed};

/// The problems of a file.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Diagnostics {
    list: Vec<String>,
    /// The same problems, for fast lookup: a hostile file can have one for each tensor.
    known: HashSet<String>,
}

impl Diagnostics {
    /// Adds a problem, unless the same one was added before. Text from the file must be escaped already.
    pub fn add(&mut self, problem: impl Into<String>) {
        let problem = problem.into();
        if self.known.insert(problem.clone()) {
            self.list.push(problem);
        }
    }

    /// Puts the key of each problem, if it has one, in front of it.
    pub(crate) fn with_keys(self, key: impl Fn(&str) -> Option<String>) -> Diagnostics {
        let mut named = Diagnostics::default();
        for problem in self.list {
            match key(&problem) {
                Some(key) => named.add(format!("{key}: {problem}")),
                None => named.add(problem),
            }
        }
        named
    }

    /// All problems so far.
    pub fn list(&self) -> &[String] {
        &self.list
    }

    /// `Err` with the problems as one sentence, if there are any. A long list is cut, and the rest is counted.
    pub fn check(self, path: &Path, place: &str, help: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        Err(Error::new(path, listed(&self.list, "; ")).at(place).help(help))
    }
}
