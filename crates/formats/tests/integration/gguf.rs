//! GGUF files that are as they should be: read and written against files of the `gguf` Python package.

use crate::support::{Faults, find, golden, read, read_f32, write};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::gguf::{Array, Gguf, GgufPlan, GgufWriter, MappedBytes, Metadata, Value, ValueType};
use trueup_formats::{Checkpoint, Description, TensorInfo};

/// What `golden/make.py` put into `values.gguf`, in its order.
fn golden_metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", "llama");
    metadata.insert("test.u8", 200_u8);
    metadata.insert("test.i8", -100_i8);
    metadata.insert("test.u16", 60_000_u16);
    metadata.insert("test.i16", -30_000_i16);
    metadata.insert("test.u32", 4_000_000_000_u32);
    metadata.insert("test.i32", -2_000_000_000_i32);
    metadata.insert("test.f32", 1.5_f32);
    metadata.insert("test.bool", true);
    metadata.insert("test.string", "grüße \u{2581}");
    metadata.insert("test.u64", 1_u64 << 63);
    metadata.insert("test.i64", -(1_i64 << 62));
    metadata.insert("test.f64", 0.1_f64);
    metadata.insert("test.array.u8", vec![1_u8, 2]);
    metadata.insert("test.array.i8", vec![-1_i8, 2]);
    metadata.insert("test.array.u16", vec![1_u16, 2]);
    metadata.insert("test.array.i16", vec![-1_i16, 2]);
    metadata.insert("test.array.u32", vec![1_u32, 2]);
    metadata.insert("test.array.i32", vec![-1_i32, 2]);
    metadata.insert("test.array.f32", vec![0.5_f32, -0.25]);
    metadata.insert("test.array.bool", vec![true, false]);
    metadata.insert("test.array.string", vec!["a".to_owned(), "bc".to_owned()]);
    metadata.insert("test.array.u64", vec![1_u64, 2]);
    metadata.insert("test.array.i64", vec![-1_i64, 2]);
    metadata.insert("test.array.f64", vec![0.5_f64, -0.25]);
    metadata
}

/// Writes a model whole, tensor after tensor.
fn write_model(
    path: &Path,
    metadata: &Metadata,
    tensors: &[(TensorInfo, Vec<u8>)],
    split: Option<u64>,
) -> Vec<std::path::PathBuf> {
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let writer = GgufWriter::create(GgufPlan::new(path, metadata, &infos, split).unwrap(), &[]).unwrap();
    for (number, (_, bytes)) in tensors.iter().enumerate() {
        writer.write(number, 0, bytes).unwrap();
    }
    writer.finish().unwrap()
}

/// All tensors of an open model with their bytes.
fn contents(model: &Gguf) -> Vec<(TensorInfo, Vec<u8>)> {
    (0..model.tensors().len()).map(|tensor| (model.tensors()[tensor].clone(), read(model, tensor))).collect()
}

#[test]
fn every_value_type_of_the_python_package_is_read() {
    let model = Gguf::open(golden("values.gguf")).unwrap();
    assert_eq!(model.format(), "GGUF v3");
    assert_eq!(*model.metadata(), golden_metadata());
    assert!(matches!(model.description(), Description::Gguf(metadata) if metadata.len() == 25));
    let tensor = |name| find(&model, name);
    assert_eq!(model.tensors()[tensor("matrix.weight")].shape, [3, 2]);
    assert_eq!(read_f32(&model, tensor("matrix.weight")), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(model.tensors()[tensor("half.weight")].dtype, DType::F16);
    assert_eq!(read(&model, tensor("half.weight"))[..4], [0, 0, 0, 0x3c]);
    let blocks = &model.tensors()[tensor("blocks.weight")];
    assert_eq!((blocks.shape.as_slice(), blocks.dtype, blocks.bytes), (&[64, 1][..], DType::Q8_0, 68));
    model.unchanged().unwrap();
}

#[test]
fn the_python_packages_bytes_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values.gguf");
    let tensors = contents(&Gguf::open(golden("values.gguf")).unwrap());
    write_model(&path, &golden_metadata(), &tensors, None);
    assert!(std::fs::read(&path).unwrap() == std::fs::read(golden("values.gguf")).unwrap(), "the files differ");
}

#[test]
fn split_files_of_the_python_package_are_read_and_written() {
    let model = Gguf::open(golden("split-00001-of-00003.gguf")).unwrap();
    assert_eq!(model.file_count(), 3);
    assert_eq!(model.metadata().u64("llama.block_count"), Ok(3));
    assert!(!model.metadata().contains("split.count"));
    for index in 0..5 {
        let tensor = find(&model, &format!("blk.{index}.weight"));
        assert_eq!(model.tensors()[tensor].shape, [3 + index, 2]);
        assert!(read_f32(&model, tensor).iter().all(|number| *number == index as f32));
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = write_model(&folder.path().join("split.gguf"), model.metadata(), &contents(&model), Some(450));
    for (number, path) in (1..).zip(&paths) {
        let name = format!("split-{number:05}-of-00003.gguf");
        assert_eq!(path.file_name().unwrap().to_str(), Some(name.as_str()));
        assert!(std::fs::read(path).unwrap() == std::fs::read(golden(&name)).unwrap(), "{name} differs");
    }
    assert_eq!(paths.len(), 3);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn split_files_must_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| std::fs::copy(golden(from), folder.path().join(to)).unwrap();
    let parts = ["split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf"];
    copy(parts[0], parts[0]);
    let mut faults = Faults::default();
    let open = || Gguf::open(folder.path().join(parts[0]));
    faults.refused("missing part", open(), parts[1], &[]);
    copy(parts[1], parts[1]);
    copy(parts[1], parts[2]);
    faults.refused("a part twice", open(), parts[2], &["split.no", "expected 2, found 1"]);
    let mut stranger = std::fs::read(golden(parts[2])).unwrap();
    let place = stranger.windows(19).position(|window| window == b"split.tensors.count").unwrap();
    stranger[place + 19 + 4] = 6;
    write(folder.path(), parts[2], &stranger);
    faults.refused("of another model", open(), parts[2], &["split.tensors.count", "expected 5, found 6"]);
    copy(parts[2], parts[2]);
    let second = Gguf::open(folder.path().join(parts[1]));
    faults.refused("second part named", second, parts[1], &["expected the first file of a model in 3 files", parts[0]]);
    copy(parts[0], "other.gguf");
    let renamed = Gguf::open(folder.path().join("other.gguf"));
    faults.refused(
        "renamed",
        renamed,
        "other.gguf",
        &["split.no", "expected a file name ending in -0000", "found other.gguf; restore the original name"],
    );
    let mut short = std::fs::read(golden(parts[0])).unwrap();
    let place = short.windows(19).position(|window| window == b"split.tensors.count").unwrap();
    short[place + 19 + 4] = 9;
    write(folder.path(), parts[0], &short);
    faults.refused("wrong count", open(), parts[1], &["split.tensors.count", "expected 9, found 5"]);
    for part in &parts[1..] {
        let mut short = std::fs::read(golden(part)).unwrap();
        let place = short.windows(19).position(|window| window == b"split.tensors.count").unwrap();
        short[place + 19 + 4] = 9;
        write(folder.path(), part, &short);
    }
    faults.refused("all say so", open(), parts[0], &["split.tensors.count", "expected 9 tensors", "found 5"]);
    faults.report();
}

#[test]
fn a_name_of_a_split_model_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = ["first", "other"].map(|name| TensorInfo::new(name, &[8], DType::F32).unwrap());
    let plan = GgufPlan::new(folder.path().join("m.gguf"), &Metadata::default(), &tensors, Some(1)).unwrap();
    let writer = GgufWriter::create(plan, &[]).unwrap();
    (0..2).for_each(|tensor| writer.write(tensor, 0, &[tensor as u8; 32]).unwrap());
    let paths = writer.finish().unwrap();
    let model = Gguf::open(&paths[0]).unwrap();
    assert_eq!(["first", "other", "none"].map(|name| model.find(name)), [Some(0), Some(1), None]);
    let mut bytes = std::fs::read(&paths[1]).unwrap();
    let place = bytes.windows(5).position(|window| window == b"other").unwrap();
    bytes[place..place + 5].copy_from_slice(b"first");
    std::fs::write(&paths[1], bytes).unwrap();
    let error = Gguf::open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains("tensor first: the name occurs twice"), "{error}");
}

#[test]
fn nested_and_empty_values_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nested.gguf");
    let mut metadata = Metadata::default();
    let inner = Array::Array(vec![Array::U8(vec![1]), Array::String(vec![]), Array::Array(vec![])]);
    metadata.insert("nested", Value::Array(Array::Array(vec![inner, Array::F64(vec![f64::MAX, f64::NEG_INFINITY])])));
    metadata.insert("empty", "");
    assert_eq!(ValueType::all().count(), 13);
    for value_type in ValueType::all() {
        assert_eq!(ValueType::from_id(value_type.id()), Some(value_type));
    }
    metadata.insert("odd", "zero\0, bell\u{7}, \u{10ffff}");
    write_model(&path, &metadata, &[], None);
    let model = Gguf::open(&path).unwrap();
    assert_eq!(*model.metadata(), metadata);
    assert_eq!(metadata.value("odd").unwrap().to_string(), "\"zero\\u{0}, bell\\u{7}, \u{10ffff}\"");
    assert_eq!(model.tensors(), []);
}

#[test]
fn arrays_nest_eight_deep_and_are_shown_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let nested = |levels: usize| {
        let array = (1..levels).fold(Array::U8(vec![7]), |inner, _| Array::Array(vec![inner]));
        let mut metadata = Metadata::default();
        metadata.insert("deep", Value::Array(array));
        let path = folder.path().join(format!("{levels}.gguf"));
        write_model(&path, &metadata, &[], None);
        Gguf::open(&path).map(|model| *model.metadata() == metadata)
    };
    assert_eq!(nested(8), Ok(true));
    assert!(nested(9).unwrap_err().to_string().contains("at most 8 nested arrays"));
    let shown = |count: u8| Array::U8((0..count).collect()).to_string();
    let found = [0, 1, 2, 6, 7].map(shown);
    assert_eq!(found, ["[]", "[0]", "[0, 1]", "[0, 1, 2, 3, 4, 5]", "[0, 1, 2, 3, 4, 5, … 7 items]"]);
    assert!(Array::Bool(vec![]).is_empty() && !Array::Bool(vec![false]).is_empty());
}

/// Texts and arrays of all lengths around that of the buffer through which small values are read.
#[test]
fn long_values_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let mut metadata = Metadata::default();
    for length in [65_500, 65_535, 65_536, 65_537, 70_000, 200_001] {
        metadata.insert(format!("text.{length}"), "€".repeat(length / 3) + &"x".repeat(length % 3));
        metadata.insert(format!("texts.{length}"), vec!["a".repeat(length), String::new(), "b".to_owned()]);
        metadata.insert(format!("numbers.{length}"), (0..length as u64).collect::<Vec<u64>>());
        metadata.insert(format!("bytes.{length}"), (0..length).map(|i| i as u8).collect::<Vec<u8>>());
    }
    let plan = GgufPlan::new(&path, &metadata, &[], None).unwrap();
    GgufWriter::create(plan, &[]).unwrap().finish().unwrap();
    assert!(*Gguf::open(&path).unwrap().metadata() == metadata);
}

#[test]
fn metadata_keeps_its_order_and_says_what_it_found() {
    assert!(Metadata::default().is_empty() && !golden_metadata().is_empty());
    let mut metadata = golden_metadata();
    assert_eq!(metadata.insert("test.u16", 7_i64), Some(Value::U16(60_000)));
    assert_eq!(metadata.remove("test.u8"), Some(Value::U8(200)));
    assert_eq!(metadata.iter().nth(2).unwrap().0, "test.u16");
    assert_eq!(metadata.u64("test.u16"), Ok(7));
    assert_eq!(metadata.f64("test.f32"), Ok(1.5));
    assert_eq!(metadata.bool("test.bool"), Ok(true));
    assert_eq!(metadata.string("general.architecture"), Ok("llama"));
    assert_eq!(metadata.strings("test.array.string"), Ok(&["a".to_owned(), "bc".to_owned()][..]));
    assert_eq!(metadata.f32s("test.array.f32"), Ok(&[0.5, -0.25][..]));
    assert_eq!(metadata.i32s("test.array.i32"), Ok(&[-1, 2][..]));
    assert_eq!(metadata.u64s("test.array.u16"), Ok(vec![1, 2]));
    assert_eq!(metadata.bools("test.array.bool"), Ok(&[true, false][..]));
    let message = |error: trueup_formats::gguf::MetadataError| error.in_file("m.gguf").to_string();
    let negative = message(metadata.u64("test.i16").unwrap_err());
    assert_eq!(
        negative,
        "m.gguf: key test.i16: expected a non-negative integer, found i16 -30000; convert the model again"
    );
    assert_eq!(
        metadata.u64("test.i16").unwrap_err().to_string(),
        "key test.i16: expected a non-negative integer, found i16 -30000"
    );
    assert_ne!(metadata, golden_metadata());
    assert!(message(metadata.string("none").unwrap_err()).contains("key none: expected a string, found no such key"));
    assert!(message(metadata.strings("test.array.f32").unwrap_err()).contains("found array of f32"));
    assert!(metadata.u64s("test.array.i8").is_err());
}

#[test]
fn a_map_shows_the_same_bytes_as_reading() {
    for name in ["values.gguf", "split-00001-of-00003.gguf"] {
        let model = Gguf::open(golden(name)).unwrap();
        let expected = contents(&model);
        let mapped = model.map().unwrap();
        for (tensor, (info, bytes)) in expected.iter().enumerate() {
            assert_eq!(mapped.tensor_bytes(tensor), bytes, "{}", info.name);
        }
        assert_eq!(mapped.model().tensors().len(), expected.len());
        let kept: Vec<MappedBytes> = (0..expected.len()).map(|tensor| mapped.tensor(tensor)).collect();
        drop(mapped);
        for (kept, (info, bytes)) in kept.iter().zip(&expected) {
            assert_eq!(**kept, **bytes, "{} without its model", info.name);
        }
    }
}

#[test]
fn tensors_are_written_in_any_order_from_several_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let infos: Vec<TensorInfo> =
        (0..4).map(|i| TensorInfo::new(format!("t{i}"), &[100, 3 + i], DType::F32).unwrap()).collect();
    let plan = GgufPlan::new(&path, &Metadata::default(), &infos, Some(3000)).unwrap();
    assert!(plan.files().len() > 1);
    assert_eq!(plan.tensors(), infos);
    let sizes: Vec<u64> = plan.files().iter().map(|file| file.bytes).collect();
    assert_eq!(plan.bytes(), sizes.iter().sum::<u64>());
    let writer = GgufWriter::create(plan, &[]).unwrap();
    std::thread::scope(|scope| {
        for (number, info) in infos.iter().enumerate().rev() {
            let writer = &writer;
            scope.spawn(move || {
                for chunk in (0..info.bytes / 100).rev() {
                    writer.write(number, chunk * 100, &[number as u8 + chunk as u8; 100]).unwrap();
                }
            });
        }
    });
    let paths = writer.finish().unwrap();
    for (path, size) in paths.iter().zip(sizes) {
        assert_eq!(std::fs::metadata(path).unwrap().len(), size);
    }
    let model = Gguf::open(&paths[0]).unwrap();
    for (number, info) in infos.iter().enumerate() {
        let expected: Vec<u8> = (0..info.bytes / 100).flat_map(|chunk| [number as u8 + chunk as u8; 100]).collect();
        assert!(read(&model, number) == expected, "{}", info.name);
    }
}

#[test]
fn tensors_larger_than_a_file_should_be_stand_alone() {
    let tensor = |name: &str| TensorInfo::new(name, &[1000], DType::F32).unwrap();
    let tensors = ["a", "b", "c"].map(tensor);
    let plan = GgufPlan::new("model.gguf", &Metadata::default(), &tensors, Some(1)).unwrap();
    let parts: Vec<_> = plan.files().iter().map(|file| file.tensors.clone()).collect();
    assert_eq!(parts, [0..1, 1..2, 2..3]);
}

#[test]
fn an_incomplete_model_never_appears() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "model.gguf", b"old");
    let infos = [TensorInfo::new("a", &[8], DType::F32).unwrap(), TensorInfo::new("b", &[8], DType::F32).unwrap()];
    let writer = || {
        let plan = GgufPlan::new(&path, &Metadata::default(), &infos, None).unwrap();
        let writer = GgufWriter::create(plan, &[]).unwrap();
        writer.write(0, 0, &[1; 32]).unwrap();
        writer.write(1, 16, &[1; 16]).unwrap();
        writer
    };
    let mut faults = Faults::default();
    faults.refused("a gap", writer().finish(), "model.gguf", &["tensor b", "byte 0 of 32 was not written"]);
    faults.refused("twice", writer().write(1, 8, &[0; 9]), "model.gguf", &["tensor b", "8..17", "twice"]);
    faults.refused("too long", writer().write(0, 31, &[0; 2]), "model.gguf", &["tensor a", "pass its end at 32"]);
    drop(writer());
    faults.report();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_plan_refuses_what_other_programs_would_not_read() {
    let path = Path::new("out.gguf");
    let tensor = |name: &str| TensorInfo::new(name, &[8], DType::F32).unwrap();
    let plan = |tensors: &[TensorInfo]| GgufPlan::new(path, &Metadata::default(), tensors, None);
    let mut faults = Faults::default();
    faults.refused("two names", plan(&[tensor("a"), tensor("a")]), "out.gguf", &["tensor a", "twice"]);
    faults.refused("long name", plan(&[tensor(&"n".repeat(64))]), "out.gguf", &["1 to 63 bytes", "found 64"]);
    let lie = TensorInfo { bytes: 31, ..tensor("a") };
    faults.refused("lie", plan(&[lie]), "out.gguf", &["tensor a", "expected 32 bytes", "found 31"]);
    let with_key = |key: &str| {
        let mut metadata = Metadata::default();
        metadata.insert(key, 1_u32);
        GgufPlan::new(path, &metadata, &[tensor("a")], None)
    };
    faults.refused("no key", with_key(""), "out.gguf", &["expected a key of 1 to 65535 bytes, found 0"]);
    faults.refused("long key", with_key(&"k".repeat(65_536)), "out.gguf", &["expected a key of", "found 65536"]);
    with_key(&"k".repeat(65_535)).unwrap();
    let part = TensorInfo { name: "q".into(), shape: vec![33], dtype: DType::Q8_0, bytes: 34 };
    faults.refused("half a block", plan(&[part]), "out.gguf", &["tensor q", "whole blocks of 32", "rows of 33"]);
    faults.report();
}
