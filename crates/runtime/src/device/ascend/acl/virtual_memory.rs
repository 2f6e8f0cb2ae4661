//! A range of addresses of a card that memory is put behind piece by piece, without moving what lies there.

use super::card::{Card, functions};
use super::library::Library;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// What memory is asked for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Properties {
    handle_type: i32,
    allocation_type: i32,
    attribute: i32,
    card: u32,
    place: i32,
    /// Keeps the next field where the vendor has it.
    padding: i32,
    reserved: u64,
}

/// `ACL_HBM_MEM_HUGE`.
const HUGE: i32 = 4;
/// `ACL_MEM_LOCATION_TYPE_DEVICE`.
const ON_CARD: i32 = 1;
/// `ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
const RECOMMENDED: i32 = 1;
/// Pages of huge size, as older versions want it said.
const HUGE_PAGES: u64 = 1;

functions! {
    granularity = c"aclrtMemGetAllocationGranularity" (properties: *const Properties, option: i32, bytes: *mut usize);
    reserve = c"aclrtReserveMemAddress" (address: *mut *mut c_void, bytes: usize, alignment: usize, expected: *mut c_void, flags: u64);
    release = c"aclrtReleaseMemAddress" (address: *mut c_void);
    take_physical = c"aclrtMallocPhysical" (handle: *mut *mut c_void, bytes: usize, properties: *const Properties, flags: u64);
    give_physical_back = c"aclrtFreePhysical" (handle: *mut c_void);
    map = c"aclrtMapMem" (address: *mut c_void, bytes: usize, offset: usize, handle: *mut c_void, flags: u64);
    unmap = c"aclrtUnmapMem" (address: *mut c_void);
}

/// Addresses of a card, the first of which have memory.
#[derive(Debug)]
pub struct Reservation {
    card: Arc<Card>,
    address: u64,
    reserved: usize,
    granularity: usize,
    /// Bytes that have memory.
    mapped: usize,
    /// What is mapped: where, and the handle of its memory.
    pieces: Vec<(u64, *mut c_void)>,
}

// SAFETY: handles may be used from any thread that has made the card's context its own, which each call does first.
unsafe impl Send for Reservation {}

impl Reservation {
    /// So many bytes of addresses; `None` where the chip or the installed version has no virtual memory.
    pub fn new(card: &Arc<Card>, bytes: usize) -> Option<Reservation> {
        let library = card.enter().ok()?;
        let properties = Reservation::properties(card);
        let (mut granularity, mut address) = (0, null_mut());
        // SAFETY: what is wanted, and a place for a number.
        unsafe { library.granularity(&raw const properties, RECOMMENDED, &raw mut granularity) }.ok()?;
        let reserved = bytes.checked_next_multiple_of(granularity.max(1)).filter(|_| granularity > 0)?;
        // SAFETY: writes an address, which is released once.
        unsafe { library.reserve(&raw mut address, reserved, 0, null_mut(), HUGE_PAGES) }.ok()?;
        Some(Reservation {
            card: Arc::clone(card),
            address: address as u64,
            reserved,
            granularity,
            mapped: 0,
            pieces: Vec::new(),
        })
    }

    fn properties(card: &Card) -> Properties {
        let number = card.number().unsigned_abs();
        Properties {
            handle_type: 0,
            allocation_type: 0,
            attribute: HUGE,
            card: number,
            place: ON_CARD,
            padding: 0,
            reserved: 0,
        }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Puts memory behind the first so many bytes.
    pub fn grow(&mut self, bytes: usize) -> Result<(), String> {
        if bytes <= self.mapped {
            return Ok(());
        }
        let more = (bytes - self.mapped).next_multiple_of(self.granularity);
        if more > self.reserved - self.mapped {
            return Err(format!("{bytes} bytes of scratch memory exceed the {} that were reserved", self.reserved));
        }
        let library = self.card.enter()?;
        let (properties, mut handle) = (Reservation::properties(&self.card), null_mut());
        let address = self.address + self.mapped as u64;
        // SAFETY: writes a handle, which is given back once; it is mapped behind the end of what is mapped, within the
        // reservation.
        unsafe {
            library.take_physical(&raw mut handle, more, &raw const properties, 0)?;
            let mapped = library.map(address as *mut c_void, more, 0, handle, 0);
            if let Err(problem) = mapped {
                let _told = library.give_physical_back(handle);
                return Err(problem);
            }
        }
        self.pieces.push((address, handle));
        self.mapped += more;
        Ok(())
    }

    /// Gives the card the memory of pieces behind the first so many bytes, when it has passed what it was asked for
    /// before.
    pub fn shrink(&mut self, bytes: usize) {
        // What fails here has failed before, and was told then.
        let _waited = self.card.wait();
        let Ok(library) = self.card.enter() else { return };
        let end = self.address + bytes as u64;
        while let Some((address, handle)) = self.pieces.pop_if(|(address, _)| *address >= end) {
            // SAFETY: mapped once and taken once; nothing that was asked for before uses it any more.
            let _told = unsafe { library.unmap(address as *mut c_void).and(library.give_physical_back(handle)) };
            self.mapped = (address - self.address) as usize;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
        let Ok(library) = self.card.enter() else { return };
        // SAFETY: reserved once, and nothing is mapped there any more.
        let _told = unsafe { library.release(self.address as *mut c_void) };
    }
}
