//! Bytes of a card, and pinned bytes of the host.

use super::card::{Card, functions};
use super::library::Library;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

functions! {
    take = c"aclrtMalloc" (address: *mut *mut c_void, bytes: usize, policy: c_int);
    give_back = c"aclrtFree" (address: *mut c_void);
    take_pinned = c"aclrtMallocHost" (address: *mut *mut c_void, bytes: usize);
    give_pinned_back = c"aclrtFreeHost" (address: *mut c_void);
    fill = c"aclrtMemsetAsync" (address: *mut c_void, most: usize, value: i32, bytes: usize, stream: *mut c_void);
}

/// `ACL_MEM_MALLOC_HUGE_FIRST`.
const HUGE_FIRST: c_int = 0;

/// Tensors begin at multiples of this, and take up multiples of it.
pub const ALIGNMENT: usize = 128;

/// What an allocation has at least: the libraries take none of 0 bytes.
const BYTES_MIN: usize = ALIGNMENT;

/// Memory of a card.
#[derive(Debug)]
pub struct Allocation {
    card: Arc<Card>,
    address: u64,
    bytes: usize,
}

impl Allocation {
    /// So many bytes, which hold anything.
    pub fn new(card: &Arc<Card>, bytes: usize) -> Result<Allocation, String> {
        let taken = bytes.max(BYTES_MIN).checked_next_multiple_of(ALIGNMENT);
        let taken = taken.ok_or_else(|| format!("{bytes} bytes exceed the memory of any card"))?;
        let mut address = null_mut();
        // SAFETY: writes an address, which is given back once.
        unsafe { card.enter()?.take(&raw mut address, taken, HUGE_FIRST) }?;
        Ok(Allocation { card: Arc::clone(card), address: address as u64, bytes: taken })
    }

    /// Where it begins: a multiple of 64.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Zeros everywhere, behind all that the card was asked for before.
    pub fn clear(&self) -> Result<(), String> {
        let library = self.card.enter()?;
        // SAFETY: the whole of the allocation, which waits before it is freed.
        unsafe { library.fill(self.address as *mut c_void, self.bytes, 0, self.bytes, self.card.stream) }
    }

    /// Where some of its bytes begin, if it has so many.
    pub(super) fn place(&self, first: usize, bytes: usize) -> Result<*mut c_void, String> {
        let end = first.checked_add(bytes).filter(|end| *end <= self.bytes);
        end.ok_or_else(|| format!("{bytes} bytes at offset {first} are outside {}", self.bytes))?;
        Ok((self.address + first as u64) as *mut c_void)
    }

    /// The card that it is memory of.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // The libraries give memory to the next one at once: what may still be computed with is waited for. What fails
        // here was told before.
        let _waited = self.card.wait();
        // SAFETY: taken once, given back once, and nothing that was asked for before uses it any more.
        let _told = self.card.enter().and_then(|library| unsafe { library.give_back(self.address as *mut c_void) });
    }
}

/// Memory of the host that cards reach by themselves.
#[derive(Debug)]
pub struct Pinned {
    card: Arc<Card>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory of the process, which one owner at a time reads and writes.
unsafe impl Send for Pinned {}

impl Pinned {
    /// So many bytes.
    pub fn new(card: &Arc<Card>, bytes: usize) -> Result<Pinned, String> {
        let mut address = null_mut();
        // SAFETY: writes an address, which is given back once.
        unsafe { card.enter()?.take_pinned(&raw mut address, bytes) }?;
        // SAFETY: as many bytes as were asked for.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Pinned { card: Arc::clone(card), address: address.cast(), bytes })
    }

    /// Some of its bytes. Panics where it has not as many.
    pub fn part(&mut self, first: usize, bytes: usize) -> &mut [u8] {
        assert!(first.checked_add(bytes).is_some_and(|end| end <= self.bytes), "staged bytes lie within their half");
        // SAFETY: within the memory, which was filled; the borrow is of the owner.
        unsafe { std::slice::from_raw_parts_mut(self.address.add(first), bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _waited = self.card.wait();
        // SAFETY: taken once, given back once, and no copy uses it any more.
        let _told = self.card.enter().and_then(|library| unsafe { library.give_pinned_back(self.address.cast()) });
    }
}
