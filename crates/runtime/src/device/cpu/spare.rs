//! Room that operators need for a while, kept from one to the next: fresh memory costs more to get than to use.

use std::sync::{Mutex, PoisonError};

/// One vector that nobody needs now.
#[derive(Debug)]
pub(super) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Spare<T> {
        Spare(Mutex::default())
    }
}

impl<T> Spare<T> {
    /// Takes it, with whatever it holds; an empty one where another operator has it.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives one back.
    pub fn put(&self, room: Vec<T>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if room.capacity() > kept.capacity() {
            *kept = room;
        }
    }
}
