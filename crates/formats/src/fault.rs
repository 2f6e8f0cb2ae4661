//! What is wrong with the parts of a file that a survey reads on past, where opening stops.
//!
//! ```text
//! open    ── the first fault ends it ──▶ Error
//! survey  ── each fault is noted, what is behind it is read as far as it can be ──▶ model, faults
//! ```

use crate::error::{Error, Result};

/// Faults that a survey keeps; the others are counted.
const FAULTS_MAX: usize = 1000;

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

/// Faults in the order they were met, so many at most.
#[derive(Clone, Default, Debug)]
pub struct FaultList {
    faults: Vec<Fault>,
    left_out: u64,
}

impl FaultList {
    /// Those that were kept.
    pub fn kept(&self) -> &[Fault] {
        &self.faults
    }

    /// How many there were beyond those.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Keeps or counts one.
    pub(crate) fn add(&mut self, fault: Fault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

/// What is done about a fault: opening ends with its error, a survey notes it and goes on.
pub(crate) type OnFault<'a> = &'a mut dyn FnMut(Fault) -> Result<()>;

/// Ends at the first fault.
pub(crate) fn refuse(fault: Fault) -> Result<()> {
    Err(fault.error)
}
