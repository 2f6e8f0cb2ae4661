//! Weights on the grid of a block type are found, stored without loss, and named in notes; other weights are not.

use std::fs;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup_formats::{Checkpoint, Gguf, TensorInfo};
use trueup_quantize::{Encoder, Layout, NoProgress, Options, Recipe, Report};
use trueup_quantize::{decode_exact, exact_types, file_bytes, quantize};

/// A number from 0 to 1 for each place.
fn noise(place: usize) -> f32 {
    let mut state = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((state ^ (state >> 31)) >> 40) as f32 / (1u64 << 24) as f32
}

/// Rows of 768 weights: a scale with few digits for each group, times an integer.
fn int4(rows: usize, group: usize, (low, high): (i32, i32)) -> Vec<f32> {
    let scale = |group: usize| (1.0 + (noise(group + 7_000_000) * 64.0).floor()) / 4096.0;
    let code = |place: usize| low + (noise(place) * (high - low + 1) as f32) as i32;
    (0..rows * 768).map(|place| scale(place / group) * code(place) as f32).collect()
}

/// A file of bf16 matrices with rows of 768 weights.
fn file(folder: &Path, tensors: &[(&str, Vec<f32>)]) -> PathBuf {
    let path = folder.join("source.gguf");
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    let info = |(name, weights): &(&str, Vec<f32>)| {
        TensorInfo::new(*name, &[768, weights.len() as u64 / 768], DType::Bf16).expect("small")
    };
    let infos: Vec<TensorInfo> = tensors.iter().map(info).collect();
    let writer = GgufWriter::create(GgufPlan::new(&path, &metadata, &infos, None).expect("a plan"), &[]);
    let writer = writer.expect("a file");
    for (number, (_, weights)) in tensors.iter().enumerate() {
        let mut bytes = vec![0; weights.len() * 2];
        (DType::Bf16.codec().expect("bf16 has a codec").encode)(weights, &mut bytes);
        writer.write(number, 0, &bytes).expect("it is written");
    }
    writer.finish().expect("it is complete");
    path
}

fn quantized(source: &Path, recipe: Recipe) -> (Report, Gguf) {
    let target = source.with_file_name("target.gguf");
    fs::remove_file(&target).ok();
    let options = Options { recipe, layout: Layout::Block, threads: None, dry_run: false, resume: false };
    let source = Gguf::open(source).expect("a file");
    let report = quantize(&source, &target, &options, &NoProgress).expect("it is quantized");
    (report, Gguf::open(target).expect("a file"))
}

/// Whether decoding and rounding to bf16 gives the same bytes, except for the sign of zeros.
fn is_exact(source: &Gguf, target: &Gguf, tensor: usize) -> bool {
    let read = |file: &Gguf| {
        let info = &file.tensors()[tensor];
        let mut bytes = vec![0; info.bytes as usize];
        file.read(tensor, 0, &mut bytes).expect("it is read");
        let weights: Vec<f32> = decode_exact(info.dtype, &bytes).iter().map(|weight| *weight as f32).collect();
        let (mut rounded, mut back) = (vec![0; weights.len() * 2], vec![0.0; weights.len()]);
        let bf16 = DType::Bf16.codec().expect("bf16 has a codec");
        (bf16.encode)(&weights, &mut rounded);
        (bf16.decode)(&rounded, &mut back);
        back
    };
    read(source) == read(target)
}

const NAMES: [&str; 5] = [
    "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",
    "blk.0.ffn_up.weight",
    "blk.0.ffn_gate.weight",
    "blk.0.ffn_down.weight",
];

fn grids(folder: &Path) -> PathBuf {
    let random = (0..40 * 768).map(|place| noise(place) - 0.5).collect();
    // All but the last row, which no sample needs to meet.
    let mut near = int4(4000, 32, (-7, 7));
    let last = near.len() - 700;
    near[last] = 0.777;
    let tensors = [int4(40, 32, (-7, 7)), int4(40, 128, (-3, 12)), int4(40, 256, (-1, 1)), random, near];
    file(folder, &NAMES.into_iter().zip(tensors).collect::<Vec<_>>())
}

#[test]
fn the_smallest_exact_type_is_found() {
    let scratch = tempfile::tempdir().expect("a folder");
    let source = Gguf::open(grids(scratch.path())).expect("a file");
    for threads in [1, 3] {
        let found = (0..NAMES.len()).map(|tensor| {
            let types = exact_types(&source, tensor, None, Some(threads)).expect("it is read");
            types.smallest()
        });
        let expected = [Some(DType::Q4_0), Some(DType::Q5_0), Some(DType::Tq2_0), None, None];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn weights_on_a_grid_are_stored_without_loss_and_others_are_named() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = grids(scratch.path());
    let source = Gguf::open(&path).expect("a file");
    let rules = ["attn_k=q5_0", "ffn_up=tq2_0"].map(|rule| rule.parse().expect("a rule")).to_vec();
    let (report, target) = quantized(&path, Recipe::new(Some(DType::Q4_0)).pure(true).rules(rules));
    let exact: Vec<bool> = (0..NAMES.len()).map(|tensor| is_exact(&source, &target, tensor)).collect();
    assert_eq!(exact, [true, true, true, false, false]);
    let note = "3 tensors on the grid of the new type, stored without loss: blk.0.attn_q.weight (q4_0), \
                blk.0.attn_k.weight (q5_0), blk.0.ffn_up.weight (tq2_0)";
    assert_eq!(report.notes, [note]);

    let (report, target) = quantized(&path, Recipe::new(Some(DType::Q4K)).pure(true));
    assert!((0..NAMES.len()).all(|tensor| !is_exact(&source, &target, tensor)));
    let found = [("q4_0", "attn_q"), ("q5_0", "attn_k"), ("tq2_0", "ffn_up")];
    for (note, (dtype, name)) in report.notes.iter().zip(found) {
        let rule = format!(r"--rule '^blk\.[0-9]+\.{name}\.weight$={dtype}' before other rules: blk.0.{name}.weight");
        assert!(note.ends_with(&format!("stores all weights without loss; to use it, pass {rule}")), "{note}");
    }
    assert_eq!(report.notes.len(), 3);
}

#[test]
fn the_suggested_rule_matches_only_the_tensors_on_the_grid() {
    let scratch = tempfile::tempdir().expect("a folder");
    let random = || (0..4 * 768).map(|place| noise(place) - 0.5).collect::<Vec<f32>>();
    let grid = || int4(4, 256, (-1, 1));
    let tensors = [
        ("token_embd.weight", random()),
        ("blk.0.attn_q.weight", grid()),
        ("blk.1.attn_q.weight", random()),
        ("blk.0.ffn_up.weight", grid()),
        ("blk.1.ffn_up.weight", grid()),
    ];
    let path = file(scratch.path(), &tensors);
    let (report, _) = quantized(&path, Recipe::new(Some(DType::Q4K)));
    let [note] = report.notes.as_slice() else { panic!("{:?}", report.notes) };
    let rule = note.split('\'').nth(1).expect("a quoted rule");
    assert_eq!(rule, r"^(blk\.0\.attn_q\.weight|blk\.[0-9]+\.ffn_up\.weight)$=tq2_0");
    let rules = vec![rule.parse().expect("a rule")];
    let (report, _) = quantized(&path, Recipe::new(Some(DType::Q4K)).rules(rules));
    let types: Vec<&str> = report.tensors.iter().map(|tensor| tensor.dtype).collect();
    let is_exact = [false, true, false, true, true];
    assert_eq!(types.iter().map(|dtype| *dtype == "tq2_0").collect::<Vec<_>>(), is_exact, "{types:?}");
}

#[test]
fn ordinary_weights_have_the_bytes_of_the_codec_and_no_note() {
    let scratch = tempfile::tempdir().expect("a folder");
    let random: Vec<f32> = (0..40 * 768).map(|place| noise(place) - 0.5).collect();
    let zeros = vec![0.0; 4 * 768];
    let path = file(scratch.path(), &[("blk.0.ffn_up.weight", random.clone()), ("blk.0.ffn_down.weight", zeros)]);
    let (report, target) = quantized(&path, Recipe::new(Some(DType::Q4_0)).pure(true));
    assert_eq!(report.notes, [""; 0]);
    let (mut bf16, mut rounded) = (vec![0; random.len() * 2], vec![0.0; random.len()]);
    let codec = DType::Bf16.codec().expect("bf16 has a codec");
    (codec.encode)(&random, &mut bf16);
    (codec.decode)(&bf16, &mut rounded);
    let mut expected = vec![0; random.len() / 32 * 18];
    (DType::Q4_0.codec().expect("q4_0 has a codec").encode)(&rounded, &mut expected);
    let mut found = vec![0; expected.len()];
    target.read(0, 0, &mut found).expect("it is read");
    assert!(found == expected);
}

#[test]
fn single_tensors_get_the_bytes_of_the_file() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = grids(scratch.path());
    let source = Gguf::open(&path).expect("a file");
    let encoder = Encoder::new(&source, None, Some(2)).expect("a GGUF file");
    for dtype in [DType::Q4_0, DType::Q5_0, DType::Q4K] {
        let recipe = Recipe::new(Some(dtype)).pure(true);
        let (_, target) = quantized(&path, recipe.clone());
        for (tensor, info) in target.tensors().iter().enumerate() {
            let mut bytes = vec![0; info.bytes as usize];
            target.read(tensor, 0, &mut bytes).expect("it is read");
            let encoded = encoder.encode(tensor, dtype).expect("it is encoded");
            assert!(encoded.bytes == bytes, "{}: {dtype}", info.name);
        }
        let options = Options { recipe, layout: Layout::Block, threads: None, dry_run: false, resume: false };
        let expected = fs::metadata(target.path()).expect("a file").len();
        assert_eq!(file_bytes(&source, &options, None).expect("a plan"), expected, "{dtype}");
    }
}

#[test]
fn weights_that_are_too_large_for_a_type_are_found() {
    let scratch = tempfile::tempdir().expect("a folder");
    let mut weights: Vec<f32> = (0..2 * 768).map(|place| noise(place) - 0.5).collect();
    weights[800] = 1e6;
    let source = Gguf::open(file(scratch.path(), &[(NAMES[0], weights)])).expect("a file");
    let encoder = Encoder::new(&source, None, None).expect("a GGUF file");
    let fits = |dtype: DType| encoder.encode_if_it_fits(0, dtype).expect("it is read").is_some();
    assert_eq!([DType::F16, DType::Q4_0, DType::Q8_0].map(fits), [false, false, true]);
    let error = encoder.encode(0, DType::F16).err().expect("it does not fit").to_string();
    assert!(error.contains("too large for f16"), "{error}");
}
