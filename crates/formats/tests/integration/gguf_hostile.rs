//! GGUF files that lie. Each is refused with file and place; none panics.

use crate::support::{Faults, golden, read, write};
use std::path::Path;
use trueup_formats::gguf::Gguf;
use trueup_formats::{Checkpoint, FaultKind};

/// Bytes of a file, put together piece by piece.
struct Bytes(Vec<u8>);

impl Bytes {
    fn header(version: u32, tensors: u64, keys: u64) -> Bytes {
        Bytes([&b"GGUF"[..], &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat())
    }

    fn u32(mut self, number: u32) -> Bytes {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Bytes {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Bytes {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    fn tensor(self, name: &str, shape: &[u64], dtype: u32, offset: u64) -> Bytes {
        let start = self.text(name).u32(shape.len() as u32);
        shape.iter().fold(start, |bytes, size| bytes.u64(*size)).u32(dtype).u64(offset)
    }

    /// Pads to 32 and adds zeros for data.
    fn data(mut self, bytes: usize) -> Vec<u8> {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + bytes, 0);
        self.0
    }
}

fn one_tensor() -> Bytes {
    Bytes::header(3, 1, 0)
}

fn two_tensors() -> Bytes {
    Bytes::header(3, 2, 0)
}

fn one_key() -> Bytes {
    Bytes::header(3, 0, 1)
}

/// A file that says what it says, and parts of the message that refuses it.
type Lie = (&'static str, Vec<u8>, &'static [&'static str]);

fn lies_about_the_file() -> Vec<Lie> {
    let swapped = [&b"GGUF"[..], &3_u32.to_be_bytes(), &0_u64.to_be_bytes(), &0_u64.to_be_bytes()].concat();
    vec![
        ("empty", vec![], &["magic at byte 0", "expected 4 bytes, found 0"]),
        ("magic", b"GGML\x03\0\0\0".to_vec(), &["magic at byte 0", "GGUF"]),
        (
            "version 1",
            Bytes::header(1, 0, 0).data(0),
            &["version at byte 4", "expected version 2 or 3 of GGUF, found 1"],
        ),
        ("version 4", Bytes::header(4, 0, 0).data(0), &["version at byte 4", "found 4; use a newer version of trueup"]),
        ("big-endian", swapped, &["version at byte 4", "big-endian one; convert the model again without --bigendian"]),
        ("2^63 tensors", Bytes::header(3, 1 << 63, 0).data(64), &["number of tensors", "9223372036854775808 items"]),
        ("2^63 keys", Bytes::header(3, 0, 1 << 63).data(64), &["number of keys", "9223372036854775808 items"]),
        ("2^62 tensors", Bytes::header(3, 1 << 62, 0).data(64), &["number of tensors"]),
    ]
}

fn lies_about_keys() -> Vec<Lie> {
    let alignment = |number| one_key().text("general.alignment").u32(4).u32(number).data(0);
    let nested = |depth: usize| {
        let start = one_key().text("deep").u32(9);
        (0..depth).fold(start, |bytes, _| bytes.u32(9).u64(1)).u32(0).u64(0).data(64)
    };
    let twice = Bytes::header(3, 0, 2).text("k").u32(7).raw(&[1]).text("k").u32(7).raw(&[1]).data(64);
    vec![
        ("key length", one_key().u64(1 << 40).data(64), &["key number 0 at byte 24", "1099511627776"]),
        ("empty key", one_key().text("").u32(0).raw(&[0]).data(64), &["key number 0", "1 to 65535 bytes, found 0"]),
        ("text length", one_key().text("k").u32(8).u64(u64::MAX).data(64), &["key k", "18446744073709551615"]),
        (
            "text of the tokenizer not UTF-8",
            one_key().text("tokenizer.chat_template").u32(8).u64(1).raw(&[0x80]).data(64),
            &["key tokenizer.chat_template", "UTF-8"],
        ),
        ("array length", one_key().text("k").u32(9).u32(12).u64(1 << 61).data(64), &["key k", "2305843009213693952"]),
        (
            "text array length",
            one_key().text("k").u32(9).u32(8).u64(100).data(64),
            &["key k", "100 items of at least 8"],
        ),
        ("value type", one_key().text("k").u32(13).data(64), &["key k", "found 13"]),
        ("item type", one_key().text("k").u32(9).u32(77).u64(0).data(64), &["key k", "found 77"]),
        ("bool", one_key().text("k").u32(7).raw(&[2]).data(64), &["key k", "0 or 1", "found 2"]),
        ("depth 9", nested(9), &["key deep", "at most 8 nested arrays"]),
        ("depth 4000", nested(4000), &["key deep", "at most 8 nested arrays"]),
        ("key twice", twice, &["key k", "twice"]),
        ("alignment 0", alignment(0), &["general.alignment", "found 0"]),
        ("alignment 3", alignment(3), &["general.alignment", "found 3"]),
        ("alignment 4", alignment(4), &["general.alignment", "found 4"]),
        ("alignment 2^31", alignment(1 << 31), &["general.alignment", "found 2147483648"]),
        (
            "alignment a text",
            one_key().text("general.alignment").u32(8).text("x").data(0),
            &["general.alignment", "string"],
        ),
        ("escape in a key", one_key().text("k\x1b[31m").u32(13).data(64), &["k\\u{1b}[31m"]),
    ]
}

fn lies_about_tensors() -> Vec<Lie> {
    let far = 1 << 62;
    vec![
        ("no dimension", one_tensor().tensor("t", &[], 0, 0).data(64), &["tensor t", "1 to 4 dimensions, found 0"]),
        ("5 dimensions", one_tensor().tensor("t", &[1; 5], 0, 0).data(64), &["tensor t", "1 to 4 dimensions, found 5"]),
        ("2^32 dimensions", one_tensor().text("t").u32(u32::MAX).data(64), &["tensor t", "found 4294967295"]),
        ("zero", one_tensor().tensor("t", &[8, 0], 0, 0).data(64), &["tensor t", "no dimension of 0", "[8, 0]"]),
        ("2^63 bytes", one_tensor().tensor("t", &[1 << 61, 2], 0, 0).data(64), &["tensor t", "below 2^63 bytes"]),
        ("2^192 bytes", one_tensor().tensor("t", &[far, far, far, far], 0, 0).data(64), &["tensor t", "below 2^63"]),
        ("wraps to 0", one_tensor().tensor("t", &[1 << 32, 1 << 32], 0, 0).data(64), &["tensor t", "below 2^63"]),
        ("unknown type", one_tensor().tensor("t", &[32], 99, 0).data(64), &["tensor t", "type 99 is unknown"]),
        ("retired type", one_tensor().tensor("t", &[32], 4, 0).data(64), &["tensor t", "type 4 was removed"]),
        ("half a block", one_tensor().tensor("t", &[48], 2, 0).data(64), &["tensor t", "blocks of 32", "rows of 48"]),
        ("unaligned", one_tensor().tensor("t", &[8], 0, 4).data(64), &["tensor t", "multiple of 32"]),
        ("past the end", one_tensor().tensor("t", &[8], 0, 64).data(64), &["tensor t", "32 bytes", "inside the file"]),
        ("offset 2^63", one_tensor().tensor("t", &[8], 0, 1 << 63).data(64), &["tensor t", "inside the file"]),
        (
            "offset 2^64 - 32",
            one_tensor().tensor("t", &[8], 0, u64::MAX - 31).data(64),
            &["tensor t", "inside the file"],
        ),
        ("too large", one_tensor().tensor("t", &[17], 0, 0).data(64), &["tensor t", "68 bytes", "truncated"]),
        ("name length", one_tensor().u64(1 << 50).data(64), &["name of tensor number 0", "1125899906842624"]),
        ("long name", one_tensor().tensor(&"n".repeat(1025), &[8], 0, 0).data(64), &["1 to 1024 bytes, found 1025"]),
        ("name twice", two_tensors().tensor("t", &[8], 0, 0).tensor("t", &[8], 0, 32).data(64), &["tensor t", "twice"]),
        (
            "same bytes",
            two_tensors().tensor("a", &[8], 0, 0).tensor("b", &[8], 0, 0).data(64),
            &["tensor b", "overlap", "tensor a"],
        ),
        (
            "overlap",
            two_tensors().tensor("a", &[8], 0, 32).tensor("b", &[9], 0, 0).data(64),
            &["tensor a", "overlap", "tensor b"],
        ),
    ]
}

#[test]
fn every_lie_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    for (case, bytes, fragments) in [lies_about_the_file(), lies_about_keys(), lies_about_tensors()].concat() {
        let path = write(folder.path(), "lie.gguf", &bytes);
        faults.refused(case, Gguf::open(path), "lie.gguf", fragments);
    }
    faults.report();
}

#[test]
fn two_truthful_tensors_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = two_tensors().tensor("a", &[8], 0, 32).tensor("b", &[8], 0, 0).data(64);
    let model = Gguf::open(write(folder.path(), "true.gguf", &bytes)).unwrap();
    assert_eq!(model.tensors()[1].name, "b");
    let vocabulary_only = one_key().text("k").u32(7).raw(&[1]).0;
    assert_eq!(Gguf::open(write(folder.path(), "keys.gguf", &vocabulary_only)).unwrap().tensors().len(), 0);
    let version_2 = Bytes::header(2, 1, 0).tensor("a", &[8], 0, 0).data(32);
    assert_eq!(Gguf::open(write(folder.path(), "v2.gguf", &version_2)).unwrap().format(), "GGUF v2");
}

#[test]
fn every_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(golden("values.gguf")).unwrap();
    // The last tensor has 68 bytes and 28 of padding, which nobody owns.
    let needed = whole.len() - 28;
    let mut faults = Faults::default();
    for bytes in 0..needed {
        let path = write(folder.path(), "cut.gguf", &whole[..bytes]);
        faults.refused(&format!("{bytes} bytes"), Gguf::open(path), "cut.gguf", &["byte"]);
    }
    faults.report();
    Gguf::open(write(folder.path(), "cut.gguf", &whole[..needed])).unwrap();
}

/// Opens what may be damaged; what is accepted must be readable.
fn open_and_read(path: &Path) {
    if let Ok(model) = Gguf::open(path) {
        for tensor in 0..model.tensors().len() {
            read(&model, tensor);
        }
    }
}

#[test]
fn no_changed_byte_panics() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(golden("values.gguf")).unwrap();
    for place in 0..whole.len() {
        for change in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] = if change == 0x01 { bytes[place] ^ 1 } else { change };
            open_and_read(&write(folder.path(), "changed.gguf", &bytes));
        }
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.gguf");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut faults = Faults::default();
    faults.refused("pipe", Gguf::open(&pipe).map_err(|error| error.at("x")), "pipe.gguf", &["found a pipe"]);
    faults.refused("folder", Gguf::open(folder.path()).map_err(|error| error.at("x")), "", &["found a directory"]);
    faults.refused("device", Gguf::open("/dev/null").map_err(|error| error.at("x")), "/dev/null", &["found a device"]);
    let around = folder.path().join("loop.gguf");
    std::os::unix::fs::symlink(&around, &around).unwrap();
    faults.refused("loop", Gguf::open(&around), "loop.gguf", &[]);
    std::os::unix::fs::symlink(golden("values.gguf"), folder.path().join("link.gguf")).unwrap();
    faults.report();
    Gguf::open(folder.path().join("link.gguf")).unwrap();
}

#[test]
fn a_survey_keeps_what_stands_before_the_damage() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Bytes::header(2, 1, 2).text("first").u32(4).u32(7).text("second").u32(99);
    let survey = Gguf::survey(write(folder.path(), "cut.gguf", &keys.data(64))).unwrap();
    assert_eq!(survey.model.metadata().u64("first"), Ok(7));
    assert_eq!((survey.parts[0].version, survey.parts[0].tensors), (2, 0));
    assert_eq!(survey.model.format(), "GGUF v2");
    let kinds: Vec<_> = survey.faults.kept().iter().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [FaultKind::HeaderBroken]);
    let other = Gguf::survey(write(folder.path(), "other.gguf", b"no model at all")).unwrap_err().to_string();
    assert!(other.contains("expected a GGUF file, which starts with \"GGUF\", found"), "{other}");
    let one = |dtype: u32, shape: &[u64], offset: u64| {
        let file = two_tensors().tensor("t", shape, dtype, offset).tensor("u", &[8], 0, 32).data(64);
        let survey = Gguf::survey(write(folder.path(), "one.gguf", &file)).unwrap();
        assert_eq!(survey.model.tensors().len(), 1, "the other tensor is there");
        assert_eq!(survey.model.find(&survey.model.tensors()[0].name), Some(0));
        survey.faults.kept()[0].kind
    };
    assert_eq!(one(2, &[33], 0), FaultKind::RowsNotBlocks);
    assert_eq!(one(2, &[32, 1 << 40, 1 << 40], 0), FaultKind::ShapeInvalid);
    assert_eq!(one(0, &[0], 0), FaultKind::ShapeInvalid);
    assert_eq!(one(4, &[8], 0), FaultKind::TypeUnknown);
    assert_eq!(one(0, &[8], 4), FaultKind::Misaligned);
    assert_eq!(one(0, &[8], 96), FaultKind::OutsideFile);
    assert_eq!(one(0, &[16], 0), FaultKind::Overlap);
}

#[test]
fn alignments_from_8_to_a_mebibyte_are_kept_to() {
    let folder = tempfile::tempdir().unwrap();
    for alignment in [8_u32, 16, 64, 4096, 1 << 20] {
        let header = Bytes::header(3, 1, 1).text("general.alignment").u32(4).u32(alignment).tensor("t", &[8], 0, 0);
        let start = header.0.len().next_multiple_of(alignment as usize);
        let mut file = header.0;
        file.resize(start, 0);
        file.extend([1_f32; 8].iter().flat_map(|number| number.to_le_bytes()));
        let model = Gguf::open(write(folder.path(), "aligned.gguf", &file)).unwrap();
        let mut bytes = [0; 32];
        model.read(0, 0, &mut bytes).unwrap();
        assert_eq!(bytes[..4], 1_f32.to_le_bytes(), "{alignment}");
    }
    let header = Bytes::header(3, 0, 1).text("general.alignment").u32(4).u32(1 << 21);
    let error = Gguf::open(write(folder.path(), "wide.gguf", &header.data(0))).unwrap_err().to_string();
    assert!(error.contains("expected a power of two from 8 to 1048576, found 2097152"), "{error}");
}

#[test]
fn a_file_that_changes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::copy(golden("values.gguf"), &path).unwrap();
    let model = Gguf::open(&path).unwrap();
    model.unchanged().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut faults = Faults::default();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(600).unwrap();
    faults.refused(
        "shorter",
        model.unchanged().map_err(|error| error.at("x")),
        "model.gguf",
        &["1248 bytes and has 600"],
    );
    faults.refused("read", model.read(2, 0, &mut [0; 34]), "model.gguf", &["shorter now"]);
    std::fs::remove_file(&path).unwrap();
    faults.refused("gone", model.unchanged().map_err(|error| error.at("x")), "model.gguf", &["it was removed"]);
    std::fs::write(&path, &whole).unwrap();
    faults.refused("replaced", model.unchanged().map_err(|error| error.at("x")), "model.gguf", &["changed while"]);
    let model = Gguf::open(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5)).unwrap();
    faults.refused(
        "touched",
        model.unchanged().map_err(|error| error.at("x")),
        "model.gguf",
        &["modification time changed"],
    );
    faults.report();
}

/// Names and texts in other encodings that no computation needs, such as `general.author` in Latin-1.
#[test]
fn text_that_is_not_utf8_is_escaped_and_noted() {
    let header = Bytes::header(3, 1, 2).text("general.author").u32(8).u64(5).raw(b"Andr\xe9");
    let header = header.u64(3).raw(b"k\xff\xfe").u32(0).raw(&[7]);
    let tensor = header.u64(4).raw(b"w\x80.b").u32(1).u64(4).u32(0).u64(0);
    let folder = tempfile::tempdir().unwrap();
    let model = Gguf::open(write(folder.path(), "m.gguf", &tensor.data(16))).unwrap();
    assert_eq!(model.metadata().string("general.author").unwrap(), "Andr\\xe9");
    assert_eq!(model.metadata().u64("k\\xff\\xfe").unwrap(), 7);
    assert_eq!(model.find("w\\x80.b"), Some(0));
    let [note] = model.notes() else { panic!("{:?}", model.notes()) };
    for part in
        ["text that is not UTF-8", "key general.author (\"Andr\\xe9\")", "key number 1", "name of tensor number 0"]
    {
        assert!(note.contains(part), "{part} in {note}");
    }
}
