//! Copies between host and card through two pinned buffers: one is filled while the card processes the other.
//!
//! ```text
//! upload      source ─ the processor copies ─▶ buffer ─ the card copies, in stream order ─▶ card memory
//! download    card memory ─ the card copies ─▶ buffer ─ the processor copies, when that is done ─▶ target
//! ```
//!
//! An upload returns after its source has been copied. A mapped file is therefore read while the card processes
//! earlier data, and uploads do not wait for kernels. Small inputs share a buffer. Pageable memory is never passed to
//! the driver, because drivers stage such copies themselves and may block, or run them outside any stream.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a half.
const HALF_BYTES: usize = 8 << 20;

/// What is staged begins at multiples of this.
const ALIGN_BYTES: usize = 256;

/// Pinned memory of the host, what is known of the last copy from or to it, and how a card is asked for such copies.
pub trait Half: Debug + Sized {
    /// The card.
    type Card: Debug;
    /// Bytes of its memory.
    type Memory;

    /// So many bytes that the card reaches.
    fn new(card: &Arc<Self::Card>, bytes: usize) -> Result<Self, String>;

    /// Some of the bytes.
    fn part(&mut self, first: usize, len: usize) -> &mut [u8];

    /// Waits for the last copy.
    fn wait(&self) -> Result<(), String>;

    /// Asks for a copy of some of the bytes to memory of the card, from a byte on, behind all that it was asked for
    /// before.
    fn send(
        &mut self,
        card: &Self::Card,
        staged: (usize, usize),
        target: &Self::Memory,
        first: usize,
    ) -> Result<(), String>;

    /// Asks for a copy of so many bytes from memory of the card, from a byte on, to the half's first bytes, behind all
    /// that it was asked for before.
    fn fetch(&mut self, card: &Self::Card, len: usize, source: &Self::Memory, first: usize) -> Result<(), String>;
}

/// The way of bytes to a card and back. Its pinned memory is taken when the first bytes come.
#[derive(Debug)]
pub struct Transfers<H: Half> {
    card: Arc<H::Card>,
    staging: Mutex<Option<Staging<H>>>,
}

impl<H: Half> Transfers<H> {
    /// The way to this card.
    pub fn new(card: &Arc<H::Card>) -> Transfers<H> {
        Transfers { card: Arc::clone(card), staging: Mutex::default() }
    }

    /// Copies to memory of the card, from a byte on, behind all that it was asked for before. The source may change
    /// when this returns.
    pub fn upload(&self, target: &H::Memory, first: usize, source: &[u8]) -> Result<(), String> {
        self.staged(|staging| staging.upload(&self.card, target, first, source))
    }

    /// Copies from memory of the card, from a byte on, behind all that it was asked for before, and waits for no more
    /// than that.
    pub fn download(&self, source: &H::Memory, first: usize, target: &mut [u8]) -> Result<(), String> {
        self.staged(|staging| staging.download(&self.card, source, first, target))
    }

    fn staged(&self, work: impl FnOnce(&mut Staging<H>) -> Result<(), String>) -> Result<(), String> {
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
struct Staging<H> {
    halves: [H; 2],
    /// Which half is filled.
    current: usize,
    /// Bytes of it that are in use.
    used: usize,
}

impl<H: Half> Staging<H> {
    fn new(card: &Arc<H::Card>) -> Result<Staging<H>, String> {
        let half = || H::new(card, HALF_BYTES);
        Ok(Staging { halves: [half()?, half()?], current: 0, used: 0 })
    }

    /// Takes the other half, when what it was used for is done.
    fn turn(&mut self) -> Result<(), String> {
        self.current = 1 - self.current;
        self.used = 0;
        self.halves[self.current].wait()
    }

    fn upload(&mut self, card: &H::Card, target: &H::Memory, first: usize, source: &[u8]) -> Result<(), String> {
        let (mut at, mut rest) = (first, source);
        while !rest.is_empty() {
            if self.used >= HALF_BYTES {
                self.turn()?;
            }
            let (piece, behind) = rest.split_at(rest.len().min(HALF_BYTES - self.used));
            let half = &mut self.halves[self.current];
            half.part(self.used, piece.len()).copy_from_slice(piece);
            half.send(card, (self.used, piece.len()), target, at)?;
            self.used = (self.used + piece.len()).next_multiple_of(ALIGN_BYTES);
            at += piece.len();
            rest = behind;
        }
        Ok(())
    }

    fn download(&mut self, card: &H::Card, source: &H::Memory, first: usize, target: &mut [u8]) -> Result<(), String> {
        let mut at = first;
        let mut asked: Option<&mut [u8]> = None;
        for piece in target.chunks_mut(HALF_BYTES) {
            self.turn()?;
            self.halves[self.current].fetch(card, piece.len(), source, at)?;
            self.used = HALF_BYTES;
            at += piece.len();
            // The piece before this one lies in the other half.
            self.take(1 - self.current, asked.replace(piece))?;
        }
        self.take(self.current, asked)
    }

    /// Waits for a piece that was asked for, and gives its bytes.
    fn take(&mut self, half: usize, target: Option<&mut [u8]>) -> Result<(), String> {
        let Some(target) = target else { return Ok(()) };
        let half = &mut self.halves[half];
        half.wait()?;
        target.copy_from_slice(half.part(0, target.len()));
        Ok(())
    }
}
