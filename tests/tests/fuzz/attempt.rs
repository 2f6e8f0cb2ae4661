//! One input given to a target, with everything that can go wrong turned into words.

use crate::ALLOCATOR;
use crate::parent::CURRENT;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trueup_tests::fuzz::{Answer, Target};

/// Bytes that any input may make its reader allocate.
const MEMORY_BYTES: usize = 64 << 20;

/// And for each byte of the input that many more.
const MEMORY_FACTOR: usize = 16;

/// Processor time that an input may take.
const SECONDS_MAX: f64 = 1.0;

/// Time on the wall after which an input hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the last panic said.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Inputs that were begun, for the watch.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// What an input cost.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// Processor seconds.
    pub seconds: f64,
    /// Bytes that were allocated at once.
    pub bytes: usize,
}

/// Runs one target.
pub struct Attempts {
    pub target: &'static Target,
    folder: PathBuf,
}

impl Attempts {
    /// Attempts of a target, in a folder of their own. Panics are noted from now on, and an input that hangs ends the
    /// process.
    pub fn new(target: &'static Target, folder: &Path) -> Attempts {
        std::panic::set_hook(Box::new(|info| {
            *PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = info.to_string().replace('\n', " ");
        }));
        std::thread::spawn(watch);
        Attempts { target, folder: folder.to_owned() }
    }

    /// Gives an input to the target. The error is a failure in words that are the same for the same fault.
    pub fn run(&self, input: &[u8]) -> (Result<Answer, String>, Cost) {
        fs::write(self.folder.join(CURRENT), input).expect("a scratch file can be written");
        let scratch = self.folder.join("files");
        drop(fs::remove_dir_all(&scratch));
        fs::create_dir(&scratch).expect("a scratch directory can be made");
        BEGUN.fetch_add(1, Ordering::Relaxed);
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = processor_seconds();
        let caught = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input, &scratch)));
        let seconds = processor_seconds() - start;
        let cost = Cost { seconds, bytes: ALLOCATOR.peak_usage().saturating_sub(before) };
        let said = match caught {
            Ok(said) => said,
            Err(_) => Err(PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()),
        };
        let limit = MEMORY_BYTES + MEMORY_FACTOR * input.len();
        let said = said.and_then(|answer| match cost {
            Cost { bytes, .. } if bytes > limit => {
                Err(format!("more memory was allocated than allowed: {bytes} bytes, at most {limit}"))
            }
            Cost { seconds, .. } if seconds > SECONDS_MAX => Err(format!("it was slow: {seconds:.2} s")),
            Cost { .. } => Ok(answer),
        });
        (said, cost)
    }
}

/// Processor time of all threads.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Ends the process when the same input is at work for too long.
fn watch() {
    loop {
        let before = BEGUN.load(Ordering::Relaxed);
        std::thread::sleep(PATIENCE);
        if BEGUN.load(Ordering::Relaxed) == before && before > 0 {
            println!("an input hangs for {} s", PATIENCE.as_secs());
            std::process::abort();
        }
    }
}

/// What a text says without its numbers and names: failures and answers of one kind are one.
pub fn kind_of(text: &str) -> String {
    let mut kind = String::new();
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        if !quoted && !c.is_ascii_digit() {
            kind.push(c);
        }
    }
    kind
}
