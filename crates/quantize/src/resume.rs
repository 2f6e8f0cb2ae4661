//! What an earlier run had finished of an output: taken over where its bytes are what was recorded, else done again.

use crate::walk::walk;
use serde::Serialize;
use std::ops::Range;
use std::path::Path;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure};
use trueup_formats::{Result, SourceFile, counted};

/// How much of an output an earlier run had finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Resumed {
    /// Tensors of the source.
    pub tensors: usize,
    /// Those that were taken over.
    pub taken_over: usize,
    /// Their bytes in the output.
    pub bytes_taken_over: u64,
    /// Those that were recorded as finished, but whose bytes were not what was recorded.
    pub redone: usize,
}

impl Resumed {
    /// One sentence.
    pub fn sentence(&self) -> String {
        format!(
            "resumed: {} of {} taken over ({} bytes), {} redone",
            self.taken_over,
            counted(self.tensors, "tensor"),
            self.bytes_taken_over,
            self.redone
        )
    }
}

/// The writer of a plan that reads `inputs`. With `resume` it continues what an earlier run of the same `command` kept.
pub fn open_writer(plan: GgufPlan, inputs: &[&SourceFile], resume: bool, command: &str) -> Result<GgufWriter> {
    match resume {
        true => GgufWriter::resume(plan, inputs, command),
        false => GgufWriter::create(plan, inputs),
    }
}

/// What the earlier run kept beside each tensor of the source; `None` for one that is to be done. `outputs` are the
/// tensors of the output that each becomes; `accept` looks at what was kept. All bytes are read back and hashed, on so
/// many threads.
///
/// # Errors
/// A number of threads that [`walk`] refuses. What cannot be read is done again.
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
