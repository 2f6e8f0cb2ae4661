//! Ranges in the timeline of NVIDIA's profilers, which carry the names of nodes.
//!
//! The library is the one that profilers watch, of the second or the third version; it is found at run time, and does
//! nothing where no profiler runs.

use crate::device::cuda::packages;
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};

/// The library's files: of the second version, which CUDA 12.9 is the first without, and of the third.
const LIBRARIES: [&str; 3] = ["libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"];

/// Folders of Python's packages that may have one.
const PACKAGES: [&str; 2] = ["nvtx", "cu13"];

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
        f.write_str("NVTX")
    }
}

impl Ranges {
    /// Looks for the library.
    pub fn open() -> Result<Ranges> {
        let by_name = LIBRARIES.map(PathBuf::from);
        let of_packages = packages(&PACKAGES).into_iter().flat_map(|folder| LIBRARIES.map(|name| folder.join(name)));
        let opened = by_name.into_iter().chain(of_packages).find_map(|path| Ranges::of(&path).ok());
        opened.ok_or_else(|| {
            let tried = LIBRARIES.join(", ");
            Error::Request(format!(
                "NVTX is not available: none of {tried} was found; install NVTX (a CUDA toolkit, or pip install \
                    nvidia-nvtx-cu12), or omit --nvtx"
            ))
        })
    }

    fn of(path: &Path) -> std::result::Result<Ranges, libloading::Error> {
        // SAFETY: the vendor's library, whose start does nothing that concerns us.
        let library = unsafe { Library::new(path) }?;
        // SAFETY: functions of these names have these forms, and are called while the library is open only.
        let (push, pop) = unsafe { (*library.get::<Push>(b"nvtxRangePushA")?, *library.get::<Pop>(b"nvtxRangePop")?) };
        Ok(Ranges { push, pop, _library: library })
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
