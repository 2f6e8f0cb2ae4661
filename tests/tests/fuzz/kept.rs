//! Inputs that once failed: every run begins with them.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use trueup_tests::fuzz::Target;
use trueup_tests::root;

/// Bytes of an input that are shown; the file has all.
const SHOWN: usize = 300;

/// Kept inputs of a target with their names, in order.
pub fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = root().join("tests/crashes").join(target.name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.sort();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, fs::read(path).expect("it was just listed"))
    };
    files.iter().map(named).collect()
}

/// Writes an input beside the build's files; says where, and shows its beginning.
pub fn keep(target: &Target, input: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).expect("a directory can be made");
    let sum = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let path = folder.join(format!("{}-{sum:016x}.bin", target.name));
    fs::write(&path, input).expect("a file can be written");
    let mut shown = String::new();
    for byte in input.iter().take(SHOWN) {
        write!(shown, "{}", std::ascii::escape_default(*byte)).expect("a text grows");
    }
    format!("{} bytes in {}: {shown}", input.len(), path.display())
}
