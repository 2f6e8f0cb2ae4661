//! How long work tells how far it is.

/// Told about the progress of long work, from several threads.
pub trait Progress: Sync {
    /// Work of so many bytes begins.
    fn start(&self, total_bytes: u64);

    /// So many more bytes are done.
    fn advance(&self, bytes: u64);

    /// So many bytes need not be done again: an earlier run did them.
    fn taken_over(&self, bytes: u64) {
        self.advance(bytes);
    }
}

/// Tells nobody.
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {}
}
