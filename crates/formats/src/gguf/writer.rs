//! Writes the files of a plan: header first, then tensors in any order, by place and from any number of threads.
//!
//! ```text
//! create ─▶ write ... ─────────────────────────────────────▶ finish
//! resume ─▶ take_over what is recorded ─▶ write the rest ... finished ─▶ finish      (dropped instead: kept)
//! ```

use super::ALIGNMENT;
use super::journal::Measure;
use super::plan::{GgufPlan, PlannedFile};
use super::resume::{self, Resumption};
use crate::atomic_file::{AtomicFile, Left};
use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An unfinished model. Dropped without [`finish`](GgufWriter::finish) it leaves the old files as they were, and
/// nothing else behind unless it was begun by [`resume`](GgufWriter::resume).
#[derive(Debug)]
pub struct GgufWriter {
    tensors: Vec<TensorInfo>,
    /// File and start in that file of each tensor.
    places: Vec<(usize, u64)>,
    files: Vec<AtomicFile>,
    written: Mutex<Vec<Coverage>>,
    /// What is finished, when that is to be kept.
    resumption: Option<Resumption>,
}

impl GgufWriter {
    /// Claims the disk space of all files and writes their headers. `inputs` are the files the model is made from, as
    /// in [`AtomicFile::create`]. What an earlier run kept by [`resume`](GgufWriter::resume) is removed.
    pub fn create(plan: GgufPlan, inputs: &[&SourceFile]) -> Result<GgufWriter> {
        resume::discard(&plan);
        resume::remove_stale(&plan);
        let mut writer = GgufWriter::empty(&plan, None);
        for planned in &plan.files {
            let mut file = AtomicFile::create(&planned.path, inputs)?;
            file.preallocate(planned.bytes)?;
            file.write_all(&planned.header)?;
            writer.files.push(file);
        }
        Ok(writer)
    }

    /// As [`create`](GgufWriter::create), but goes on where an earlier run of the same `command` with the same plan and
    /// the same inputs was interrupted, and keeps what is finished when it is interrupted itself. An error when another
    /// run of this kind writes the same output.
    pub fn resume(plan: GgufPlan, inputs: &[&SourceFile], command: &str) -> Result<GgufWriter> {
        let resumption = Resumption::open(&plan, inputs, command)?;
        resume::remove_stale(&plan);
        let mut writer = GgufWriter::empty(&plan, Some(resumption));
        for planned in &plan.files {
            let file = AtomicFile::create_kept(&planned.path, inputs)?;
            writer.files.push(file);
            let Some(file) = writer.files.last_mut() else { unreachable!("a file was added") };
            file.cut(planned.bytes)?;
            file.preallocate(planned.bytes)?;
            file.write_all(&planned.header)?;
            write_padding(file, planned, &plan.tensors)?;
            file.sync_name()?;
        }
        Ok(writer)
    }

    fn empty(plan: &GgufPlan, resumption: Option<Resumption>) -> GgufWriter {
        let in_file = |(number, file): (usize, &PlannedFile)| {
            file.starts.iter().map(|start| (number, *start)).collect::<Vec<(usize, u64)>>()
        };
        GgufWriter {
            tensors: plan.tensors.clone(),
            places: plan.files.iter().enumerate().flat_map(in_file).collect(),
            files: Vec::with_capacity(plan.files.len()),
            written: Mutex::new(vec![Coverage::default(); plan.tensors.len()]),
            resumption,
        }
    }

    /// The tensors, in the order of the plan.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes bytes of tensor number `tensor` from byte `offset` of it on. Bytes outside the tensor, or that were
    /// written before, are an error.
    pub fn write(&self, tensor: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let (info, file, start) = self.place(tensor);
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

    /// Why what an earlier run kept is not gone on with, in a sentence; `None` where it is, or there was nothing.
    pub fn note(&self) -> Option<&str> {
        self.resumption.as_ref().and_then(Resumption::note)
    }

    /// What an earlier run gave to [`finished`](GgufWriter::finished) beside these tensors; `None` unless it finished
    /// all of them.
    pub fn recorded(&self, tensors: Range<usize>) -> Option<Measure> {
        let resumption = self.resumption.as_ref()?;
        let of_tensor = |tensor: usize| {
            let (info, _, start) = self.place(tensor);
            resumption.recorded(tensor, start, info.bytes)
        };
        let records: Option<Vec<_>> = tensors.map(of_tensor).collect();
        records?.first().map(|record| record.measure)
    }

    /// Takes over what an earlier run wrote of these tensors, if it is what it recorded: they then count as written.
    /// Reads them back.
    pub fn take_over(&self, tensors: Range<usize>) -> bool {
        let Some(resumption) = &self.resumption else { return false };
        let is_right = |tensor: usize| {
            let (info, file, start) = self.place(tensor);
            let recorded = resumption.recorded(tensor, start, info.bytes);
            recorded.is_some_and(|record| resume::hash_range(file, start, info.bytes).ok() == Some(record.sha256))
        };
        if !tensors.clone().all(is_right) {
            return false;
        }
        self.written(|written| {
            for (coverage, info) in written.iter_mut().zip(&self.tensors).take(tensors.end).skip(tensors.start) {
                *coverage = Coverage::default();
                coverage.add(0, info.bytes);
            }
        });
        true
    }

    /// Says that every byte of these tensors was written, and what to keep beside them, so that a later run can take
    /// them over. Without effect unless the model was begun by [`resume`](GgufWriter::resume).
    pub fn finished(&self, tensors: Range<usize>, measure: Measure) -> Result<()> {
        let Some(resumption) = &self.resumption else { return Ok(()) };
        let record = |tensor: usize| {
            let (info, file, start) = self.place(tensor);
            let number = self.places.get(tensor).map_or(0, |(number, _)| *number);
            Ok((number, resume::record(tensor, file, start, info.bytes, measure)?))
        };
        let records = tensors.map(record).collect::<Result<Vec<_>>>()?;
        resumption.finished(records, &self.files)
    }

    /// An error of the work on the model, with what is left of it.
    pub fn explain(&self, error: Error) -> Error {
        let kept = self.resumption.as_ref().is_some_and(|resumption| {
            // Anything that cannot be brought to the disk now is done again.
            let _ = resumption.sync_all(&self.files);
            resumption.keeps() && self.files.iter().all(AtomicFile::is_named)
        });
        if kept { with_kept(error) } else { error }
    }

    fn place(&self, tensor: usize) -> (&TensorInfo, &AtomicFile, u64) {
        let (Some(info), Some((file, start))) = (self.tensors.get(tensor), self.places.get(tensor)) else {
            unreachable!("tensor number {tensor} of {}", self.tensors.len());
        };
        let Some(file) = self.files.get(*file) else { unreachable!("file number {file}") };
        (info, file, *start)
    }

    /// Checks that every byte of every tensor was written, and lets the files appear under their names; returns these.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
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
        if let Some(resumption) = &self.resumption {
            resumption.sync_all(&self.files).map_err(|error| self.explain(error))?;
        }
        self.commit()?;
        Ok(paths)
    }

    /// Lets the files appear; the journal goes with the partial file that it speaks of.
    fn commit(&mut self) -> Result<()> {
        let committed = AtomicFile::try_commit(std::mem::take(&mut self.files));
        let Some(resumption) = self.resumption.take() else {
            return committed.map_err(|uncommitted| uncommitted.error);
        };
        match committed {
            Err(uncommitted) if uncommitted.left == Left::Partial && resumption.keeps() => {
                Err(with_kept(uncommitted.error))
            }
            // Of several files the others are there: what is recorded of them is taken over by the next run.
            Err(uncommitted) if uncommitted.left == Left::Lost => Err(uncommitted.error),
            Ok(()) => {
                resumption.remove_journal();
                Ok(())
            }
            Err(uncommitted) => {
                resumption.remove_journal();
                Err(uncommitted.error)
            }
        }
    }

    fn written<T>(&self, look: impl FnOnce(&mut Vec<Coverage>) -> T) -> T {
        look(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is finished is kept for a later run, and is removed when nothing is.
impl Drop for GgufWriter {
    fn drop(&mut self) {
        let Some(resumption) = self.resumption.take() else { return };
        // Anything that cannot be brought to the disk now is done again.
        let _ = resumption.sync_all(&self.files);
        if !resumption.keeps() {
            self.files.iter_mut().for_each(AtomicFile::forget);
            resumption.remove_journal();
        }
    }
}

fn with_kept(error: Error) -> Error {
    let separator = if error.help.is_empty() { "" } else { "; " };
    let help = format!("{}{separator}finished parts are kept for a run with --resume", error.help);
    error.help(help)
}

/// Zeros between the tensors, where an earlier file may hold anything.
fn write_padding(file: &AtomicFile, planned: &PlannedFile, tensors: &[TensorInfo]) -> Result<()> {
    let tensors = tensors.get(planned.tensors.clone()).unwrap_or_default();
    for (start, tensor) in planned.starts.iter().zip(tensors) {
        let end = start.saturating_add(tensor.bytes);
        let padding = end.next_multiple_of(ALIGNMENT).min(planned.bytes).saturating_sub(end);
        let zeros = [0; 32];
        if let Some(zeros) = usize::try_from(padding).ok().and_then(|count| zeros.get(..count)) {
            file.write_at(end, zeros)?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::Coverage;

    #[test]
    fn ranges_in_any_order_become_one_and_none_is_taken_twice() {
        let mut coverage = Coverage::default();
        assert!(coverage.add(0, 4));
        assert!(coverage.add(8, 12), "behind a gap");
        assert_eq!(coverage.missing(12), Some(4));
        assert!(!coverage.add(3, 5), "a byte of the range before");
        assert!(!coverage.add(7, 9), "a byte of the range behind");
        assert!(!coverage.add(8, 12) && !coverage.add(9, 10) && !coverage.add(0, 20));
        assert!(coverage.add(5, 5), "nothing is no byte twice");
        assert!(coverage.add(4, 6), "what touches is joined");
        assert!(coverage.add(6, 8), "on both sides");
        assert_eq!((coverage.missing(12), coverage.missing(13)), (None, Some(12)));
        assert_eq!(coverage.ranges.len(), 1);
    }
}
