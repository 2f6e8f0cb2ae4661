//! What all fuzz targets share: an input goes to the target of that name, and is changed by its grammar as well as by
//! libFuzzer.
//!
//! docs/fuzzing.md says how to run them.

pub use libfuzzer_sys;

use libfuzzer_sys::fuzzer_mutate;
use std::cell::OnceCell;
use std::path::PathBuf;
use tempfile::TempDir;
use trueup_tests::fuzz::node::Node;
use trueup_tests::fuzz::random::Random;
use trueup_tests::fuzz::{Target, changed, target};

/// A target with what its inputs draw on.
pub struct Fuzzed {
    target: &'static Target,
    /// Good inputs taken apart.
    donors: OnceCell<Vec<Node>>,
    scratch: TempDir,
}

impl Fuzzed {
    /// The target of that name.
    pub fn new(name: &str) -> Fuzzed {
        let target = target(name).unwrap_or_else(|| panic!("no target is called {name}"));
        // In memory where it can be: outputs are synced, which a disk takes long for.
        let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Fuzzed { target, donors: OnceCell::new(), scratch: scratch.expect("a scratch folder") }
    }

    /// Gives an input to the target; a law that is broken is a panic, which libFuzzer takes for a crash.
    pub fn run(&self, input: &[u8]) {
        let folder: PathBuf = self.scratch.path().join("files");
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir(&folder).expect("a scratch folder can be made");
        if let Err(problem) = (self.target.run)(input, &folder) {
            panic!("{problem}");
        }
    }

    /// Changes an input in place: fields by its grammar, or bytes as libFuzzer does. Gives the new size.
    pub fn mutate(&self, data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
        let mut random = Random::new(seed.into());
        if random.once_in(4) {
            return fuzzer_mutate(data, size, size_max);
        }
        let grammar = self.target.grammar;
        let donors = self.donors.get_or_init(|| (self.target.seeds)().iter().map(|seed| grammar(seed)).collect());
        let bytes = changed(self.target, &grammar(&data[..size]), donors, &mut random);
        let size = bytes.len().min(size_max);
        data[..size].copy_from_slice(&bytes[..size]);
        size
    }
}

/// The entry of a fuzz target.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        thread_local! {
            static FUZZED: $crate::Fuzzed = $crate::Fuzzed::new($name);
        }
        $crate::libfuzzer_sys::fuzz_target!(|input: &[u8]| FUZZED.with(|fuzzed| fuzzed.run(input)));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            FUZZED.with(|fuzzed| fuzzed.mutate(data, size, max_size, seed))
        });
    };
}
