//! Formats are told apart by content.

use crate::support::{Faults, golden, write};
use trueup_formats::{Checkpoint, Error, OpenOptions, SourceFile, open};

fn open_bytes(name: &str, bytes: &[u8]) -> Result<Box<dyn Checkpoint>, Error> {
    let folder = tempfile::tempdir().unwrap();
    open(write(folder.path(), name, bytes), &OpenOptions::default())
}

#[test]
fn the_name_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, from: &str| {
        std::fs::copy(golden(from), folder.path().join(name)).unwrap();
        open(folder.path().join(name), &OpenOptions::default()).unwrap().format().to_owned()
    };
    assert_eq!(named("a.bin", "values.gguf"), "GGUF v3");
    assert_eq!(named("b.gguf", "theta-10000.bin"), "llama2.c v0");
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    assert_eq!(named("c.bin", "arrays.safetensors"), "safetensors");
    assert_eq!(named("model.safetensors", "arrays.safetensors"), "safetensors");
    assert_eq!(open(folder.path(), &OpenOptions::default()).unwrap().tensors().len(), 3);
}

#[test]
fn a_survey_tells_formats_apart_too() {
    let format = |name: &str| trueup_formats::survey(golden(name)).unwrap().checkpoint.format().to_owned();
    assert_eq!(format("values.gguf"), "GGUF v3");
    assert_eq!(format("theta-10000.bin"), "llama2.c v0");
    assert_eq!(format("split-00002-of-00003.gguf"), "GGUF v3");
    let found = trueup_formats::survey(golden("split-00001-of-00003.gguf")).unwrap();
    let other = &found.checkpoint.tensors().last().unwrap().name;
    assert!(found.file_of[other].ends_with("split-00003-of-00003.gguf"), "{:?}", found.file_of);
    assert!(trueup_formats::survey(golden("values.gguf")).unwrap().file_of.is_empty());
}

#[test]
fn what_is_no_model_is_named() {
    let mut faults = Faults::default();
    let cases: [(&str, &[u8], &[&str]); 8] = [
        ("m.pt", b"PK\x03\x04rest of it", &["PyTorch pickle in a zip", "convert it to safetensors"]),
        ("pytorch_model.bin", b"\x80\x02\x8a\x0al\xfc", &["PyTorch pickle", "safetensors"]),
        ("old.bin", b"tjgg\x03\0\0\0\0\0\0\0", &["GGJT", "older than GGUF"]),
        ("empty.bin", b"", &["expected a GGUF, safetensors, FastLLM .flm or llama2.c model, found an empty file"]),
        ("text.txt", b"Once upon a time there was a model that was none.", &["found none of them; check"]),
        ("zeros.bin", &[0; 1000], &["as llama2.c version 0:", "dim", "found 0"]),
        ("short.gguf", b"GGUF", &["version"]),
        ("size.safetensors", b"\xff\0\0\0\0\0\0\0{}", &["found none of them"]),
    ];
    for (name, bytes, fragments) in cases {
        faults.refused(name, open_bytes(name, bytes), name, fragments);
    }
    let flm = open_bytes("m.flm", &2_i32.to_le_bytes());
    faults.refused("flm", flm, "m.flm", &["table of keys", "truncated"]);
    let missing = open("no/such/model.gguf", &OpenOptions::default());
    faults.refused("missing", missing.map_err(|error| error.at("x")), "no/such/model.gguf", &["cannot be opened"]);
    let options = OpenOptions { tokenizer: Some("t.json".into()) };
    faults.refused("tokenizer", open(golden("values.gguf"), &options), "t.json", &[]);
    faults.report();
}

#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
    use rustix::fs::{CWD, FileType, Mode};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = SourceFile::open(&path).unwrap_err().to_string();
    assert!(error.contains("expected a regular file, found a pipe"), "{error}");
    // Another program never gets what is open here.
    let descriptors = || std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let source = SourceFile::open(golden("values.gguf")).unwrap();
    let flags = descriptors().filter_map(|entry| {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", entry.file_name().to_str()?)).ok()?;
        (link == source.path().canonicalize().ok()?).then(|| std::fs::read_to_string(entry.path()).ok())?
    });
    let octal = |text: String| u32::from_str_radix(text.lines().find_map(|l| l.strip_prefix("flags:"))?.trim(), 8).ok();
    let flags: Vec<u32> = flags.filter_map(octal).collect();
    let expected = (rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK).bits();
    assert!(flags.iter().any(|flags| flags & expected == expected), "{flags:?}");
}
