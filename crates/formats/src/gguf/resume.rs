//! Resumes an unfinished output. Tensors are reused by journal and hash, never because a file exists.
//!
//! ```text
//! lock the journal ─ same program, command, inputs, plan? ─ yes ─▶ records: number, place, size, sha256
//!                          │ no, or damaged                                     │ read back by take_over
//!                          └▶ a note; start over                                └▶ same sha256: reused, else rewritten
//!
//! a tensor is finished ─▶ read back, hashed ─▶ queued ─ periodically: sync files, append records, sync journal
//! ```
//!
//! A record therefore never refers to bytes that are not on disk. Syncing takes at most a sixth of one thread's time,
//! because each sync waits five times as long as the previous one took.

use super::journal::{self, Hash, Job, Journal, Measure, Record, hash_of};
use super::plan::GgufPlan;
use super::split_name::SplitName;
use crate::atomic_file::AtomicFile;
use crate::atomic_file::kept::{self, Claim};
use crate::error::{Error, Result};
use crate::source_file::SourceFile;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The shortest time between two syncs, and how many times as long as a sync the time after it is.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 5;

/// Bytes that are read back at once.
const READ_BYTES: usize = 1 << 20;

/// A writer's memory of what is finished, here and on the disk.
#[derive(Debug)]
pub(super) struct Resumption {
    /// Where the journal is.
    path: PathBuf,
    journal: Mutex<Journal>,
    pending: Mutex<Pending>,
    /// For each tensor, what an earlier run recorded.
    found: Vec<Option<Record>>,
    /// Why what was found is not gone on with.
    note: Option<String>,
}

/// Tensors that are finished and not yet recorded.
#[derive(Debug)]
struct Pending {
    /// With the number of its file.
    records: Vec<(usize, Record)>,
    synced: Instant,
    pause: Duration,
}

impl Resumption {
    /// Locks the journal of a plan and reads it. `command` names what makes the model. Partial files of another job are
    /// then gone or empty.
    pub fn open(plan: &GgufPlan, inputs: &[&SourceFile], command: &str) -> Result<Resumption> {
        let job = job(plan, inputs, command);
        let kept = match kept::claim(kept::kept_path(&plan.path, kept::JOURNAL)?)? {
            Claim::Mine(kept) => kept,
            Claim::Taken(file) => return Err(taken(&plan.path, &file)),
        };
        let fault = |error: std::io::Error| kept::fault(&kept.path, error);
        let is_empty = kept.file.metadata().map_err(fault)?.len() == 0;
        let old = journal::read_job(&kept.file);
        let other = match &old {
            _ if kept.replaced => Some("belongs to another user"),
            None if is_empty => None,
            None => Some("is damaged"),
            Some(old) => difference(old, &job),
        };
        let continued = old.as_ref() == Some(&job) && other.is_none();
        let mut found = vec![None; plan.tensors.len()];
        let file = kept.file.try_clone().map_err(fault)?;
        let journal = if continued {
            let records = journal::read_records(&file, &job);
            let count = records.len();
            for record in records {
                let place = usize::try_from(record.tensor).ok().and_then(|number| found.get_mut(number));
                // Of two records the later one: the first turned out to be wrong.
                place.into_iter().for_each(|place| *place = Some(record.clone()));
            }
            Journal::go_on(file, &job, count).map_err(fault)?
        } else {
            discard_data(plan, old.map_or(0, |old| old.files));
            Journal::start(file, &job).map_err(fault)?
        };
        let missing = found.iter().filter(|record| record.is_none()).count();
        journal.preallocate(missing).map_err(fault)?;
        let note = other.map(|other| {
            format!("the unfinished output of an earlier run {other}; it is removed, and the work starts over")
        });
        let pending = Pending { records: Vec::new(), synced: Instant::now(), pause: PAUSE_MIN };
        Ok(Resumption { path: kept.path, journal: journal.into(), pending: pending.into(), found, note })
    }

    /// Why what was found is not gone on with.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// What an earlier run recorded of a tensor, when place and size are right.
    pub fn recorded(&self, tensor: usize, place: u64, bytes: u64) -> Option<&Record> {
        let record = self.found.get(tensor)?.as_ref()?;
        (record.offset == place && record.bytes == bytes).then_some(record)
    }

    /// Takes note of finished tensors, each with the number of its file, and brings all such notes to the disk when it
    /// is time.
    pub fn finished(&self, records: Vec<(usize, Record)>, files: &[AtomicFile]) -> Result<()> {
        let due = {
            let mut pending = lock(&self.pending);
            pending.records.extend(records);
            pending.synced.elapsed() >= pending.pause
        };
        // Where another thread syncs, the record waits for the next time.
        match self.journal.try_lock() {
            Ok(mut journal) if due => self.sync(&mut journal, files),
            Ok(_) | Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Poisoned(poisoned)) => self.sync(&mut poisoned.into_inner(), files),
        }
    }

    /// Brings everything that is finished to the disk, and says so in the journal.
    pub fn sync_all(&self, files: &[AtomicFile]) -> Result<()> {
        self.sync(&mut lock(&self.journal), files)
    }

    fn sync(&self, journal: &mut Journal, files: &[AtomicFile]) -> Result<()> {
        let (numbers, records): (BTreeSet<usize>, Vec<Record>) =
            std::mem::take(&mut lock(&self.pending).records).into_iter().unzip();
        if records.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let sync_files = || {
            let written = files.iter().enumerate().filter(|(number, _)| numbers.contains(number));
            written.map(|(_, file)| file).try_for_each(AtomicFile::sync_data).map_err(Fault::Data)
        };
        journal.append(&records, sync_files).map_err(|fault| match fault {
            Fault::Data(error) => error,
            Fault::Journal(error) => kept::fault(&self.path, error),
        })?;
        let mut pending = lock(&self.pending);
        pending.synced = Instant::now();
        pending.pause = begin.elapsed().saturating_mul(PAUSE_FACTOR).max(PAUSE_MIN);
        Ok(())
    }

    /// Whether anything is there that a later run can take over.
    pub fn keeps(&self) -> bool {
        let journal = lock(&self.journal);
        journal.has_records() && journal.is_at(&self.path)
    }

    /// Removes the journal: of a complete model, or of one without a finished tensor.
    pub fn remove_journal(&self) {
        lock(&self.journal).remove(&self.path);
    }
}

/// What stops a sync: the model's files, or the journal.
enum Fault {
    Data(Error),
    Journal(std::io::Error),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Journal(error)
    }
}

/// Lists and records are whole after every step, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what an earlier run with `--resume` kept of the output of `plan`, unless such a run has it locked.
pub(super) fn discard(plan: &GgufPlan) {
    let Ok(path) = kept::kept_path(&plan.path, kept::JOURNAL) else { return };
    let journal = kept::lock_existing(&path);
    if journal.is_none() && std::fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_file()) {
        return;
    }
    let files = journal.as_ref().and_then(journal::read_job).map_or(0, |job| job.files);
    discard_data(plan, files);
    // Last: while it is there, the others can be found.
    if let Some(journal) = &journal {
        kept::remove(journal, &path);
    }
}

/// Removes the kept files of a plan, and those of an earlier one that had so many files.
fn discard_data(plan: &GgufPlan, files: u32) {
    let split = SplitName::new(&plan.path, 0, files.into());
    let earlier: Vec<PathBuf> = match files {
        0 => Vec::new(),
        1 => vec![plan.path.clone()],
        2..=FILES_MAX => (0..files.into()).map(|number| split.path(number)).collect(),
        _ => Vec::new(),
    };
    for path in earlier.iter().chain(plan.files.iter().map(|file| &file.path)) {
        kept::discard_beside_link(path);
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Ok(kept) = kept::kept_path(&path, kept::DATA) {
            kept::discard(&kept);
        }
    }
}

/// Removes what killed runs without `--resume` left of the output of `plan`, however many files it had for them.
pub(super) fn remove_stale(plan: &GgufPlan) {
    kept::remove_stale(&plan.path, SplitName::new(&plan.path, 0, 0).stem());
}

/// The most files that a model can have.
const FILES_MAX: u32 = 65_535;

/// What makes the bytes of the files of a plan.
fn job(plan: &GgufPlan, inputs: &[&SourceFile], command: &str) -> Job {
    let mut of_inputs = Sha256::new();
    for input in inputs {
        of_inputs.update(input.identity());
    }
    let mut of_plan = Sha256::new();
    for file in &plan.files {
        let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
        [name.len(), file.header.len()].iter().for_each(|count| of_plan.update(count.to_le_bytes()));
        of_plan.update(name);
        of_plan.update(file.bytes.to_le_bytes());
        of_plan.update(&file.header);
    }
    Job {
        files: u32::try_from(plan.files.len()).unwrap_or(u32::MAX),
        tensors: u64::try_from(plan.tensors.len()).unwrap_or(u64::MAX),
        maker: hash_of(&[env!("CARGO_PKG_VERSION").as_bytes(), b" ", program(), command.as_bytes()]),
        inputs: of_inputs.finalize().into(),
        plan: of_plan.finalize().into(),
    }
}

/// The program that runs, which another build with the same version would not be: sha256 of its file, nothing where
/// that cannot be read.
fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Option<Hash>> = OnceLock::new();
    let hash = || {
        // Leads to the file even after a new build took its name.
        let path = Path::new("/proc/self/exe");
        let file = match SourceFile::open(path) {
            Ok(file) => file,
            Err(_) => SourceFile::open(std::env::current_exe().ok()?).ok()?,
        };
        hash_pieces(0, file.bytes(), |place, piece| file.read_at(place, piece)).ok()
    };
    PROGRAM.get_or_init(hash).as_ref().map_or(&[], Hash::as_slice)
}

/// In words, what an earlier job differs by.
fn difference(old: &Job, new: &Job) -> Option<&'static str> {
    if old.maker != new.maker {
        return Some("was made by another version or build of the program, or another command");
    }
    if old.inputs != new.inputs {
        return Some("was made from other input files, or they have changed");
    }
    (old != new).then_some("was made with other options")
}

/// Another process has the journal locked.
fn taken(path: &Path, journal: &File) -> Error {
    let process = journal::holder(journal).map_or_else(String::new, |process| format!(" (process {process})"));
    Error::new(path, format!("another run with --resume{process} is writing it")).help("wait for it, or stop it")
}

/// sha256 of a range of an unfinished file.
pub(super) fn hash_range(file: &AtomicFile, start: u64, bytes: u64) -> Result<Hash> {
    hash_pieces(start, bytes, |place, piece| file.read_at(place, piece))
}

/// sha256 of so many bytes from `start` on, which `read` gets piece by piece.
fn hash_pieces(start: u64, bytes: u64, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<Hash> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(bytes).unwrap_or(READ_BYTES))];
    let mut done = 0_u64;
    while done < bytes {
        let count = usize::try_from(bytes.saturating_sub(done)).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        let Some(piece) = buffer.get_mut(..count) else { unreachable!("{count} bytes of the buffer") };
        read(start.saturating_add(done), piece)?;
        hasher.update(&*piece);
        done = done.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok(hasher.finalize().into())
}

/// The record of a tensor that stands in a file.
pub(super) fn record(tensor: usize, file: &AtomicFile, offset: u64, bytes: u64, measure: Measure) -> Result<Record> {
    let sha256 = hash_range(file, offset, bytes)?;
    Ok(Record { tensor: u64::try_from(tensor).unwrap_or(u64::MAX), offset, bytes, sha256, measure })
}
