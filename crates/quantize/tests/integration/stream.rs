//! Files in, files out: the same bytes for any number of threads, layouts that come back, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::{Gguf, GgufPlan, GgufWriter, Metadata};
use trueup_formats::{Checkpoint, TensorInfo, join_split_scale};
use trueup_quantize::{Layout, NoProgress, Options, Recipe, Report, quantize};

/// Deterministic weights in about -1..1 with some large ones.
pub fn weights(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|place| if place % 97 == 5 { next() * 9.0 } else { next() }).collect()
}

/// Writes f32 tensors under these names and shapes.
pub fn write_model(path: &Path, tensors: &[(&str, &[u64], Vec<f32>)]) {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    metadata.insert("general.file_type", 0u32);
    let infos: Vec<TensorInfo> =
        tensors.iter().map(|(name, shape, _)| TensorInfo::new(*name, shape, DType::F32).unwrap()).collect();
    let writer = GgufWriter::create(GgufPlan::new(path, &metadata, &infos, None).unwrap(), &[]).unwrap();
    for (place, (_, _, values)) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write(place, 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// A model with an embedding, a matrix of several chunks, one whose rows are no whole blocks, and a norm.
fn model(folder: &Path) -> PathBuf {
    let path = folder.join("model.gguf");
    let tensors: [(&str, &[u64], Vec<f32>); 4] = [
        ("token_embd.weight", &[96, 40], weights(96 * 40, 1)),
        ("blk.0.ffn_up.weight", &[4096, 600], weights(4096 * 600, 2)),
        ("blk.0.odd.weight", &[33, 5], weights(33 * 5, 3)),
        ("output_norm.weight", &[96], weights(96, 4)),
    ];
    write_model(&path, &tensors);
    path
}

fn options(dtype: Option<DType>, layout: Layout, threads: usize) -> Options {
    Options { recipe: Recipe::new(dtype), layout, threads: Some(threads), dry_run: false, resume: false }
}

pub fn open(path: &Path) -> Box<dyn Checkpoint> {
    join_split_scale(Box::new(Gguf::open(path).unwrap())).unwrap()
}

fn run(source: &Path, target: &Path, options: &Options) -> Report {
    quantize(open(source).as_ref(), target, options, &NoProgress).unwrap()
}

fn tensor_bytes(path: &Path, name: &str) -> (DType, Vec<u8>) {
    let file = open(path);
    let place = file.tensors().iter().position(|tensor| tensor.name == name).unwrap();
    let mut bytes = vec![0; file.tensors()[place].bytes as usize];
    file.read(place, 0, &mut bytes).unwrap();
    (file.tensors()[place].dtype, bytes)
}

#[test]
fn bytes_are_the_codecs_and_do_not_depend_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    for dtype in [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q8_1, DType::F16, DType::Bf16]
    {
        let target = |threads: usize| folder.path().join(format!("{dtype}-{threads}.gguf"));
        let reports =
            [1, 2, 5].map(|threads| run(&source, &target(threads), &options(Some(dtype), Layout::Block, threads)));
        let files = [1, 2, 5].map(|threads| fs::read(target(threads)).unwrap());
        assert!(files[0] == files[1] && files[0] == files[2], "{dtype}: bytes depend on threads");
        assert_eq!(reports[0], reports[2], "{dtype}: the report depends on threads");
        let (found, bytes) = tensor_bytes(&target(1), "blk.0.ffn_up.weight");
        let mut expected = vec![0; bytes.len()];
        (dtype.codec().unwrap().encode)(&weights(4096 * 600, 2), &mut expected);
        assert!(found == dtype && bytes == expected, "{dtype}: not the codec's bytes");
    }
}

#[test]
fn the_report_says_what_became_of_each_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let report = run(&source, &folder.path().join("q4.gguf"), &options(Some(DType::Q4_0), Layout::Block, 2));
    let types: Vec<&str> = report.tensors.iter().map(|line| line.dtype).collect();
    assert_eq!(types, ["q8_0", "q4_0", "f16", "f32"]);
    assert_eq!(
        report.tensors[2].note,
        "stored as f16: the row length 33 is not a multiple of 32, the block size of q4_0"
    );
    assert_eq!(report.tensors[3].rmse, Some(0.0));
    let rmse: Vec<f64> = report.tensors.iter().map(|line| line.rmse.unwrap()).collect();
    assert!(rmse[0] < rmse[1] && rmse[1] < 1.0, "8 bits lose less than 4: {rmse:?}");
    assert!(report.tensors[1].cosine.unwrap() > 0.95);
    let file = Gguf::open(folder.path().join("q4.gguf")).unwrap();
    assert_eq!(file.metadata().u64("general.file_type"), Ok(2));
    assert_eq!(file.metadata().u64("general.quantization_version"), Ok(2));
}

#[test]
fn the_split_layout_comes_back_to_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    for dtype in [DType::Q4_0, DType::Q8_0] {
        let path = |name: &str| folder.path().join(format!("{dtype}-{name}.gguf"));
        run(&source, &path("blocks"), &options(Some(dtype), Layout::Block, 2));
        run(&source, &path("split"), &options(Some(dtype), Layout::Split, 2));
        run(&path("split"), &path("back"), &options(None, Layout::Block, 2));
        assert!(
            fs::read(path("blocks")).unwrap() == fs::read(path("back")).unwrap(),
            "{dtype}: the file came back changed"
        );
        let split = Gguf::open(path("split")).unwrap();
        assert_eq!(split.metadata().string("trueup.layout"), Ok("split-scale"));
        let shapes: Vec<(String, DType, Vec<u64>)> = split
            .tensors()
            .iter()
            .filter(|tensor| tensor.name.starts_with("blk.0.ffn_up"))
            .map(|tensor| (tensor.name.clone(), tensor.dtype, tensor.shape.clone()))
            .collect();
        let columns = if dtype == DType::Q4_0 { 2048 } else { 4096 };
        let values = ("blk.0.ffn_up.weight".to_owned(), DType::I8, vec![columns, 600]);
        assert_eq!(shapes, [values, ("blk.0.ffn_up.weight.scale".to_owned(), DType::F16, vec![128, 600])]);
        let (found, _) = tensor_bytes(&path("split"), "blk.0.ffn_up.weight");
        assert_eq!(found, dtype, "a split file is seen as blocks");
    }
}

#[test]
fn weights_that_no_type_can_hold_are_refused_and_the_old_output_stays() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (f32::NAN, DType::Q8_0, "tensor m.weight: element [6, 1] is NaN"),
        (f32::INFINITY, DType::F16, "tensor m.weight: element [6, 1] is infinity"),
        (1e6, DType::F16, "tensor m.weight: element [6, 1] is 1000000, too large for f16"),
    ];
    let target = folder.path().join("out.gguf");
    fs::write(&target, "the old file").unwrap();
    for (value, dtype, sentence) in cases {
        let mut values = weights(64 * 4, 9);
        values[70] = value;
        let source = folder.path().join("bad.gguf");
        write_model(&source, &[("m.weight", &[64, 4], values)]);
        let error = quantize(open(&source).as_ref(), &target, &options(Some(dtype), Layout::Block, 1), &NoProgress);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "the old file");
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing else is left behind: {left:?}");
}

/// A file with one tensor whose blocks are those of a few weights, the last of them changed.
fn write_damaged(path: &Path, dtype: DType, change: impl Fn(&mut [u8])) {
    let info = TensorInfo::new("m.weight", &[256, 700], dtype).unwrap();
    let mut bytes = vec![0; info.bytes as usize];
    (dtype.codec().unwrap().encode)(&weights(256 * 700, 5), &mut bytes);
    let start = bytes.len() - dtype.block_bytes();
    change(&mut bytes[start..]);
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let writer = GgufWriter::create(GgufPlan::new(path, &metadata, &[info], None).unwrap(), &[]).unwrap();
    writer.write(0, 0, &bytes).unwrap();
    writer.finish().unwrap();
}

/// `scale` at byte `place` of the last block.
type Damage = (DType, usize, &'static [u8], &'static str);

/// Blocks of the types that `--type q8_0` keeps, because it is larger.
#[test]
fn damaged_blocks_are_refused_whether_they_are_copied_or_encoded_again() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("bad.gguf"), folder.path().join("out.gguf"));
    let cases: [Damage; 8] = [
        (DType::Q4K, 0, &[0x00, 0x7e], "element [0, 699] is NaN"),
        (DType::Q4K, 2, &[0x00, 0xfc], "element [0, 699] is "),
        (DType::Q6K, 208, &[0x00, 0x7e], "element [0, 699] is NaN"),
        (DType::Iq4Xs, 0, &[0x00, 0x7c], "element [0, 699] is "),
        (DType::Tq2_0, 64, &[0xff, 0x7f], "element [0, 699] is NaN"),
        (DType::Mxfp4, 0, &[0xff], "element [224, 699] is NaN"),
        (DType::Nvfp4, 3, &[0x7f], "element [240, 699] is NaN"),
        (DType::F16, 0, &[0x00, 0xfc], "element [255, 699] is -infinity"),
    ];
    for (dtype, place, bytes, sentence) in cases {
        write_damaged(&source, dtype, |block| block[place..place + bytes.len()].copy_from_slice(bytes));
        for wanted in [None, Some(DType::Q8_0), Some(DType::F32)] {
            let options = options(wanted, Layout::Block, 2);
            let error = quantize(open(&source).as_ref(), &target, &options, &NoProgress).unwrap_err().to_string();
            assert!(error.contains(&format!("tensor m.weight: {sentence}")), "{dtype} as {wanted:?}: {error}");
            assert!(
                error.ends_with("; the model is damaged; get the file again, or convert the model again"),
                "{error}"
            );
            assert!(!target.exists());
        }
        write_damaged(&source, dtype, |_| ());
        let report = run(&source, &target, &options(None, Layout::Block, 2));
        assert_eq!((report.tensors[0].dtype, report.tensors[0].rmse), (dtype.name(), Some(0.0)));
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn notes_tell_quantizing_twice_from_decoding() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let (coded, target) = (folder.path().join("q8_0.gguf"), folder.path().join("out.gguf"));
    let notes = |source: &Path, dtype: DType| run(source, &target, &options(Some(dtype), Layout::Block, 1)).notes;
    assert_eq!(notes(&source, DType::Q8_0), [""; 0]);
    run(&source, &coded, &options(Some(DType::Q8_0), Layout::Block, 1));
    let twice = notes(&coded, DType::Q4_0).join("; ");
    assert!(
        twice.ends_with("quantized a second time, so the errors add up; start from the unquantized file"),
        "{twice}"
    );
    let decoded = notes(&coded, DType::F16).join("; ");
    assert!(decoded.ends_with("decoded to floating point; this does not restore the lost precision"), "{decoded}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = model(folder.path());
    let target = folder.path().join("out.gguf");
    let options = Options { dry_run: true, ..options(Some(DType::Q5_1), Layout::Block, 1) };
    let report = run(&source, &target, &options);
    assert_eq!(report.tensors[1].dtype, "q5_1");
    assert_eq!(report.tensors[1].rmse, None);
    assert!(!target.exists());
}

#[test]
fn names_in_refusals_are_escaped_and_few() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("many.gguf"), folder.path().join("out.gguf"));
    // A type without a codec, and rows that are no whole blocks.
    for (dtype, columns, wanted, strict) in
        [(DType::Iq2Xxs, 256, DType::F32, false), (DType::F32, 33, DType::Q8_0, true)]
    {
        let infos: Vec<TensorInfo> = (0..3000)
            .map(|number| TensorInfo::new(format!("a{number}\u{1b}[31m\u{202e}.weight"), &[columns, 2], dtype).unwrap())
            .collect();
        let mut metadata = Metadata::default();
        metadata.insert("general.architecture", "llama");
        let writer = GgufWriter::create(GgufPlan::new(&source, &metadata, &infos, None).unwrap(), &[]).unwrap();
        for (number, info) in infos.iter().enumerate() {
            writer.write(number, 0, &vec![0; info.bytes as usize]).unwrap();
        }
        writer.finish().unwrap();
        let mut options = options(Some(wanted), Layout::Block, 1);
        options.recipe = options.recipe.strict(strict);
        let error = quantize(open(&source).as_ref(), &target, &options, &NoProgress).unwrap_err().to_string();
        let count = if strict { "3000 tensors (first " } else { "and 2" };
        assert!(error.contains("a0\\u{1b}[31m\\u{202e}") && error.contains(count), "{error}");
        assert!(!error.contains(['\u{1b}', '\u{202e}']) && error.chars().count() < 900, "{error}");
    }
}
