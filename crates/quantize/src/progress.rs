//! How long work tells how far it is.

/// Told about the progress of long work, from several threads.
pub trait Progress: Sync {
    /// Work of so many bytes begins.
    fn start(&self, total_bytes: u64);

    /// So many more bytes are done.
    fn advance(&self, bytes: u64);
}

/// Tells nobody.
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {}
}
