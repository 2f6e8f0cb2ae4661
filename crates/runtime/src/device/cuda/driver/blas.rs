//! Products of f16 matrices by cuBLASLt, where it is installed: found as library.rs has it. A simulated card has a
//! stand-in beside its own library (`kernels/cuda/sim/blas`).
//!
//! ```text
//!  w  K x M by columns, f16     x  K x N by columns, f16     y = w' x  M x N by columns, f32, sums in f32
//! ```

use super::Card;
use super::library::{load, load_first, packages};
use super::memory::Allocation;
use cudarc::cublaslt::{result, sys};
use cudarc::driver::sys::CUstream;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Room that the library computes in; what it recommends for cards with matrix units of the latest generation.
pub static WORKSPACE_BYTES: usize = 32 << 20;

/// `CUBLAS_OP_T`.
static TRANSPOSED: i32 = 1;

/// Names of the library in toolkits and packages, the latest version first.
const NAMES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];

/// Folders of Python's packages that have it.
const PACKAGES: [&str; 2] = ["cu13", "cublas"];

/// The oldest version that is used: earlier ones know no cards of sm_90.
const OLDEST: usize = 12_000;

/// The driver's version that the latest one needs.
const LATEST_NEEDS: i32 = 13_000;

/// The file of the stand-in, beside the simulator's.
const STAND_IN: &str = "libtrueup_cublaslt_sim.so";

/// Sizes of a product: `y [rows, tokens] = w [len, rows]' x [len, tokens]`, of matrices whose rows lie behind each
/// other but for those of y.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sizes {
    /// Rows of weights.
    pub rows: usize,
    /// Tokens.
    pub tokens: usize,
    /// Elements of a row.
    pub len: usize,
    /// The distance of neighbouring tokens in y: no less than `rows`.
    pub step: usize,
}

/// The library, where it is installed: looked for when it is first needed.
#[derive(Debug)]
pub struct Library {
    card: Arc<Card>,
    /// The simulator's library, on a simulated card.
    simulator: Option<PathBuf>,
    /// Its version, or why it is not used.
    found: OnceLock<Result<String, String>>,
    opened: OnceLock<Result<Arc<Blas>, String>>,
}

impl Library {
    /// For a card; on a simulated one, the stand-in beside the simulator's own library.
    pub fn new(card: &Arc<Card>, simulator: Option<PathBuf>) -> Library {
        Library { card: Arc::clone(card), simulator, found: OnceLock::new(), opened: OnceLock::new() }
    }

    /// Whether it computes: it is installed, which takes nothing of the card to know, fits the driver, and did not fail
    /// when it was opened.
    pub fn is_used(&self) -> bool {
        self.found().is_ok() && self.opened.get().is_none_or(Result::is_ok)
    }

    /// By what products of f16 are computed, and why by nothing else.
    pub fn says(&self) -> String {
        match (self.found(), self.opened.get()) {
            (Ok(version), None | Some(Ok(_))) => format!("f16 matrix products by cuBLASLt {version}"),
            (Err(why), _) | (_, Some(Err(why))) => format!("f16 matrix products by built-in kernels: {why}"),
        }
    }

    fn found(&self) -> &Result<String, String> {
        self.found.get_or_init(|| find(self.simulator.as_deref()))
    }

    /// The library, opened once.
    pub fn get(&self) -> Option<&Arc<Blas>> {
        let open = || match self.found() {
            Ok(_) => Blas::open(&self.card).map(Arc::new),
            Err(why) => Err(why.clone()),
        };
        self.opened.get_or_init(open).as_ref().ok()
    }

    /// Bytes of the card in which it computes; 0 before it is opened.
    pub fn workspace_bytes(&self) -> usize {
        self.opened.get().and_then(|opened| opened.as_ref().ok()).map_or(0, |blas| blas.workspace.bytes())
    }
}

/// The library, in use on one card.
#[derive(Debug)]
pub struct Blas {
    card: Arc<Card>,
    handle: sys::cublasLtHandle_t,
    workspace: Allocation,
    /// `None` where it has no way. Prompts have many lengths: where there are too many, all are forgotten.
    plans: Mutex<HashMap<Sizes, Option<Arc<Plan>>>>,
}

/// Plans that are kept.
const PLANS_MAX: usize = 256;

// SAFETY: handles may be used by several threads, each of which makes the card's context its own first.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// A product that can be run.
#[derive(Clone, Debug)]
pub struct Product {
    blas: Arc<Blas>,
    sizes: Sizes,
    plan: Arc<Plan>,
    /// Addresses of w, x and y.
    matrices: [u64; 3],
}

impl Product {
    /// Computes it behind all that was asked of a stream of the card before.
    pub(super) fn run_on(&self, stream: CUstream) -> Result<(), String> {
        self.blas.multiply(stream, self.sizes, &self.plan, self.matrices)
    }
}

/// How a product of certain sizes is computed.
#[derive(Debug)]
struct Plan {
    description: Description,
    /// Of w, x and y.
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: descriptions of products and of matrices are memory of the host, only read when they are made.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

/// The library's description of a product.
#[derive(Debug)]
struct Description(sys::cublasLtMatmulDesc_t);

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made once, given back once; the library reads it within its calls only.
        let _told = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Its description of a matrix.
#[derive(Debug)]
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// By columns, so far from each other.
    fn new(dtype: sys::cudaDataType, [rows, columns]: [usize; 2], step: usize) -> Result<Layout, result::CublasError> {
        result::create_matrix_layout(dtype, rows as u64, columns as u64, step as i64).map(Layout)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: made once, given back once; the library reads it within its calls only.
        let _told = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// Looks for the library, beside `simulator` on a simulated card, and gives its version.
fn find(simulator: Option<&Path>) -> Result<String, String> {
    let driver = driver_version();
    let found = match simulator {
        Some(simulator) => load(&simulator.with_file_name(STAND_IN)),
        None => is_present() || load_first(&packages(&PACKAGES), names(driver)),
    };
    if !(found && is_present()) {
        return Err("cuBLASLt is not installed".to_owned());
    }
    // SAFETY: the library is there, and has the function since its first version; it takes nothing.
    let version = unsafe { sys::cublasLtGetCudartVersion() };
    fits(version, driver)
}

/// The version of a library, as `1000 major + 10 minor`, if a driver of that version can run it: one of its major
/// version or a later one can.
fn fits(version: usize, driver: i32) -> Result<String, String> {
    let named = |version: usize| format!("{}.{}", version / 1000, version % 1000 / 10);
    let driver = usize::try_from(driver).unwrap_or(0);
    if version < OLDEST {
        return Err(format!("cuBLASLt is from CUDA {}, but {} or later is required", named(version), named(OLDEST)));
    }
    match version / 1000 > driver / 1000 {
        true => Err(format!("cuBLASLt is from CUDA {}, but the driver supports {}", named(version), named(driver))),
        false => Ok(named(version)),
    }
}

impl Blas {
    /// The library on a card, where it starts.
    fn open(card: &Arc<Card>) -> Result<Blas, String> {
        let workspace = Allocation::new(card, WORKSPACE_BYTES)?
            .ok_or_else(|| format!("not enough memory for the {WORKSPACE_BYTES}-byte workspace of cuBLASLt"))?;
        let handle = card.call(|| Ok(result::create_handle()))?;
        let handle = handle.map_err(|error| format!("cuBLASLt cannot be initialized: {error:?}"))?;
        Ok(Blas { card: Arc::clone(card), handle, workspace, plans: Mutex::default() })
    }

    /// The product `y = w' x` of matrices at these addresses, multiples of 256. The library is asked for its way
    /// now, so that running the product only computes; `None` where it has none for these sizes.
    pub fn product(self: &Arc<Blas>, sizes: Sizes, matrices: [u64; 3]) -> Option<Product> {
        Some(Product { blas: Arc::clone(self), sizes, plan: self.plan(sizes)?, matrices })
    }

    fn multiply(&self, stream: CUstream, sizes: Sizes, plan: &Plan, [w, x, y]: [u64; 3]) -> Result<(), String> {
        let [w_layout, x_layout, y_layout] = plan.layouts.each_ref().map(|layout| layout.0);
        let (one, zero) = (1.0f32, 0.0f32);
        let address = |address: u64| address as *mut c_void;
        let computed = self.card.call(|| {
            // SAFETY: the matrices lie on the card and are as large as their layouts say, which the caller made sure
            // of; the workspace is this handle's alone, and products of one stream are computed one behind the other.
            Ok(unsafe {
                result::matmul(
                    self.handle,
                    plan.description.0,
                    (&raw const one).cast(),
                    (&raw const zero).cast(),
                    address(w),
                    w_layout,
                    address(x),
                    x_layout,
                    address(y),
                    y_layout,
                    address(y),
                    y_layout,
                    &raw const plan.algorithm,
                    address(self.workspace.address()),
                    self.workspace.bytes(),
                    stream.cast(),
                )
            })
        })?;
        computed.map_err(|error| refused(sizes, &error))
    }

    /// How products of these sizes are computed: the library is asked once.
    fn plan(&self, sizes: Sizes) -> Option<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= PLANS_MAX && !plans.contains_key(&sizes) {
            plans.clear();
        }
        // The library loads kernels when it looks for a way: into the context of whoever asks.
        let describe = || self.card.call(|| Ok(self.describe(sizes))).ok()?.ok();
        plans.entry(sizes).or_insert_with(|| describe().map(Arc::new)).clone()
    }

    fn describe(&self, sizes: Sizes) -> Result<Plan, result::CublasError> {
        let Sizes { rows, tokens, len, step } = sizes;
        let (half, single) = (sys::cudaDataType::CUDA_R_16F, sys::cudaDataType::CUDA_R_32F);
        let description = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, single)?;
        let description = Description(description);
        let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        // SAFETY: a description that was made, and a value of the attribute's type.
        unsafe {
            let value = (&raw const TRANSPOSED).cast();
            result::set_matmul_desc_attribute(description.0, attribute, value, size_of_val(&TRANSPOSED))
        }?;
        let (w, x) = (Layout::new(half, [len, rows], len)?, Layout::new(half, [len, tokens], len)?);
        let layouts = [w, x, Layout::new(single, [rows, tokens], step)?];
        let algorithm = self.algorithm(description.0, layouts.each_ref().map(|layout| layout.0))?;
        Ok(Plan { description, layouts, algorithm })
    }

    /// The way that the library thinks fastest within the workspace.
    fn algorithm(
        &self,
        description: sys::cublasLtMatmulDesc_t,
        [w, x, y]: [sys::cublasLtMatrixLayout_t; 3],
    ) -> Result<sys::cublasLtMatmulAlgo_t, result::CublasError> {
        let preference = result::create_matmul_pref()?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: a preference that was made, and a value of the attribute's type.
        unsafe {
            let value = (&raw const WORKSPACE_BYTES).cast();
            result::set_matmul_pref_attribute(preference, attribute, value, size_of_val(&WORKSPACE_BYTES))
        }?;
        // SAFETY: all of them were made and are not given back.
        let found = unsafe { result::get_matmul_algo_heuristic(self.handle, description, w, x, y, y, preference) };
        // SAFETY: made above, given back once.
        unsafe { result::destroy_matmul_pref(preference) }?;
        found.map(|found| found.algo)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // A product may be under way. What fails here has failed before, and was told then.
        let _told = self.card.wait();
        // SAFETY: made once, given back once.
        let _told = self.card.call(|| Ok(unsafe { result::destroy_handle(self.handle) }));
    }
}

fn refused(sizes: Sizes, error: &dyn Debug) -> String {
    let Sizes { rows, tokens, len, .. } = sizes;
    format!("cuBLASLt has no algorithm for {rows} rows of {len} with {tokens} tokens: {error:?}")
}

/// Whether the system finds a library of that name.
fn is_present() -> bool {
    // SAFETY: looks for it and starts it, as the start of any program that needs it does.
    unsafe { sys::is_culib_present() }
}

/// Names of versions that a driver is new enough for.
fn names(driver: i32) -> &'static [&'static str] {
    if driver >= LATEST_NEEDS { &NAMES } else { &NAMES[1..] }
}

/// The latest version of CUDA that the driver knows, as `1000 major + 10 minor`; 0 where it does not say.
fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the driver's library is there, for a card is open; it writes one number.
    let known = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }.result().is_ok();
    if known { version } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_a_later_major_version_than_the_driver_is_not_used() {
        assert_eq!(fits(12_040, 12_080), Ok("12.4".to_owned()));
        // Minor versions are compatible in both directions.
        assert_eq!(fits(12_090, 12_040), Ok("12.9".to_owned()));
        assert_eq!(fits(12_060, 13_000), Ok("12.6".to_owned()));
        let newer = fits(13_010, 12_080).unwrap_err();
        assert!(newer.contains("CUDA 13.1") && newer.contains("supports 12.8"), "{newer}");
        assert!(fits(11_080, 12_080).unwrap_err().contains("12.0 or later"));
        assert_eq!(names(12_080), ["libcublasLt.so.12"]);
        assert_eq!(names(13_000), NAMES);
    }
}
