//! Progress reporting for long operations.

/// Receives progress updates from several threads.
pub trait Progress: Sync {
    /// Starts an operation on `total_bytes` bytes.
    fn start(&self, total_bytes: u64);

    /// Reports that `bytes` more bytes are done.
    fn advance(&self, bytes: u64);

    /// Reports `bytes` bytes that an earlier run completed.
    fn reused(&self, bytes: u64) {
        self.advance(bytes);
    }
}

/// Ignores all updates.
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {}
}
