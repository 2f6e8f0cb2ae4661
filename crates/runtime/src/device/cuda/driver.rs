//! The driver library, loaded at run time: one card, its memory, its kernels and their launches. All driver calls are
//! here.
//!
//! ```text
//!  load ──▶ Card ──▶ memory.rs     memory of the card, and pinned host memory; freed when dropped
//!            ├─────▶ kernel.rs     kernels by name, and their launches
//!            ├─────▶ blas.rs       f16 matrix products by cuBLASLt; library.rs: search paths of optional libraries
//!            ├─────▶ graph.rs      many launches as one
//!            ├─────▶ peer.rs       copies between cards; nccl.rs: gathers halves on both cards
//!            └─────▶ staging.rs    uploads and downloads; event.rs: order of work
//! ```
//!
//! cudarc resolves each library function on its first call, and panics if the library is missing. [`load`] checks for
//! the library first.

mod blas;
mod event;
mod graph;
mod kernel;
mod library;
mod memory;
mod nccl;
mod peer;
mod staging;

use super::kernels;
pub use blas::{Blas, Library as BlasLibrary, Sizes, WORKSPACE_BYTES};
use cudarc::driver::{result, sys};
pub use event::Event;
pub use graph::Graph;
use kernel::Loaded;
pub use kernel::{Argument, Grid, Heads, HeadsBehind, Launch, Rotation, View};
pub use library::packages;
pub use memory::{Allocation, Words};
pub use nccl::{Library as NcclLibrary, Nccl, Rank};
pub use staging::Transfers;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Which library stands behind the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library<'a> {
    /// The driver of the cards that are here.
    Driver,
    /// Ours, which computes on the processor.
    Simulator {
        /// The file.
        path: &'a Path,
        /// How many there are.
        cards: c_int,
        /// Bytes of memory of each card.
        memory_bytes: u64,
    },
}

/// How the simulator is told what to imitate: cards, bytes of memory of each, what orders depend on.
type Configure = unsafe extern "C" fn(c_int, u64, u64) -> c_int;

/// How the simulator says what its kernels are made of: text that ends with a zero and lives as long as the library.
type MadeOf = unsafe extern "C" fn() -> *const c_char;

/// Opens the library, once for the whole process, and starts it.
pub fn load(library: Library) -> Result<(), String> {
    static OPENED: OnceLock<()> = OnceLock::new();
    static OPENING: Mutex<()> = Mutex::new(());
    let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let (None, Library::Simulator { path, .. }) = (OPENED.get(), library) {
        // SAFETY: our own library, whose start does nothing but register its kernels.
        let opened = unsafe { libloading::Library::new(path) };
        // The name that it has in itself is the first one that is looked for: it is found from now on. It stays open as
        // long as the process lives.
        std::mem::forget(opened.map_err(|error| format!("{}: cannot be opened: {error}", path.display()))?);
    }
    // SAFETY: looks for a library of that name, and starts it as any program would.
    if !unsafe { sys::is_culib_present() } {
        return Err(absent_driver());
    }
    OPENED.get_or_init(|| ());
    // SAFETY: the library was found to be there.
    let culib = unsafe { sys::culib() };
    // SAFETY: a function of that name is the simulator's, which has this form.
    let configure = unsafe { culib.get::<Configure>(b"trueup_sim_configure") };
    match (library, configure) {
        (Library::Driver, Err(_)) => {}
        (Library::Simulator { cards, memory_bytes, .. }, Ok(configure)) => {
            expect_same_kernels(culib)?;
            // SAFETY: takes numbers; once the library is started, it answers whether they are those that it has.
            if unsafe { configure(cards, memory_bytes, 1) } != 0 {
                return Err(
                    "this process already uses another number or memory size of simulated cards; use one setting \
                        per process"
                        .to_owned(),
                );
            }
        }
        (Library::Driver, Ok(_)) => {
            return Err("this process already uses the simulator; use cuda in a separate process".to_owned());
        }
        (Library::Simulator { .. }, Err(_)) => {
            return Err("this process already uses the NVIDIA driver; use cuda-sim in a separate process".to_owned());
        }
    }
    result::init().map_err(|error| format!("the driver cannot be initialized: {}", said(&error)))?;
    let mut version = 0;
    // SAFETY: the driver has started; it writes one number.
    let known = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
    known.map_err(|error| format!("the driver does not report its version: {}", said(&error)))?;
    expect_version(version)
}

/// Whether the program cannot load libraries, because it is statically linked.
const LOADS_NOTHING: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

/// The error if the driver library cannot be loaded.
fn absent_driver() -> String {
    match LOADS_NOTHING {
        true => "expected a program that can load libcuda, found a statically linked one; use a build that is linked \
            to the system's C library"
            .to_owned(),
        false => {
            "expected the NVIDIA driver, found no libcuda that can be loaded; install driver version 550 or later, \
            or use another device"
                .to_owned()
        }
    }
}

/// The least version of CUDA whose drivers read the PTX of the kernels.
const VERSION_LEAST: c_int = 12_040;

/// Fails where the driver is too old, by the version of CUDA that it says it is for.
fn expect_version(found: c_int) -> Result<(), String> {
    let words = |version: c_int| format!("{}.{}", version / 1000, version % 1000 / 10);
    if found >= VERSION_LEAST {
        return Ok(());
    }
    Err(format!(
        "expected an NVIDIA driver for CUDA {} or later, found one for CUDA {}; install driver version 550 or later",
        words(VERSION_LEAST),
        words(found)
    ))
}

/// Fails where the simulator's kernels are others than this program's, whose arguments may be others too.
fn expect_same_kernels(simulator: &libloading::Library) -> Result<(), String> {
    // SAFETY: a function of that name is the simulator's, which has this form.
    let made_of = unsafe { simulator.get::<MadeOf>(b"trueup_sim_made_of") };
    // SAFETY: takes nothing, and gives text that ends with a zero.
    let text = made_of.map(|made_of| unsafe { CStr::from_ptr(made_of()) }.to_string_lossy());
    let Some(module) = kernels::module_unlike(&text.unwrap_or_default()) else { return Ok(()) };
    Err(format!(
        "expected a simulator that was built from the sources of this program, found other kernels of {module}; \
            rebuild the program, and rebuild the simulator with scripts/kernels.sh and scripts/cuda_sim.sh"
    ))
}

/// What the library says of an error.
fn said(error: &result::DriverError) -> String {
    let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned());
    error.error_string().map_or(name.clone(), |text| format!("{name}: {}", text.to_string_lossy()))
}

/// One card, in use.
#[derive(Debug)]
pub struct Card {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    loaded: Mutex<Loaded>,
    /// Cards whose memory was asked for.
    peers: Mutex<Vec<sys::CUdevice>>,
}

// SAFETY: contexts and streams may be used from any thread that has made the context its own, which each call does
// first.
unsafe impl Send for Card {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Card {}

/// What a card says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// What its processors can do: 8 and 0 of `sm_80`.
    pub capability: (i32, i32),
    /// How many processors it has.
    pub processors: u32,
    /// Bytes of shared memory that a block of threads can have.
    pub shared_bytes_max: usize,
    /// Bytes of memory: all and free.
    pub memory: (u64, u64),
}

impl Card {
    /// How many there are, for which [`load`] found a library.
    pub fn count() -> Result<usize, String> {
        let count = result::device::get_count().map_err(|error| said(&error))?;
        Ok(count.unsigned_abs() as usize)
    }

    /// The card with this number, for which [`load`] found a library.
    pub fn open(ordinal: usize) -> Result<Arc<Card>, String> {
        let count = Card::count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or_else(|| match count {
            0 => "expected an NVIDIA GPU, found none; check nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
            1 => format!("expected card 0, the only one, found card {ordinal}"),
            count => format!("expected a card from 0 to {}, found card {ordinal}", count - 1),
        })?;
        let opened = || {
            let device = result::device::get(number)?;
            // SAFETY: a card that the driver named; its context is given back when this one is dropped.
            let context = unsafe { result::primary_ctx::retain(device) }?;
            // SAFETY: the context was retained.
            let stream = unsafe { result::ctx::set_current(context) }
                .and_then(|()| result::stream::create(result::stream::StreamKind::NonBlocking));
            match stream {
                Ok(stream) => Ok(Card { device, context, stream, loaded: Mutex::default(), peers: Mutex::default() }),
                Err(error) => {
                    // SAFETY: retained once above, released once.
                    unsafe { result::primary_ctx::release(device) }?;
                    Err(error)
                }
            }
        };
        opened().map(Arc::new).map_err(|error: result::DriverError| said(&error))
    }

    /// Its name, its generation, its processors and its memory.
    pub fn facts(&self) -> Result<Facts, String> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as PROCESSORS,
        };
        self.call(|| {
            // SAFETY: a card that the driver named.
            let [major, minor, processors, shared] = [MAJOR, MINOR, PROCESSORS, SHARED]
                .map(|attribute| unsafe { result::device::get_attribute(self.device, attribute) });
            let (free, all) = result::mem_get_info()?;
            let name = result::device::get_name(self.device)?;
            let processors = u32::try_from(processors?).unwrap_or(1);
            let (shared_bytes_max, memory) = (shared?.unsigned_abs() as usize, (all as u64, free as u64));
            Ok(Facts { name, capability: (major?, minor?), processors, shared_bytes_max, memory })
        })
    }

    /// Waits until all submitted work is done and returns its errors.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: the card's own stream.
        self.call(|| unsafe { result::stream::synchronize(self.stream) })
    }

    /// Calls the library with this card's context.
    fn call<T>(&self, work: impl FnOnce() -> Result<T, result::DriverError>) -> Result<T, String> {
        // SAFETY: the context is retained as long as the card lives.
        unsafe { result::ctx::set_current(self.context) }.and_then(|()| work()).map_err(|error| said(&error))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // What fails here has failed before, and was told then.
        // SAFETY: the card's own stream, waited for and destroyed once; no allocation is left, for each keeps the card.
        let _told = self.call(|| unsafe {
            result::stream::synchronize(self.stream)?;
            result::stream::destroy(self.stream)
        });
        let loaded = std::mem::take(self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner));
        for module in loaded.into_modules() {
            // SAFETY: loaded once, unloaded once: no launch is left, for nothing runs, and graphs keep the card.
            let _told = self.call(|| unsafe { result::module::unload(module) });
        }
        // SAFETY: retained once, released once.
        let _told = self.call(|| unsafe { result::primary_ctx::release(self.device) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_refused_by_its_version() {
        assert_eq!(expect_version(13_000).and(expect_version(12_040)), Ok(()));
        let problem = expect_version(12_020).unwrap_err();
        assert!(problem.contains("CUDA 12.4 or later, found one for CUDA 12.2"), "{problem}");
    }
}
