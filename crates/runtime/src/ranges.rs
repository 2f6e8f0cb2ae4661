//! Ranges in the timeline of NVIDIA's profilers, which carry the names of nodes.
//!
//! The library is the one that profilers watch, libnvToolsExt; it is found at run time, and does nothing where no profiler runs.

use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::fmt;

/// The library's file, as its packages call it.
const LIBRARY: &str = "libnvToolsExt.so.1";

/// Begins a range of that name within those that are open in this thread.
type Push = unsafe extern "C" fn(*const c_char) -> c_int;

/// Ends the last that was begun.
type Pop = unsafe extern "C" fn() -> c_int;

/// Where ranges are told.
pub(crate) struct Ranges {
    push: Push,
    pop: Pop,
    /// What both functions lie in.
    _library: Library,
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LIBRARY)
    }
}

impl Ranges {
    /// Looks for the library.
    pub fn open() -> Result<Ranges> {
        let opened = || -> std::result::Result<Ranges, libloading::Error> {
            // SAFETY: the vendor's library, whose start does nothing that concerns us.
            let library = unsafe { Library::new(LIBRARY) }?;
            // SAFETY: functions of these names have these forms, and are called while the library is open only.
            let (push, pop) =
                unsafe { (*library.get::<Push>(b"nvtxRangePushA")?, *library.get::<Pop>(b"nvtxRangePop")?) };
            Ok(Ranges { push, pop, _library: library })
        };
        opened().map_err(|error| {
            Error::Request(format!(
                "nodes cannot be named to NVIDIA's profilers: {error}; install NVTX (nvidia-nvtx), or leave --nvtx out"
            ))
        })
    }

    /// Does something within a range.
    pub fn within<T>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name ends with a zero and lives until the call returns; the library copies it.
        unsafe { (self.push)(name.as_ptr()) };
        let done = work();
        // SAFETY: ends the range that was begun above.
        unsafe { (self.pop)() };
        done
    }
}
