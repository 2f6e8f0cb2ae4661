//! Memory of a card, and of the host where cards reach it by themselves.

use super::Card;
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// What allocations begin at multiples of.
const ALIGN_BYTES: u64 = 256;
/// Bytes of a card's page.
const PAGE_BYTES: u64 = 2 << 20;
/// From so many bytes on an allocation has pages of its own.
const OWN_PAGES_FROM: u64 = 1 << 20;

/// Bytes of a card.
#[derive(Debug)]
pub struct Allocation {
    card: Arc<Card>,
    start: u64,
    bytes: usize,
}

impl Allocation {
    /// So many bytes, which hold anything; `None` where the card has not as many.
    pub fn new(card: &Arc<Card>, bytes: usize) -> Result<Option<Allocation>, String> {
        // No card gives 0 bytes.
        // SAFETY: the memory is freed once, by the allocation.
        let start = card.call(|| match unsafe { result::malloc_sync(bytes.max(1)) } {
            Err(result::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            start => start.map(Some),
        })?;
        Ok(start.map(|start| Allocation { card: Arc::clone(card), start, bytes }))
    }

    /// Bytes of the card that an allocation of so many takes. What the driver does is not written down: small ones
    /// share pages of 2 MiB, those of a MiB and more are seen to have pages of their own.
    pub fn taken_bytes(bytes: u64) -> u64 {
        bytes.next_multiple_of(if bytes < OWN_PAGES_FROM { ALIGN_BYTES } else { PAGE_BYTES })
    }

    pub(super) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// Their number.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where they begin on the card.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Sets all bytes to zero after all work submitted before.
    pub fn clear(&self) -> Result<(), String> {
        // SAFETY: all of the allocation, on the card's own stream.
        self.card.call(|| unsafe { result::memset_d8_async(self.start, 0, self.bytes, self.card.stream) })
    }

    /// The address of so many bytes from `first` on, all within the allocation.
    pub(super) fn place(&self, first: usize, len: usize) -> Result<u64, String> {
        let inside = first.checked_add(len).is_some_and(|end| end <= self.bytes);
        let inside = inside.then(|| self.start + first as u64);
        inside.ok_or_else(|| format!("{len} bytes at {first} are outside {}", self.bytes))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A kernel may be at work here still. What fails has failed before, and was told then.
        let _told = self.card.wait();
        // SAFETY: allocated once, freed once.
        let _told = self.card.call(|| unsafe { result::free_sync(self.start) });
    }
}

/// Bytes of the host that every card reaches by itself, at the same address as the host.
#[derive(Debug)]
pub(super) struct Pinned {
    card: Arc<Card>,
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: memory that belongs to this alone, whose address is the same in every thread.
unsafe impl Send for Pinned {}
// SAFETY: bytes are given out by `part` alone, which takes all of it for itself.
unsafe impl Sync for Pinned {}

/// The memory can be used in the contexts of all cards, and lies in their address space.
const PORTABLE_AND_MAPPED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;

impl Pinned {
    /// So many bytes, which are 0; at least one.
    pub fn new(card: &Arc<Card>, bytes: usize) -> Result<Pinned, String> {
        // SAFETY: the memory is freed once, by what is made here.
        let start = card.call(|| unsafe { result::malloc_host(bytes, PORTABLE_AND_MAPPED) });
        let start = start.map_err(|problem| format!("{bytes} bytes of pinned memory: {problem}"))?;
        // SAFETY: as many bytes as were allocated.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Pinned { card: Arc::clone(card), start, bytes })
    }

    /// So many of its bytes, from `first` on. A copy that was asked for and is not done may change them, or find them
    /// changed.
    pub fn part(&mut self, first: usize, len: usize) -> &mut [u8] {
        assert!(
            first.checked_add(len).is_some_and(|end| end <= self.bytes),
            "{len} bytes at {first} of {}",
            self.bytes
        );
        // SAFETY: bytes of this memory, all written when it was made, for as long as it is held alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>().add(first), len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A kernel or a copy may be at work here still. What fails has failed before, and was told then.
        let _told = self.card.wait();
        // SAFETY: allocated once, freed once.
        let _told = self.card.call(|| unsafe { result::free_host(self.start) });
    }
}

/// Words of the host's memory that kernels can write: what they have to tell needs no copy.
#[derive(Debug)]
pub struct Words {
    memory: Pinned,
}

impl Words {
    /// So many words, all 0; at least one.
    pub fn new(card: &Arc<Card>, count: usize) -> Result<Words, String> {
        Ok(Words { memory: Pinned::new(card, count * size_of::<i32>())? })
    }

    /// Where a word lies, for kernels too.
    pub fn address(&self, place: usize) -> u64 {
        let count = self.memory.bytes / size_of::<i32>();
        assert!(place < count, "word {place} of {count}");
        self.memory.start as u64 + (place * size_of::<i32>()) as u64
    }

    /// A word. What a kernel wrote is sure to be seen when the card was waited for.
    pub fn read(&self, place: usize) -> i32 {
        // SAFETY: a word of this memory; kernels may write it at any time, which is why it is read as it is, once.
        unsafe { (self.address(place) as *const i32).read_volatile() }
    }

    /// Writes a word.
    pub fn set(&self, place: usize, word: i32) {
        // SAFETY: a word of this memory, as above.
        unsafe { (self.address(place) as *mut i32).write_volatile(word) }
    }
}
