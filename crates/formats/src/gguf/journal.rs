//! The journal of a resumable output: the finished tensors and their hashes.
//!
//! ```text
//! "TRUEUPJ1" | process u32 | files u32 | tensors u64 | maker 32 | inputs 32 | plan 32 | check 32     the job
//! tensor u64 | offset u64 | bytes u64 | sha256 32 | measure 24 | check 32                            a finished tensor
//! ...                                                                                                appended
//! ```
//!
//! Numbers are little-endian, hashes are sha256. The check of the job covers all of it except the number of the
//! process that holds the lock. The check of a tensor covers the check of the job and the tensor. Reading stops at the
//! first truncated or invalid record. A record is appended only after its bytes are on disk.

use crate::atomic_file::kept;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first bytes; the last one is the version of the form.
const MAGIC: [u8; 8] = *b"TRUEUPJ1";

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Bytes of the job.
pub(super) const JOB_BYTES: usize = 8 + 4 + 4 + 8 + 4 * HASH_BYTES;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 8 + 8 + 8 + HASH_BYTES + MEASURE_BYTES + HASH_BYTES;

/// Bytes that the maker of a tensor may keep beside its record.
pub(super) const MEASURE_BYTES: usize = 24;

/// Records for each tensor that are read at most: one is done again only where its bytes were damaged.
const RECORDS_PER_TENSOR_MAX: usize = 16;

/// Records that are read at once.
const RECORDS_AT_ONCE: usize = 512;

/// What the maker of a tensor keeps beside its record, to be given back when the tensor is taken over.
pub type Measure = [u8; MEASURE_BYTES];

/// sha256 of something.
pub(super) type Hash = [u8; HASH_BYTES];

/// What makes the bytes of the output what they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    /// Files of the output.
    pub files: u32,
    /// Tensors of the output.
    pub tensors: u64,
    /// Of the version, the program and the command.
    pub maker: Hash,
    /// Of what the file system says about each input.
    pub inputs: Hash,
    /// Of each file's name, size and header.
    pub plan: Hash,
}

/// A finished tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// Its number in the plan.
    pub tensor: u64,
    /// Where it starts in its file.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Of its bytes.
    pub sha256: Hash,
    /// What its maker keeps.
    pub measure: Measure,
}

/// An open journal, at the end of which records are added.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    check: Hash,
    end: u64,
    /// A write failed: what the file holds from there on is not known, and nothing is added any more.
    failed: bool,
}

impl Journal {
    /// Makes the file a journal of `job` without records.
    pub fn start(file: File, job: &Job) -> io::Result<Journal> {
        let (bytes, check) = job.encode(std::process::id());
        file.set_len(0)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        Ok(Journal { file, check, end: len(&bytes), failed: false })
    }

    /// Goes on behind the records that [`read`] found. Everything after them is cut off.
    pub fn go_on(file: File, job: &Job, records: usize) -> io::Result<Journal> {
        let (bytes, check) = job.encode(std::process::id());
        let end = len(&bytes).saturating_add(record_bytes(records));
        file.write_all_at(&bytes, 0)?;
        // Where nothing is to be cut, the space that was claimed behind the end stays.
        if file.metadata()?.len() > end {
            file.set_len(end)?;
        }
        file.sync_data()?;
        Ok(Journal { file, check, end, failed: false })
    }

    /// Reserves disk space for `records` more records, so that a full disk is reported before the work is done.
    ///
    /// Only Linux can reserve space without changing the length of the file. Elsewhere, a full disk is reported when it
    /// is reached.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn preallocate(&self, records: usize) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        use rustix::io::Errno;
        let bytes = self.end.saturating_add(record_bytes(records));
        let claim = || rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes);
        match rustix::io::retry_on_intr(claim) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reserves nothing: this platform cannot reserve space without changing the length of the file.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::unnecessary_wraps, reason = "the same signature on all platforms")]
    pub fn preallocate(&self, _records: usize) -> io::Result<()> {
        Ok(())
    }

    /// Adds records whose bytes `sync` brings to the disk first.
    pub fn append<E: From<io::Error>>(
        &mut self,
        records: &[Record],
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.failed {
            return Ok(());
        }
        // A failed sync may have dropped bytes of any tensor, and is reported once.
        self.failed = true;
        sync()?;
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.encode(&self.check)).collect();
        self.file.write_all_at(&bytes, self.end)?;
        self.file.sync_data()?;
        self.end = self.end.saturating_add(len(&bytes));
        self.failed = false;
        Ok(())
    }

    /// Whether this is what stands at `path`, and not what another process put there.
    pub fn is_at(&self, path: &Path) -> bool {
        kept::is_at(&self.file, path)
    }

    /// Removes it, if that is where it is.
    pub fn remove(&self, path: &Path) {
        kept::remove(&self.file, path);
    }

    /// Whether there are any records.
    pub fn has_records(&self) -> bool {
        self.end > record_bytes(0).saturating_add(u64::try_from(JOB_BYTES).unwrap_or(u64::MAX))
    }
}

/// The job that a file claims to be the journal of; `None` when it is none, or is damaged.
pub(super) fn read_job(file: &File) -> Option<Job> {
    let mut bytes = [0; JOB_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Job::decode(&bytes)
}

/// The process that has a journal locked, by what it says itself.
pub(super) fn holder(file: &File) -> Option<u32> {
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (magic, process) = bytes.split_first_chunk::<8>()?;
    let process = u32::from_le_bytes(*process.first_chunk()?);
    (*magic == MAGIC && process > 0).then_some(process)
}

/// All records of a journal of `job`, up to the first that is cut or wrong.
pub(super) fn read_records(file: &File, job: &Job) -> Vec<Record> {
    let (_, check) = job.encode(0);
    let records_max = usize::try_from(job.tensors).unwrap_or(usize::MAX).saturating_mul(RECORDS_PER_TENSOR_MAX);
    let mut records: Vec<Record> = Vec::new();
    let mut bytes = vec![0; RECORD_BYTES.saturating_mul(RECORDS_AT_ONCE)];
    while records.len() < records_max {
        let start = record_bytes(records.len()).saturating_add(u64::try_from(JOB_BYTES).unwrap_or(u64::MAX));
        let count = read_some(file, start, &mut bytes);
        let before = records.len();
        let whole = bytes.get(..count).unwrap_or_default().chunks_exact(RECORD_BYTES);
        records.extend(whole.map_while(|bytes| Record::decode(bytes, &check, job)));
        if records.len().saturating_sub(before) < RECORDS_AT_ONCE {
            break;
        }
    }
    records.truncate(records_max);
    records
}

/// How many bytes of `out` could be filled from `offset` on; an error counts as the end.
fn read_some(file: &File, offset: u64, out: &mut [u8]) -> usize {
    let mut filled = 0_usize;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX))) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(_) => break,
        }
    }
    filled
}

impl Job {
    /// The bytes, and their check.
    fn encode(&self, process: u32) -> (Vec<u8>, Hash) {
        let mut checked = Vec::with_capacity(JOB_BYTES);
        checked.extend(self.files.to_le_bytes());
        checked.extend(self.tensors.to_le_bytes());
        [self.maker, self.inputs, self.plan].iter().for_each(|hash| checked.extend(hash));
        let check = hash_of(&[&MAGIC, &checked]);
        let bytes = [MAGIC.as_slice(), &process.to_le_bytes(), &checked, &check].concat();
        (bytes, check)
    }

    fn decode(bytes: &[u8]) -> Option<Job> {
        let mut rest = bytes;
        let magic: [u8; 8] = take(&mut rest)?;
        let _process: [u8; 4] = take(&mut rest)?;
        let job = Job {
            files: u32::from_le_bytes(take(&mut rest)?),
            tensors: u64::from_le_bytes(take(&mut rest)?),
            maker: take(&mut rest)?,
            inputs: take(&mut rest)?,
            plan: take(&mut rest)?,
        };
        let check: Hash = take(&mut rest)?;
        (magic == MAGIC && job.encode(0).1 == check).then_some(job)
    }
}

impl Record {
    fn encode(&self, job: &Hash) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        [self.tensor, self.offset, self.bytes].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(self.sha256);
        bytes.extend(self.measure);
        let check = hash_of(&[job, &bytes]);
        bytes.extend(check);
        bytes
    }

    fn decode(bytes: &[u8], check: &Hash, job: &Job) -> Option<Record> {
        let mut rest = bytes;
        let record = Record {
            tensor: u64::from_le_bytes(take(&mut rest)?),
            offset: u64::from_le_bytes(take(&mut rest)?),
            bytes: u64::from_le_bytes(take(&mut rest)?),
            sha256: take(&mut rest)?,
            measure: take(&mut rest)?,
        };
        (record.tensor < job.tensors && record.encode(check) == bytes).then_some(record)
    }
}

/// sha256 of several pieces, one after the other.
pub(super) fn hash_of(pieces: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().into()
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn record_bytes(records: usize) -> u64 {
    u64::try_from(records.saturating_mul(RECORD_BYTES)).unwrap_or(u64::MAX)
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { files: 2, tensors: 40, maker: [1; 32], inputs: [2; 32], plan: [3; 32] }
    }

    fn record(tensor: u64) -> Record {
        Record {
            tensor,
            offset: tensor.wrapping_mul(64),
            bytes: 33,
            sha256: [tensor as u8; 32],
            measure: [7; MEASURE_BYTES],
        }
    }

    /// A journal with these records, and its bytes.
    fn written(records: &[Record]) -> (File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::start(file.try_clone().unwrap(), &job()).unwrap();
        for record in records {
            journal.append(std::slice::from_ref(record), || io::Result::Ok(())).unwrap();
        }
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (file, bytes)
    }

    fn of_bytes(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn only_a_journal_names_a_holder() {
        let (_, bytes) = written(&[]);
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert_eq!(holder(&of_bytes(&other)), None, "another kind of file");
        other.clone_from(&bytes);
        other[8..12].fill(0);
        assert_eq!(holder(&of_bytes(&other)), None, "there is no process 0");
        assert_eq!(holder(&of_bytes(&bytes[..11])), None);
    }

    #[test]
    fn a_journal_is_where_its_name_leads_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::start(File::create_new(&path).unwrap(), &job()).unwrap();
        assert!(journal.is_at(&path));
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        assert!(!journal.is_at(&path), "nothing stands there");
        std::fs::write(&path, "another's").unwrap();
        assert!(!journal.is_at(&path));
        journal.remove(&path);
        assert!(path.exists(), "another's file stays");
    }

    #[test]
    fn the_space_of_later_records_is_claimed_at_once() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        let journal = Journal::start(file.try_clone().unwrap(), &job()).unwrap();
        journal.preallocate(1000).unwrap();
        let facts = file.metadata().unwrap();
        assert_eq!(facts.len(), JOB_BYTES as u64, "its length stays");
        let probe = tempfile::tempfile().unwrap();
        let can_claim = rustix::fs::fallocate(&probe, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 16).is_ok();
        assert!(!can_claim || facts.blocks() * 512 >= record_bytes(1000), "{} blocks", facts.blocks());
    }

    #[test]
    fn records_come_back_and_more_are_added_behind_them() {
        let records: Vec<Record> = [5, 0, 39].map(record).to_vec();
        let (file, bytes) = written(&records);
        assert_eq!(bytes.len(), JOB_BYTES + 3 * RECORD_BYTES);
        assert_eq!(read_job(&file), Some(job()));
        assert_eq!(holder(&file), Some(std::process::id()));
        assert_eq!(read_records(&file, &job()), records);
        file.write_all_at(b"rubbish", bytes.len() as u64).unwrap();
        let mut journal = Journal::go_on(file.try_clone().unwrap(), &job(), 3).unwrap();
        assert!(journal.has_records());
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64, "the rubbish is cut off");
        journal.append(&[record(1)], || io::Result::Ok(())).unwrap();
        assert_eq!(read_records(&file, &job()), [5, 0, 39, 1].map(record));
    }

    /// Else a disk that became full meanwhile would end a run that has all the space it needs.
    #[test]
    fn space_that_was_claimed_is_still_there_for_the_next_run() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::start(file.try_clone().unwrap(), &job()).unwrap();
        journal.preallocate(10_000).unwrap();
        journal.append(&[record(1)], || io::Result::Ok(())).unwrap();
        let blocks = file.metadata().unwrap().blocks();
        drop(Journal::go_on(file.try_clone().unwrap(), &job(), 1).unwrap());
        assert_eq!(file.metadata().unwrap().blocks(), blocks);
        assert_eq!(read_records(&file, &job()), [record(1)]);
    }

    /// After a failed sync the disk may lack bytes of any tensor, and a second sync would not say so again.
    #[test]
    fn nothing_is_added_behind_a_failed_sync() {
        let file = tempfile::tempfile().unwrap();
        let mut journal = Journal::start(file.try_clone().unwrap(), &job()).unwrap();
        assert!(journal.append(&[record(1)], || Err(io::Error::other("the disk"))).is_err());
        journal.append(&[record(2)], || io::Result::Ok(())).unwrap();
        assert!(!journal.has_records());
        assert_eq!(read_records(&file, &job()), []);
    }

    #[test]
    fn a_cut_journal_has_the_whole_records_before_the_cut() {
        let records: Vec<Record> = (0..3).map(record).collect();
        let (_, bytes) = written(&records);
        for len in 0..bytes.len() {
            let file = of_bytes(&bytes[..len]);
            assert_eq!(read_job(&file).is_some(), len >= JOB_BYTES, "{len}");
            let whole = len.saturating_sub(JOB_BYTES) / RECORD_BYTES;
            assert_eq!(read_records(&file, &job()), records[..whole], "{len}");
        }
    }

    #[test]
    fn a_changed_byte_ends_the_journal_there() {
        let records: Vec<Record> = (0..3).map(record).collect();
        let (_, bytes) = written(&records);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            let file = of_bytes(&changed);
            if place < JOB_BYTES {
                // The number of the process is not checked: it is only shown.
                assert_eq!(read_job(&file).is_some(), (8..12).contains(&place), "{place}");
            } else {
                let whole = (place - JOB_BYTES) / RECORD_BYTES;
                assert_eq!(read_records(&file, &job()), records[..whole], "{place}");
            }
        }
    }

    #[test]
    fn records_of_another_job_or_of_no_tensor_are_not_taken() {
        let (_, bytes) = written(&[record(0)]);
        for other in [
            Job { plan: [4; 32], ..job() },
            Job { inputs: [4; 32], ..job() },
            Job { maker: [4; 32], ..job() },
            Job { files: 1, ..job() },
            Job { tensors: 41, ..job() },
        ] {
            let (mut spliced, _) = other.encode(1);
            spliced.extend(&bytes[JOB_BYTES..]);
            let file = of_bytes(&spliced);
            assert_eq!(read_job(&file), Some(other.clone()));
            assert_eq!(read_records(&file, &other), []);
        }
        for tensor in [40, u64::MAX] {
            let (file, _) = written(&[record(1), record(tensor), record(2)]);
            assert_eq!(read_records(&file, &job()), [record(1)]);
        }
    }

    #[test]
    fn endless_journals_are_read_to_a_limit() {
        let (file, bytes) = written(&[record(3)]);
        file.set_len(1 << 40).unwrap();
        assert_eq!(read_records(&file, &job()), [record(3)], "a hole of a terabyte");
        let twice = [bytes[..JOB_BYTES].to_vec(), bytes[JOB_BYTES..].repeat(2000)].concat();
        let records = read_records(&of_bytes(&twice), &job());
        assert_eq!(records.len(), 40 * RECORDS_PER_TENSOR_MAX, "the same record again and again");
        assert_eq!(holder(&of_bytes(b"TRUEUPJ1")), None);
        assert_eq!(holder(&of_bytes(&[0; 12])), None);
    }
}
