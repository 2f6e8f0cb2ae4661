//! `check_with` detects changed bytes and a different importance matrix.

use crate::draft::Draft;
use std::collections::BTreeMap;
use std::path::Path;
use trueup_blocks::DType;
use trueup_convert::{Agreement, Options, TensorCheck, check, check_with, convert_with};
use trueup_formats::{Checkpoint, Gguf, Importance, ImportanceSums, TensorInfo, WeightSums};
use trueup_quantize::{ImportanceOptions, NoProgress, Recipe};

/// An importance matrix for the tensors of a file, different for each `seed`.
fn importance(model: &Path, path: &Path, seed: usize) -> ImportanceOptions {
    let model = Gguf::open(model).unwrap();
    let matrices = model.tensors().iter().filter(|tensor| tensor.shape.len() == 2);
    let entry = |tensor: &TensorInfo| {
        let columns = tensor.shape[0] as usize;
        let mut sums = WeightSums::new(columns, 1);
        let input: Vec<f32> = (0..columns).map(|column| (1 + (column * 7 + seed * 5) % 13) as f32).collect();
        sums.add(0, &input);
        (tensor.name.clone(), sums)
    };
    let entries: BTreeMap<String, WeightSums> = matrices.map(entry).collect();
    let sums = ImportanceSums { data_set: "text.txt".to_owned(), chunk_size: 64, chunks: 1, entries, ..<_>::default() };
    sums.write(path).unwrap();
    ImportanceOptions { file: Importance::open(path).unwrap(), allow_partial: false, exact: false }
}

/// The names of the tensors that are wrong, with the number of wrong elements.
fn wrong(checks: &[TensorCheck]) -> Vec<(&str, u64)> {
    let line = |check: &TensorCheck| match check.agreement {
        Agreement::Wrong { elements } => Some(elements),
        Agreement::Exact | Agreement::Rounded { .. } => None,
    };
    checks.iter().filter_map(|check| Some((check.name.as_str(), line(check)?))).collect()
}

/// A draft, its q4_0 file, and the importance matrix that the file was encoded with.
fn weighted() -> (Draft, ImportanceOptions) {
    let draft = Draft::of("llama2");
    let source = draft.open();
    convert_with(source.as_ref(), &draft.output(), &Options::default(), None, &NoProgress).unwrap();
    let importance = importance(&draft.output(), &draft.folder.path().join("imatrix.gguf"), 0);
    let options = Options { recipe: Recipe::new(Some(DType::Q4_0)).pure(true), ..Options::default() };
    convert_with(source.as_ref(), &draft.output(), &options, Some(&importance), &NoProgress).unwrap();
    (draft, importance)
}

/// A q4_0 block has 18 bytes for 32 weights; the first two bytes are the scale. Each case changes one byte of a tensor.
#[test]
fn a_changed_byte_is_reported_for_its_tensor() {
    let (draft, importance) = weighted();
    let source = draft.open();
    let good = std::fs::read(draft.output()).unwrap();
    let checked =
        || check_with(source.as_ref(), &Gguf::open(draft.output()).unwrap(), Some(&importance), Some(2)).unwrap();
    assert!(wrong(&checked()).is_empty());
    for (name, byte, elements) in [
        ("blk.0.attn_k.weight", 18, 32),
        ("blk.1.attn_q.weight", 17, 32),
        ("blk.1.ffn_down.weight", 0, 32),
        ("token_embd.weight", 5, 32),
        ("blk.1.attn_norm.weight", 0, 1),
    ] {
        let written = Gguf::open(draft.output()).unwrap();
        let number = written.find(name).unwrap();
        let mut bytes = vec![0; written.tensors()[number].bytes as usize];
        written.read(number, 0, &mut bytes).unwrap();
        let place = good.windows(bytes.len()).position(|window| window == bytes).unwrap();
        let mut changed = good.clone();
        changed[place + byte] ^= 1;
        std::fs::write(draft.output(), changed).unwrap();
        assert_eq!(wrong(&checked()), [(name, elements)]);
        std::fs::write(draft.output(), &good).unwrap();
    }
}

#[test]
fn a_different_importance_matrix_is_detected() {
    let (draft, _) = weighted();
    let (source, written) = (draft.open(), Gguf::open(draft.output()).unwrap());
    let other = importance(&draft.output(), &draft.folder.path().join("other.gguf"), 1);
    let without = check(source.as_ref(), &written, Some(2)).unwrap();
    let with_other = check_with(source.as_ref(), &written, Some(&other), Some(2)).unwrap();
    for (what, checks) in [("no matrix", without), ("another matrix", with_other)] {
        let wrong = wrong(&checks);
        let names: Vec<&str> = wrong.iter().map(|(name, _)| *name).collect();
        // Norms are not quantized.
        let matrices = checks.iter().filter(|check| check.dtype == "q4_0").map(|check| check.name.as_str());
        assert_eq!(names, matrices.collect::<Vec<_>>(), "{what}");
        assert!(names.len() > 10, "{what}: {names:?}");
    }
}
