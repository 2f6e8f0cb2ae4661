//! Hashes of whole files.

use crate::{Result, SourceFile, hexadecimal};
use sha2::{Digest, Sha256};

/// Size of the part of a file that is in memory.
const CHUNK_BYTES: usize = 1 << 20;

/// The SHA-256 of a file, as 64 lower-case hexadecimal digits. Calls `advance` with the number of bytes after each
/// read.
///
/// # Errors
/// I/O.
pub fn hash_file(file: &SourceFile, advance: &mut dyn FnMut(u64)) -> Result<String> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut hasher = Sha256::new();
    let (mut offset, mut left) = (0_u64, file.bytes());
    while left > 0 {
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let Some(piece) = chunk.get_mut(..bytes) else { unreachable!("{bytes} bytes of a chunk") };
        file.read_at(offset, piece)?;
        hasher.update(&*piece);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        advance(bytes);
        (offset, left) = (offset.saturating_add(bytes), left.saturating_sub(bytes));
    }
    Ok(hexadecimal(&hasher.finalize()))
}
