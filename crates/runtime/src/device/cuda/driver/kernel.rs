//! Kernels of a card, and their launches, which can be kept and run again.

use super::Card;
use super::blas::Product;
use crate::device::cuda::kernels;
use cudarc::driver::{result, sys};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::sync::PoisonError;

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

/// The heads of queries, keys or values behind a product: the layout of `Heads` in `kernels/cuda/heads.cuh`, where each
/// is explained. Addresses are 0 of what there is not.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
#[repr(C)]
pub struct Heads {
    pub x: u64,
    pub bias: u64,
    pub sum: u64,
    pub w: u64,
    pub normed: u64,
    pub rotated: u64,
    pub cache: u64,
    pub rows: i32,
    pub w_type: i32,
    pub cache_type: i32,
    pub epsilon: f32,
}

/// What is the same for all heads: the layout of `HeadsBehind` there.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
#[repr(C)]
pub struct HeadsBehind {
    pub rotation: Rotation,
    pub head_size: i32,
    pub tokens: i32,
    pub factors_type: i32,
    pub factors: u64,
    pub positions: u64,
    pub rows: u64,
    pub places: i64,
    pub fault: u64,
}

/// The layout of `Rotation` in `kernels/cuda/rotation.cuh`.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
#[repr(C)]
pub struct Rotation {
    pub dimensions: i32,
    pub halves: i32,
    pub ratio: f32,
    pub ratio_rest: f32,
    pub factor: f32,
    pub low: f32,
    pub high: f32,
    pub magnitude: f32,
}

/// An argument of a kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Argument {
    /// A tensor.
    View(View),
    /// The heads of queries, keys or values.
    Heads(Heads),
    /// What is the same for all heads.
    HeadsBehind(HeadsBehind),
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
#[derive(Clone, Copy)]
#[repr(C, align(8))]
union Cell {
    view: View,
    heads: Heads,
    behind: HeadsBehind,
    index: i64,
    int: i32,
    float: f32,
    address: u64,
}

impl Cell {
    fn of(argument: &Argument) -> Cell {
        match *argument {
            Argument::View(view) => Cell { view },
            Argument::Heads(heads) => Cell { heads },
            Argument::HeadsBehind(behind) => Cell { behind },
            Argument::Index(index) => Cell { index },
            Argument::Int(int) => Cell { int },
            Argument::Float(float) => Cell { float },
            Argument::Address(address) => Cell { address },
        }
    }
}

/// Shared memory that every card gives a block of any kernel.
const SHARED_BYTES_ALWAYS: u32 = 48 << 10;

/// Bytes of what the driver's compiler may say of a module that it cannot use.
const LOG_BYTES: usize = 4096;

/// Modules and functions that were needed so far.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    modules: HashMap<&'static str, sys::CUmodule>,
    kernels: HashMap<&'static str, Kernel>,
}

impl Loaded {
    /// All modules, of which no kernel is launched from now on.
    pub(super) fn into_modules(self) -> impl Iterator<Item = sys::CUmodule> {
        self.modules.into_values()
    }
}

/// A kernel of a card, loaded.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    name: &'static str,
    function: sys::CUfunction,
    /// Of the card that loaded it.
    context: sys::CUcontext,
    /// Whether it waits by itself for the launches before its own, on a card that begins it early then.
    early: bool,
}

/// A kernel, how it is spread, and what it is given, or a product by the vendor's library: all that a launch is, but
/// the stream.
pub struct Launch {
    work: Work,
}

enum Work {
    Kernel { kernel: Kernel, grid: Grid, arguments: Vec<Cell> },
    Product(Product),
}

impl From<Product> for Launch {
    fn from(product: Product) -> Launch {
        Launch { work: Work::Product(product) }
    }
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Kernel { kernel, grid, .. } => write!(f, "{} on {grid:?}", kernel.name),
            Work::Product(product) => write!(f, "{product:?}"),
        }
    }
}

impl Launch {
    /// Whether it may begin before the last has ended.
    pub fn begins_early(&self) -> bool {
        matches!(self.work, Work::Kernel { kernel, .. } if kernel.early)
    }
}

// SAFETY: handles of functions and contexts may be used from any thread, and arguments are numbers.
unsafe impl Send for Launch {}

impl Card {
    /// A launch of a kernel, whose module is loaded when it is first needed: running the launch loads nothing.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<Launch, String> {
        let kernel = self.kernel(kernel)?;
        if grid.shared_bytes > SHARED_BYTES_ALWAYS {
            self.allow_shared(kernel)?;
        }
        Ok(Launch { work: Work::Kernel { kernel, grid, arguments: arguments.iter().map(Cell::of).collect() } })
    }

    /// How many blocks of so many threads, which ask for no shared memory, a processor has of a kernel at once.
    pub fn resident(&self, kernel: &str, threads: u32) -> Result<usize, String> {
        let kernel = self.kernel(kernel)?;
        // SAFETY: a function of this context, which stays loaded.
        self.call(|| unsafe {
            result::occupancy::max_active_block_per_multiprocessor(kernel.function, threads as i32, 0)
        })
        .map(|blocks| usize::try_from(blocks).unwrap_or(0))
        .map_err(|problem| format!("{}: {problem}", kernel.name))
    }

    /// Lets blocks of a kernel have as much shared memory as the card has for one beside what the kernel itself
    /// declares: launches that are kept may need more than this one.
    fn allow_shared(&self, kernel: Kernel) -> Result<(), String> {
        let bytes = i32::try_from(self.facts()?.shared_bytes_max).unwrap_or(i32::MAX);
        let own = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: a function of this context, which stays loaded; one number is read.
        let own = self.call(|| unsafe { result::function::get_function_attribute(kernel.function, own) });
        let bytes = bytes - own.map_err(|problem| format!("{}: {problem}", kernel.name))?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a function of this context, which stays loaded.
        self.call(|| unsafe { result::function::set_function_attribute(kernel.function, most, bytes) })
            .map_err(|problem| format!("{}: {problem}", kernel.name))
    }

    /// Runs a launch behind all that was asked for before. Kernels touch what views of allocations show and, of what
    /// they are given by address, what the caller made as large as they need.
    pub fn run(&self, launch: &Launch) -> Result<(), String> {
        self.run_on(self.stream, launch)
    }

    /// As [`Card::run`], on a stream of the card's.
    pub(super) fn run_on(&self, stream: sys::CUstream, launch: &Launch) -> Result<(), String> {
        let (kernel, grid, arguments) = match &launch.work {
            Work::Kernel { kernel, grid, arguments } => (kernel, grid, arguments),
            Work::Product(product) => return product.run_on(stream),
        };
        if kernel.context != self.context {
            return Err(format!("{} was loaded by another card", kernel.name));
        }
        // The driver takes addresses of what it only reads.
        let mut addresses: Vec<*mut c_void> =
            arguments.iter().map(|cell| std::ptr::from_ref(cell).cast_mut().cast()).collect();
        let [x, y, z] = grid.blocks;
        let size = (grid.threads, 1, 1);
        let mut attribute = early_attribute();
        self.call(|| {
            // SAFETY: the kernel is this card's, and stays loaded; its arguments are as many and as large as it
            // declares (the operator suite runs each), and the driver copies them before it returns; what they point to
            // lives until the stream is waited for, which freeing does. One that begins early waits in each of its
            // threads (a test of kernels.rs, and the simulator).
            unsafe {
                if !kernel.early {
                    return result::launch_kernel(
                        kernel.function,
                        (x, y, z),
                        size,
                        grid.shared_bytes,
                        stream,
                        &mut addresses,
                    );
                }
                let config = sys::CUlaunchConfig {
                    gridDimX: x,
                    gridDimY: y,
                    gridDimZ: z,
                    blockDimX: grid.threads,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: grid.shared_bytes,
                    hStream: stream,
                    attrs: &raw mut attribute,
                    numAttrs: 1,
                };
                sys::cuLaunchKernelEx(&raw const config, kernel.function, addresses.as_mut_ptr(), std::ptr::null_mut())
                    .result()
            }
        })
        .map_err(|problem| format!("{}: {problem}", kernel.name))
    }

    fn kernel(&self, name: &str) -> Result<Kernel, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.kernels.get(name) {
            return Ok(*kernel);
        }
        let found = kernels::find(name).ok_or_else(|| format!("unknown kernel {name}"))?;
        let name = found.name;
        let c_name = CString::new(name).map_err(|_| format!("{name} is not a valid name"))?;
        let capability = self.facts()?.capability;
        let module = match loaded.modules.get(found.module) {
            Some(module) => *module,
            None => match kernels::machine_code(found.module, capability).and_then(|code| self.load_code(code)) {
                Some(module) => module,
                None => self.load_module(found.module, &kernels::text_for(found.text, capability))?,
            },
        };
        loaded.modules.insert(found.module, module);
        // SAFETY: a module of this context, which stays loaded.
        let function = self.call(|| unsafe { result::module::get_function(module, c_name) });
        let function = function.map_err(|problem| format!("{name}: {problem}"))?;
        let early = found.waits && capability >= kernels::EARLY_FROM;
        let kernel = Kernel { name, function, context: self.context, early };
        loaded.kernels.insert(name, kernel);
        Ok(kernel)
    }

    /// Loads a module that is machine code already; none where the card does not take it.
    fn load_code(&self, code: &[u8]) -> Option<sys::CUmodule> {
        let code = code.to_vec();
        // SAFETY: machine code as ptxas wrote it, which says how long it is.
        self.call(|| unsafe { result::module::load_data(code.as_ptr().cast()) }).ok()
    }

    /// Loads a module; where it cannot be loaded, says what the driver's compiler says of it.
    fn load_module(&self, name: &str, text: &str) -> Result<sys::CUmodule, String> {
        let text = CString::new(text).map_err(|_| format!("{name} contains a NUL byte"))?;
        let mut log = [0_u8; LOG_BYTES];
        let mut module = std::ptr::null_mut();
        let loaded = self.call(|| {
            use sys::CUjit_option::{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
            let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
            // The driver takes a size in the place of a pointer.
            let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut::<c_void>(LOG_BYTES)];
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            // SAFETY: the text of a module, which ends with a zero, and a buffer of so many bytes for what is wrong
            // with it.
            unsafe { sys::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 2, options, values) }.result()
        });
        loaded.map(|()| module).map_err(|problem| {
            let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
            let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let details = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
            format!("{name} cannot be loaded: {problem}{details}")
        })
    }
}

/// That a launch may begin before the last has ended.
fn early_attribute() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}
