//! Copies between the host and a card, through pinned memory: two halves, of which one is filled while the card works on the other.
//!
//! ```text
//!  upload      source ─ the processor copies ─▶ half ─ the card copies, behind all that it was asked for before ─▶ memory of the card
//!  download    memory of the card ─ the card copies ─▶ half ─ the processor copies, when that is done ─▶ target
//! ```
//!
//! The vendor's plain copies wait for no stream, so none is used: every copy is asked of the stream that computes.

use super::card::{Card, functions};
use super::event::Event;
use super::library::Library;
use super::memory::{Allocation, Pinned};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

functions! {
    copy = c"aclrtMemcpyAsync" (target: *mut c_void, most: usize, source: *const c_void, bytes: usize, kind: c_int, stream: *mut c_void);
}

/// `ACL_MEMCPY_HOST_TO_DEVICE`.
const HOST_TO_DEVICE: c_int = 1;
/// `ACL_MEMCPY_DEVICE_TO_HOST`.
const DEVICE_TO_HOST: c_int = 2;

/// Bytes of a half.
const HALF_BYTES: usize = 8 << 20;

/// What is staged begins at multiples of this.
const ALIGN_BYTES: usize = 128;

pub(super) mod copies {
    use super::Card;
    use std::ffi::{c_int, c_void};

    /// Asks a card for a copy.
    ///
    /// # Safety
    ///
    /// Both places must hold so many bytes until the card's stream has passed.
    pub unsafe fn ask(
        card: &Card,
        (target, bytes): (*mut c_void, usize),
        source: *const c_void,
        kind: c_int,
    ) -> Result<(), String> {
        // SAFETY: as the caller says.
        unsafe { card.enter()?.copy(target, bytes, source, bytes, kind, card.stream) }
    }
}

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
    /// The last copy from or to it: waited for before the memory goes.
    done: Event,
    memory: Pinned,
}

impl Staging {
    fn new(card: &Arc<Card>) -> Result<Staging, String> {
        let half = || Ok::<Half, String>(Half { done: Event::new(card)?, memory: Pinned::new(card, HALF_BYTES)? });
        Ok(Staging { halves: [half()?, half()?], current: 0, used: 0 })
    }

    /// Takes the other half, when what it was used for is done.
    fn turn(&mut self) -> Result<(), String> {
        self.current = 1 - self.current;
        self.used = 0;
        self.halves[self.current].done.wait()
    }

    fn upload(&mut self, card: &Card, target: &Allocation, first: usize, source: &[u8]) -> Result<(), String> {
        let mut rest = source;
        let mut at = first;
        while !rest.is_empty() {
            if self.used >= HALF_BYTES {
                self.turn()?;
            }
            let (piece, behind) = rest.split_at(rest.len().min(HALF_BYTES - self.used));
            let half = &mut self.halves[self.current];
            let staged = half.memory.part(self.used, piece.len());
            staged.copy_from_slice(piece);
            // SAFETY: the target lies within an allocation, which waits before it is freed; what is staged is left alone until the half's event.
            unsafe {
                copies::ask(card, (target.place(at, piece.len())?, piece.len()), staged.as_ptr().cast(), HOST_TO_DEVICE)
            }?;
            half.done.mark()?;
            self.used = (self.used + piece.len()).next_multiple_of(ALIGN_BYTES);
            at += piece.len();
            rest = behind;
        }
        Ok(())
    }

    fn download(&mut self, card: &Card, source: &Allocation, first: usize, target: &mut [u8]) -> Result<(), String> {
        let mut at = first;
        let mut asked: Option<&mut [u8]> = None;
        for piece in target.chunks_mut(HALF_BYTES) {
            self.turn()?;
            let half = &mut self.halves[self.current];
            let staged = half.memory.part(0, piece.len());
            // SAFETY: the source lies within an allocation, which waits before it is freed; what is staged is read behind the half's event.
            unsafe {
                copies::ask(
                    card,
                    (staged.as_mut_ptr().cast(), piece.len()),
                    source.place(at, piece.len())?,
                    DEVICE_TO_HOST,
                )
            }?;
            half.done.mark()?;
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
        half.done.wait()?;
        target.copy_from_slice(half.memory.part(0, target.len()));
        Ok(())
    }
}
