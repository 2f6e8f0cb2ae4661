//! A GGUF model mapped into memory, for the runtime, which reads weights while it computes.
//!
//! If another process truncates a mapped file, reading the lost bytes ends the process with SIGBUS. The command line
//! turns this into a message. Conversion and quantization use positioned reads instead ([`Gguf`]).

#![allow(unsafe_code)]

use super::reader::{Gguf, Place};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::source_file::SourceFile;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use memmap2::{Mmap, MmapOptions};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A model whose tensors are slices of memory.
#[derive(Debug)]
pub struct MappedGguf {
    model: Gguf,
    maps: Vec<Arc<Mmap>>,
}

/// Bytes of a mapped file. They stay mapped for as long as somebody has them, also when the model is gone.
#[derive(Clone)]
pub struct MappedBytes {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl MappedBytes {
    /// Bytes in this range of a map; `None` where the map is shorter.
    fn new(map: &Arc<Mmap>, range: Range<u64>) -> Option<MappedBytes> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        map.get(range.clone())?;
        Some(MappedBytes { map: map.clone(), range })
    }

    /// Some of these bytes; `None` where they are fewer.
    pub fn part(&self, range: Range<usize>) -> Option<MappedBytes> {
        self.get(range.clone())?;
        let [start, end] = [range.start, range.end].map(|end| self.range.start.checked_add(end));
        Some(MappedBytes { map: self.map.clone(), range: start?..end? })
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.get(self.range.clone()).unwrap_or_else(|| unreachable!("the range was found in the map"))
    }
}

impl fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedBytes({:?})", self.range)
    }
}

impl Gguf {
    /// Maps all files of the model.
    pub fn map(self) -> Result<MappedGguf> {
        let maps = self.sources().into_iter().map(|source| map(source).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        Ok(MappedGguf { model: self, maps })
    }
}

impl MappedGguf {
    /// Header, keys and tensors.
    pub fn model(&self) -> &Gguf {
        &self.model
    }

    /// Fails when a file was written to since it was opened: what was read of its map is then worth nothing. A file
    /// that only has another name, or none, is whole.
    pub fn unwritten(&self) -> Result<()> {
        self.model.sources().into_iter().try_for_each(SourceFile::unwritten)
    }

    /// All bytes of tensor number `tensor`, as its type says. They start at a multiple of the file's alignment.
    pub fn tensor_bytes(&self, tensor: usize) -> &[u8] {
        let Place { file, range, .. } = self.model.place(tensor);
        let bytes = self.maps.get(file).and_then(|map| {
            let start = usize::try_from(range.start).ok()?;
            let end = usize::try_from(range.end).ok()?;
            map.get(start..end)
        });
        // Ranges are inside the file by the header's check, and the map has the file's size.
        bytes.unwrap_or_else(|| unreachable!("bytes {range:?} of file number {file}"))
    }

    /// The same bytes, to be kept.
    pub fn tensor(&self, tensor: usize) -> MappedBytes {
        let Place { file, range, .. } = self.model.place(tensor);
        let bytes = self.maps.get(file).and_then(|map| MappedBytes::new(map, range.clone()));
        bytes.unwrap_or_else(|| unreachable!("bytes {range:?} of file number {file}"))
    }

    /// Gives the memory back that reading a tensor took: the next look at it reads the file again.
    pub fn release(&self, tensor: usize) {
        #[cfg(unix)]
        {
            let Place { file, range, .. } = self.model.place(tensor);
            let part =
                usize::try_from(range.start).ok().zip(usize::try_from(range.end.saturating_sub(range.start)).ok());
            if let (Some(map), Some((start, len))) = (self.maps.get(file), part) {
                // SAFETY: the map is read-only and of a file: its pages hold nothing that the file does not, and come
                // back when they are looked at. Where the system refuses, they stay.
                let _refused = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
            }
        }
    }
}

fn map(source: &SourceFile) -> Result<Mmap> {
    source.unchanged()?;
    let size = usize::try_from(source.bytes())
        .map_err(|_| Error::new(source.path(), "the file is larger than the address space"))?;
    // SAFETY: the map is read-only and private to this process, and `size` is the length of the file, checked on the
    // line before last. Another process may still write to the file: the bytes are only ever read as plain numbers, for
    // which every bit pattern is valid, and `MappedGguf::unwritten` tells afterwards.
    unsafe { MmapOptions::new().len(size).map(source.file()) }
        .map_err(|error| Error::new(source.path(), format!("cannot be mapped into memory: {error}")))
}

impl AsRef<dyn Checkpoint> for MappedGguf {
    fn as_ref(&self) -> &(dyn Checkpoint + 'static) {
        &self.model
    }
}
