//! Memory for tensors: zeroed, with weights packed into chunks on huge pages if the system provides them.
//!
//! ```text
//!  chunk   │ tensor │ tensor │ tensor ...     │ free     tensors start at cache lines; the last tensor frees the chunk
//!          ├─ 2 MiB page ─┼─ 2 MiB page ─┼─ ...
//! ```
//!
//! Streaming weights from 4 KiB pages stalls on page table walks. Memory that has not been written takes no pages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Bytes of a chunk at most, unless one tensor needs more.
const CHUNK_BYTES: usize = 64 << 20;

/// Where tensors begin: a cache line.
const ALIGN: usize = 64;

/// Numbers, of which any bytes are one and zeros too.
///
/// # Safety
/// Every pattern of bits, zeros among them, must be a value of the type, and its alignment no more than a cache line.
pub(super) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: every pattern is a number, an infinity or a NaN.
unsafe impl Plain for f32 {}
// SAFETY: a transparent u16.
unsafe impl Plain for half::f16 {}
// SAFETY: a transparent u16.
unsafe impl Plain for half::bf16 {}
// SAFETY: an array of bytes.
unsafe impl Plain for trueup_kernels::PackedUnit {}

/// No memory for so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoMemory(pub u128);

/// Gives out memory.
#[derive(Debug, Default)]
pub(super) struct Store(Mutex<Open>);

/// The chunk that the next tensor goes to.
#[derive(Debug, Default)]
struct Open {
    chunk: Option<Arc<Chunk>>,
    used_bytes: usize,
    /// Bytes given out so far.
    given_bytes: usize,
}

/// Memory of the system.
#[derive(Debug)]
struct Chunk {
    allocation: NonNull<u8>,
    layout: Layout,
    /// Bytes in front of the room, up to where a page begins.
    skipped: usize,
    /// Bytes for tensors.
    room: usize,
}

// SAFETY: memory belongs to no thread; who may write to which of it is up to `Pages`.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// Cells of one tensor.
#[derive(Debug)]
pub(super) struct Pages<T> {
    start: NonNull<T>,
    len: usize,
    /// What they lie in.
    _chunk: Arc<Chunk>,
}

// SAFETY: as `Vec<T>` of plain numbers: nobody else has these cells.
unsafe impl<T: Plain> Send for Pages<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Pages<T> {}

impl Store {
    /// So many zeros, behind what was given out before.
    pub fn zeros<T: Plain>(&self, len: usize) -> Result<Pages<T>, NoMemory> {
        let bytes = bytes_of::<T>(len)?;
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = open.chunk.as_ref().map_or(0, |chunk| chunk.room - open.used_bytes);
        if open.chunk.is_none() || room < bytes {
            // As much as was taken so far: a small model needs no large chunk.
            let size = open.given_bytes.min(CHUNK_BYTES).max(bytes);
            open.chunk = Some(Arc::new(Chunk::new(size)?));
            open.used_bytes = 0;
        }
        let Some(chunk) = open.chunk.clone() else { return Err(NoMemory(bytes as u128)) };
        let at = open.used_bytes;
        open.used_bytes += bytes;
        open.given_bytes = open.given_bytes.saturating_add(bytes);
        Ok(Pages::at(chunk, at, len))
    }
}

impl<T: Plain> Pages<T> {
    /// So many zeros by themselves.
    pub fn zeros(len: usize) -> Result<Pages<T>, NoMemory> {
        Ok(Pages::at(Arc::new(Chunk::new(bytes_of::<T>(len)?)?), 0, len))
    }

    /// Cells in a chunk, of which nobody else may have one.
    fn at(chunk: Arc<Chunk>, first_byte: usize, len: usize) -> Pages<T> {
        assert!(first_byte.is_multiple_of(ALIGN) && len * size_of::<T>() <= chunk.room - first_byte);
        // SAFETY: the chunk was found to be that long.
        let start = unsafe { chunk.start().add(first_byte) }.cast();
        Pages { start, len, _chunk: chunk }
    }
}

impl<T: Plain> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` cells lie here, aligned as `T` is, zeros or what was written since, all of them values;
        // borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; no other pages have these cells.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Bytes as the numbers that they are; `None` where they are not aligned as these, or end within one.
pub(super) fn cells<T: Plain>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every pattern of bits is a value.
    let (before, cells, after) = unsafe { bytes.align_to() };
    (before.is_empty() && after.is_empty()).then_some(cells)
}

/// Bytes up to the next cache line.
fn bytes_of<T>(len: usize) -> Result<usize, NoMemory> {
    let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
    bytes.filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or(NoMemory(len as u128 * size_of::<T>() as u128))
}

impl Chunk {
    fn new(room: usize) -> Result<Chunk, NoMemory> {
        let huge = room >= HUGE_BYTES;
        let align = if huge { HUGE_BYTES } else { ALIGN };
        let no_memory = NoMemory(room as u128);
        // Of one byte, so that the system's fresh memory is taken as it is: memory that it aligns itself is written to.
        let layout = room.checked_add(align).and_then(|size| Layout::from_size_align(size, 1).ok()).ok_or(no_memory)?;
        // SAFETY: the size is not 0, for `align` is not.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
        let chunk = Chunk { allocation, layout, skipped: allocation.align_offset(align), room };
        assert!(chunk.skipped <= align, "bytes can be aligned to {align}");
        if huge {
            chunk.ask_for_huge_pages();
        }
        Ok(chunk)
    }

    /// Where the room begins, which tensors lie in.
    fn start(&self) -> NonNull<u8> {
        // SAFETY: `skipped` is at most what was allocated beyond the room.
        unsafe { self.allocation.add(self.skipped) }
    }

    /// A system that has none, or is told not to give any, says so, and nothing is lost but time.
    fn ask_for_huge_pages(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let whole = self.room / HUGE_BYTES * HUGE_BYTES;
            // SAFETY: these pages are this chunk's; the advice changes no byte of them.
            let _refused =
                unsafe { rustix::mm::madvise(self.start().as_ptr().cast(), whole, rustix::mm::Advice::LinuxHugepage) };
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no pages are left.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_lie_behind_each_other_and_share_nothing() {
        let store = Store::default();
        let mut tensors: Vec<Pages<f32>> = [3, 0, 16, 1000, 7, 500_000, 1].map(|len| store.zeros(len).unwrap()).into();
        for (number, tensor) in tensors.iter_mut().enumerate() {
            assert!(tensor.iter().all(|cell| *cell == 0.0) && tensor.as_ptr().addr().is_multiple_of(ALIGN));
            tensor.fill(number as f32);
        }
        drop(store);
        for (number, tensor) in tensors.iter().enumerate() {
            assert!(tensor.iter().all(|cell| *cell == number as f32), "tensor {number}");
        }
    }

    #[test]
    fn large_chunks_begin_at_a_huge_page_and_hold_several_tensors() {
        let store = Store::default();
        let first: Pages<u8> = store.zeros(3 * HUGE_BYTES).unwrap();
        let (second, third): (Pages<u8>, Pages<u8>) = (store.zeros(HUGE_BYTES).unwrap(), store.zeros(100).unwrap());
        assert!(first.as_ptr().addr().is_multiple_of(HUGE_BYTES) && second.as_ptr().addr().is_multiple_of(HUGE_BYTES));
        assert_eq!(third.as_ptr().addr() - second.as_ptr().addr(), HUGE_BYTES);
    }

    #[test]
    fn bytes_are_cells_where_they_are_aligned_and_whole() {
        let aligned: Pages<u8> = Pages::zeros(64).unwrap();
        assert_eq!(cells::<f32>(&aligned).map(<[f32]>::len), Some(16));
        assert_eq!(cells::<half::f16>(&aligned[2..10]).map(<[half::f16]>::len), Some(4));
        assert_eq!(cells::<u8>(&aligned[1..4]).map(<[u8]>::len), Some(3));
        assert_eq!(cells::<f32>(&[]).map(<[f32]>::len), Some(0));
        for range in [1..5, 2..6, 0..3, 4..9] {
            assert!(cells::<f32>(&aligned[range.clone()]).is_none(), "{range:?}");
        }
    }

    #[test]
    fn more_than_there_is_is_refused() {
        for len in [usize::MAX, usize::MAX / 4, 1 << 60] {
            assert!(Pages::<f32>::zeros(len).is_err() && Store::default().zeros::<f32>(len).is_err(), "{len}");
        }
    }
}
