//! A copy of a slice that begins or ends where a page without access does.
#![allow(unsafe_code, reason = "pages are mapped, protected and given back by the system")]

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Which end of a slice lies at a guard page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first byte is the first behind a guard page.
    Start,
    /// The last byte is the last before a guard page.
    End,
}

impl Side {
    /// Both, one after the other.
    pub const BOTH: [Side; 2] = [Side::Start, Side::End];
}

/// A slice in pages of its own, with a page without access on either side. It is aligned as its elements are, no
/// better.
#[derive(Debug)]
pub struct Guarded<T> {
    mapping: *mut c_void,
    mapping_bytes: usize,
    first: *mut T,
    len: usize,
}

impl<T: Copy> Guarded<T> {
    /// A copy of `values` with its `side` at a guard page. Panics where the system gives no memory.
    pub fn of(values: &[T], side: Side) -> Guarded<T> {
        let page = rustix::param::page_size();
        assert!(page.is_multiple_of(align_of::<T>()), "elements are aligned better than pages");
        let bytes = size_of_val(values);
        let room = bytes.max(1).next_multiple_of(page);
        let mapping_bytes = room + 2 * page;
        // SAFETY: a new private mapping at an address of the system's choice; nothing else lies there.
        let mapping =
            unsafe { mmap_anonymous(null_mut(), mapping_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let mapping = mapping.expect("memory for a slice between guard pages");
        let start = mapping.wrapping_byte_add(page);
        for guard in [mapping, start.wrapping_byte_add(room)] {
            // SAFETY: the first and the last page of the mapping above, of which nothing is in use yet.
            unsafe { mprotect(guard, page, MprotectFlags::empty()) }.expect("a page can be guarded");
        }
        let lead = match side {
            Side::Start => 0,
            Side::End => room - bytes,
        };
        // A slice's size is a multiple of its alignment, and so is `lead`.
        let first: *mut T = start.wrapping_byte_add(lead).cast();
        // SAFETY: `bytes` from `first` on lie in the pages with access, aligned, and nobody else has them; T is plain
        // data.
        unsafe { first.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Guarded { mapping, mapping_bytes, first, len: values.len() }
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: as many elements as were copied there, in pages that live as long as `self`.
        unsafe { from_raw_parts(self.first, self.len) }
    }

    /// The elements, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as many elements as were copied there, in pages that belong to `self` alone.
        unsafe { from_raw_parts_mut(self.first, self.len) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, whole; slices of it borrow `self` and are gone.
        let unmapped = unsafe { munmap(self.mapping, self.mapping_bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be given back");
    }
}
