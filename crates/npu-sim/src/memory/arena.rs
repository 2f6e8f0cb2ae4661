//! Pages: addresses that C sees and nobody may touch, and as many of our own behind them.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
    ptr,
    sync::OnceLock,
};

/// A range of addresses twice: as C sees it, without access, and ours.
#[derive(Debug)]
pub struct Arena {
    /// The first address that C sees.
    pub seen: u64,
    ours: u64,
    /// Bytes.
    pub bytes: u64,
}

fn pages(at: u64, bytes: u64, protection: i32, flags: i32) -> io::Result<u64> {
    let all = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages, or with MAP_FIXED pages of an arena, whose contents nobody counts on any more.
    #[allow(unsafe_code)]
    let found = unsafe { libc::mmap(at as *mut libc::c_void, bytes as usize, protection, all, -1, 0) };
    if found == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(found as u64) }
}

impl Arena {
    /// New addresses, all bytes zero.
    ///
    /// # Errors
    /// The system has no room for them.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let seen = pages(0, bytes, libc::PROT_NONE, 0)?;
        let ours = pages(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        Ok(Self { seen, ours, bytes })
    }

    /// Bytes at an offset; none where they are not all inside.
    #[allow(unsafe_code)]
    pub fn bytes(&self, offset: u64, len: u64) -> &[u8] {
        if !self.holds(offset, len) {
            return &[];
        }
        // SAFETY: the range lies in our own pages, which stay readable as long as the arena does. That no other task
        // writes them meanwhile is what `order` watches over: a program that does not keep to it has been told, and
        // gets bytes of no promise.
        unsafe { std::slice::from_raw_parts((self.ours + offset) as *const u8, len as usize) }
    }

    /// As [`Self::bytes`], to be written.
    #[allow(unsafe_code, clippy::mut_from_ref)]
    pub fn bytes_mut(&self, offset: u64, len: u64) -> &mut [u8] {
        if !self.holds(offset, len) {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the pages are writable.
        unsafe { std::slice::from_raw_parts_mut((self.ours + offset) as *mut u8, len as usize) }
    }

    fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// Gives whole pages inside of a range back to the system.
    #[allow(unsafe_code)]
    pub fn clear(&self, offset: u64, len: u64) {
        const PAGE: u64 = 4096;
        let (start, end) = (offset.next_multiple_of(PAGE), (offset + len) / PAGE * PAGE);
        if start < end && end <= self.bytes {
            // SAFETY: whole pages of ours; they read as zeros afterwards.
            unsafe {
                libc::madvise((self.ours + start) as *mut libc::c_void, (end - start) as usize, libc::MADV_DONTNEED)
            };
        }
    }

    /// Puts a file's pages at an offset.
    ///
    /// # Errors
    /// The system refuses.
    #[allow(unsafe_code)]
    pub fn map(&self, offset: u64, len: u64, file: &File) -> io::Result<()> {
        let at = (self.ours + offset) as *mut libc::c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces pages of ours by pages of the file, which is as long; the range was found free.
        let found = unsafe {
            libc::mmap(at, len as usize, protection, libc::MAP_SHARED | libc::MAP_FIXED, file.as_raw_fd(), 0)
        };
        if found == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes a file's pages away; pages of zeros take their place, since a task may still be on them.
    pub fn unmap(&self, offset: u64, len: u64) {
        let _ = pages(self.ours + offset, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
    }
}

impl Drop for Arena {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        for at in [self.seen, self.ours] {
            // SAFETY: both ranges were mapped by `new`, and nothing borrows from the arena any more.
            unsafe { libc::munmap(at as *mut libc::c_void, self.bytes as usize) };
        }
    }
}

/// A file without a name, of zeros.
///
/// # Errors
/// The system refuses.
#[allow(unsafe_code)]
pub fn nameless_file(bytes: u64) -> io::Result<File> {
    // SAFETY: the name is a text with an end; a descriptor that is not negative is ours alone.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"npu-sim".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    file.set_len(bytes)?;
    Ok(file)
}

/// Copies bytes between addresses of which each is ours or the program's.
#[allow(unsafe_code)]
pub fn copy_raw(target: u64, source: u64, bytes: u64) {
    // SAFETY: the caller of the C surface vouches for its host memory; device memory was looked up. Ranges may overlap.
    unsafe { ptr::copy(source as *const u8, target as *mut u8, bytes as usize) }
}

/// Fills bytes of the program's or of ours.
#[allow(unsafe_code)]
pub fn fill_raw(target: u64, byte: u8, bytes: u64) {
    // SAFETY: as in `copy_raw`.
    unsafe { ptr::write_bytes(target as *mut u8, byte, bytes as usize) }
}

/// Has something done when the process exits, or when the library is closed before.
#[allow(unsafe_code)]
pub fn at_exit(done: fn()) {
    static DONE: OnceLock<fn()> = OnceLock::new();
    extern "C" fn run() {
        DONE.get().into_iter().for_each(|done| done());
    }
    if DONE.set(done).is_ok() {
        // SAFETY: the function is one of this library, which tells the system when it is closed.
        unsafe { libc::atexit(run) };
    }
}
