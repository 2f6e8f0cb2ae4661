//! Writes the files of a plan: header first, then tensors in any order, by place and from any number of threads.

use super::plan::GgufPlan;
use crate::atomic_file::AtomicFile;
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An unfinished model. Dropped without [`finish`](GgufWriter::finish) it leaves nothing behind and the old files as
/// they were.
#[derive(Debug)]
pub struct GgufWriter {
    tensors: Vec<TensorInfo>,
    /// File and start in that file of each tensor.
    places: Vec<(usize, u64)>,
    files: Vec<AtomicFile>,
    written: Mutex<Vec<Coverage>>,
}

impl GgufWriter {
    /// Claims the disk space of all files and writes their headers. `inputs` are the files the model is made from, as
    /// in [`AtomicFile::create`].
    pub fn create(plan: GgufPlan, inputs: &[&SourceFile]) -> Result<GgufWriter> {
        let mut files = Vec::with_capacity(plan.files.len());
        let mut places = Vec::with_capacity(plan.tensors.len());
        for (number, planned) in plan.files.iter().enumerate() {
            let mut file = AtomicFile::create(&planned.path, inputs)?;
            file.preallocate(planned.bytes)?;
            file.write_all(&planned.header)?;
            places.extend(planned.starts.iter().map(|start| (number, *start)));
            files.push(file);
        }
        let written = Mutex::new(vec![Coverage::default(); plan.tensors.len()]);
        Ok(GgufWriter { tensors: plan.tensors, places, files, written })
    }

    /// The tensors, in the order of the plan.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes bytes of tensor number `tensor` from byte `offset` of it on. Bytes outside the tensor, or that were
    /// written before, are an error.
    pub fn write(&self, tensor: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let (Some(info), Some((file, start))) = (self.tensors.get(tensor), self.places.get(tensor)) else {
            unreachable!("tensor number {tensor} of {}", self.tensors.len());
        };
        let Some(file) = self.files.get(*file) else { unreachable!("file number {file}") };
        let end = u64::try_from(bytes.len()).ok().and_then(|len| offset.checked_add(len));
        let Some(end) = end.filter(|end| *end <= info.bytes) else {
            let problem = format!("{} bytes at byte {offset} pass its end at {}", bytes.len(), info.bytes);
            return Err(Error::new(file.path(), problem).at(format!("tensor {}", quote(&info.name))));
        };
        let new = self.written(|written| written.get_mut(tensor).is_some_and(|coverage| coverage.add(offset, end)));
        if !new {
            let problem = format!("bytes {offset}..{end} are written twice");
            return Err(Error::new(file.path(), problem).at(format!("tensor {}", quote(&info.name))));
        }
        file.write_at(start.saturating_add(offset), bytes)
    }

    /// Checks that every byte of every tensor was written, and lets the files appear under their names; returns these.
    pub fn finish(self) -> Result<Vec<PathBuf>> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| file.path().to_owned()).collect();
        self.written(|written| {
            for (info, coverage) in self.tensors.iter().zip(written.iter()) {
                if let Some(missing) = coverage.missing(info.bytes) {
                    let problem = format!("byte {missing} of {} was not written", info.bytes);
                    let path = paths.first().map(PathBuf::as_path).unwrap_or("".as_ref());
                    return Err(Error::new(path, problem).at(format!("tensor {}", quote(&info.name))));
                }
            }
            Ok(())
        })?;
        AtomicFile::commit_all(self.files)?;
        Ok(paths)
    }

    fn written<T>(&self, look: impl FnOnce(&mut Vec<Coverage>) -> T) -> T {
        look(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which bytes of a tensor were written: start and end of ranges that neither touch nor overlap.
#[derive(Clone, Default, Debug)]
struct Coverage {
    ranges: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds a range; false when some of it is there already.
    fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let before = self.ranges.range(..end).next_back().map(|(start, end)| (*start, *end));
        let mut merged = (start, end);
        match before {
            Some((_, before_end)) if before_end > start => return false,
            Some((before_start, before_end)) if before_end == start => merged.0 = before_start,
            Some(_) | None => (),
        }
        if let Some(after_end) = self.ranges.remove(&end) {
            merged.1 = after_end;
        }
        self.ranges.insert(merged.0, merged.1);
        true
    }

    /// The first byte below `bytes` that was not written.
    fn missing(&self, bytes: u64) -> Option<u64> {
        let covered = self.ranges.get(&0).copied().unwrap_or(0);
        (covered < bytes).then_some(covered)
    }
}
