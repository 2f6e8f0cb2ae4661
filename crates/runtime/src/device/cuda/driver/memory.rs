//! Memory of a card, and of the host where cards reach it by themselves.

use super::Card;
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::Arc;

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

    /// Their number.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where they begin on the card.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Copies from the host, from a byte on, behind all that was asked for before.
    pub fn write(&self, first: usize, source: &[u8]) -> Result<(), String> {
        let target = self.place(first, source.len())?;
        self.card.wait()?;
        // SAFETY: the bytes lie within the allocation, and nothing else uses them meanwhile.
        self.card.call(|| unsafe { result::memcpy_htod_sync(target, source) })
    }

    /// Copies to the host, from a byte on, behind all that was asked for before.
    pub fn read(&self, first: usize, target: &mut [u8]) -> Result<(), String> {
        let source = self.place(first, target.len())?;
        self.card.wait()?;
        // SAFETY: the bytes lie within the allocation; the copy is done when the call returns.
        self.card.call(|| unsafe { result::memcpy_dtoh_sync(target, source) })
    }

    /// Makes all bytes zero, behind all that was asked for before.
    pub fn clear(&self) -> Result<(), String> {
        // SAFETY: all of the allocation, on the card's own stream.
        self.card.call(|| unsafe { result::memset_d8_async(self.start, 0, self.bytes, self.card.stream) })
    }

    /// The address of so many bytes from `first` on, all within the allocation.
    fn place(&self, first: usize, len: usize) -> Result<u64, String> {
        let inside = first.checked_add(len).is_some_and(|end| end <= self.bytes);
        let inside = inside.then(|| self.start + first as u64);
        inside.ok_or_else(|| format!("{len} bytes at {first} do not lie within {}", self.bytes))
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

/// Words of the host's memory that kernels can write: what they have to tell needs no copy.
#[derive(Debug)]
pub struct Words {
    card: Arc<Card>,
    start: *mut c_void,
    count: usize,
}

// SAFETY: memory that belongs to this alone, whose address is the same in every thread.
unsafe impl Send for Words {}
// SAFETY: reading and writing of single words, which no reader takes for more than it says; see `read`.
unsafe impl Sync for Words {}

/// The memory can be used in the contexts of all cards, and lies in their address space.
const PORTABLE_AND_MAPPED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;

impl Words {
    /// So many words, all 0; at least one.
    pub fn new(card: &Arc<Card>, count: usize) -> Result<Words, String> {
        let bytes = count * size_of::<i32>();
        // SAFETY: the memory is freed once, by what is made here.
        let start = card.call(|| unsafe { result::malloc_host(bytes, PORTABLE_AND_MAPPED) })?;
        let words = Words { card: Arc::clone(card), start, count };
        (0..count).for_each(|place| words.set(place, 0));
        Ok(words)
    }

    /// Where a word lies for kernels: memory of the host has one address for all.
    pub fn address(&self, place: usize) -> u64 {
        assert!(place < self.count, "word {place} of {}", self.count);
        self.start as u64 + (place * size_of::<i32>()) as u64
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

impl Drop for Words {
    fn drop(&mut self) {
        // A kernel may write here still. What fails has failed before, and was told then.
        let _told = self.card.wait();
        // SAFETY: allocated once, freed once.
        let _told = self.card.call(|| unsafe { result::free_host(self.start) });
    }
}
