//! What is wrong with the parts of a file that a survey reads on past, where opening stops.
//!
//! ```text
//! open    ── the first fault ends it ──▶ Error
//! survey  ── each fault is noted, what is behind it is read as far as it can be ──▶ model, faults
//! ```

use crate::error::{Error, Result};
use crate::source_file::is_out_of_descriptors;
use crate::stand_in::StandIn;
use std::collections::HashSet;

/// Faults of one kind that a survey keeps; the others are counted.
const FAULTS_MAX: usize = 100;

/// What kind of fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// A file of the model is not there.
    FileMissing,
    /// A file of the model cannot be read at all.
    FileUnreadable,
    /// A pointer of Git LFS stands where a file should be.
    LfsPointer,
    /// A page of the web stands where a file should be.
    WebPage,
    /// The header ends or lies in the middle; keys that stand before are read.
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
    /// Tensors that a survey leaves out for it, as messages name them.
    pub tensors: Vec<String>,
}

impl Fault {
    /// A fault of that kind; where it is about one tensor, of the tensor that the error's place names.
    pub(crate) fn new(kind: FaultKind, error: Error) -> Fault {
        let tensors = kind.leaves_out_tensor().then(|| tensor_of(&error.place)).flatten();
        Fault { kind, tensors: tensors.into_iter().collect(), error }
    }

    /// A fault of several tensors.
    pub(crate) fn of_tensors(mut self, names: Vec<String>) -> Fault {
        self.tensors = names;
        self
    }

    /// The same, but where a file cannot be read because something stands in for it, in words about that.
    fn explained(self) -> Fault {
        let stand_in = if self.kind == FaultKind::FileUnreadable { StandIn::behind(&self.error) } else { None };
        let Some(stand_in) = stand_in else { return self };
        let kind = match stand_in {
            StandIn::LfsPointer(_) => FaultKind::LfsPointer,
            StandIn::WebPage => FaultKind::WebPage,
        };
        Fault { kind, error: stand_in.error(&self.error.path), ..self }
    }
}

impl FaultKind {
    /// Whether it is about one tensor, which a survey leaves out.
    fn leaves_out_tensor(self) -> bool {
        match self {
            FaultKind::TypeUnknown
            | FaultKind::ShapeInvalid
            | FaultKind::RowsNotBlocks
            | FaultKind::Misaligned
            | FaultKind::OutsideFile
            | FaultKind::Overlap => true,
            FaultKind::FileMissing
            | FaultKind::FileUnreadable
            | FaultKind::LfsPointer
            | FaultKind::WebPage
            | FaultKind::HeaderBroken
            | FaultKind::AlignmentInvalid
            | FaultKind::NameTwice
            | FaultKind::BytesUnowned
            | FaultKind::IndexDisagrees => false,
        }
    }
}

/// The name in a place like `tensor NAME` or `tensor NAME at byte N`.
fn tensor_of(place: &str) -> Option<String> {
    let name = place.strip_prefix("tensor ")?;
    Some(name.rsplit_once(" at byte ").map_or(name, |(name, _)| name).to_owned())
}

/// Faults in the order they were met, so many of each kind at most.
#[derive(Clone, Default, Debug)]
pub struct FaultList {
    faults: Vec<Fault>,
    met: Vec<(FaultKind, u64)>,
    tensors: HashSet<String>,
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

    /// Names of all tensors that are left out for a fault, whether it was kept or counted, in no order.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(String::as_str)
    }

    /// Whether a tensor is among these.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains(name)
    }

    /// What is no fault of a file: this process may open no more files.
    pub(crate) fn of_run(&self) -> Option<&Error> {
        self.of_run.as_ref()
    }

    /// Keeps or counts one.
    pub(crate) fn add(&mut self, fault: Fault) {
        let fault = fault.explained();
        self.tensors.extend(fault.tensors.iter().cloned());
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
    fn tensors_are_known_beyond_the_faults_that_are_kept() {
        let mut faults = FaultList::default();
        for number in 0..=FAULTS_MAX {
            let place = format!("tensor blk.{number}.weight at byte 7");
            faults.add(Fault::new(FaultKind::OutsideFile, Error::new("model.gguf", "it is cut").at(place)));
        }
        let twice = Error::new("model.gguf", "it is there twice").at("tensor kept.weight at byte 9");
        faults.add(Fault::new(FaultKind::NameTwice, twice));
        assert_eq!(faults.tensors().count(), FAULTS_MAX + 1);
        assert!(faults.has_tensor("blk.0.weight") && faults.has_tensor("blk.100.weight"));
        assert!(!faults.has_tensor("kept.weight"), "the first of that name is read");
    }

    #[test]
    fn want_of_descriptors_is_no_fault_of_a_file() {
        let mut faults = FaultList::default();
        let problem = format!("cannot be opened: {}", std::io::Error::from(rustix::io::Errno::MFILE));
        faults.add(Fault::new(FaultKind::FileUnreadable, Error::new("a.gguf", problem)));
        assert!(faults.of_run().is_some_and(|error| error.problem.contains("Too many open files")));
    }
}
