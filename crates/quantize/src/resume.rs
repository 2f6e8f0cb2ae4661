//! Resumes an earlier run: reuses tensors whose bytes match their recorded hash, and redoes the others.

use crate::walk::walk;
use serde::Serialize;
use std::ops::Range;
use std::path::Path;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure};
use trueup_formats::{Result, SourceFile, counted};

/// The tensors that were reused from an earlier run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Resumed {
    /// Number of tensors of the source.
    pub tensors: usize,
    /// Number of reused tensors.
    pub taken_over: usize,
    /// Bytes of the reused tensors in the output.
    pub bytes_taken_over: u64,
    /// Number of tensors that were recorded as finished, but whose bytes differ from the record.
    pub redone: usize,
}

impl Resumed {
    /// The numbers in one sentence.
    pub fn sentence(&self) -> String {
        format!(
            "resumed: {} of {} reused ({} bytes), {} redone",
            self.taken_over,
            counted(self.tensors, "tensor"),
            self.bytes_taken_over,
            self.redone
        )
    }
}

/// Creates the writer of a plan that reads `inputs`. With `resume`, it continues an earlier run of the same `command`.
pub fn open_writer(plan: GgufPlan, inputs: &[&SourceFile], resume: bool, command: &str) -> Result<GgufWriter> {
    match resume {
        true => GgufWriter::resume(plan, inputs, command),
        false => GgufWriter::create(plan, inputs),
    }
}

/// The record of each source tensor from the earlier run; `None` if the tensor must be redone. `outputs` are the output
/// tensors of each source tensor, and `accept` validates a record. All bytes are read back and hashed on `threads`
/// threads.
///
/// # Errors
/// A number of threads that [`walk`] rejects. Tensors that cannot be read are redone.
pub fn take_over(
    writer: &GgufWriter,
    outputs: &[Range<usize>],
    accept: impl Fn(&Measure) -> bool + Sync,
    (threads, path): (Option<usize>, &Path),
) -> Result<(Vec<Option<Measure>>, Resumed)> {
    let mut taken = vec![None; outputs.len()];
    let mut resumed = Resumed { tensors: outputs.len(), taken_over: 0, bytes_taken_over: 0, redone: 0 };
    let recorded = (0..outputs.len()).filter_map(|tensor| Some((tensor, writer.recorded(outputs[tensor].clone())?)));
    let recorded: Vec<(usize, Measure)> = recorded.collect();
    let check =
        |(tensor, measure): &(usize, Measure)| Ok(accept(measure) && writer.take_over(outputs[*tensor].clone()));
    walk(recorded.into_iter(), threads, path, check, |(tensor, measure), is_right| match is_right {
        true => {
            taken[*tensor] = Some(*measure);
            resumed.taken_over += 1;
            resumed.bytes_taken_over +=
                writer.tensors()[outputs[*tensor].clone()].iter().map(|info| info.bytes).sum::<u64>();
        }
        false => resumed.redone += 1,
    })?;
    Ok((taken, resumed))
}
