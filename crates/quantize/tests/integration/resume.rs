//! A run that is interrupted in the middle and one that goes on with it: the bytes and the report of an undisturbed
//! run.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use trueup_blocks::DType;
use trueup_formats::gguf::{Gguf, GgufPlan, GgufWriter, Metadata};
use trueup_formats::{Checkpoint, TensorInfo, join_split_scale};
use trueup_quantize::{Layout, NoProgress, Options, Progress, Recipe, Report, Resumed, quantize};

/// Tensors of the model, of one chunk each but for the fourth, which has three.
const TENSORS: usize = 9;

fn model(folder: &Path) -> PathBuf {
    let path = folder.join("model.gguf");
    let rows = |tensor: usize| if tensor == 3 { 384 } else { 24 + tensor as u64 };
    let info =
        |tensor| TensorInfo::new(format!("blk.{tensor}.ffn_up.weight"), &[2048, rows(tensor)], DType::F32).unwrap();
    let infos: Vec<TensorInfo> = (0..TENSORS).map(info).collect();
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let writer = GgufWriter::create(GgufPlan::new(&path, &metadata, &infos, None).unwrap(), &[]).unwrap();
    for (tensor, info) in infos.iter().enumerate() {
        let mut state = 7 + tensor as u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let bytes: Vec<u8> = (0..info.elements()).flat_map(|_| next().to_le_bytes()).collect();
        writer.write(tensor, 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn options(dtype: DType, layout: Layout, threads: usize) -> Options {
    Options { recipe: Recipe::new(Some(dtype)), layout, threads: Some(threads), dry_run: false, resume: true }
}

fn open(path: &Path) -> Box<dyn Checkpoint> {
    join_split_scale(Box::new(Gguf::open(path).unwrap())).unwrap()
}

fn run(source: &Path, target: &Path, options: &Options) -> Report {
    quantize(open(source).as_ref(), target, options, &NoProgress).unwrap()
}

/// Ends the run by a panic in each chunk after so many.
struct Bomb {
    chunks: u64,
    read: AtomicU64,
}

impl Progress for Bomb {
    fn start(&self, _total_bytes: u64) {}

    fn advance(&self, _bytes: u64) {
        assert!(self.read.fetch_add(1, Ordering::Relaxed) + 1 < self.chunks, "the run ends here");
    }

    fn reused(&self, _bytes: u64) {}
}

fn interrupted(source: &Path, target: &Path, options: &Options, chunks: u64) {
    let bomb = Bomb { chunks, read: AtomicU64::new(0) };
    let source = open(source);
    let ended = catch_unwind(AssertUnwindSafe(|| quantize(source.as_ref(), target, options, &bomb)));
    assert!(ended.is_err(), "the run came to its end");
    assert!(!target.exists());
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The report without what differs by design.
fn plain(report: Report) -> Report {
    Report { resumed: None, ..report }
}

#[test]
fn an_interrupted_run_is_gone_on_with_in_both_layouts() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    for (dtype, layout) in [(DType::Q4_0, Layout::Block), (DType::Q8_0, Layout::Split), (DType::F16, Layout::Block)] {
        let (whole, target) = (folder.path().join("whole.gguf"), folder.path().join("out.gguf"));
        let options = options(dtype, layout, 1);
        let expected = run(&source, &whole, &Options { resume: false, ..options.clone() });
        // Chunk 5 is the second of the fourth tensor.
        interrupted(&source, &target, &options, 5);
        let report = run(&source, &target, &Options { threads: Some(2), ..options.clone() });
        let bytes_taken_over = expected.tensors[..3].iter().map(|line| line.bytes).sum();
        let resumed = Resumed { tensors: TENSORS, taken_over: 3, bytes_taken_over, redone: 0 };
        assert_eq!(report.resumed, Some(resumed), "{dtype}");
        assert_eq!(plain(report), expected, "{dtype}: what tensors lost is known for those that were taken over");
        assert!(fs::read(&whole).unwrap() == fs::read(&target).unwrap(), "{dtype}: other bytes");
        fs::remove_file(&target).unwrap();
        assert!(!names(folder.path()).iter().any(|name| name.ends_with(".partial")));
    }
}

#[test]
fn a_run_may_be_interrupted_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let (whole, target) = (folder.path().join("whole.gguf"), folder.path().join("out.gguf"));
    let options = options(DType::Q5_1, Layout::Block, 1);
    run(&source, &whole, &options);
    // The large tensor needs three chunks in one run.
    (0..3).for_each(|_| interrupted(&source, &target, &options, 4));
    let resumed = run(&source, &target, &options).resumed.unwrap();
    assert_eq!((resumed.taken_over, resumed.redone), (7, 0));
    assert!(fs::read(&whole).unwrap() == fs::read(&target).unwrap());
    let sentence = Resumed { tensors: 9, taken_over: 7, bytes_taken_over: 1234, redone: 1 }.sentence();
    assert_eq!(sentence, "resumed: 7 of 9 tensors reused (1234 bytes), 1 redone");
}

#[test]
fn scales_without_their_values_are_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let (whole, target) = (folder.path().join("whole.gguf"), folder.path().join("out.gguf"));
    let options = options(DType::Q8_0, Layout::Split, 1);
    run(&source, &whole, &options);
    interrupted(&source, &target, &options, 3);
    // The journal of two tensors has four records: without the last, the second tensor has values and no scales.
    let journal = folder.path().join(".out.gguf.journal.partial");
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 1]).unwrap();
    let resumed = run(&source, &target, &options).resumed.unwrap();
    assert_eq!((resumed.taken_over, resumed.redone), (1, 0));
    assert!(fs::read(&whole).unwrap() == fs::read(&target).unwrap());
}

#[test]
fn damaged_tensors_are_done_again_and_other_jobs_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let target = folder.path().join("out.gguf");
    let options = options(DType::Q8_0, Layout::Block, 1);
    let expected = |options: &Options| {
        let whole = folder.path().join("whole.gguf");
        run(&source, &whole, options);
        fs::read(whole).unwrap()
    };
    let partial = folder.path().join(".out.gguf.resume.partial");
    interrupted(&source, &target, &options, 4);
    let mut bytes = fs::read(&partial).unwrap();
    let place = 30_000;
    bytes[place] ^= 4;
    fs::write(&partial, bytes).unwrap();
    let report = run(&source, &target, &options);
    let resumed = report.resumed.unwrap();
    assert_eq!((resumed.taken_over, resumed.redone), (2, 1));
    assert!(expected(&options) == fs::read(&target).unwrap());
    fs::remove_file(&target).unwrap();
    interrupted(&source, &target, &options, 4);
    for other in [
        Options { recipe: Recipe::new(Some(DType::Q8_0)).rules(vec!["blk.8=f16".parse().unwrap()]), ..options.clone() },
        Options { layout: Layout::Split, ..options.clone() },
    ] {
        let report = run(&source, &target, &other);
        assert_eq!(report.resumed.map(|resumed| (resumed.taken_over, resumed.redone)), Some((0, 0)));
        assert!(report.notes.iter().any(|note| note.contains("made with other options")), "{:?}", report.notes);
        assert!(expected(&other) == fs::read(&target).unwrap());
        fs::remove_file(&target).unwrap();
        interrupted(&source, &target, &options, 4);
    }
    // Other weights of the same size.
    let mut bytes = fs::read(&source).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    fs::write(&source, bytes).unwrap();
    let report = run(&source, &target, &options);
    assert_eq!(report.resumed.unwrap().taken_over, 0);
    assert!(report.notes.iter().any(|note| note.contains("or they have changed")), "{:?}", report.notes);
    assert!(expected(&options) == fs::read(&target).unwrap());
}

/// A weight that no type can hold fails the run; what came before is kept, and the message says so.
#[test]
fn an_error_keeps_what_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let target = folder.path().join("out.gguf");
    let mut bytes = fs::read(&source).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&source, bytes).unwrap();
    let options = options(DType::Q8_0, Layout::Block, 1);
    for (resume, kept) in [(true, true), (false, false)] {
        let options = Options { resume, ..options.clone() };
        let error = quantize(open(&source).as_ref(), &target, &options, &NoProgress).unwrap_err().to_string();
        assert!(error.contains("is NaN"), "{error}");
        assert_eq!(error.contains("kept for a run with --resume"), kept, "{error}");
        assert_eq!(names(folder.path()).iter().any(|name| name.ends_with(".partial")), kept);
    }
}
