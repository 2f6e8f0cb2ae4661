//! Buffers that are lent again: of those that fit without much waste the smallest.

use crate::device::ascend::acl::{Allocation, Card};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most buffers.
const BUFFERS_MAX: usize = 256;

/// Bytes that a lent buffer may be too large by.
const WASTE_BYTES_MAX: usize = 4 << 20;

/// Buffers up to this size stay though nobody asks for them.
const SMALL_BYTES: usize = 1 << 20;

/// So long a larger one stays.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// The buffers.
#[derive(Debug)]
pub struct Cached {
    card: Arc<Card>,
    slots: Slots<Allocation>,
}

/// Buffers, of which some are lent; `B` tells its size and address.
#[derive(Debug)]
struct Slots<B> {
    slots: Vec<Slot<B>>,
}

#[derive(Debug)]
struct Slot<B> {
    _buffer: B,
    bytes: usize,
    address: u64,
    /// Since when it is back; `None` while it is lent.
    back: Option<Instant>,
}

impl<B> Slots<B> {
    /// The smallest free buffer of enough bytes and not much more. Drops those that nobody asked for long.
    fn lend(&mut self, bytes: usize, now: Instant) -> Option<u64> {
        let fits =
            |slot: &&mut Slot<B>| slot.back.is_some() && slot.bytes >= bytes && slot.bytes - bytes <= WASTE_BYTES_MAX;
        let found = self.slots.iter_mut().filter(fits).min_by_key(|slot| slot.bytes).map(|slot| {
            slot.back = None;
            slot.address
        });
        let is_idle = |back: Instant| now.saturating_duration_since(back) > IDLE_MAX;
        self.slots.retain(|slot| slot.bytes <= SMALL_BYTES || !slot.back.is_some_and(is_idle));
        found
    }

    /// Makes place for one more; whether there is some.
    fn has_place(&mut self) -> bool {
        if self.slots.len() >= BUFFERS_MAX {
            self.slots.retain(|slot| slot.back.is_none());
        }
        self.slots.len() < BUFFERS_MAX
    }

    fn take_back(&mut self, address: u64, now: Instant) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.address == address) {
            slot.back = Some(now);
        }
    }
}

impl Cached {
    /// None yet.
    pub fn new(card: &Arc<Card>) -> Cached {
        Cached { card: Arc::clone(card), slots: Slots { slots: Vec::new() } }
    }

    /// A buffer of at least so many bytes.
    pub fn lend(&mut self, bytes: usize) -> Result<u64, String> {
        if let Some(address) = self.slots.lend(bytes, Instant::now()) {
            return Ok(address);
        }
        if !self.slots.has_place() {
            return Err(format!("{BUFFERS_MAX} buffers are in use at once, more than there may be"));
        }
        let buffer = Allocation::new(&self.card, bytes)?;
        let (bytes, address) = (buffer.bytes(), buffer.address());
        self.slots.slots.push(Slot { _buffer: buffer, bytes, address, back: None });
        Ok(address)
    }

    /// Takes back the buffer at an address.
    pub fn take_back(&mut self, address: u64) {
        self.slots.take_back(address, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a model: no buffer is lent twice, none is too small, and there are never too many.
        #[test]
        fn no_buffer_is_lent_twice(moves in proptest::collection::vec((1usize..(6 << 20), any::<proptest::sample::Index>(), any::<bool>(), 0u64..60), 1..400)) {
            let mut slots: Slots<()> = Slots { slots: Vec::new() };
            let (mut model, mut now, mut next): (Vec<u64>, Instant, u64) = (Vec::new(), Instant::now(), 1);
            for (bytes, which, gives_back, later) in moves {
                now += Duration::from_millis(later);
                if gives_back && !model.is_empty() {
                    slots.take_back(model.swap_remove(which.index(model.len())), now);
                    continue;
                }
                let address = match slots.lend(bytes, now) {
                    Some(address) => address,
                    None if !slots.has_place() => {
                        prop_assert_eq!(model.len(), BUFFERS_MAX);
                        continue;
                    }
                    None => {
                        next += 1;
                        slots.slots.push(Slot { _buffer: (), bytes, address: next, back: None });
                        next
                    }
                };
                prop_assert!(!model.contains(&address));
                let slot = slots.slots.iter().find(|slot| slot.address == address).unwrap();
                prop_assert!(slot.bytes >= bytes && slot.bytes - bytes <= WASTE_BYTES_MAX && slot.back.is_none());
                model.push(address);
                prop_assert!(slots.slots.len() <= BUFFERS_MAX);
            }
        }
    }
}
