//! Files in the split-scale layout: blocks that are read as blocks again, and planes that do not fit.

use crate::support::{Faults, write};
use std::path::{Path, PathBuf};
use trueup_blocks::{DType, SplitScale};
use trueup_formats::gguf::{Gguf, GgufPlan, GgufWriter, Metadata, Value};
use trueup_formats::{
    Checkpoint, Description, Error, LAYOUT_KEY, LAYOUT_SPLIT_SCALE, TensorInfo, join_split_scale, split_scale_parts,
    split_scale_tensors,
};

fn write_model(path: &Path, layout: Option<Value>, tensors: &[(TensorInfo, Vec<u8>)]) {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    metadata.insert("tokenizer.chat_template", "{{ bos_token }}");
    if let Some(layout) = layout {
        metadata.insert(LAYOUT_KEY, layout);
    }
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let writer = GgufWriter::create(GgufPlan::new(path, &metadata, &infos, None).unwrap(), &[]).unwrap();
    for (number, (_, bytes)) in tensors.iter().enumerate() {
        writer.write(number, 0, bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn open(path: &Path) -> Result<Box<dyn Checkpoint>, Error> {
    join_split_scale(Box::new(Gguf::open(path).unwrap()))
}

fn bytes(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|number| (number as u8).wrapping_mul(37).wrapping_add(seed)).collect()
}

fn info(name: &str, shape: &[u64], dtype: DType) -> TensorInfo {
    TensorInfo::new(name, shape, dtype).unwrap()
}

/// The codes of a block in the order of its elements, as signed numbers: a block of q4_0 has code k and code k + 16 in
/// byte k, each plus 8; a plane of nibbles has neighbours in a byte, as two's complement.
fn signed_codes(dtype: DType, bytes: &[u8]) -> Vec<i8> {
    let signed = |nibble: u8| ((nibble << 4) as i8) >> 4;
    match (dtype, bytes.len()) {
        (DType::Q4_0, _) => {
            let low = bytes.iter().map(|byte| (byte & 15) as i8 - 8);
            low.chain(bytes.iter().map(|byte| (byte >> 4) as i8 - 8)).collect()
        }
        (_, 16) => bytes.iter().flat_map(|byte| [signed(byte & 15), signed(byte >> 4)]).collect(),
        _ => bytes.iter().map(|byte| *byte as i8).collect(),
    }
}

/// A plain tensor, then `a` of 3 rows of 64 columns in two planes; the bytes of both planes.
fn split_model(folder: &Path, dtype: DType) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let per_block = if dtype == DType::Q4_0 { 16 } else { 32 };
    let (values, scales) = (bytes(3 * 2 * per_block, 1), bytes(3 * 2 * 2, 2));
    let tensors = [
        (info("norm", &[4], DType::F32), bytes(16, 3)),
        (info("a", &[2 * per_block as u64, 3], DType::I8), values.clone()),
        (info("a.scale", &[2, 3], DType::F16), scales.clone()),
        (info("lone.scale", &[2], DType::F16), bytes(4, 4)),
    ];
    let path = folder.join("split.gguf");
    write_model(&path, Some(LAYOUT_SPLIT_SCALE.into()), &tensors);
    (path, values, scales)
}

#[test]
fn two_planes_are_named_and_sized_by_the_layout() {
    let planes = split_scale_tensors("w", &[96, 5, 2], SplitScale::of(DType::Q4_0).unwrap());
    assert_eq!(planes, [info("w", &[48, 5, 2], DType::I8), info("w.scale", &[3, 5, 2], DType::F16)]);
    let planes = split_scale_tensors("w", &[96, 5], SplitScale::of(DType::Q8_0).unwrap());
    assert_eq!(planes, [info("w", &[96, 5], DType::I8), info("w.scale", &[3, 5], DType::F16)]);
}

#[test]
fn planes_are_read_as_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, block_bytes, per_block) in [(DType::Q4_0, 18, 16), (DType::Q8_0, 34, 32)] {
        let (path, values, scales) = split_model(folder.path(), dtype);
        let model = open(&path).unwrap();
        let shown: Vec<(&str, &[u64], DType)> =
            model.tensors().iter().map(|t| (t.name.as_str(), t.shape.as_slice(), t.dtype)).collect();
        assert_eq!(
            shown,
            [
                ("norm", &[4][..], DType::F32),
                ("a", &[64, 3][..], dtype),
                // Scales of nothing are a tensor like any other.
                ("lone.scale", &[2][..], DType::F16),
            ]
        );
        let mut plain = [0; 16];
        model.read(0, 0, &mut plain).unwrap();
        assert_eq!(plain[..], bytes(16, 3)[..]);
        // From the second block on: rows of two blocks, so this passes the end of a row.
        let mut blocks = vec![0; 3 * block_bytes];
        model.read(1, block_bytes as u64, &mut blocks).unwrap();
        for (number, block) in blocks.chunks(block_bytes).enumerate().map(|(number, block)| (number + 1, block)) {
            assert_eq!(block[..2], scales[2 * number..][..2], "{dtype} scale of block {number}");
            let values = &values[per_block * number..][..per_block];
            assert_eq!(signed_codes(dtype, &block[2..]), signed_codes(DType::I8, values), "{dtype} block {number}");
        }
        assert!(model.read(3, 0, &mut blocks).is_err(), "tensors that are there no more cannot be read");
    }
}

#[test]
fn what_is_not_of_the_layout_is_that_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ..) = split_model(folder.path(), DType::Q8_0);
    let (plain, joined) = (Gguf::open(&path).unwrap(), open(&path).unwrap());
    assert_eq!(joined.format(), plain.format());
    assert_eq!(joined.path(), plain.path());
    assert_eq!(joined.tokenizer().chat_template, plain.tokenizer().chat_template);
    let Description::Gguf(metadata) = joined.description() else { panic!("it is a GGUF file") };
    assert_eq!(metadata.string("general.architecture").unwrap(), "llama");
    let stamps = |model: &dyn Checkpoint| -> Vec<_> { model.sources().iter().map(|s| s.stamp().clone()).collect() };
    assert_eq!(stamps(joined.as_ref()), stamps(&plain));
    joined.unchanged().unwrap();
    write(folder.path(), "split.gguf", b"another file");
    assert!(joined.unchanged().unwrap_err().to_string().contains("changed while it was in use"));
}

#[test]
fn a_file_without_the_key_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = [(info("a", &[32], DType::I8), bytes(32, 1)), (info("a.scale", &[1], DType::F16), bytes(2, 2))];
    let path = folder.path().join("plain.gguf");
    write_model(&path, None, &tensors);
    let names: Vec<String> = open(&path).unwrap().tensors().iter().map(|tensor| tensor.name.clone()).collect();
    assert_eq!(names, ["a", "a.scale"]);
    let parts = split_scale_parts(&Gguf::open(&path).unwrap()).unwrap();
    assert!(parts.len() == 2 && parts.iter().all(|part| part.scales.is_none()));
}

#[test]
fn planes_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    let planes = |values: TensorInfo, scales: TensorInfo| {
        [values, scales].map(|info| {
            let zeros = vec![0; info.bytes as usize];
            (info, zeros)
        })
    };
    let cases = [
        ("bytes of no layout", planes(info("a", &[24, 3], DType::I8), info("a.scale", &[1, 3], DType::F16))),
        ("a row less of scales", planes(info("a", &[32, 3], DType::I8), info("a.scale", &[1, 2], DType::F16))),
        ("scales of another type", planes(info("a", &[32, 3], DType::I8), info("a.scale", &[1, 3], DType::F32))),
        ("values of another type", planes(info("a", &[32, 3], DType::F16), info("a.scale", &[1, 3], DType::F16))),
        ("scales of other dimensions", planes(info("a", &[32, 3], DType::I8), info("a.scale", &[3], DType::F16))),
    ];
    for (case, tensors) in cases {
        let path = folder.path().join("planes.gguf");
        write_model(&path, Some(LAYOUT_SPLIT_SCALE.into()), &tensors);
        faults.refused(case, open(&path).map(|_| ()), "planes.gguf", &["tensor a", "not the two planes of one tensor"]);
        let _ = std::fs::remove_file(&path);
    }
    let good = planes(info("a", &[32, 3], DType::I8), info("a.scale", &[1, 3], DType::F16));
    let path = folder.path().join("layout.gguf");
    write_model(&path, Some("rotated".into()), &good);
    faults.refused(
        "another layout",
        open(&path).map(|_| ()),
        "layout.gguf",
        &[LAYOUT_KEY, "expected \"split-scale\", found \"rotated\""],
    );
    let _ = std::fs::remove_file(&path);
    write_model(&path, Some(7_u32.into()), &good);
    faults.refused("a number", open(&path).map(|_| ()), "layout.gguf", &[LAYOUT_KEY, "string"]);
    faults.report();
}

#[test]
fn parts_say_where_the_planes_are() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ..) = split_model(folder.path(), DType::Q4_0);
    let parts = split_scale_parts(&Gguf::open(&path).unwrap()).unwrap();
    let places: Vec<(usize, Option<usize>)> =
        parts.iter().map(|part| (part.values, part.scales.map(|(place, _)| place))).collect();
    assert_eq!(places, [(0, None), (1, Some(2)), (3, None)]);
    assert_eq!(parts[1].scales.unwrap().1.dtype(), DType::Q4_0);
}
