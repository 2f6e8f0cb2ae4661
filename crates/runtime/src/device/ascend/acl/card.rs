//! One card: its context, its stream, what it says of itself.

use super::library::Library;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// Declares functions of the library that answer with a number: each becomes a method that turns what is not success
/// into a sentence.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ident: $Type:ty),* $(,)?);)*) => {
        impl Library {
            $(
                /// # Safety
                ///
                /// The arguments must be what the vendor's function of that name takes.
                pub(super) unsafe fn $name(&self, $($argument: $Type),*) -> Result<(), String> {
                    type Function = unsafe extern "C" fn($($Type),*) -> std::ffi::c_int;
                    // SAFETY: a function of that name has this form.
                    let function = unsafe { self.function::<Function>($symbol) }?;
                    // SAFETY: as the caller says.
                    self.expect($symbol, unsafe { function($($argument),*) })
                }
            )*
        }
    };
}
pub(super) use functions;

functions! {
    device_count = c"aclrtGetDeviceCount" (count: *mut u32);
    set_device = c"aclrtSetDevice" (card: i32);
    reset_device = c"aclrtResetDevice" (card: i32);
    current_context = c"aclrtGetCurrentContext" (context: *mut *mut c_void);
    set_context = c"aclrtSetCurrentContext" (context: *mut c_void);
    create_stream = c"aclrtCreateStream" (stream: *mut *mut c_void);
    destroy_stream = c"aclrtDestroyStream" (stream: *mut c_void);
    wait_for_stream = c"aclrtSynchronizeStream" (stream: *mut c_void);
    memory_facts = c"aclrtGetMemInfo" (kind: c_int, free: *mut usize, all: *mut usize);
    version = c"aclrtGetVersion" (major: *mut i32, minor: *mut i32, patch: *mut i32);
    capability = c"aclGetDeviceCapability" (card: u32, what: c_int, number: *mut i64);
}

/// `ACL_HBM_MEM`: chips without such memory answer with what they have.
const HBM: c_int = 1;

/// `ACL_DEVICE_INFO_AI_CORE_NUM`.
const CUBE_CORES: c_int = 0;

/// One card, in use.
pub struct Card {
    pub(super) library: Arc<Library>,
    number: i32,
    context: *mut c_void,
    pub(super) stream: *mut c_void,
    /// Cards by their numbers that were asked for, and whether both reach each other's memory.
    pub(super) peers: Mutex<HashMap<i32, bool>>,
}

// SAFETY: contexts and streams may be used from any thread that has made the context its own, which each call does
// first.
unsafe impl Send for Card {}
// SAFETY: as above; the runtime's functions may be called by several threads at once. Operators are called by one
// thread at a time (queue.rs).
unsafe impl Sync for Card {}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What a card says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The name of its chip: `Ascend910B3`.
    pub soc: String,
    /// Version of the interface.
    pub version: Option<(i32, i32, i32)>,
    /// Cores that multiply matrices, where it tells.
    pub cube_cores: Option<i64>,
    /// Bytes of memory: all and free.
    pub memory: (u64, u64),
}

impl Card {
    /// How many there are.
    pub fn count(library: &Library) -> Result<usize, String> {
        let mut count = 0;
        // SAFETY: writes a number.
        unsafe { library.device_count(&raw mut count) }?;
        Ok(count as usize)
    }

    /// The card with this number.
    pub fn open(library: &Arc<Library>, number: usize) -> Result<Arc<Card>, String> {
        let count = Card::count(library)?;
        let card = i32::try_from(number).ok().filter(|_| number < count);
        let card = card.ok_or_else(|| match count {
            0 => "expected an Ascend card, found none; check `npu-smi info` and ASCEND_RT_VISIBLE_DEVICES".to_owned(),
            1 => format!("expected card 0, the only one, found card {number}"),
            count => format!("expected a card from 0 to {}, found card {number}", count - 1),
        })?;
        let (mut context, mut stream) = (null_mut(), null_mut());
        // SAFETY: a card that is there; its default context, which lives until the card is given back; a stream of it.
        unsafe {
            library.set_device(card)?;
            library.current_context(&raw mut context)?;
            library.create_stream(&raw mut stream)?;
        }
        Ok(Arc::new(Card { library: Arc::clone(library), number: card, context, stream, peers: Mutex::default() }))
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Makes its context the thread's: what is called next is for this card.
    pub(super) fn enter(&self) -> Result<&Library, String> {
        // SAFETY: the context lives as long as the card.
        unsafe { self.library.set_context(self.context) }?;
        Ok(&self.library)
    }

    /// The libraries that it was opened by.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Its chip, its versions, its memory.
    pub fn facts(&self) -> Result<Facts, String> {
        let library = self.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { library.memory_facts(HBM, &raw mut free, &raw mut all) }?;
        let (mut major, mut minor, mut patch, mut cores) = (0, 0, 0, 0);
        // SAFETY: writes three numbers.
        let version = unsafe { library.version(&raw mut major, &raw mut minor, &raw mut patch) };
        // SAFETY: writes a number.
        let known = unsafe { library.capability(self.number.unsigned_abs(), CUBE_CORES, &raw mut cores) };
        Ok(Facts {
            soc: self.soc()?,
            version: version.ok().map(|()| (major, minor, patch)),
            cube_cores: known.ok().map(|()| cores),
            memory: (all as u64, free as u64),
        })
    }

    /// The name of its chip: the libraries tell that of the first card only.
    fn soc(&self) -> Result<String, String> {
        type Name = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: a function of that name has this form.
        let name = unsafe { self.library.function::<Name>(c"aclrtGetSocName") }?;
        // SAFETY: takes nothing.
        let text = unsafe { name() };
        if text.is_null() {
            return Err("CANN does not report the chip of the card".to_owned());
        }
        // SAFETY: text that ends with a zero and stays.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// Waits until all submitted work is done and returns its errors.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: the card's own stream.
        unsafe { self.enter()?.wait_for_stream(self.stream) }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // What fails here has failed before, and was told then.
        let Ok(library) = self.enter() else { return };
        // SAFETY: the card's own stream, destroyed once under its own context; no memory is left, for each piece keeps
        // the card. The card was set once.
        let _told = unsafe {
            let waited = library.wait_for_stream(self.stream);
            waited.and(library.destroy_stream(self.stream)).and(library.reset_device(self.number))
        };
    }
}

/// What tests open cards by.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    extern "C" fn count(count: *mut u32) -> c_int {
        // SAFETY: a place for a number.
        unsafe { *count = 3 };
        0
    }

    extern "C" fn set_device(_: i32) -> c_int {
        0
    }

    extern "C" fn make(handle: *mut *mut c_void) -> c_int {
        // SAFETY: a place for a handle.
        unsafe { *handle = 8 as *mut c_void };
        0
    }

    extern "C" fn take(_: *mut c_void) -> c_int {
        0
    }

    /// A library of three cards that open, with these functions besides and no others.
    pub fn library(functions: &[(&'static CStr, usize)]) -> Arc<Library> {
        type Make = extern "C" fn(*mut *mut c_void) -> c_int;
        let opening = [
            (c"aclrtGetDeviceCount", count as extern "C" fn(*mut u32) -> c_int as usize),
            (c"aclrtSetDevice", set_device as extern "C" fn(i32) -> c_int as usize),
            (c"aclrtGetCurrentContext", make as Make as usize),
            (c"aclrtCreateStream", make as Make as usize),
            (c"aclrtSetCurrentContext", take as extern "C" fn(*mut c_void) -> c_int as usize),
        ];
        Library::of(&[&opening, functions].concat())
    }
}
