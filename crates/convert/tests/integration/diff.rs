//! Two models: the same in any format and type, and what differs by its name.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use trueup_blocks::DType;
use trueup_convert::{Diff, DiffOptions, Kind, Options, Override, Slim, convert, diff};
use trueup_formats::{Checkpoint, OpenOptions, join_split_scale, open};
use trueup_quantize::{NoProgress, Recipe, quantize};

/// Folders of all fixtures.
fn models() -> Vec<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut names = vec!["stories-1M".to_owned()];
    for kind in ["models", "encoders", "encoder-decoders"] {
        let entries = std::fs::read_dir(fixtures.join(kind)).unwrap();
        names.extend(entries.map(|entry| format!("{kind}/{}", entry.unwrap().file_name().to_string_lossy())));
    }
    assert!(names.len() > 60, "{names:?}");
    names
}

fn model(path: impl AsRef<Path>) -> Box<dyn Checkpoint> {
    join_split_scale(open(path, &OpenOptions::default()).unwrap()).unwrap()
}

fn source(name: &str) -> Box<dyn Checkpoint> {
    model(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name))
}

fn written(folder: &tempfile::TempDir, source: &dyn Checkpoint, options: &Options) -> PathBuf {
    let output = folder.path().join("model.gguf");
    convert(source, &output, options, &NoProgress).unwrap();
    output
}

fn compared(a: &dyn Checkpoint, b: &dyn Checkpoint) -> Diff {
    diff(a, b, DiffOptions { threads: Some(2), ..DiffOptions::default() }).unwrap()
}

#[test]
fn a_converted_model_equals_its_source_both_ways() {
    let mut faults = Vec::new();
    for name in models() {
        for dtype in [None, Some(DType::F32)] {
            let (folder, source) = (tempfile::tempdir().unwrap(), source(&name));
            let options = Options { recipe: Recipe::new(dtype), ..Options::default() };
            let file = model(written(&folder, source.as_ref(), &options));
            for found in [compared(source.as_ref(), file.as_ref()), compared(file.as_ref(), source.as_ref())] {
                let whole = found.exact == found.tensors && found.tensors == file.tensors().len() && found.keys > 20;
                if !found.equal || !whole || !found.notes.is_empty() {
                    faults.push(format!("{name} as {dtype:?}: {found:#?}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn quantized_tensors_are_rounded_and_equal_where_that_is_allowed() {
    let (folder, source) = (tempfile::tempdir().unwrap(), source("stories-1M"));
    let file = model(written(&folder, source.as_ref(), &Options::default()));
    for split in [false, true] {
        let output = folder.path().join("q8.gguf");
        let options = trueup_quantize::Options {
            recipe: Recipe::new(Some(DType::Q8_0)),
            layout: if split { trueup_quantize::Layout::Split } else { trueup_quantize::Layout::Block },
            threads: Some(2),
            dry_run: false,
            resume: false,
        };
        quantize(file.as_ref(), &output, &options, &NoProgress).unwrap();
        let quantized = model(&output);
        for other in [source.as_ref(), file.as_ref()] {
            let found = compared(other, quantized.as_ref());
            assert_eq!((found.equal, found.exact + found.rounded), (false, found.tensors));
            assert_eq!((found.differences.len(), found.rounded), (43, 43));
            assert!(found.differences.iter().all(|line| line.values.as_ref().is_some_and(|values| values.rounded)));
            let allowed = DiffOptions { allow_rounding: true, ..DiffOptions::default() };
            assert!(diff(other, quantized.as_ref(), allowed).unwrap().equal);
        }
    }
}

fn slimmed(folder: &tempfile::TempDir, source: &dyn Checkpoint, dropped: std::ops::RangeInclusive<u32>) -> PathBuf {
    let output = folder.path().join(format!("from-{}.gguf", dropped.start()));
    let options = Options { slim: Some(Slim::Drop(dropped)), ..Options::default() };
    convert(source, &output, &options, &NoProgress).unwrap();
    output
}

#[test]
fn slimmed_files_are_compared_with_the_rows_that_were_kept() {
    let mut faults = Vec::new();
    let models = [
        ("models/llama2", 300..=340),
        ("models/llama3-tied", 300..=301),
        ("models/baichuan2-13b", 300..=340),
        ("models/chatglm1", 0..=7),
        ("models/qwen2", 290..=290),
    ];
    for (name, dropped) in models {
        let (folder, source) = (tempfile::tempdir().unwrap(), source(name));
        let file = model(written(&folder, source.as_ref(), &Options::default()));
        let count = file.tensors().iter().find(|tensor| tensor.name == "token_embd.weight").unwrap().shape[1];
        let fewer = model(slimmed(&folder, source.as_ref(), dropped.clone()));
        let rounded = folder.path().join("q8_0.gguf");
        let options = Options { recipe: Recipe::new(Some(DType::Q8_0)), ..Options::default() };
        convert(source.as_ref(), &rounded, &options, &NoProgress).unwrap();
        let rounded = model(&rounded);
        let kept = count - u64::from(dropped.end() - dropped.start() + 1);
        let said = format!("has {kept} of the tokens of ");
        for (what, whole) in [("the source", &source), ("a file", &file)] {
            for found in [compared(whole.as_ref(), fewer.as_ref()), compared(fewer.as_ref(), whole.as_ref())] {
                let all = found.exact == found.tensors && found.tensors == file.tensors().len() && found.keys > 20;
                if !found.equal || !all || found.notes.len() != 1 || !found.notes[0].contains(&said) {
                    faults.push(format!("{name}, {what}: {found:#?}"));
                }
            }
        }
        // Rows of a type that rounds them are told from equal ones, and as rounded.
        let found = compared(fewer.as_ref(), rounded.as_ref());
        let embedding = found.differences.iter().find(|line| line.name == "token_embd.weight");
        if !embedding.and_then(|line| line.values.as_ref()).is_some_and(|values| values.rounded) {
            faults.push(format!("{name}, a file of q8_0: {found:#?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn slimmed_files_of_other_tokens_and_of_other_models_differ() {
    let (folder, source) = (tempfile::tempdir().unwrap(), source("models/llama2"));
    let (one, other) = (slimmed(&folder, source.as_ref(), 300..=340), slimmed(&folder, source.as_ref(), 301..=341));
    let found = compared(model(&one).as_ref(), model(&other).as_ref());
    let names: Vec<&str> = found.differences.iter().map(|line| line.name.as_str()).collect();
    assert!(names.contains(&"trueup.vocabulary.source_ids") && names.contains(&"token_embd.weight"), "{names:?}");
    assert!(compared(model(&one).as_ref(), model(&one).as_ref()).equal);
    // Fewer tokens of the fewer.
    let larger = self::source("stories-1M");
    let found = compared(model(&one).as_ref(), larger.as_ref());
    assert!(!found.equal && found.notes.len() == 1, "{:?}", found.notes);
    assert!(found.notes[0].contains("do not come from"), "{:?}", found.notes);
}

#[test]
fn what_differs_is_named() {
    let (folder, source) = (tempfile::tempdir().unwrap(), source("models/llama2"));
    let overrides = vec!["llama.rope.freq_base=12345".parse::<Override>().unwrap()];
    let path = written(&folder, source.as_ref(), &Options { overrides, ..Options::default() });
    // One element of one matrix, in the file alone.
    let file = model(&path);
    let number = file.tensors().iter().position(|tensor| tensor.name == "blk.1.attn_q.weight").unwrap();
    let mut head = vec![0; file.tensors()[number].bytes as usize];
    file.read(number, 0, &mut head).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let start = bytes.windows(head.len()).position(|window| window == head).unwrap();
    // The fifth element of the third row of 64, as bf16: its sign.
    bytes[start + 2 * (2 * 64 + 5) + 1] ^= 0x80;
    std::fs::write(&path, bytes).unwrap();
    let found = compared(source.as_ref(), model(&path).as_ref());
    let names: Vec<(Kind, &str)> = found.differences.iter().map(|line| (line.kind, line.name.as_str())).collect();
    assert_eq!(names, [(Kind::Key, "llama.rope.freq_base"), (Kind::Tensor, "blk.1.attn_q.weight")], "{found:#?}");
    assert_eq!(found.differences[0].b.as_deref(), Some("12345"));
    let values = found.differences[1].values.as_ref().unwrap();
    assert_eq!((values.rounded, values.elements, values.first.as_slice()), (false, 1, [5, 2].as_slice()));
    assert_eq!(found.exact, found.tensors - 1);
}

#[test]
fn tensors_of_one_side_alone_and_of_other_shapes_are_listed() {
    let (a, b) = (source("models/llama3"), source("models/llama3-tied"));
    let found = compared(a.as_ref(), b.as_ref());
    let head = found.differences.iter().find(|line| line.name == "output.weight").unwrap();
    assert!(head.b.is_none() && head.a.as_ref().is_some_and(|a| a.contains("lm_head.weight")), "{head:?}");
    let other = compared(a.as_ref(), source("models/qwen2").as_ref());
    assert!(other.differences.iter().any(|line| line.kind == Kind::Key && line.name == "general.architecture"));
    assert!(!other.equal && other.exact < other.tensors);
}

/// Files of llama.cpp's converter have no `trueup.*` keys.
#[test]
fn keys_that_only_trueup_writes_are_notes_for_files_of_other_programs() {
    for name in ["models/qwen2", "models/llama3", "models/qwen3"] {
        let (folder, source) = (tempfile::tempdir().unwrap(), source(name));
        let path = written(&folder, source.as_ref(), &Options::default());
        let ours = std::fs::read(&path).unwrap();
        let renamed = |keys: &[u8], bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let places: Vec<usize> =
                (0..bytes.len() - keys.len()).filter(|&at| bytes[at..].starts_with(keys)).collect();
            places.iter().for_each(|&at| bytes[at..at + 6].copy_from_slice(b"others"));
            (bytes, places.len())
        };
        let (theirs, count) = renamed(b"trueup.", &ours);
        assert!(count > 0, "{name} has keys of ours");
        std::fs::write(&path, &theirs).unwrap();
        let file = model(&path);
        for found in [compared(source.as_ref(), file.as_ref()), compared(file.as_ref(), source.as_ref())] {
            assert!(found.equal && found.exact == found.tensors, "{name}: {found:#?}");
            let [note] = found.notes.as_slice() else { panic!("{name}: {:?}", found.notes) };
            assert!(note.contains("was not written by trueup") && note.contains("trueup.tokenizer."), "{note}");
        }
        // A file that has one of these keys is ours, and lacks the others.
        let marked = Override::from_str("trueup.mark=1").unwrap();
        let path = written(&folder, source.as_ref(), &Options { overrides: vec![marked], ..Options::default() });
        let (damaged, _) = renamed(b"trueup.tokenizer.", &std::fs::read(&path).unwrap());
        std::fs::write(&path, &damaged).unwrap();
        assert!(!compared(source.as_ref(), model(&path).as_ref()).equal, "{name}");
    }
}
