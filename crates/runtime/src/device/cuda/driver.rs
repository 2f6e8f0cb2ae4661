//! The driver's library, found at run time: one card, its memory, its kernels and their launches. Calls into the library stand here alone.
//!
//! ```text
//!  load ──▶ Card ──▶ Allocation     bytes of the card; freed when dropped
//!            │
//!            └─────▶ launch         a kernel by its name, behind all that was asked for before
//! ```
//!
//! cudarc resolves each function of the library when it is first called and panics where there is none: [`load`] looks for the library before.

use super::kernels;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
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
        /// Bytes of memory of each card.
        memory_bytes: u64,
    },
}

/// How the simulator is told what to imitate: cards, bytes of memory of each, what orders depend on.
type Configure = unsafe extern "C" fn(c_int, u64, u64) -> c_int;

/// Opens the library, once for the whole process, and starts it.
pub fn load(library: Library) -> Result<(), String> {
    static OPENED: OnceLock<()> = OnceLock::new();
    static OPENING: Mutex<()> = Mutex::new(());
    let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let (None, Library::Simulator { path, .. }) = (OPENED.get(), library) {
        // SAFETY: our own library, whose start does nothing but register its kernels.
        let opened = unsafe { libloading::Library::new(path) };
        // The name that it has in itself is the first one that is looked for: it is found from now on. It stays open as long as the process lives.
        std::mem::forget(opened.map_err(|error| format!("{}: cannot be opened: {error}", path.display()))?);
    }
    // SAFETY: looks for a library of that name, and starts it as any program would.
    if !unsafe { sys::is_culib_present() } {
        return Err("no NVIDIA driver is here: its library libcuda could not be loaded".to_owned());
    }
    OPENED.get_or_init(|| ());
    // SAFETY: the library was found to be there.
    let culib = unsafe { sys::culib() };
    // SAFETY: a function of that name is the simulator's, which has this form.
    let configure = unsafe { culib.get::<Configure>(b"trueup_sim_configure") };
    match (library, configure) {
        (Library::Driver, Err(_)) => {}
        (Library::Simulator { memory_bytes, .. }, Ok(configure)) => {
            // SAFETY: takes numbers; once the library is started, it answers whether they are those that it has.
            if unsafe { configure(1, memory_bytes, 1) } != 0 {
                return Err(
                    "this process has opened a simulated card with other memory; use this one in a process of its own"
                        .to_owned(),
                );
            }
        }
        (Library::Driver, Ok(_)) => {
            return Err("this process has opened the simulator already; use cuda in a process of its own".to_owned());
        }
        (Library::Simulator { .. }, Err(_)) => {
            return Err("this process has opened the driver already; use cuda-sim in a process of its own".to_owned());
        }
    }
    result::init().map_err(|error| format!("the driver does not start: {}", said(&error)))
}

/// What the library says of an error.
fn said(error: &result::DriverError) -> String {
    let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned());
    error.error_string().map_or(name.clone(), |text| format!("{name}: {}", text.to_string_lossy()))
}

/// Shared memory that every card gives a block of any kernel.
const SHARED_BYTES_ALWAYS: u32 = 48 << 10;

/// One card, in use.
#[derive(Debug)]
pub struct Card {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    loaded: Mutex<Loaded>,
}

// SAFETY: contexts and streams may be used from any thread that has made the context its own, which each call does first.
unsafe impl Send for Card {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Card {}

/// Modules and functions that were needed so far.
#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: HashMap<&'static str, sys::CUfunction>,
}

/// What a card says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// What its processors can do: 8 and 0 of `sm_80`.
    pub capability: (i32, i32),
    /// How many of these there are.
    pub processors: usize,
    /// Bytes of shared memory that a block can have, where its kernel is told before.
    pub shared_bytes_max: usize,
    /// Bytes of memory: all and free.
    pub memory: (u64, u64),
}

impl Card {
    /// The card with this number, for which [`load`] found a library.
    pub fn open(ordinal: usize) -> Result<Arc<Card>, String> {
        let count = result::device::get_count().map_err(|error| said(&error))?;
        let number = c_int::try_from(ordinal).ok().filter(|number| *number < count);
        let number = number.ok_or_else(|| match count {
            0 => "the driver reports no card".to_owned(),
            count => format!("there is no card {ordinal}; the last of {count} is {}", count - 1),
        })?;
        let opened = || {
            let device = result::device::get(number)?;
            // SAFETY: a card that the driver named; its context is given back when this one is dropped.
            let context = unsafe { result::primary_ctx::retain(device) }?;
            // SAFETY: the context was retained.
            unsafe { result::ctx::set_current(context) }?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            Ok(Card { device, context, stream, loaded: Mutex::default() })
        };
        opened().map(Arc::new).map_err(|error: result::DriverError| said(&error))
    }

    /// Its name, its generation and its memory.
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
            let (processors, shared) = (processors?.unsigned_abs() as usize, shared?.unsigned_abs() as usize);
            let (capability, memory) = ((major?, minor?), (all as u64, free as u64));
            Ok(Facts { name, capability, processors, shared_bytes_max: shared, memory })
        })
    }

    /// Waits until all is done that was asked for; what went wrong meanwhile is told now.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: the card's own stream.
        self.call(|| unsafe { result::stream::synchronize(self.stream) })
    }

    /// So many bytes, which hold anything; `None` where the card has not as many.
    pub fn alloc(self: &Arc<Card>, bytes: usize) -> Result<Option<Allocation>, String> {
        // No card gives 0 bytes.
        // SAFETY: the memory is freed once, by the allocation.
        let start = self.call(|| match unsafe { result::malloc_sync(bytes.max(1)) } {
            Err(result::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            start => start.map(Some),
        })?;
        Ok(start.map(|start| Allocation { card: Arc::clone(self), start, bytes }))
    }

    /// Runs a kernel behind all that was asked for before. Kernels touch what views of allocations show and, of what they are given by
    /// address, what the caller made as large as they need.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<(), String> {
        let function = self.function(kernel)?;
        let mut cells: Vec<Cell> = arguments.iter().map(Cell::of).collect();
        let mut addresses: Vec<*mut c_void> = cells.iter_mut().map(|cell| std::ptr::from_mut(cell).cast()).collect();
        let [x, y, z] = grid.blocks;
        if grid.shared_bytes > SHARED_BYTES_ALWAYS {
            self.allow_shared(function, grid.shared_bytes).map_err(|problem| format!("{kernel}: {problem}"))?;
        }
        self.call(|| {
            // SAFETY: the kernel's arguments are as many and as large as it declares (the operator suite runs each), and the driver copies them
            // before it returns; what they point to lives until the stream is waited for, which freeing memory does.
            unsafe {
                result::launch_kernel(
                    function,
                    (x, y, z),
                    (grid.threads, 1, 1),
                    grid.shared_bytes,
                    self.stream,
                    &mut addresses,
                )
            }
        })
        .map_err(|problem| format!("{kernel}: {problem}"))
    }

    /// Lets blocks of a kernel have so much shared memory.
    fn allow_shared(&self, function: sys::CUfunction, bytes: u32) -> Result<(), String> {
        let bytes = c_int::try_from(bytes).map_err(|_| format!("{bytes} bytes of shared memory are too many"))?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a function of this context.
        self.call(|| unsafe { result::function::set_function_attribute(function, most, bytes) })
    }

    /// A kernel, whose module is loaded when it is first needed.
    fn function(&self, kernel: &str) -> Result<sys::CUfunction, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = loaded.functions.get(kernel) {
            return Ok(*function);
        }
        let (kernel, file, text) =
            kernels::module_of(kernel).ok_or_else(|| format!("there is no kernel called {kernel}"))?;
        let name = CString::new(kernel).map_err(|_| format!("{kernel} is no name"))?;
        let module = match loaded.modules.get(file) {
            Some(module) => *module,
            None => {
                let text = CString::new(text).map_err(|_| format!("{file} holds a zero"))?;
                // SAFETY: the text of a module, which ends with a zero.
                let module = self.call(|| unsafe { result::module::load_data(text.as_ptr().cast()) });
                module.map_err(|problem| format!("{file} cannot be loaded: {problem}"))?
            }
        };
        loaded.modules.insert(file, module);
        // SAFETY: a module of this context, which stays loaded.
        let function = self.call(|| unsafe { result::module::get_function(module, name) });
        let function = function.map_err(|problem| format!("{kernel}: {problem}"))?;
        loaded.functions.insert(kernel, function);
        Ok(function)
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
        // SAFETY: retained once, released once.
        let _told = self.call(|| unsafe { result::primary_ctx::release(self.device) });
    }
}

/// How a kernel is spread: blocks of threads in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of each.
    pub threads: u32,
    /// Shared memory that each is given at launch.
    pub shared_bytes: u32,
}

/// A tensor as kernels see it: the layout of `View` in `kernels/cuda/device.cuh`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct View {
    /// Address of the first element that is shown.
    pub data: u64,
    /// Sizes, innermost first.
    pub sizes: [i64; 4],
    /// Distances of neighbours in elements.
    pub steps: [i64; 4],
}

/// An argument of a kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Argument {
    /// A tensor.
    View(View),
    /// A number of elements.
    Index(i64),
    /// A small integer.
    Int(i32),
    /// A number.
    Float(f32),
    /// Memory of the card.
    Address(u64),
}

/// An argument's bytes, where the driver finds them.
#[repr(C, align(8))]
union Cell {
    view: View,
    index: i64,
    int: i32,
    float: f32,
    address: u64,
}

impl Cell {
    fn of(argument: &Argument) -> Cell {
        match *argument {
            Argument::View(view) => Cell { view },
            Argument::Index(index) => Cell { index },
            Argument::Int(int) => Cell { int },
            Argument::Float(float) => Cell { float },
            Argument::Address(address) => Cell { address },
        }
    }
}

/// Bytes of a card.
#[derive(Debug)]
pub struct Allocation {
    card: Arc<Card>,
    start: u64,
    bytes: usize,
}

impl Allocation {
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
