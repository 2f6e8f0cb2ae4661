//! A range of addresses, used from its start on: what is lent last goes back first. What goes back too early waits
//! until all above it is back.

use crate::device::ascend::acl::{Card, Reservation};
use std::sync::Arc;

/// The range.
#[derive(Debug)]
pub struct Stack {
    reservation: Reservation,
    parts: Parts,
}

/// What is lent, from the bottom to the top.
#[derive(Default, Debug)]
struct Parts {
    lent: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    first: usize,
    bytes: usize,
    is_back: bool,
}

impl Parts {
    /// Where the next part begins.
    fn top(&self) -> usize {
        self.lent.last().map_or(0, |part| part.first + part.bytes)
    }

    fn lend(&mut self, bytes: usize) -> usize {
        let first = self.top();
        self.lent.push(Part { first, bytes, is_back: false });
        first
    }

    fn take_back(&mut self, first: usize) {
        if let Some(part) = self.lent.iter_mut().rev().find(|part| part.first == first && !part.is_back) {
            part.is_back = true;
        }
        while self.lent.last().is_some_and(|part| part.is_back) {
            self.lent.pop();
        }
    }
}

impl Stack {
    /// As many addresses as the card has free memory; `None` where it has no virtual memory.
    pub fn new(card: &Arc<Card>) -> Option<Stack> {
        let free = card.facts().ok()?.memory.1;
        let reservation = Reservation::new(card, usize::try_from(free).ok()?)?;
        Some(Stack { reservation, parts: Parts::default() })
    }

    /// So many bytes above all that is lent.
    pub fn lend(&mut self, bytes: usize) -> Result<u64, String> {
        self.reservation.grow(self.parts.top() + bytes)?;
        Ok(self.reservation.address() + self.parts.lend(bytes) as u64)
    }

    /// Gives the card the memory above all that is lent.
    pub fn drop_free(&mut self) {
        self.reservation.shrink(self.parts.top());
    }

    /// Takes back what was lent at an address.
    pub fn take_back(&mut self, address: u64) {
        self.parts.take_back((address - self.reservation.address()) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a model: parts that are lent never overlap, and when all are back nothing is in use.
        #[test]
        fn what_is_lent_never_overlaps(moves in proptest::collection::vec((1usize..2000, any::<proptest::sample::Index>(), any::<bool>()), 1..80)) {
            let mut parts = Parts::default();
            let mut model: Vec<(usize, usize)> = Vec::new();
            for (bytes, which, gives_back) in moves {
                if gives_back && !model.is_empty() {
                    let (first, _) = model.swap_remove(which.index(model.len()));
                    parts.take_back(first);
                } else {
                    let first = parts.lend(bytes);
                    prop_assert!(model.iter().all(|(other, len)| first + bytes <= *other || other + len <= first));
                    model.push((first, bytes));
                }
                let top = model.iter().map(|(first, bytes)| first + bytes).max().unwrap_or(0);
                prop_assert_eq!(parts.top(), top);
            }
        }
    }
}
