//! Importance matrices: the same bytes for any number of threads, and files that do not fit the model.

use crate::stream::{open, weights, write_model};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup_formats::{Gguf, Importance, TensorInfo};
use trueup_quantize::{ImportanceOptions, Layout, NoProgress, Options, Recipe, Report, quantize_with};

/// The types with blocks that are no copies of the older ones.
const TYPES: [DType; 11] = [
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Tq1_0,
    DType::Tq2_0,
];

const DENSE: &str = "blk.0.attn_q.weight";
const EXPERTS: &str = "blk.0.ffn_up_exps.weight";

/// An entry of an importance file: its weight, columns, and the tokens that each matrix saw.
type Entry<'a> = (&'a str, usize, Vec<f32>);

/// Entries that fit the model.
fn entries() -> Vec<Entry<'static>> {
    vec![(DENSE, 768, vec![64.0]), (EXPERTS, 512, vec![20.0, 30.0, 14.0])]
}

/// Writes a GGUF importance file with positive sums.
fn write_importance(path: &Path, entries: &[Entry]) {
    let mut metadata = Metadata::default();
    metadata.insert("general.type", "imatrix");
    metadata.insert("imatrix.datasets", vec!["text.txt".to_owned()]);
    metadata.insert("imatrix.chunk_count", 1u32);
    metadata.insert("imatrix.chunk_size", 64u32);
    let mut tensors: Vec<(TensorInfo, Vec<f32>)> = Vec::new();
    for (seed, (name, columns, counts)) in entries.iter().enumerate() {
        let (columns, matrices) = (*columns as u64, counts.len() as u64);
        let sums = weights((columns * matrices) as usize, seed as u32).iter().map(|value| value.abs() + 0.01).collect();
        let info = |end: &str, row: u64| {
            TensorInfo::new(format!("{name}{end}"), &[row, matrices], DType::F32).expect("a small tensor")
        };
        tensors.push((info(".in_sum2", columns), sums));
        tensors.push((info(".counts", 1), counts.clone()));
    }
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let plan = GgufPlan::new(path, &metadata, &infos, None).expect("a plan");
    let writer = GgufWriter::create(plan, &[]).expect("a writer");
    for (number, (_, values)) in tensors.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write(number, 0, &bytes).expect("space");
    }
    writer.finish().expect("space");
}

/// A model with experts whose matrices are two chunks, and a matrix whose rows are three super-blocks.
struct Scene {
    folder: tempfile::TempDir,
    model: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let model = folder.path().join("model.gguf");
        let tensors: [(&str, &[u64], Vec<f32>); 3] = [
            (DENSE, &[768, 40], weights(768 * 40, 1)),
            (EXPERTS, &[512, 200, 3], weights(512 * 200 * 3, 2)),
            ("output_norm.weight", &[512], weights(512, 3)),
        ];
        write_model(&model, &tensors);
        Scene { folder, model }
    }

    /// Quantizes the model with an importance file of these entries, if there are any.
    fn quantize(
        &self,
        dtype: DType,
        threads: usize,
        entries: &[Entry],
        allow_partial: bool,
    ) -> Result<(Report, Vec<u8>), String> {
        let importance = (!entries.is_empty()).then(|| {
            let path = self.folder.path().join("imatrix.gguf");
            write_importance(&path, entries);
            ImportanceOptions { file: Importance::open(&path).expect("a good file"), allow_partial, exact: false }
        });
        let recipe = Recipe::new(Some(dtype)).pure(true);
        let options = Options { recipe, layout: Layout::Block, threads: Some(threads), dry_run: false, resume: false };
        let target = self.folder.path().join("out.gguf");
        let source = open(&self.model);
        let report = quantize_with(source.as_ref(), &target, &options, importance.as_ref(), &NoProgress);
        let report = report.map_err(|error| error.to_string())?;
        Ok((report, fs::read(&target).expect("it was written")))
    }

    /// The refusal of importance files for q4_k, after the name of the file; and the note if the file is accepted.
    fn refused(&self, entries: &[Entry]) -> (String, String) {
        let refusal = self.quantize(DType::Q4K, 1, entries, false).expect_err("the file does not fit");
        let (report, _) = self.quantize(DType::Q4K, 1, entries, true).expect("partial files are allowed");
        let refusal = refusal.split_once("imatrix.gguf: ").expect("the file is named").1;
        (refusal.to_owned(), report.notes.join("; "))
    }
}

#[test]
fn bytes_of_every_type_do_not_depend_on_threads_with_and_without_importance() {
    let scene = Scene::new();
    for dtype in TYPES {
        let uses_importance = dtype.codec().expect("a codec").uses_importance;
        let mut errors = Vec::new();
        for entries in [Vec::new(), entries()] {
            let runs = [1, 2, 3].map(|threads| scene.quantize(dtype, threads, &entries, false).expect("a good model"));
            let has = if entries.is_empty() { "without" } else { "with" };
            assert!(runs[0].1 == runs[1].1 && runs[0].1 == runs[2].1, "{dtype} {has} importance: bytes differ");
            assert!(runs[0].0 == runs[1].0 && runs[0].0 == runs[2].0, "{dtype} {has} importance: reports differ");
            assert_eq!(runs[0].0.tensors[1].dtype, dtype.name());
            errors.push(runs[0].0.tensors[1].rmse.expect("measured"));
        }
        assert_eq!(errors[0] != errors[1], uses_importance, "{dtype}: {errors:?}");
    }
}

/// The note about an importance matrix that was not used, and whether the file names it.
fn unused(scene: &Scene, dtype: DType, entries: &[Entry]) -> (Option<String>, bool) {
    let (report, _) = scene.quantize(dtype, 1, entries, true).expect("a good model");
    let note = report.notes.iter().find_map(|note| note.strip_prefix("the importance matrix was not used: "));
    let file = Gguf::open(scene.folder.path().join("out.gguf")).expect("it was written");
    (note.map(str::to_owned), file.metadata().iter().any(|(key, _)| key.starts_with("quantize.imatrix.")))
}

#[test]
fn a_file_names_the_importance_matrix_only_if_a_tensor_is_encoded_with_it() {
    let scene = Scene::new();
    let not_used = |reason: &str| (Some(reason.to_owned()), false);
    for dtype in [DType::Q8_0, DType::Mxfp4, DType::F16, DType::F32] {
        let expected = not_used("no tensor is converted to a type that uses importance");
        assert_eq!(unused(&scene, dtype, &entries()), expected, "{dtype}");
    }
    for entries in [&entries()[..], &entries()[..1], &entries()[1..]] {
        assert_eq!(unused(&scene, DType::Q4_0, entries), (None, true), "{entries:?}");
    }
    let expected = not_used("it has no usable entry for the tensors that are converted to a type that uses importance");
    assert_eq!(unused(&scene, DType::Q4_0, &[("blk.9.attn_q.weight", 768, vec![1.0])]), expected);
    assert_eq!(unused(&scene, DType::Q4_0, &[(DENSE, 767, vec![1.0])]), expected);
    // All codes of q4_0 with the scale 0.5.
    let on_grid: Vec<f32> = (0..768 * 40).map(|number| ((number * 7) % 16 - 8) as f32 * 0.5).collect();
    write_model(&scene.model, &[(DENSE, &[768, 40], on_grid)]);
    let expected = not_used("every tensor with an entry can be encoded without loss");
    assert_eq!(unused(&scene, DType::Q4_0, &entries()[..1]), expected);
    assert_eq!(unused(&scene, DType::Q4K, &entries()[..1]), (None, true));
}

#[test]
fn entries_of_another_size_are_refused() {
    let scene = Scene::new();
    let remedy = "; use an importance matrix of this model; compute it with `trueup imatrix`";
    let cases: [(&str, Entry, &str); 5] = [
        // The same number of values, but three matrices for one, one for three, and two for three.
        (DENSE, (DENSE, 256, vec![1.0, 2.0, 3.0]), "blk.0.attn_q.weight (expected 768, found 3 x 256)"),
        (EXPERTS, (EXPERTS, 256, vec![1.0; 6]), "blk.0.ffn_up_exps.weight (expected 3 x 512, found 6 x 256)"),
        (EXPERTS, (EXPERTS, 768, vec![1.0; 2]), "blk.0.ffn_up_exps.weight (expected 3 x 512, found 2 x 768)"),
        (EXPERTS, (EXPERTS, 512, vec![1.0]), "blk.0.ffn_up_exps.weight (expected 3 x 512, found 512)"),
        (DENSE, (DENSE, 767, vec![1.0]), "blk.0.attn_q.weight (expected 768, found 767)"),
    ];
    for (name, entry, expected) in cases {
        let mut entries = entries();
        entries.retain(|(other, ..)| *other != name);
        entries.push(entry);
        let sentence = format!("one entry has a different number of columns or matrices than its tensor: {expected}");
        let note = format!("quantized without importance: {sentence}");
        assert_eq!(scene.refused(&entries), (format!("{sentence}{remedy}"), note));
    }
    // Several entries.
    let both = [(DENSE, 767, vec![1.0]), (EXPERTS, 512, vec![1.0])];
    let sentence = "2 entries have a different number of columns or matrices than their tensors: \
                    blk.0.attn_q.weight (expected 768, found 767), \
                    blk.0.ffn_up_exps.weight (expected 3 x 512, found 512)";
    assert_eq!(scene.refused(&both).0, format!("{sentence}{remedy}"));
    // One count for all matrices.
    scene.quantize(DType::Q4K, 1, &[(DENSE, 768, vec![1.0]), (EXPERTS, 1536, vec![9.0])], false).expect("it fits");
}

#[test]
fn missing_entries_and_experts_without_tokens_are_refused_together() {
    let scene = Scene::new();
    let (refusal, note) = scene.refused(&entries()[1..]);
    assert!(
        refusal
            .starts_with("expected an entry for every quantized tensor, found none for blk.0.attn_q.weight; compute "),
        "{refusal}"
    );
    assert_eq!(note, "no entry in the importance matrix, so quantized without importance: blk.0.attn_q.weight");
    let unseen = [(DENSE, 768, vec![64.0]), (EXPERTS, 512, vec![0.0, 30.0, 0.0])];
    let (refusal, note) = scene.refused(&unseen);
    assert!(
        refusal.starts_with("expected tokens for every expert, found none for blk.0.ffn_up_exps.weight (experts 0, 2)"),
        "{refusal}"
    );
    let sentence = "no tokens were routed to these experts, so all columns have equal importance: ";
    assert_eq!(note, format!("{sentence}blk.0.ffn_up_exps.weight (experts 0, 2)"));
    let (refusal, _) = scene.refused(&unseen[1..]);
    assert!(
        refusal.contains("found none for blk.0.attn_q.weight; expected tokens for every expert, found none for "),
        "{refusal}"
    );
}

/// Rows of more elements than a chunk are encoded whole: some types derive a number from the importance of a row.
#[test]
fn rows_of_several_chunks_are_encoded_as_one() {
    let columns = (1 << 18) + 512;
    let folder = tempfile::tempdir().expect("a scratch directory");
    let model = folder.path().join("model.gguf");
    let values = weights(columns * 2, 1);
    write_model(&model, &[(DENSE, &[columns as u64, 2], values.clone())]);
    let scene = Scene { folder, model };
    let entry = (DENSE, columns, vec![64.0]);
    for dtype in [DType::Q4_0, DType::Iq4Xs] {
        let runs = [1, 3].map(|threads| {
            let (_, bytes) = scene.quantize(dtype, threads, std::slice::from_ref(&entry), false).expect("a good model");
            bytes
        });
        let file = Importance::open(scene.folder.path().join("imatrix.gguf")).expect("a good file");
        let codec = dtype.codec().expect("a codec");
        let mut expected = vec![0; dtype.row_bytes(columns as u64).expect("whole blocks") as usize * 2];
        let row_bytes = expected.len() / 2;
        for (row, bytes) in values.chunks(columns).zip(expected.chunks_mut(row_bytes)) {
            (codec.encode_weighted)(row, file.entries()[DENSE].weights(), bytes);
        }
        assert!(runs[0] == runs[1], "{dtype}: bytes depend on the threads");
        assert!(runs[0].ends_with(&expected), "{dtype}: rows are divided");
    }
}
