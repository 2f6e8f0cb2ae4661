//! Halves of results that two cards have computed, brought to both by NCCL's all-gather, where it is installed: found
//! as library.rs has it. Simulated cards have a stand-in beside their own library (`kernels/cuda/sim/nccl`).
//!
//! ```text
//!            before                          behind it
//!  card 0    [ its half │          ]   ─▶    [ half 0 │ half 1 ]
//!  card 1    [          │ its half ]   ─▶    [ half 0 │ half 1 ]
//! ```

use super::library::{load, load_first, packages};
use super::{Allocation, Card};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The name of all versions 2.
const NAME: &str = "libnccl.so.2";

/// Folders of Python's packages that have it.
const PACKAGES: [&str; 1] = ["nccl"];

/// The file of the stand-in, beside the simulator's.
const STAND_IN: &str = "libtrueup_nccl_sim.so";

/// `ncclInt8`: what is gathered is moved, and never looked at.
const BYTES: c_int = 0;

/// One rank of those that communicate, known to the library alone.
type Communicator = *mut c_void;

/// `ncclResult_t`, of which 0 is good.
type Code = c_int;

/// What a group of cards is asked for comes to all of them in one order, whoever asks: else two groups could wait for
/// each other.
static ASKING: Mutex<()> = Mutex::new(());

/// The library, where it is installed: looked for when it is first needed.
#[derive(Debug)]
pub struct Library {
    /// The simulator's library, on simulated cards.
    simulator: Option<PathBuf>,
    opened: OnceLock<Option<Nccl>>,
}

impl Library {
    /// For a card; for a simulated one, the stand-in beside the simulator's own library.
    pub fn new(simulator: Option<PathBuf>) -> Library {
        Library { simulator, opened: OnceLock::new() }
    }

    /// The library, opened once.
    pub fn get(&self) -> Option<&Nccl> {
        self.opened.get_or_init(|| Nccl::open(self.simulator.as_deref())).as_ref()
    }
}

/// The library, and the cards that it was set up for.
#[derive(Debug)]
pub struct Nccl {
    functions: Functions,
    name: String,
    pairs: Mutex<Vec<Pair>>,
}

/// Its functions, by their forms in `nccl.h`.
#[derive(Clone, Copy, Debug)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> Code,
    init_all: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> Code,
    destroy: unsafe extern "C" fn(Communicator) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Communicator, CUstream) -> Code,
    async_error: unsafe extern "C" fn(Communicator, *mut Code) -> Code,
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
}

impl Functions {
    /// The functions of a library that has them all.
    fn of(library: &libloading::Library) -> Result<Functions, libloading::Error> {
        // SAFETY: functions of these names are the library's, which have these forms in all versions 2. It stays open
        // as long as the process lives.
        unsafe {
            Ok(Functions {
                version: *library.get(b"ncclGetVersion")?,
                init_all: *library.get(b"ncclCommInitAll")?,
                destroy: *library.get(b"ncclCommDestroy")?,
                group_start: *library.get(b"ncclGroupStart")?,
                group_end: *library.get(b"ncclGroupEnd")?,
                all_gather: *library.get(b"ncclAllGather")?,
                async_error: *library.get(b"ncclCommGetAsyncError")?,
                error_string: *library.get(b"ncclGetErrorString")?,
            })
        }
    }

    /// What the library says of a result that is not good.
    fn expect(&self, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number.
        let words = unsafe { (self.error_string)(code) };
        if words.is_null() {
            return Err(format!("NCCL: error {code}"));
        }
        // SAFETY: text that ends with a zero, and stays until this thread's next call.
        Err(format!("NCCL: {}", unsafe { CStr::from_ptr(words) }.to_string_lossy()))
    }
}

/// A half of a result, and the room for both, on one card.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    /// Where both halves lie, without a gap between them.
    pub allocation: &'a Allocation,
    /// The first byte of the first half.
    pub first: usize,
}

impl Nccl {
    /// The library, where it is installed, has what is needed and says a version; beside `simulator` for simulated
    /// cards.
    fn open(simulator: Option<&Path>) -> Option<Nccl> {
        // SAFETY: the vendor's library, or ours in its place; its start registers what it has.
        let by_name = || unsafe { libloading::Library::new(NAME) }.ok();
        let library = match simulator {
            Some(simulator) => load(&simulator.with_file_name(STAND_IN)).then(by_name)?,
            None => by_name().or_else(|| load_first(&packages(&PACKAGES), &[NAME]).then(by_name)?),
        }?;
        let functions = Functions::of(&library).ok()?;
        std::mem::forget(library);
        let mut version = 0;
        // SAFETY: writes one number.
        functions.expect(unsafe { (functions.version)(&mut version) }).ok()?;
        let kind = if simulator.is_some() { "the stand-in for NCCL" } else { "NCCL" };
        Some(Nccl { functions, name: format!("{kind} {}", version_in_words(version)), pairs: Mutex::default() })
    }

    /// What it is, with its version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Completes the results of two cards, of which each has computed the half that is its: so many bytes. Comes behind
    /// what both were asked for before.
    pub fn gather(&self, ranks: [Rank; 2], half: usize) -> Result<(), String> {
        let cards = ranks.map(|rank| rank.allocation.card());
        let firsts = [0, 1].map(|index: usize| ranks[index].allocation.place(ranks[index].first, 2 * half));
        let [first, second] = firsts;
        let firsts = [first?, second?];
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pairs.iter().position(|pair| pair.is_of(cards));
        let index = match known {
            Some(index) => index,
            None => {
                pairs.push(Pair::new(self.functions, cards)?);
                pairs.len() - 1
            }
        };
        pairs[index].gather(cards, firsts, half)
    }
}

/// Two cards that communicate.
#[derive(Debug)]
struct Pair {
    functions: Functions,
    cards: [Arc<Card>; 2],
    communicators: [Communicator; 2],
}

// SAFETY: communicators may be used by any thread, one at a time: they are reached through a lock alone.
unsafe impl Send for Pair {}

impl Pair {
    fn new(functions: Functions, cards: [&Arc<Card>; 2]) -> Result<Pair, String> {
        let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut communicators = [ptr::null_mut(); 2];
        // The driver's numbers of cards are the library's.
        let numbers = cards.map(|card| card.device);
        // SAFETY: two cards that are open, whose contexts live as long as these communicators; the library writes two
        // of them.
        let made =
            cards[0].call(|| Ok(unsafe { (functions.init_all)(communicators.as_mut_ptr(), 2, numbers.as_ptr()) }))?;
        functions.expect(made)?;
        Ok(Pair { functions, cards: cards.map(Arc::clone), communicators })
    }

    fn is_of(&self, cards: [&Arc<Card>; 2]) -> bool {
        self.cards.each_ref().map(|card| card.device) == cards.map(|card| card.device)
    }

    /// On streams of these cards, which may be others' than those that it was set up with.
    fn gather(&self, cards: [&Arc<Card>; 2], firsts: [u64; 2], half: usize) -> Result<(), String> {
        let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
        self.communicators.iter().try_for_each(|communicator| self.look(*communicator))?;
        // SAFETY: a group of this thread, which ends below whatever is said in between.
        self.functions.expect(unsafe { (self.functions.group_start)() })?;
        let asked = (0..2).try_for_each(|index| {
            let (first, stream) = (firsts[index], cards[index].stream);
            let own = first + (index * half) as u64;
            let communicator = self.communicators[index];
            // SAFETY: two halves on the card of this rank, which waits for its own work before they are freed; the
            // stream is that card's.
            let code = unsafe {
                (self.functions.all_gather)(
                    own as *const c_void,
                    first as *mut c_void,
                    half,
                    BYTES,
                    communicator,
                    stream,
                )
            };
            self.functions.expect(code)
        });
        // SAFETY: the group that began above.
        let ended = self.functions.expect(unsafe { (self.functions.group_end)() });
        asked.and(ended)
    }

    /// Fails where something went wrong behind the calls before.
    fn look(&self, communicator: Communicator) -> Result<(), String> {
        let mut error = 0;
        // SAFETY: a communicator that is there; writes one number.
        self.functions.expect(unsafe { (self.functions.async_error)(communicator, &mut error) })?;
        self.functions.expect(error)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Bytes may be under way. What fails here has failed before, and was told then.
        let _told = self.cards.each_ref().map(|card| card.wait());
        for communicator in self.communicators {
            // SAFETY: made once, given back once.
            let _told = self.cards[0].call(|| Ok(unsafe { (self.functions.destroy)(communicator) }));
        }
    }
}

/// `2.27.3` for 22703: four digits up to 2.8, five since.
fn version_in_words(version: c_int) -> String {
    let thousands = if version < 10_000 { 1_000 } else { 10_000 };
    format!("{}.{}.{}", version / thousands, version % thousands / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_as_the_vendor_writes_them() {
        for (version, words) in [(2_804, "2.8.4"), (20_901, "2.9.1"), (22_703, "2.27.3")] {
            assert_eq!(version_in_words(version), words);
        }
    }

    #[test]
    fn no_stand_in_is_no_library() {
        let folder = tempfile::tempdir().unwrap();
        let library = Library::new(Some(folder.path().join("libtrueup_cuda_sim.so")));
        assert!(library.get().is_none());
    }
}
