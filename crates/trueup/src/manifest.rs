//! Manifests: the SHA-256 of each tensor, to compare files on different machines.
//!
//! ```text
//! 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae  blk.0.attn_q.weight
//! ```
//!
//! One line per tensor, in the format of `sha256sum`. The hash covers the tensor's bytes as the checkpoint reader
//! returns them.

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use trueup_formats::{Checkpoint, Error, Result, hexadecimal, quote};
use trueup_quantize::{NoProgress, Progress};

pub use trueup_formats::hash_file;

/// Approximate size of the part of a tensor that is in memory; rounded up to a whole number of blocks.
const CHUNK_BYTES: usize = 1 << 20;

/// The hash of one tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorHash {
    /// The tensor's name.
    pub name: String,
    /// 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// Hashes all tensors in file order, on all cores.
///
/// # Errors
/// I/O, or a file that changed after it was opened.
pub fn hash_tensors(checkpoint: &dyn Checkpoint) -> Result<Vec<TensorHash>> {
    hash_tensors_on(checkpoint, None, &NoProgress)
}

/// Like [`hash_tensors`], on `threads` threads; `None` uses all cores. `progress` counts the bytes of the tensors.
///
/// # Errors
/// As [`hash_tensors`], or if the threads cannot be started.
pub fn hash_tensors_on(
    checkpoint: &dyn Checkpoint,
    threads: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<TensorHash>> {
    progress.start(checkpoint.tensors().iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add));
    hash_tensors_started(checkpoint, threads, progress)
}

/// Like [`hash_tensors_on`], but does not call `progress.start`: the caller has done so.
pub(crate) fn hash_tensors_started(
    checkpoint: &dyn Checkpoint,
    threads: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<TensorHash>> {
    let hash = || {
        let tensors = (0..checkpoint.tensors().len()).into_par_iter();
        let hashes = tensors.map(|tensor| hash_tensor(checkpoint, tensor, progress));
        let hashes = hashes.collect::<Result<Vec<TensorHash>>>()?;
        checkpoint.unchanged()?;
        Ok(hashes)
    };
    let Some(threads) = threads else { return hash() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool =
        pool.map_err(|error| Error::new(checkpoint.path(), format!("cannot be hashed on {threads} threads: {error}")))?;
    pool.install(hash)
}

fn hash_tensor(checkpoint: &dyn Checkpoint, tensor: usize, progress: &dyn Progress) -> Result<TensorHash> {
    let missing = || Error::new(checkpoint.path(), format!("has no tensor number {tensor}"));
    let info = checkpoint.tensors().get(tensor).ok_or_else(missing)?;
    let whole = info.dtype.block_bytes();
    let room = CHUNK_BYTES.checked_next_multiple_of(whole).unwrap_or(CHUNK_BYTES);
    let mut chunk = vec![0; usize::try_from(info.bytes).map_or(room, |bytes| room.min(bytes))];
    let mut hasher = Sha256::new();
    let (mut offset, mut left) = (0_u64, info.bytes);
    while left > 0 {
        // What does not fit the machine's sizes is more than a chunk.
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let Some(piece) = chunk.get_mut(..bytes) else { unreachable!("{bytes} bytes of a chunk") };
        checkpoint.read(tensor, offset, piece)?;
        hasher.update(&*piece);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        progress.advance(bytes);
        (offset, left) = (offset.saturating_add(bytes), left.saturating_sub(bytes));
    }
    let sha256 = hexadecimal(&hasher.finalize());
    Ok(TensorHash { name: info.name.clone(), sha256 })
}

/// Where a checkpoint differs from a list, a sentence each: other hashes, tensors missing on either side.
///
/// # Errors
/// A list that cannot be read; `place` names its file.
pub fn compare_manifest(hashes: &[TensorHash], manifest: &str, place: &std::path::Path) -> Result<Vec<String>> {
    let mut listed = HashMap::new();
    for (number, line) in (1..).zip(manifest.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let entry =
            line.split_once("  ").filter(|(hash, _)| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some((hash, name)) = entry else {
            let problem = format!("expected 64 hexadecimal digits, two spaces and a name, found {:?}", quote(line));
            return Err(Error::new(place, problem).at(format!("line {number}")));
        };
        if listed.insert(name, hash.to_ascii_lowercase()).is_some() {
            return Err(Error::new(place, format!("lists {:?} twice", quote(name))).at(format!("line {number}")));
        }
    }
    let mut differences = Vec::new();
    for hash in hashes {
        match listed.remove(hash.name.as_str()) {
            None => differences.push(format!("{}: missing from the manifest", quote(&hash.name))),
            Some(expected) if expected != hash.sha256 => {
                differences.push(format!("{}: expected SHA-256 {expected}, found {}", quote(&hash.name), hash.sha256));
            }
            Some(_) => {}
        }
    }
    let mut missing: Vec<&str> = listed.into_keys().collect();
    missing.sort_unstable();
    differences
        .extend(missing.iter().map(|name| format!("{}: listed in the manifest, missing from the model", quote(name))));
    Ok(differences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// `printf foo | sha256sum`
    const FOO: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn hashes() -> Vec<TensorHash> {
        ["a", "b"].map(|name| TensorHash { name: name.to_owned(), sha256: FOO.to_owned() }).to_vec()
    }

    #[test]
    fn a_list_of_the_same_tensors_has_no_differences() {
        let list = format!("{FOO}  a\n{}  b\n", FOO.to_uppercase());
        assert_eq!(compare_manifest(&hashes(), &list, Path::new("list")), Ok(vec![]));
    }

    #[test]
    fn every_difference_is_listed() {
        let list = format!("{}  a\n{FOO}  c\n", FOO.replace('2', "3"));
        let found = compare_manifest(&hashes(), &list, Path::new("list")).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("a: expected SHA-256 3c36") && found[0].contains(", found 2c26"));
        assert_eq!(found[1..], ["b: missing from the manifest", "c: listed in the manifest, missing from the model"]);
    }

    #[test]
    fn a_line_that_is_no_entry_is_refused() {
        for list in ["hello", "abc  a", &format!("{FOO}  a\n{FOO}  a")] {
            assert!(compare_manifest(&hashes(), list, Path::new("list")).is_err(), "{list}");
        }
    }
}
