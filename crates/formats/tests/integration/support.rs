//! What the tests of this crate share: files of any bytes, and messages that must name file and place.

use std::path::{Path, PathBuf};
use trueup_formats::{Checkpoint, Error};

/// A golden file, by name; `golden/make.py` made it.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Writes a new file into a folder.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    // Some file systems wait for the disk when an old file is cut short and written again.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// All bytes of a tensor, read in two pieces when it has more than one element.
pub fn read(model: &dyn Checkpoint, tensor: usize) -> Vec<u8> {
    let info = &model.tensors()[tensor];
    let mut bytes = vec![0; info.bytes as usize];
    let middle = if info.dtype.block_len() == 1 { bytes.len() / 8 * 4 } else { 0 };
    let (start, end) = bytes.split_at_mut(middle);
    model.read(tensor, 0, start).unwrap();
    model.read(tensor, middle as u64, end).unwrap();
    bytes
}

/// The same as f32 numbers.
pub fn read_f32(model: &dyn Checkpoint, tensor: usize) -> Vec<f32> {
    read(model, tensor).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Number of the tensor of that name.
pub fn find(model: &dyn Checkpoint, name: &str) -> usize {
    model.tensors().iter().position(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
}

/// Collects what is wrong with messages, so that a table of cases reports all its failures.
#[derive(Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// A case must be refused, naming the file, a place and all of `fragments`.
    pub fn refused<T>(&mut self, case: &str, result: Result<T, Error>, file: &str, fragments: &[&str]) {
        match result {
            Ok(_) => self.0.push(format!("{case}: accepted")),
            Err(error) => {
                let text = error.to_string();
                let missing = fragments.iter().chain([&file]).find(|fragment| !text.contains(**fragment));
                if let Some(missing) = missing {
                    self.0.push(format!("{case}: no {missing:?} in: {text}"));
                } else if error.place.is_empty() && !fragments.is_empty() {
                    self.0.push(format!("{case}: no place in: {text}"));
                } else if text.contains('\n') {
                    self.0.push(format!("{case}: more than one line: {text}"));
                }
            }
        }
    }

    /// Fails with all that was noted.
    pub fn report(self) {
        assert!(self.0.is_empty(), "{} faults:\n{}", self.0.len(), self.0.join("\n"));
    }
}
