//! Files and folders that are not a readable model: what they are, and what to do with them.
//!
//! ```text
//! file    first 512 bytes            gzip, tar, zip, PyTorch pickle, HDF5, importance matrix, GGML ...
//! folder  names of its files         LoRA adapter, Mistral or Meta layout, PyTorch or TensorFlow weights, cache ...
//! ```

use crate::error::{Error, Result, listed, quote};
use crate::json;
use crate::source_file::SourceFile;
use crate::text_encoding::without_mark;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Bytes from the start of a file that [`of_file`] needs.
pub(crate) const START_BYTES: usize = 512;

/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// The description of a PEFT adapter.
pub(crate) const ADAPTER_CONFIG: &str = "adapter_config.json";

const PICKLE_HELP: &str = "convert it to safetensors first, for example with save_pretrained(..., \
    safe_serialization=True)";
const PICKLES_HELP: &str = "convert them to safetensors first, for example with save_pretrained(..., \
    safe_serialization=True)";
const ORIGINAL_HELP: &str = "convert the original checkpoint";
const ARCHIVE_HELP: &str = "extract it and pass the model inside";

/// Offset, bytes there, what the file is, what to do.
const MAGICS: [(usize, &[u8], &str, &str); 19] = [
    (0, b"\x80\x02", "a PyTorch pickle, which can contain executable code", PICKLE_HELP),
    (0, b"\x80\x03", "a Python pickle, which can contain executable code", PICKLE_HELP),
    (0, b"\x80\x04", "a Python pickle, which can contain executable code", PICKLE_HELP),
    (0, b"\x80\x05", "a Python pickle, which can contain executable code", PICKLE_HELP),
    (0, b"lmgg", "a GGML file, older than GGUF", ORIGINAL_HELP),
    (0, b"fmgg", "a GGMF file, older than GGUF", ORIGINAL_HELP),
    (0, b"tjgg", "a GGJT file, older than GGUF", ORIGINAL_HELP),
    (
        0,
        b"algg",
        "a GGLA file: a LoRA adapter, older than GGUF",
        "merge the original adapter into its model and convert the result",
    ),
    (0, b"\x1f\x8b", "a file compressed with gzip", "decompress it first, for example with `gunzip`"),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed with Zstandard", "decompress it first, for example with `unzstd`"),
    (0, b"\xfd7zXZ\0", "a file compressed with xz", "decompress it first, for example with `unxz`"),
    (0, b"BZh", "a file compressed with bzip2", "decompress it first, for example with `bunzip2`"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", ARCHIVE_HELP),
    (0, b"Rar!\x1a\x07", "a RAR archive", ARCHIVE_HELP),
    (257, b"ustar", "a tar archive", ARCHIVE_HELP),
    (0, b"\x93NUMPY", "a NumPy array", ORIGINAL_HELP),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file of Keras or TensorFlow", "get the model's safetensors files instead"),
    (4, b"TFL3", "a TensorFlow Lite file", "get the model's safetensors files instead"),
    (0, b"PK\x05\x06", "an empty zip archive", "get the file again"),
];

/// What a file is, and what to do.
pub(crate) struct Foreign {
    what: String,
    help: String,
}

impl Foreign {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Foreign {
        Foreign { what: what.into(), help: help.into() }
    }

    /// As the error that opening ends with.
    pub fn error(self, path: &Path) -> Error {
        Error::new(path, format!("expected a model, found {}", self.what)).help(self.help)
    }
}

/// Reads the first bytes of a file that has no known magic number; the error that opening ends with if they show what
/// the file is.
pub(crate) fn of_source(source: &SourceFile) -> Result<Option<Error>> {
    let mut start = [0; START_BYTES];
    let size = usize::try_from(source.bytes()).unwrap_or(usize::MAX).min(start.len());
    let start = start.get_mut(..size).unwrap_or_default();
    source.read_at(0, start)?;
    Ok(of_file(start, source.path()).map(|found| found.error(source.path()).at("first bytes")))
}

/// Recognizes a file that is not a model by its first [`START_BYTES`] bytes.
pub(crate) fn of_file(start: &[u8], path: &Path) -> Option<Foreign> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_there = |offset: usize, magic: &[u8]| start.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if start.starts_with(b"PK\x03\x04") {
        return Some(zip(start, extension));
    }
    if let Some((_, _, what, help)) = MAGICS.iter().find(|(offset, magic, ..)| is_there(*offset, magic)) {
        return Some(Foreign::new(*what, *help));
    }
    if extension.eq_ignore_ascii_case("onnx") {
        return Some(Foreign::new("an ONNX graph", "get the model's safetensors files instead"));
    }
    if is_importance_matrix(start) {
        let what = "an importance matrix of llama.cpp, which contains activation statistics but no weights";
        return Some(Foreign::new(what, "pass the model that it was measured on"));
    }
    let text = without_mark(start).trim_ascii_start();
    let is_json = extension.eq_ignore_ascii_case("json") && text.first().is_some_and(|byte| b"{[".contains(byte));
    is_json.then(|| Foreign::new("a JSON file", "pass its directory, or the file with the weights"))
}

/// Whether a file begins with these bytes.
fn starts_with(path: &Path, magic: &[u8; 4]) -> bool {
    let mut start = [0; 4];
    // A pipe would block.
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *magic
}

/// What a zip archive holds, by the name of its first entry.
fn zip(start: &[u8], extension: &str) -> Foreign {
    let size = start.get(26..28).and_then(|size| size.first_chunk()).map_or(0, |size| u16::from_le_bytes(*size));
    let name = start.get(30..).unwrap_or_default();
    let name = name.get(..usize::from(size)).unwrap_or(name);
    let name = String::from_utf8_lossy(name);
    let is_pickle = ["bin", "pt", "pth", "ckpt"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    if is_pickle || name.ends_with("data.pkl") || name.ends_with("/.format_version") {
        return Foreign::new("a PyTorch pickle in a zip archive, which can contain executable code", PICKLE_HELP);
    }
    if name.ends_with(".npy") {
        return Foreign::new("an archive of NumPy arrays", ORIGINAL_HELP);
    }
    Foreign::new("a zip archive", ARCHIVE_HELP)
}

/// Whether this is the old format of `llama-imatrix`: a count, then the first tensor's name with its length.
fn is_importance_matrix(start: &[u8]) -> bool {
    let Some((count, rest)) = start.split_first_chunk::<4>() else { return false };
    let Some((size, rest)) = rest.split_first_chunk::<4>() else { return false };
    let (count, size) = (i32::from_le_bytes(*count), u32::from_le_bytes(*size));
    let name = usize::try_from(size).ok().and_then(|size| rest.get(..size));
    count > 0 && name.is_some_and(|name| name.ends_with(b".weight") && name.is_ascii())
}

/// Recognizes a folder that holds no model in this crate's formats: one without `config.json`, without weights in
/// safetensors, or with the description of an adapter in place of a model's.
pub(crate) fn of_folder(folder: &Path) -> Option<Error> {
    let names = names_in(folder);
    let found = of_adapter(folder, &names).or_else(|| of_names(folder, &names))?;
    Some(found.error(folder))
}

/// The names in a folder, sorted; a bounded number of them.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(ENTRIES_MAX).collect();
    names.sort();
    names
}

/// A folder with the description of an adapter. `config.json` may be a copy of it.
fn of_adapter(folder: &Path, names: &[String]) -> Option<Foreign> {
    let file = [ADAPTER_CONFIG, "config.json"].into_iter().find(|file| names.iter().any(|name| name == file))?;
    let config = adapter_config(&folder.join(file));
    if file != ADAPTER_CONFIG && config.as_ref().is_none_or(|config| !config.contains_key("peft_type")) {
        return None;
    }
    Some(adapter(config.as_ref(), file))
}

/// The description of an adapter, when it can be read.
fn adapter_config(path: &Path) -> Option<serde_json::Map<String, serde_json::Value>> {
    SourceFile::open(path).and_then(|source| json::read_object(&source)).ok()
}

/// Name and base of an adapter, from its description: `a LoRA adapter of org/base (adapter_config.json)`.
pub(crate) fn adapter_name(folder: &Path) -> String {
    adapter(adapter_config(&folder.join(ADAPTER_CONFIG)).as_ref(), ADAPTER_CONFIG).what
}

fn adapter(config: Option<&serde_json::Map<String, serde_json::Value>>, file: &str) -> Foreign {
    let text = |key: &str| config?.get(key)?.as_str().filter(|text| !text.is_empty()).map(quote);
    let kind = match text("peft_type") {
        Some(kind) if kind != "LORA" => format!("a PEFT adapter ({kind})"),
        Some(_) | None => "a LoRA adapter".to_owned(),
    };
    let base = text("base_model_name_or_path").map_or_else(String::new, |base| format!(" of {base}"));
    Foreign::new(format!("{kind}{base} ({file})"), MERGE_HELP)
}

/// What to do with an adapter.
pub(crate) const MERGE_HELP: &str =
    "merge it into its model first, for example with merge_and_unload() of peft, and convert the merged model";

/// A folder known by the names in it.
fn of_names(folder: &Path, names: &[String]) -> Option<Foreign> {
    let has = |found: &dyn Fn(&str) -> bool| names.iter().any(|name| found(name));
    let is = |wanted: &'static str| has(&|name| name == wanted);
    let ends = |end: &'static str| has(&|name| name.ends_with(end));
    if is("params.json") && has(&|name| name.starts_with("consolidated.") && name.ends_with(".pth")) {
        let what = "a checkpoint in Meta's own layout (params.json, consolidated.*.pth)";
        let help = "convert it to the Hugging Face layout first, with transformers' convert_llama_weights_to_hf.py";
        return Some(Foreign::new(what, help));
    }
    if is("params.json") && has(&|name| name.starts_with("consolidated") && name.ends_with(".safetensors")) {
        let what = "a checkpoint in Mistral's own layout (params.json, consolidated.safetensors)";
        let help = "get the files of the same model in the Hugging Face layout (config.json, model*.safetensors), or \
                    convert it with transformers' convert_mistral_weights_to_hf.py";
        return Some(Foreign::new(what, help));
    }
    if is("model_index.json") {
        let what = "a pipeline of diffusers (model_index.json), which generates images";
        return Some(Foreign::new(what, "pass a language model"));
    }
    if has(&|name| name.starts_with("pytorch_model")) || ends(".pth") || ends(".pt") {
        let what = "PyTorch pickle files, which can contain executable code";
        return Some(Foreign::new(what, PICKLES_HELP));
    }
    let gguf: Vec<&String> = names.iter().filter(|name| name.ends_with(".gguf")).collect();
    if let Some(first) = gguf.first() {
        let sound = gguf.iter().find(|name| starts_with(&folder.join(name.as_str()), b"GGUF")).unwrap_or(first);
        let help = format!(
            "pass the GGUF file itself, for example {}; to change its types, use `trueup quantize`",
            quote(sound)
        );
        return Some(Foreign::new("a directory with GGUF files", help));
    }
    if is("tf_model.h5") || is("flax_model.msgpack") || ends(".onnx") {
        let what = "the weights of another framework (TensorFlow, Flax or ONNX)";
        return Some(Foreign::new(what, "get the model's safetensors files instead"));
    }
    let inner: Vec<String> =
        names.iter().filter(|name| folder.join(name).join("config.json").is_file()).map(|name| quote(name)).collect();
    if !inner.is_empty() {
        let what = format!("a directory that contains models: {}", listed(&inner, ", "));
        return Some(Foreign::new(what, "pass one of them"));
    }
    (names.is_empty() && folder.is_dir()).then(|| Foreign::new("an empty directory", "get the files of the model"))
}

#[cfg(test)]
mod tests {
    use super::{of_file, of_folder};
    use crate::{OpenOptions, open};
    use std::path::Path;

    fn said(start: &[u8], name: &str) -> String {
        of_file(start, Path::new(name)).map_or_else(String::new, |found| found.error(Path::new(name)).to_string())
    }

    #[test]
    fn files_are_recognized_by_their_first_bytes() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let zip =
            |name: &[u8]| [b"PK\x03\x04", &[0; 22][..], &(name.len() as u16).to_le_bytes(), &[0; 2], name].concat();
        let matrix = [&2_i32.to_le_bytes()[..], &19_u32.to_le_bytes(), b"blk.0.attn_k.weight"].concat();
        let cases: [(&[u8], &str, &str, &str); 12] = [
            (b"\x1f\x8b\x08\x00", "model.gguf.gz", "compressed with gzip", "gunzip"),
            (b"\x28\xb5\x2f\xfd\x04", "model.zst", "Zstandard", "unzstd"),
            (&tar, "model.tar", "a tar archive", "extract it"),
            (&zip(b"model/config.json"), "model.zip", "a zip archive", "extract it"),
            (&zip(b"archive/data.pkl"), "weights", "a PyTorch pickle in a zip archive", "safe_serialization"),
            (&zip(b"anything"), "consolidated.00.pth", "a PyTorch pickle in a zip archive", "safe_serialization"),
            (&zip(b"arr_0.npy"), "arrays.npz", "NumPy", "original checkpoint"),
            (b"\x80\x05\x95", "m.pkl", "a Python pickle", "safetensors"),
            (b"\x89HDF\r\n\x1a\n", "tf_model.h5", "HDF5", "safetensors"),
            (&matrix, "imatrix.dat", "an importance matrix", "pass the model"),
            (b"\xef\xbb\xbf{\"a\": 1}", "config.json", "a JSON file", "pass its directory"),
            (b"\x08\x07", "m.onnx", "an ONNX graph", "safetensors"),
        ];
        for (start, name, what, help) in cases {
            let said = said(start, name);
            assert!(said.contains(what) && said.contains(help), "{name}: {said}");
        }
        for (start, name) in
            [(&b""[..], "a"), (b"GGUF", "b"), (&[0; 512], "c"), (b"{\"a\"", "d.txt"), (b"hello", "e.bin")]
        {
            assert_eq!(said(start, name), "", "{name}");
        }
    }

    #[test]
    fn folders_are_recognized_by_their_files() {
        let adapter = r#"{"peft_type": "LORA", "base_model_name_or_path": "org/base"}"#;
        type Files<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Files, &[&str]); 12] = [
            (
                &[("adapter_config.json", adapter), ("adapter_model.safetensors", "x")],
                &["a LoRA adapter of org/base (adapter_config.json)", "merge_and_unload()"],
            ),
            (&[("config.json", adapter)], &["a LoRA adapter of org/base (config.json)", "merge it"]),
            (
                &[("adapter_config.json", r#"{"peft_type": "IA3"}"#), ("adapter_model.bin", "x")],
                &["a PEFT adapter (IA3) (adapter_config.json)", "merge it"],
            ),
            (
                &[("params.json", "{}"), ("consolidated.safetensors", "x"), ("tekken.json", "{}")],
                &["Mistral's own layout", "convert_mistral_weights_to_hf.py"],
            ),
            (
                &[("params.json", "{}"), ("consolidated.00.pth", "x")],
                &["Meta's own layout", "convert_llama_weights_to_hf.py"],
            ),
            (
                &[("config.json", "{}"), ("pytorch_model-00001-of-00002.bin", "x")],
                &["PyTorch pickle files", "safe_serialization=True"],
            ),
            (&[("config.json", "{}"), ("tf_model.h5", "x")], &["another framework", "safetensors"]),
            (&[("a-Q4_0.gguf", "x")], &["GGUF files", "for example a-Q4_0.gguf"]),
            (&[("model_index.json", "{}")], &["diffusers", "language model"]),
            (
                &[("checkpoint-500/config.json", "{}")],
                &["a directory that contains models: checkpoint-500", "pass one of them"],
            ),
            (&[("README.md", "")], &["expected a model directory", "no config.json"]),
            (&[], &["an empty directory", "get the files"]),
        ];
        for (files, words) in cases {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let error = open(folder.path(), &OpenOptions::default()).err().unwrap().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{files:?}: {error}");
        }
        assert!(of_folder(Path::new("no/such/folder")).is_none());
    }
}
