//! Faults of one file, collected so that a message names them together and not only the first. A file can have more
//! faults than anyone reads: those beyond a bound are counted.

use std::path::Path;
use trueup_formats::{Error, Result, listed};

/// A list of what is wrong with a file.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Faults {
    list: Vec<String>,
}

impl Faults {
    /// Adds a fault; text from the file in it must be escaped already.
    pub fn add(&mut self, fault: impl Into<String>) {
        self.list.push(fault.into());
    }

    /// All faults so far.
    pub fn list(&self) -> &[String] {
        &self.list
    }

    /// `Err` with the faults as one sentence, if there are any: as many as a reader takes in, then how many more there
    /// are.
    pub fn check(self, path: &Path, place: &str, help: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        Err(Error::new(path, listed(&self.list, "; ")).at(place).help(help))
    }
}
