//! What is wrong with the parts of a file that a survey reads on past, where opening stops.
//!
//! ```text
//! open    ── the first fault ends it ──▶ Error
//! survey  ── each fault is noted, what is behind it is read as far as it can be ──▶ model, faults
//! ```

use crate::error::{Error, Result};
use crate::source_file::is_out_of_descriptors;

/// Faults of one kind that a survey keeps; the others are counted.
const FAULTS_MAX: usize = 100;

/// What kind of fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// A file of the model is not there.
    FileMissing,
    /// A file of the model cannot be read at all.
    FileUnreadable,
    /// The header ends or lies in the middle; what stands before is read.
    HeaderBroken,
    /// `general.alignment` is no alignment.
    AlignmentInvalid,
    /// Two tensors have one name.
    NameTwice,
    /// A tensor's type is unknown or not read.
    TypeUnknown,
    /// There is no tensor of these dimensions.
    ShapeInvalid,
    /// A row is no whole number of blocks.
    RowsNotBlocks,
    /// A tensor does not start at a multiple of the alignment.
    Misaligned,
    /// A tensor's bytes are not all in the file.
    OutsideFile,
    /// Two tensors share bytes.
    Overlap,
    /// Bytes of the file belong to no tensor.
    BytesUnowned,
    /// The index of a folder and its files say different things.
    IndexDisagrees,
}

/// One fault, with the sentence that opening would end with.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// What kind it is.
    pub kind: FaultKind,
    /// Where it is and what is wrong.
    pub error: Error,
}

impl Fault {
    /// A fault of that kind.
    pub(crate) fn new(kind: FaultKind, error: Error) -> Fault {
        Fault { kind, error }
    }
}

/// Faults in the order they were met, so many of each kind at most.
#[derive(Clone, Default, Debug)]
pub struct FaultList {
    faults: Vec<Fault>,
    met: Vec<(FaultKind, u64)>,
    of_run: Option<Error>,
}

impl FaultList {
    /// Those that were kept.
    pub fn kept(&self) -> &[Fault] {
        &self.faults
    }

    /// How many of a kind there were beyond those; kinds of which all were kept are not named.
    pub fn left_out(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        let kept = u64::try_from(FAULTS_MAX).unwrap_or(u64::MAX);
        self.met.iter().filter_map(move |(kind, met)| Some((*kind, met.checked_sub(kept).filter(|rest| *rest > 0)?)))
    }

    /// What is no fault of a file: this process may open no more files.
    pub(crate) fn of_run(&self) -> Option<&Error> {
        self.of_run.as_ref()
    }

    /// Keeps or counts one.
    pub(crate) fn add(&mut self, fault: Fault) {
        if self.of_run.is_none() && is_out_of_descriptors(&fault.error) {
            self.of_run = Some(fault.error.clone());
        }
        let place = self.met.iter().position(|(kind, _)| *kind == fault.kind);
        let place = place.unwrap_or_else(|| {
            self.met.push((fault.kind, 0));
            self.met.len().saturating_sub(1)
        });
        let Some((_, met)) = self.met.get_mut(place) else { return };
        *met = met.saturating_add(1);
        if usize::try_from(*met).is_ok_and(|met| met <= FAULTS_MAX) {
            self.faults.push(fault);
        }
    }
}

/// What is done about a fault: opening ends with its error, a survey notes it and goes on.
pub(crate) type OnFault<'a> = &'a mut dyn FnMut(Fault) -> Result<()>;

/// Ends at the first fault.
pub(crate) fn refuse(fault: Fault) -> Result<()> {
    Err(fault.error)
}

#[cfg(test)]
mod tests {
    use super::{FAULTS_MAX, Fault, FaultKind, FaultList};
    use crate::error::Error;

    #[test]
    fn each_kind_is_kept_and_counted_for_itself() {
        let mut faults = FaultList::default();
        let fault = |kind| Fault::new(kind, Error::new("model.gguf", "it is damaged"));
        (0..FAULTS_MAX + 7).for_each(|_| faults.add(fault(FaultKind::Misaligned)));
        (0..FAULTS_MAX).for_each(|_| faults.add(fault(FaultKind::OutsideFile)));
        faults.add(fault(FaultKind::FileMissing));
        assert_eq!(faults.left_out().collect::<Vec<_>>(), [(FaultKind::Misaligned, 7)]);
        assert_eq!(faults.kept().len(), 2 * FAULTS_MAX + 1);
        assert_eq!(faults.kept().last().map(|fault| fault.kind), Some(FaultKind::FileMissing));
        assert!(faults.of_run().is_none());
    }

    #[test]
    fn want_of_descriptors_is_no_fault_of_a_file() {
        let mut faults = FaultList::default();
        let problem = format!("cannot be opened: {}", std::io::Error::from(rustix::io::Errno::MFILE));
        faults.add(Fault::new(FaultKind::FileUnreadable, Error::new("a.gguf", problem)));
        assert!(faults.of_run().is_some_and(|error| error.problem.contains("Too many open files")));
    }
}
