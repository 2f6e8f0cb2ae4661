//! Copies between the host and a card, through pinned memory: two halves, of which one is filled while the card works on the other.
//!
//! ```text
//!  upload      source ─ the processor copies ─▶ half ─ the card copies, behind all that it was asked for before ─▶ memory of the card
//!  download    memory of the card ─ the card copies ─▶ half ─ the processor copies, when that is done ─▶ target
//! ```
//!
//! An upload returns when its source was copied: a mapped file is read while the card takes what was read before, and nobody waits for
//! kernels. Small inputs lie one behind the other in a half. Copies from and to pageable memory, for which the driver has a staging of its own
//! and may wait, are never asked for.

use super::memory::Pinned;
use super::{Allocation, Card, Event};
use cudarc::driver::result;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a half.
const HALF_BYTES: usize = 8 << 20;

/// What is staged begins at multiples of this.
const ALIGN_BYTES: usize = 256;

/// The way of bytes to a card and back. Its pinned memory is taken when the first bytes come.
#[derive(Debug)]
pub struct Transfers {
    card: Arc<Card>,
    staging: Mutex<Option<Staging>>,
}

impl Transfers {
    /// The way to this card.
    pub fn new(card: &Arc<Card>) -> Transfers {
        Transfers { card: Arc::clone(card), staging: Mutex::default() }
    }

    /// Copies to memory of the card, from a byte on, behind all that it was asked for before. The source may change when this returns.
    pub fn upload(&self, target: &Allocation, first: usize, source: &[u8]) -> Result<(), String> {
        self.staged(|staging| staging.upload(&self.card, target, first, source))
    }

    /// Copies from memory of the card, from a byte on, behind all that it was asked for before, and waits for no more than that.
    pub fn download(&self, source: &Allocation, first: usize, target: &mut [u8]) -> Result<(), String> {
        self.staged(|staging| staging.download(&self.card, source, first, target))
    }

    fn staged(&self, work: impl FnOnce(&mut Staging) -> Result<(), String>) -> Result<(), String> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(&self.card)?),
        };
        work(staging)
    }
}

/// The pinned memory.
#[derive(Debug)]
struct Staging {
    halves: [Half; 2],
    /// Which half is filled.
    current: usize,
    /// Bytes of it that are in use.
    used: usize,
}

#[derive(Debug)]
struct Half {
    memory: Pinned,
    /// The last copy from or to it.
    done: Event,
}

impl Staging {
    fn new(card: &Arc<Card>) -> Result<Staging, String> {
        let half = || Ok::<Half, String>(Half { memory: Pinned::new(card, HALF_BYTES)?, done: Event::new(card)? });
        Ok(Staging { halves: [half()?, half()?], current: 0, used: 0 })
    }

    /// Takes the other half, when what it was used for is done.
    fn turn(&mut self) -> Result<(), String> {
        self.current = 1 - self.current;
        self.used = 0;
        self.halves[self.current].done.wait()
    }

    fn upload(&mut self, card: &Card, target: &Allocation, first: usize, source: &[u8]) -> Result<(), String> {
        let target = target.place(first, source.len())?;
        let mut copied = 0;
        while copied < source.len() {
            if self.used == HALF_BYTES {
                self.turn()?;
            }
            let len = (source.len() - copied).min(HALF_BYTES - self.used);
            let half = &mut self.halves[self.current];
            let staged = half.memory.part(self.used, len);
            staged.copy_from_slice(&source[copied..copied + len]);
            // SAFETY: the bytes lie within an allocation, which waits before it is freed; what is staged is left alone until the half's event.
            card.call(|| unsafe { result::memcpy_htod_async(target + copied as u64, staged, card.stream) })?;
            half.done.mark()?;
            self.used = (self.used + len).next_multiple_of(ALIGN_BYTES);
            copied += len;
        }
        Ok(())
    }

    fn download(&mut self, card: &Card, source: &Allocation, first: usize, target: &mut [u8]) -> Result<(), String> {
        let mut source = source.place(first, target.len())?;
        let mut asked: Option<&mut [u8]> = None;
        for piece in target.chunks_mut(HALF_BYTES) {
            self.turn()?;
            let half = &mut self.halves[self.current];
            let staged = half.memory.part(0, piece.len());
            // SAFETY: the bytes lie within an allocation, which waits before it is freed; what is staged is read behind the half's event.
            card.call(|| unsafe { result::memcpy_dtoh_async(staged, source, card.stream) })?;
            half.done.mark()?;
            self.used = HALF_BYTES;
            source += piece.len() as u64;
            // The piece before this one lies in the other half.
            self.take(1 - self.current, asked.replace(piece))?;
        }
        self.take(self.current, asked)
    }

    /// Waits for a piece that was asked for, and gives its bytes.
    fn take(&mut self, half: usize, target: Option<&mut [u8]>) -> Result<(), String> {
        let Some(target) = target else { return Ok(()) };
        let half = &mut self.halves[half];
        half.done.wait()?;
        target.copy_from_slice(half.memory.part(0, target.len()));
        Ok(())
    }
}
