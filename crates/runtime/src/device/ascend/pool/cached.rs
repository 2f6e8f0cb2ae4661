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
    slots: Slots<Arc<Allocation>>,
}

/// Buffers, of which some are lent; `B` is what holds one.
#[derive(Debug)]
struct Slots<B> {
    slots: Vec<Slot<B>>,
    /// What was lent since it is kept.
    kept: Option<Vec<(u64, B)>>,
}

#[derive(Debug)]
struct Slot<B> {
    buffer: B,
    bytes: usize,
    address: u64,
    /// Since when it is back; `None` while it is lent.
    back: Option<Instant>,
}

impl<B: Clone> Slots<B> {
    /// The smallest free buffer of enough bytes and not much more. Drops those that nobody asked for long.
    fn lend(&mut self, bytes: usize, now: Instant) -> Option<u64> {
        let fits =
            |slot: &&mut Slot<B>| slot.back.is_some() && slot.bytes >= bytes && slot.bytes - bytes <= WASTE_BYTES_MAX;
        let found = self.slots.iter_mut().filter(fits).min_by_key(|slot| slot.bytes).map(|slot| {
            slot.back = None;
            (slot.address, slot.buffer.clone())
        });
        let is_idle = |back: Instant| now.saturating_duration_since(back) > IDLE_MAX;
        self.slots.retain(|slot| slot.bytes <= SMALL_BYTES || !slot.back.is_some_and(is_idle));
        found.map(|(address, buffer)| self.keep(address, buffer))
    }

    /// Drops those that are not lent.
    fn drop_free(&mut self) {
        self.slots.retain(|slot| slot.back.is_none());
    }

    /// Makes place for one more; whether there is some.
    fn has_place(&mut self) -> bool {
        if self.slots.len() >= BUFFERS_MAX {
            self.drop_free();
        }
        self.slots.len() < BUFFERS_MAX
    }

    /// One more, which is lent at once.
    fn add(&mut self, buffer: B, bytes: usize, address: u64) -> u64 {
        self.slots.push(Slot { buffer: buffer.clone(), bytes, address, back: None });
        self.keep(address, buffer)
    }

    fn keep(&mut self, address: u64, buffer: B) -> u64 {
        if let Some(kept) = &mut self.kept
            && !kept.iter().any(|(known, _)| *known == address)
        {
            kept.push((address, buffer));
        }
        address
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
        Cached { card: Arc::clone(card), slots: Slots { slots: Vec::new(), kept: None } }
    }

    /// From now on what is lent is kept.
    pub fn keep(&mut self) {
        self.slots.kept = Some(Vec::new());
    }

    /// What was lent since then, which is kept no longer here.
    pub fn kept(&mut self) -> Vec<Arc<Allocation>> {
        self.slots.kept.take().unwrap_or_default().into_iter().map(|(_, buffer)| buffer).collect()
    }

    /// A buffer of at least so many bytes.
    pub fn lend(&mut self, bytes: usize) -> Result<u64, String> {
        if let Some(address) = self.slots.lend(bytes, Instant::now()) {
            return Ok(address);
        }
        if !self.slots.has_place() {
            return Err(format!("more than {BUFFERS_MAX} buffers are in use at the same time"));
        }
        let buffer = Allocation::new(&self.card, bytes).or_else(|_| {
            self.drop_free();
            Allocation::new(&self.card, bytes)
        });
        let buffer = Arc::new(buffer?);
        let (bytes, address) = (buffer.bytes(), buffer.address());
        Ok(self.slots.add(buffer, bytes, address))
    }

    /// Gives the card the memory of what is not lent.
    pub fn drop_free(&mut self) {
        self.slots.drop_free();
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
            let mut slots: Slots<()> = Slots { slots: Vec::new(), kept: None };
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
                        slots.add((), bytes, next)
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

    /// What a graph was made with stays as long as the graph, though nobody asks for it for long.
    #[test]
    fn what_is_lent_meanwhile_is_kept() {
        let mut slots: Slots<Arc<u64>> = Slots { slots: Vec::new(), kept: None };
        let now = Instant::now();
        for (address, bytes) in [(1, 2 << 20), (2, 8 << 20), (3, 100)] {
            slots.add(Arc::new(address), bytes, address);
            slots.take_back(address, now);
        }
        slots.kept = Some(Vec::new());
        for _ in 0..2 {
            assert_eq!(slots.lend(8 << 20, now), Some(2));
            slots.take_back(2, now);
        }
        slots.add(Arc::new(4), 1 << 20, 4);
        let kept = slots.kept.take().unwrap();
        assert_eq!(kept.iter().map(|(_, buffer)| **buffer).collect::<Vec<_>>(), [2, 4]);
        // Long after: the large ones that are back are gone here, and those that were kept are not.
        assert_eq!(slots.lend(100, now + 2 * IDLE_MAX), Some(3));
        assert_eq!(slots.slots.iter().map(|slot| slot.address).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(kept.iter().map(|(_, buffer)| Arc::strong_count(buffer)).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_is_not_lent_is_dropped_at_once() {
        let mut slots: Slots<()> = Slots { slots: Vec::new(), kept: None };
        for address in 1..4 {
            slots.add((), 100, address);
        }
        slots.take_back(2, Instant::now());
        slots.drop_free();
        assert_eq!(slots.slots.iter().map(|slot| slot.address).collect::<Vec<_>>(), [1, 3]);
    }
}
