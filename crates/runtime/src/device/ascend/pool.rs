//! Room that compositions compute in, given back on the host while the card still computes: it goes to the next one
//! that asks, whose work the card does behind that of the last one, for both are of one stream.
//!
//! ```text
//!  stack.rs    one range of addresses that memory is put behind, used from its start on: where the card has virtual memory
//!  cached.rs   up to 256 buffers, of which the smallest that fits is lent again
//! ```

mod cached;
mod stack;

use super::acl::{Allocation, Array, Card, Type};
use cached::Cached;
use stack::Stack;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Parts begin at multiples of this, and take up multiples of it.
const ALIGNMENT: usize = 128;

/// What lends room.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Mutex<Lender>>);

#[derive(Debug)]
enum Lender {
    Stack(Stack),
    Cached(Cached),
}

/// Elements in lent room, which go back when this is dropped.
#[derive(Debug)]
pub struct Room {
    array: Array,
    pool: Pool,
}

impl Deref for Room {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.array
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let address = self.array.address;
        match &mut *self.pool.lender() {
            Lender::Stack(stack) => stack.take_back(address),
            Lender::Cached(cached) => cached.take_back(address),
        }
    }
}

impl Pool {
    /// A stack where the card has virtual memory, else a cache.
    pub fn new(card: &Arc<Card>) -> Pool {
        let lender = Stack::new(card).map_or_else(|| Lender::Cached(Cached::new(card)), Lender::Stack);
        Pool(Arc::new(Mutex::new(lender)))
    }

    /// Which of the two it is.
    pub fn name(&self) -> &'static str {
        match &*self.lender() {
            Lender::Stack(_) => "virtual memory",
            Lender::Cached(_) => "cached buffers",
        }
    }

    /// Room for elements behind each other, which hold anything.
    pub fn room(&self, ty: Type, sizes: &[i64]) -> Result<Room, String> {
        let array = Array::dense(ty, 0, sizes);
        let bytes = array.bytes().max(1).next_multiple_of(ALIGNMENT);
        let address = match &mut *self.lender() {
            Lender::Stack(stack) => stack.lend(bytes),
            Lender::Cached(cached) => cached.lend(bytes),
        }?;
        Ok(Room { array: Array { address, ..array }, pool: self.clone() })
    }

    /// From now on buffers that are lent are kept: work that comes again computes in them. A range of addresses stays
    /// anyway.
    pub fn keep(&self) {
        if let Lender::Cached(cached) = &mut *self.lender() {
            cached.keep();
        }
    }

    /// What was lent since then, which is kept no longer but by who takes it.
    pub fn kept(&self) -> Vec<Arc<Allocation>> {
        match &mut *self.lender() {
            Lender::Stack(_) => Vec::new(),
            Lender::Cached(cached) => cached.kept(),
        }
    }

    /// Gives the card the memory of buffers that are not lent, of which graphs keep their own. A range of addresses
    /// stays, for graphs compute there.
    pub fn drop_unkept(&self) {
        if let Lender::Cached(cached) = &mut *self.lender() {
            cached.drop_free();
        }
    }

    /// Gives the card the memory of all that is not lent. Graphs that compute there must be gone.
    pub fn drop_free(&self) {
        match &mut *self.lender() {
            Lender::Stack(stack) => stack.drop_free(),
            Lender::Cached(cached) => cached.drop_free(),
        }
    }

    fn lender(&self) -> std::sync::MutexGuard<'_, Lender> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
