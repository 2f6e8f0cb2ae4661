//! Faults of one file, collected so that a message names all of them and not only the first.

use std::path::Path;
use trueup_formats::{Error, Result};

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

    /// `Err` with all faults as one sentence, if there are any.
    pub fn check(self, path: &Path, place: &str, help: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        Err(Error::new(path, self.list.join("; ")).at(place).help(help))
    }
}
