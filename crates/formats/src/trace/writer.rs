//! Writes a trace tensor by tensor, as safetensors: values go to the disk as they come, the header is known at the end.
//!
//! ```text
//!   add ── add ── add ──▶ nameless file of values          finish ──▶ header, values ──▶ the file, complete or not at all
//! ```

use super::{KEY_IDS, KEY_TOKENS};
use crate::atomic_file::AtomicFile;
use crate::error::{Error, Result};
use crate::safetensors_writer::{Entry, header};
use crate::source_file::SourceFile;
use crate::tensor_range::check_unique;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use trueup_blocks::DType;

/// Values copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A trace in the making.
#[derive(Debug)]
pub struct TraceWriter {
    file: AtomicFile,
    values: File,
    entries: Vec<Entry>,
}

impl TraceWriter {
    /// Starts a file. `inputs` as in [`AtomicFile::create`].
    pub fn create(path: impl AsRef<Path>, inputs: &[&SourceFile]) -> Result<TraceWriter> {
        let file = AtomicFile::create(path, inputs)?;
        let folder = file.path().parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let values = tempfile::tempfile_in(folder);
        let values = values.map_err(|error| Error::new(file.path(), format!("cannot be written: {error}")))?;
        Ok(TraceWriter { file, values, entries: Vec::new() })
    }

    /// Adds a tensor: `shape` innermost first, `bytes` its little-endian elements of type f32, f64, f16, bf16 or i32.
    pub fn add(&mut self, step: usize, node: &str, shape: &[u64], dtype: DType, bytes: &[u8]) -> Result<()> {
        self.values.write_all(bytes).map_err(|error| self.fault(&error))?;
        let name = format!("{step}/{node}");
        self.entries.push(Entry { name, shape: shape.to_vec(), dtype, bytes: bytes.len() });
        Ok(())
    }

    /// Writes the file: `ids` are all tokens, of which each step computed as many as `tokens` says; `texts` are free.
    pub fn finish(mut self, ids: &[u32], tokens: &[usize], texts: &[(String, String)]) -> Result<()> {
        check_unique(self.file.path(), self.entries.iter().map(|entry| entry.name.as_str()))?;
        let mut metadata = vec![(KEY_IDS.to_owned(), joined(ids)), (KEY_TOKENS.to_owned(), joined(tokens))];
        metadata.extend_from_slice(texts);
        let head = header(self.file.path(), &self.entries, &metadata)?;
        self.file.write_all(&head)?;
        self.values.rewind().map_err(|error| self.fault(&error))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = self.values.read(&mut chunk).map_err(|error| self.fault(&error))?;
            match chunk.get(..count) {
                None | Some([]) => break,
                Some(bytes) => self.file.write_all(bytes)?,
            }
        }
        self.file.commit()
    }

    fn fault(&self, error: &std::io::Error) -> Error {
        Error::new(self.file.path(), format!("cannot be written: {error}"))
    }
}

fn joined<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}
