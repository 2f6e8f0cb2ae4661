//! Leaks on purpose: a soak that does not find them says nothing.

use std::fs::File;
use std::hint::black_box;
use std::mem;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use trueup::runtime::ModelFile;

/// What leaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leak {
    /// Memory that was written to.
    Memory,
    /// An open file.
    Handle,
    /// A thread that waits for ever.
    Thread,
    /// A model that nobody lets go.
    Model,
}

/// Each leak with the figure that must show it.
pub const LEAKS: [(Leak, &str); 4] =
    [(Leak::Memory, "RssAnon"), (Leak::Handle, "handles"), (Leak::Thread, "threads"), (Leak::Model, "mappings")];

/// Bytes that leak in all, however often: a part of it each time.
const MEMORY_BYTES: usize = 4 << 20;

/// A leak that grows. Its threads end with it; the rest stays until the process ends.
pub struct Plant {
    leak: Leak,
    bytes: usize,
    waited_for: Vec<Sender<()>>,
}

impl Plant {
    /// Nothing leaked yet; it is going to `count` times.
    pub fn new(leak: Leak, count: usize) -> Plant {
        Plant { leak, bytes: MEMORY_BYTES / count.max(1), waited_for: Vec::new() }
    }

    /// Leaks once more.
    pub fn grow(&mut self, model: &Path) {
        match self.leak {
            Leak::Memory => mem::forget(black_box(vec![1u8; self.bytes])),
            Leak::Handle => mem::forget(File::open(model)),
            Leak::Thread => {
                let (sender, receiver) = channel::<()>();
                self.waited_for.push(sender);
                thread::spawn(move || receiver.recv());
            }
            Leak::Model => mem::forget(ModelFile::open(model)),
        }
    }
}
