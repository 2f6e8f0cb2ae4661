//! A conversion that is interrupted and gone on with, in one file and in several.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use trueup_blocks::DType;
use trueup_convert::{Options, Report, convert};
use trueup_formats::{Checkpoint, OpenOptions, open};
use trueup_quantize::{NoProgress, Progress, Recipe};

fn source(folder: &str) -> Box<dyn Checkpoint> {
    open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder), &OpenOptions::default()).unwrap()
}

/// Ends the run by a panic in each chunk after so many.
struct Bomb {
    chunks: u64,
    written: AtomicU64,
}

impl Progress for Bomb {
    fn start(&self, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {
        assert!(self.written.fetch_add(1, Ordering::Relaxed) + 1 < self.chunks, "the run ends here");
    }

    fn reused(&self, _bytes: u64) {}
}

fn interrupted(source: &dyn Checkpoint, folder: &Path, options: &Options, chunks: u64) {
    let bomb = Bomb { chunks, written: AtomicU64::new(0) };
    let output = folder.join("out.gguf");
    let ended = catch_unwind(AssertUnwindSafe(|| convert(source, &output, options, &bomb)));
    assert!(ended.is_err(), "the run came to its end");
}

fn run(source: &dyn Checkpoint, folder: &Path, options: &Options) -> Report {
    convert(source, &folder.join("out.gguf"), options, &NoProgress).unwrap()
}

/// Names and contents of all files of a folder, hidden ones too.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<(String, Vec<u8>)> =
        entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn an_interrupted_conversion_is_gone_on_with() {
    // Rows are sorted in llama2; the second is quantized on the way, and the third is split into more files than one.
    for (model, dtype, split_bytes_max) in [
        ("models/llama2", None, None),
        ("stories-1M", Some(DType::Q8_0), None),
        ("stories-1M", Some(DType::F16), Some(1 << 20)),
    ] {
        let source = source(model);
        let options = Options {
            recipe: Recipe::new(dtype),
            split: split_bytes_max.into(),
            threads: Some(1),
            resume: true,
            ..Options::default()
        };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let plain = Options { resume: false, ..options.clone() };
        assert_eq!(run(source.as_ref(), whole.path(), &plain).resumed, None);
        interrupted(source.as_ref(), parts.path(), &options, 12);
        assert!(files(parts.path()).iter().all(|(name, _)| name.ends_with(".partial")));
        interrupted(source.as_ref(), parts.path(), &options, 4);
        let report = run(source.as_ref(), parts.path(), &Options { threads: Some(3), ..options.clone() });
        let resumed = report.resumed.unwrap();
        assert_eq!(resumed.tensors, report.tensors.len(), "{model}");
        // Some chunks are pieces of one tensor; the one that the run ended in counts as nothing.
        assert!((8..=14).contains(&resumed.taken_over) && resumed.redone == 0, "{model}: {resumed:?}");
        let taken = &report.tensors[..resumed.taken_over];
        assert_eq!(resumed.bytes_taken_over, taken.iter().map(|line| line.bytes).sum::<u64>(), "{model}");
        assert!(files(whole.path()) == files(parts.path()), "{model}: other files");
    }
}

#[test]
fn another_size_of_files_begins_anew_and_leaves_nothing() {
    let source = source("stories-1M");
    let whole = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let of_size =
        |size: Option<u64>| Options { split: size.into(), threads: Some(1), resume: true, ..Options::default() };
    run(source.as_ref(), whole.path(), &of_size(None));
    interrupted(source.as_ref(), folder.path(), &of_size(Some(400_000)), 9);
    let report = run(source.as_ref(), folder.path(), &of_size(None));
    assert_eq!(report.resumed.map(|resumed| (resumed.taken_over, resumed.redone)), Some((0, 0)));
    assert!(report.notes.iter().any(|note| note.contains("made with other options")), "{:?}", report.notes);
    assert!(files(whole.path()) == files(folder.path()));
    // A run that is not to be resumed removes what was kept.
    fs::remove_file(folder.path().join("out.gguf")).unwrap();
    interrupted(source.as_ref(), folder.path(), &of_size(Some(400_000)), 9);
    run(source.as_ref(), folder.path(), &Options { resume: false, ..of_size(None) });
    assert!(files(whole.path()) == files(folder.path()));
}
