//! Safetensors files and model folders: true ones, and ones that lie.

use crate::support::{Faults, find, golden, read, read_f32, write};
use serde_json::json;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::{
    Checkpoint, Description, FaultKind, OpenOptions, SafetensorsArray, SafetensorsDir, SafetensorsFile, SetComparison,
    json, open, write_safetensors,
};

/// A file with this header and that many bytes of data.
fn file_bytes(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

/// A folder with a configuration and one small file for each of `files`: name, and names of its tensors.
fn model_folder(files: &[(&str, &[&str])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "config.json",
        br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 2, "vocab_size": 2}"#,
    );
    for (name, tensors) in files {
        let arrays: Vec<_> = tensors.iter().map(|name| SafetensorsArray::f32(*name, &[2], &[1.0, 2.0])).collect();
        write_safetensors(folder.path().join(name), &arrays, &[], &[]).unwrap();
    }
    folder
}

fn write_index(folder: &Path, weight_map: serde_json::Value) -> PathBuf {
    write(folder, "model.safetensors.index.json", json!({ "weight_map": weight_map }).to_string().as_bytes())
}

#[test]
fn the_python_packages_file_is_read() {
    let file = SafetensorsFile::open(golden("arrays.safetensors")).unwrap();
    assert_eq!(file.metadata(), [("format".to_owned(), "np".to_owned())]);
    let facts: Vec<_> =
        file.tensors().iter().map(|info| (info.name.as_str(), info.shape.clone(), info.dtype)).collect();
    let expected = [("scalar", vec![1], DType::I64), ("matrix", vec![3, 2], DType::F32), ("half", vec![4], DType::F16)];
    assert_eq!(facts, expected);
    let mut matrix = [0; 8];
    assert_eq!((file.find("none"), file.find("matri")), (None, None));
    file.read(file.find("matrix").unwrap(), 16, &mut matrix).unwrap();
    assert_eq!(matrix, [4.0_f32.to_le_bytes(), 5.0_f32.to_le_bytes()].concat()[..]);
}

#[test]
fn the_python_packages_bytes_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("arrays.safetensors");
    let scalar = SafetensorsArray {
        name: "scalar".into(),
        shape: vec![1],
        dtype: DType::I64,
        bytes: 7_i64.to_le_bytes().to_vec().into(),
    };
    let matrix = SafetensorsArray::f32("matrix", &[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let half = [0x0000_u16, 0x3c00, 0x4000, 0x4200].map(u16::to_le_bytes).concat();
    let half = SafetensorsArray { name: "half".into(), shape: vec![4], dtype: DType::F16, bytes: half.into() };
    write_safetensors(&path, &[scalar, matrix, half], &[("format".into(), "np".into())], &[]).unwrap();
    // A scalar is `[1]` here and `[]` there; one space less of padding.
    let expected = String::from_utf8_lossy(&std::fs::read(golden("arrays.safetensors")).unwrap())
        .replace("\"shape\":[],", "\"shape\":[1],");
    let written = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
    assert_eq!(
        written.split_once('{').unwrap().1.replace(' ', ""),
        expected.split_once('{').unwrap().1.replace(' ', "")
    );
    assert_eq!(SafetensorsFile::open(&path).unwrap().tensors().len(), 3);
}

#[test]
fn one_file_and_many_files_are_the_same_model() {
    let many = model_folder(&[("a.safetensors", &["x", "y"]), ("b.safetensors", &["z"])]);
    write_index(many.path(), json!({"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}));
    let one = model_folder(&[("model.safetensors", &["x", "y", "z"])]);
    for folder in [many.path(), one.path(), &many.path().join("a.safetensors"), &one.path().join("model.safetensors")] {
        let model = open(folder, &OpenOptions::default()).unwrap();
        assert_eq!(model.format(), "safetensors");
        assert_eq!(model.path(), folder);
        assert_eq!(model.tensors().len(), 3);
        assert_eq!(read_f32(&*model, find(&*model, "z")), [1.0, 2.0]);
        let Description::Json(config) = model.description() else { panic!("no configuration") };
        assert_eq!(config["hidden_size"], 2);
        model.unchanged().unwrap();
    }
    let model = SafetensorsDir::open(many.path()).unwrap();
    assert_eq!(model.file_count(), 2);
    // Two files of tensors, the configuration and the index.
    assert_eq!(model.sources().len(), 4);
    write(many.path(), "config.json", b"{\"changed\": 1}");
    assert!(model.unchanged().unwrap_err().to_string().contains("config.json"));
}

#[test]
fn the_description_of_a_language_model_replaces_that_of_the_whole() {
    let folder = model_folder(&[("model.safetensors", &["x"])]);
    let text = json!({ "architectures": ["Inner"], "model_type": "inner", "hidden_size": 2, "eos_token_id": 1, "bos_token_id": 5,
        "vocab_size": null, "sliding_window": null, "time": [0.0, { "__float__": "Infinity" }] });
    let config = json!({ "architectures": ["Outer"], "hidden_size": 3, "eos_token_id": [1, 2], "vocab_size": 4, "text_config": text,
        "numbers": [{ "__float__": "-Infinity" }, { "__float__": "NaN" }, { "__float__": "1" }, { "__float__": "NaN", "a": 1 }] });
    write(folder.path(), "config.json", config.to_string().as_bytes());
    let model = SafetensorsDir::open(folder.path()).unwrap();
    let Description::Json(found) = model.description() else { panic!("no configuration") };
    for (key, value) in [
        ("architectures", json!(["Outer"])),
        ("model_type", json!("inner")),
        ("hidden_size", json!(2)),
        ("eos_token_id", json!([1, 2])),
        ("bos_token_id", json!(5)),
        ("vocab_size", json!(4)),
        ("sliding_window", json!(null)),
        ("time", json!([0.0, json::INFINITY])),
        ("numbers", json!([json::MINUS_INFINITY, json::NAN, { "__float__": "1" }, { "__float__": "NaN", "a": 1 }])),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    let survey = SafetensorsDir::survey(folder.path()).unwrap();
    let Description::Json(surveyed) = survey.model.description() else { panic!("no configuration") };
    assert_eq!(surveyed, found);
}

#[test]
fn a_single_file_of_another_name_stands_for_itself() {
    let folder = model_folder(&[("model.safetensors", &["x"]), ("other.safetensors", &["y", "z"])]);
    let model = SafetensorsDir::open(folder.path().join("other.safetensors")).unwrap();
    assert_eq!(model.tensors().len(), 2);
    // A file that the index names is a part of the whole, alone or not; another one stands for itself all the same.
    write_index(folder.path(), json!({"x": "model.safetensors"}));
    let tensors = |name: &str| SafetensorsDir::open(folder.path().join(name)).unwrap().tensors().len();
    assert_eq!((tensors("model.safetensors"), tensors("other.safetensors")), (1, 2));
}

#[test]
fn a_folder_without_weights_says_what_it_has() {
    let mut faults = Faults::default();
    for (name, found, help) in [
        ("weights.safetensors", "found neither", "for example weights.safetensors"),
        ("model-00002-of-00003.safetensors", "found neither", "get all 3 files of the model"),
        ("pytorch_model-00001-of-00002.bin", "found PyTorch pickle files", "convert them to safetensors"),
        ("consolidated.00.pth", "found PyTorch pickle files", "convert them to safetensors"),
        ("model.pt", "found PyTorch pickle files", "convert them to safetensors"),
        (
            "model.gguf",
            "a directory with GGUF files",
            "pass the GGUF file itself, for example model.gguf; to change its types, use `trueup quantize`",
        ),
        ("tf_model.h5", "of another framework", "safetensors files"),
        ("notes.txt", "found neither", "get the weights of the model"),
    ] {
        let folder = model_folder(&[]);
        write(folder.path(), name, b"");
        let refused = SafetensorsDir::open(folder.path()).map_err(|error| error.at("folder"));
        faults.refused(name, refused, "", &[found, help]);
    }
    faults.report();
}

#[test]
fn links_of_the_download_cache_are_followed() {
    let blobs = model_folder(&[("model.safetensors", &["x"])]);
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::os::unix::fs::symlink(blobs.path().join(name), folder.path().join(name)).unwrap();
    }
    assert_eq!(read(&SafetensorsDir::open(folder.path()).unwrap(), 0).len(), 8);
}

#[test]
fn tokenizer_files_are_read_and_replaced() {
    let folder = model_folder(&[("model.safetensors", &["x"])]);
    let path = folder.path();
    write(path, "tokenizer.json", b"{}");
    write(path, "tokenizer.model", &[0xff, 0x00]);
    write(path, "tokenizer_config.json", br#"{"add_bos_token": true}"#);
    write(path, "special_tokens_map.json", br#"{"bos_token": "<s>"}"#);
    write(path, "added_tokens.json", br#"{"<x>": 3}"#);
    write(path, "generation_config.json", br#"{"eos_token_id": [1, 2]}"#);
    write(path, "chat_template.jinja", "{{ 'grüße' }}".as_bytes());
    let model = open(path, &OpenOptions::default()).unwrap();
    let files = model.tokenizer();
    assert_eq!(files.tokenizer_json.as_deref(), Some(&b"{}"[..]));
    assert_eq!(files.tokenizer_model.as_deref(), Some(&[0xff, 0x00][..]));
    assert_eq!(files.tokenizer_config.as_ref().unwrap()["add_bos_token"], true);
    assert_eq!(files.special_tokens_map.as_ref().unwrap()["bos_token"], "<s>");
    assert_eq!(files.added_tokens.as_ref().unwrap()["<x>"], 3);
    assert_eq!(files.generation_config.as_ref().unwrap()["eos_token_id"], json!([1, 2]));
    assert_eq!(files.chat_template.as_deref(), Some("{{ 'grüße' }}"));
    write(path, "spiece.model", b"spiece");
    let files = open(path, &OpenOptions::default()).unwrap().tokenizer().clone();
    assert!(files.tokenizer_model.as_deref() == Some(&[0xff, 0x00][..]) && files.model_name() == "tokenizer.model");
    std::fs::remove_file(path.join("tokenizer.model")).unwrap();
    let files = open(path, &OpenOptions::default()).unwrap().tokenizer().clone();
    assert!(files.tokenizer_model.as_deref() == Some(&b"spiece"[..]) && files.model_name() == "spiece.model");
    let other = write(path, "other.model", b"other");
    // The vocabularies of the folder are not read then, so a damaged one does no harm.
    write(path, "added_tokens.json", b"{");
    let model = open(path, &OpenOptions { tokenizer: Some(other) }).unwrap();
    assert!(model.tokenizer().is_replaced && model.tokenizer().added_tokens.is_none());
    assert_eq!(model.tokenizer().tokenizer_model.as_deref(), Some(&b"other"[..]));
    assert!(model.tokenizer().tokenizer_json.is_none() && model.tokenizer().chat_template.is_some());
    let mut faults = Faults::default();
    write(path, "added_tokens.json", br#"{"<x>": 3}"#);
    write(path, "chat_template.jinja", &[b'a', 0x80]);
    faults.refused("template", SafetensorsDir::open(path), "chat_template.jinja", &["byte 1", "UTF-8"]);
    write(path, "added_tokens.json", br#"{"<x>": 3, "<x>": 4}"#);
    faults.refused("added", SafetensorsDir::open(path), "added_tokens.json", &["line 1", "\"<x>\" occurs twice"]);
    write(path, "special_tokens_map.json", b"[1]");
    let array = SafetensorsDir::open(path).map_err(|error| error.at("x"));
    faults.refused("map", array, "special_tokens_map.json", &["expected a JSON object, found an array"]);
    write(path, "tokenizer_config.json", format!("{}1{}", "[".repeat(200), "]".repeat(200)).as_bytes());
    faults.refused("depth", SafetensorsDir::open(path), "tokenizer_config.json", &["line 1", "recursion limit"]);
    faults.report();
}

/// Header, bytes of data, and parts of the message that refuses it.
const LIES: [(&str, &str, usize, &[&str]); 18] = [
    ("no object", "[1]", 0, &["header, line 1", "object of tensors"]),
    ("no JSON", "{\"a\": ", 0, &["header, line 1"]),
    ("text after it", "{} x", 0, &["header, line 1", "trailing"]),
    (
        "name twice",
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        4,
        &["header", "twice"],
    ),
    (
        "field twice",
        r#"{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        4,
        &["header", "duplicate field"],
    ),
    ("text twice", r#"{"__metadata__":{"k":"1","k":"2"}}"#, 0, &["header", "\"k\" occurs twice"]),
    ("no shape", r#"{"a":{"dtype":"F32","data_offsets":[0,4]}}"#, 4, &["header", "missing field"]),
    ("negative", r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, &["header", "-1"]),
    ("one offset", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#, 4, &["header"]),
    ("reversed", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 8, &["tensor a", "found bytes 4 to 0"]),
    (
        "wrong size",
        r#"{"a":{"dtype":"F16","shape":[3],"data_offsets":[0,8]}}"#,
        8,
        &["tensor a", "expected 6 bytes", "0 to 8"],
    ),
    ("past the end", r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4, &["tensor a", "truncated"]),
    (
        "overflow",
        r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#,
        0,
        &["tensor a", "below 2^63"],
    ),
    (
        "far offset",
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}}"#,
        4,
        &["tensor a", "inside the file"],
    ),
    (
        "overlap",
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        8,
        &["tensor b", "overlap"],
    ),
    (
        "gap",
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        8,
        &["before tensor a", "belong to no tensor"],
    ),
    ("more bytes", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 8, &["after the last tensor"]),
    (
        "5 dimensions",
        r#"{"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}}"#,
        4,
        &["tensor a", "1 to 4 dimensions, found 5"],
    ),
];

#[test]
fn every_lie_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Faults::default();
    for (case, header, data, fragments) in LIES {
        let path = write(folder.path(), "lie.safetensors", &file_bytes(header, data));
        faults.refused(case, SafetensorsFile::open(path), "lie.safetensors", fragments);
    }
    let sizes: [(&str, u64, &[&str]); 4] = [
        ("2^64 - 1", u64::MAX, &["size of the header", "18446744073709551615"]),
        ("65 MiB", 65 << 20, &["size of the header", "at most 67108864"]),
        ("one too many", 3, &["header at byte 8", "expected 3 bytes", "found 2"]),
        ("0", 0, &["header, line 1"]),
    ];
    for (case, size, fragments) in sizes {
        let path = write(folder.path(), "lie.safetensors", &[&size.to_le_bytes()[..], b"{}"].concat());
        faults.refused(case, SafetensorsFile::open(path), "lie.safetensors", fragments);
    }
    let names: Vec<String> = (0..12)
        .map(|i| format!(r#""t{i}":{{"dtype":"F8_E4M3","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1))
        .collect();
    let path = write(folder.path(), "lie.safetensors", &file_bytes(&format!("{{{}}}", names.join(",")), 12));
    let types = SafetensorsFile::open(path).map_err(|error| error.at("x"));
    faults.refused("types", types, "lie.safetensors", &["t0 (F8_E4M3)", "and 2 more", "bfloat16"]);
    faults.report();
}

/// Bytes are packed weights if they have a scale of the same name, in their file or in another one of the index.
#[test]
fn bytes_are_weights_if_they_have_a_scale() {
    let byte = |name: &str, at: usize| {
        format!(r#""{name}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
    };
    let scale = |name: &str, at: usize| {
        format!(r#""{name}.weight_scale":{{"dtype":"F32","shape":[1],"data_offsets":[{at},{}]}}"#, at + 4)
    };
    let bytes = |entries: &[String], data| file_bytes(&format!("{{{}}}", entries.join(",")), data);
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.safetensors", &bytes(&[byte("a", 0), scale("a", 1)], 5));
    assert_eq!(SafetensorsFile::open(path).unwrap().tensors()[0].dtype, DType::I8);
    let path = write(folder.path(), "a.safetensors", &bytes(&[byte("a", 0), byte("b", 1), scale("a", 2)], 6));
    let error = SafetensorsFile::open(path).unwrap_err().to_string();
    assert!(error.contains("found b.weight (U8 without b.weight_scale)"), "{error}");

    let folder = model_folder(&[]);
    write(folder.path(), "a.safetensors", &bytes(&[byte("a", 0)], 1));
    write(folder.path(), "b.safetensors", &bytes(&[scale("a", 0)], 4));
    write_index(folder.path(), json!({"a.weight": "a.safetensors", "a.weight_scale": "b.safetensors"}));
    let model = SafetensorsDir::open(folder.path()).unwrap();
    assert_eq!(model.tensors()[model.find("a.weight").unwrap()].dtype, DType::I8);
    assert!(trueup_formats::survey(folder.path()).unwrap().checkpoint.find("a.weight").is_some());
}

#[test]
fn every_cut_is_refused_and_no_changed_byte_panics() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(golden("arrays.safetensors")).unwrap();
    let mut faults = Faults::default();
    for bytes in 0..whole.len() {
        let path = write(folder.path(), "cut.safetensors", &whole[..bytes]);
        let result = SafetensorsFile::open(path);
        faults.refused(&format!("{bytes} bytes"), result, "cut.safetensors", &["byte"]);
    }
    faults.report();
    for place in 0..whole.len() {
        for change in [b'0', b'9', b'"', b'{', 0xff] {
            let mut bytes = whole.clone();
            bytes[place] = change;
            let path = write(folder.path(), "changed.safetensors", &bytes);
            let Ok(file) = SafetensorsFile::open(path) else { continue };
            for (tensor, info) in file.tensors().iter().enumerate() {
                file.read(tensor, 0, &mut vec![0; info.bytes as usize]).unwrap();
            }
        }
    }
}

#[test]
fn a_survey_says_which_file_holds_a_tensor() {
    let folder = model_folder(&[("a.safetensors", &["x", "y"]), ("b.safetensors", &["z"])]);
    write_index(folder.path(), json!({"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}));
    let survey = trueup_formats::survey(folder.path()).unwrap();
    let file = |name: &str| survey.file_of[name].file_name().unwrap().to_str().unwrap();
    assert_eq!(["x", "y", "z"].map(file), ["a.safetensors", "a.safetensors", "b.safetensors"]);
    assert_eq!(survey.checkpoint.find("z"), Some(2));
    std::fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    std::fs::remove_file(folder.path().join("b.safetensors")).unwrap();
    std::fs::rename(folder.path().join("a.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let survey = trueup_formats::survey(folder.path()).unwrap();
    assert_eq!((survey.checkpoint.tensors().len(), survey.file_of.len()), (2, 0), "one file needs no list");
}

#[test]
fn a_survey_takes_the_files_that_are_meant() {
    let names = |path: &Path| -> Vec<String> {
        let survey = trueup_formats::survey(path).unwrap();
        survey.checkpoint.tensors().iter().map(|tensor| tensor.name.clone()).collect()
    };
    let folder =
        model_folder(&[("model-00001-of-00002.safetensors", &["x"]), ("model-00002-of-00002.safetensors", &["y"])]);
    assert_eq!(names(folder.path()), ["x", "y"], "all parts, where nothing says which");
    assert_eq!(names(&folder.path().join("model-00002-of-00002.safetensors")), ["y"]);
    write_index(folder.path(), json!({"x": "model-00001-of-00002.safetensors"}));
    assert_eq!(names(folder.path()), ["x"], "those of the index");
    assert_eq!(names(&folder.path().join("model-00001-of-00002.safetensors")), ["x"]);
    assert_eq!(
        names(&folder.path().join("model-00002-of-00002.safetensors")),
        ["y"],
        "one that the index does not name"
    );
    let folder = model_folder(&[("model.safetensors", &["x"]), ("other.safetensors", &["y"])]);
    assert_eq!(names(folder.path()), ["x"]);
}

#[test]
fn a_survey_passes_over_what_is_no_part_and_names_what_stands_in_for_one() {
    let part = "model-00001-of-00002.safetensors";
    let folder =
        model_folder(&[(part, &["x"]), ("model-a-of-00002.safetensors", &["y"]), ("model-1-of-.safetensors", &["z"])]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 77\n";
    write(folder.path(), "model-00002-of-00002.safetensors", pointer.as_bytes());
    let survey = trueup_formats::survey(folder.path()).unwrap();
    assert_eq!(survey.checkpoint.tensors().len(), 1);
    let faults = survey.faults.kept();
    assert_eq!(faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [FaultKind::LfsPointer]);
    assert!(faults[0].error.problem.contains("a Git LFS pointer to a file of 77 bytes"), "{}", faults[0].error);
}

#[test]
fn an_index_must_agree_with_its_files() {
    let mut faults = Faults::default();
    let index = "model.safetensors.index.json";
    let folder = model_folder(&[("a.safetensors", &["x", "y"]), ("b.safetensors", &["z", "x"])]);
    write_index(folder.path(), json!({"x": "a.safetensors", "y": "b.safetensors", "w": "b.safetensors"}));
    let fragments = [
        "weight_map",
        "y is in a.safetensors, not in b.safetensors",
        "z in b.safetensors",
        "x in b.safetensors",
        "w is not in b.safetensors",
    ];
    faults.refused("all at once", SafetensorsDir::open(folder.path()), index, &fragments);
    write_index(folder.path(), json!({"x": "c.safetensors"}));
    faults.refused("missing file", SafetensorsDir::open(folder.path()), "c.safetensors", &[]);
    for name in ["../x.safetensors", "/etc/passwd", "..", "", "a/b", ".hidden", "a\\b", "a\0b"] {
        write_index(folder.path(), json!({ "x": name }));
        let fragments = ["tensor x", "plain name of a file"];
        faults.refused(name, SafetensorsDir::open(folder.path()), index, &fragments);
    }
    write(folder.path(), index, br#"{"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}}"#);
    faults.refused("name twice", SafetensorsDir::open(folder.path()), index, &["line 1", "\"x\" occurs twice"]);
    write(folder.path(), index, br#"{"weights": {}}"#);
    faults.refused("no map", SafetensorsDir::open(folder.path()), index, &["line 1", "weight_map"]);
    write(folder.path(), index, br#"{"weight_map": []}"#);
    faults.refused("a list", SafetensorsDir::open(folder.path()), index, &["line 1", "expected an object"]);
    write_index(folder.path(), json!({}));
    faults.refused("empty map", SafetensorsDir::open(folder.path()), index, &["weight_map", "found none"]);
    faults.report();
}

#[test]
fn a_folder_without_a_model_says_what_to_do() {
    let mut faults = Faults::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let open = || SafetensorsDir::open(path).map_err(|error| error.at("x"));
    faults.refused("empty", open(), "", &["an empty directory", "get the files of the model"]);
    write(path, "README.md", b"# A model");
    faults.refused("no model", open(), "", &["expected a model directory, found no config.json", "pass a model file"]);
    write(path, "model.safetensors", b"");
    faults.refused("no configuration", open(), "config.json", &["found no such file", "get config.json"]);
    std::fs::remove_file(path.join("model.safetensors")).unwrap();
    write(path, "config.json", b"{\"a\": None}");
    faults.refused("not JSON", SafetensorsDir::open(path), "config.json", &["line 1"]);
    write(path, "config.json", b"{}");
    faults.refused("no weights", open(), "", &["model.safetensors", "get the weights"]);
    write(path, "model.gguf", b"GGUF");
    faults.refused("GGUF", open(), "", &["pass the GGUF file"]);
    write(path, "pytorch_model.bin", b"PK\x03\x04");
    faults.refused("pickle", open(), "", &["pickle files", "convert them to safetensors"]);
    write(path, "adapter.safetensors", b"");
    faults.refused("other name", open(), "", &["adapter.safetensors holds the weights, pass it instead"]);
    std::fs::create_dir(path.join("model.safetensors")).unwrap();
    faults.refused("folder", open(), "model.safetensors", &["found a directory"]);
    faults.report();
}

/// The files of an index.
const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// Two sets of weights with two tensors each; `y` has these values in `model.safetensors`, and 3 and 4 in the shard.
fn sets_with(y: [u8; 2]) -> tempfile::TempDir {
    let folder = model_folder(&[("model.safetensors", &["x"])]);
    let file = |tensors: &[(&str, [u8; 2])]| {
        let entry = |(number, (name, _)): (usize, &(&str, [u8; 2]))| {
            let offsets = [2 * number, 2 * number + 2];
            format!("\"{name}\":{}", json!({"dtype": "I8", "shape": [2], "data_offsets": offsets}))
        };
        let entries: Vec<String> = tensors.iter().enumerate().map(entry).collect();
        let header = format!("{{{}}}", entries.join(","));
        let data: Vec<u8> = tensors.iter().flat_map(|(_, bytes)| *bytes).collect();
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
    };
    write(folder.path(), "model.safetensors", &file(&[("x", [1, 2]), ("y", y)]));
    write(folder.path(), SHARDS[0], &file(&[("x", [1, 2])]));
    write(folder.path(), SHARDS[1], &file(&[("y", [3, 4])]));
    write_index(folder.path(), json!({"x": SHARDS[0], "y": SHARDS[1]}));
    folder
}

#[test]
fn two_sets_of_weights_are_compared() {
    let folder = sets_with([3, 4]);
    let model = SafetensorsDir::open(folder.path()).unwrap();
    assert_eq!(model.tensors().len(), 2);
    let expected = "model.safetensors has the same tensors as the 2 files listed in model.safetensors.index.json, and \
                    samples of their values are equal; it is not read";
    assert_eq!(model.notes(), [expected]);
    let survey = SafetensorsDir::survey(folder.path()).unwrap();
    assert_eq!(survey.others.second_weights.unwrap().comparison, SetComparison::Equal);
    let error = SafetensorsDir::open(sets_with([3, 5]).path()).unwrap_err().to_string();
    assert!(error.contains("they differ in tensor y (byte 1)"), "{error}");
    // PyTorch files are not read.
    let folder = model_folder(&[("model.safetensors", &["x"])]);
    write(folder.path(), "pytorch_model.bin", b"PK\x03\x04");
    let model = SafetensorsDir::open(folder.path()).unwrap();
    assert_eq!(model.notes(), ["ignored, because the directory has safetensors files: pytorch_model.bin"]);
}

/// A second set that cannot be read, or whose twin is damaged, is not compared and does not hide the whole set.
#[test]
fn a_damaged_set_of_weights_is_not_compared() {
    let folder = sets_with([3, 4]);
    write(folder.path(), "model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    let model = SafetensorsDir::open(folder.path()).unwrap();
    let [note] = model.notes() else { panic!("{:?}", model.notes()) };
    assert!(note.starts_with("model.safetensors cannot be read (") && note.ends_with("are used"), "{note}");
    assert_eq!(model.tensors().len(), 2);
    let comparison = SafetensorsDir::survey(folder.path()).unwrap().others.second_weights.unwrap().comparison;
    assert!(matches!(comparison, SetComparison::NotCompared(_)), "{comparison:?}");

    let folder = sets_with([3, 4]);
    let shard = folder.path().join(SHARDS[1]);
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    let comparison = SafetensorsDir::survey(folder.path()).unwrap().others.second_weights.unwrap().comparison;
    let expected = "files listed in model.safetensors.index.json are damaged or missing";
    assert_eq!(comparison, SetComparison::NotCompared(expected.to_owned()));
}

/// Two sets of weights in one folder: `model.safetensors`, and the files of an index.
#[test]
fn a_second_set_of_weights_is_a_conflict_or_a_leftover() {
    let shards = SHARDS;
    let two_sets = || {
        let folder = model_folder(&[("model.safetensors", &["x", "y", "z"]), (shards[0], &["x"]), (shards[1], &["y"])]);
        write_index(folder.path(), json!({"x": shards[0], "y": shards[1]}));
        folder
    };
    let folder = two_sets();
    let error = SafetensorsDir::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(
            "found two: model.safetensors, and the 2 files listed in model.safetensors.index.json; they differ in \
             tensor z, which is only in one of them"
        ),
        "{error}"
    );
    // Both remedies work: naming a set, and deleting one.
    let count = |name: &str| open(folder.path().join(name), &OpenOptions::default()).unwrap().tensors().len();
    assert_eq!((count("model.safetensors"), count("model.safetensors.index.json"), count(shards[1])), (3, 2, 2));
    let survey = SafetensorsDir::survey(folder.path()).unwrap();
    let second = survey.others.second_weights.unwrap();
    let expected = "tensor z, which is only in one of them";
    assert!(second.path.ends_with("model.safetensors"));
    assert_eq!(second.comparison, SetComparison::Differ(expected.to_owned()));
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(SafetensorsDir::open(folder.path()).unwrap().notes().is_empty());

    // An index whose files are not all there is of an earlier save.
    let folder = two_sets();
    std::fs::remove_file(folder.path().join(shards[1])).unwrap();
    let model = SafetensorsDir::open(folder.path()).unwrap();
    assert_eq!(model.tensors().len(), 3);
    let [note] = model.notes() else { panic!("{:?}", model.notes()) };
    assert!(note.contains("left over from an earlier save") && note.contains(shards[1]), "{note}");
    let survey = SafetensorsDir::survey(folder.path()).unwrap();
    let (index, found) = survey.others.stale_index.unwrap();
    assert!(index.ends_with("model.safetensors.index.json") && found.contains("model.safetensors is used"), "{found}");
    assert_eq!((survey.model.tensors().len(), survey.faults.kept().len()), (3, 0));

    // Without an index, all parts of a whole set are the model.
    let folder = two_sets();
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    std::fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    let model = SafetensorsDir::open(folder.path()).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert!(model.notes()[0].contains("is missing; all 2 files are read"), "{:?}", model.notes());
}

#[test]
fn adapters_are_told_from_models() {
    let adapter = r#"{"peft_type": "LORA", "base_model_name_or_path": "org/base"}"#;
    // Next to a model.
    let folder = model_folder(&[("model.safetensors", &["x"]), ("adapter_model.safetensors", &["m.lora_A.weight"])]);
    write(folder.path(), "adapter_config.json", adapter.as_bytes());
    let model = SafetensorsDir::open(folder.path()).unwrap();
    let [note] = model.notes() else { panic!("{:?}", model.notes()) };
    assert!(note.contains("also contains a LoRA adapter of org/base") && note.contains("is not applied"), "{note}");
    assert!(SafetensorsDir::survey(folder.path()).unwrap().others.adapter.is_some());
    // The file itself, whatever its name.
    for name in ["adapter_model.safetensors", "style.safetensors"] {
        let folder = model_folder(&[(name, &["a.q_proj.lora_A.weight", "a.q_proj.lora_B.weight"])]);
        let error = open(folder.path().join(name), &OpenOptions::default()).err().unwrap().to_string();
        assert!(error.contains("found a LoRA adapter (2 tensors); merge it into its model first"), "{error}");
    }
}

#[test]
fn a_snapshot_of_the_hub_cache_is_opened_by_the_folder_of_its_model() {
    let (cache, model) = (tempfile::tempdir().unwrap(), model_folder(&[("model.safetensors", &["x"])]));
    let root = cache.path().join("models--org--tiny");
    for folder in ["blobs", "refs", "snapshots/0a1b", "snapshots/ffff"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    write(&root.join("refs"), "main", b"0a1b");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(model.path().join(name), root.join("blobs").join(name)).unwrap();
        std::os::unix::fs::symlink(root.join("blobs").join(name), root.join("snapshots/0a1b").join(name)).unwrap();
    }
    let opened = open(&root, &OpenOptions::default()).unwrap();
    assert_eq!((opened.tensors().len(), opened.path()), (1, root.join("snapshots/0a1b").as_path()));
    assert_eq!(trueup_formats::survey(&root).unwrap().checkpoint.tensors().len(), 1);
}

/// `config.json` as Python's `json.dump` and editors of Windows write it.
#[test]
fn python_numbers_and_byte_order_marks_are_read() {
    let folder = model_folder(&[("model.safetensors", &["x"])]);
    let text = r#"{"limit": [0.0, Infinity, -Infinity], "text": "NaN, \"Infinity\" \\", "x": NaN, "hidden_size": 8}"#;
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in
        [text.as_bytes().to_vec(), [b"\xef\xbb\xbf", text.as_bytes()].concat(), [b"\xff\xfe", &utf16[..]].concat()]
    {
        write(folder.path(), "config.json", &bytes);
        let model = SafetensorsDir::open(folder.path()).unwrap();
        let Description::Json(config) = model.description() else { panic!("a directory has JSON") };
        assert_eq!(config["hidden_size"], 8);
        assert_eq!(config["limit"][1], json::INFINITY);
        assert!(config["limit"][2].as_f64().is_none() && config["x"].is_string());
        assert!(config["text"].as_str().is_some_and(|text| text.starts_with("NaN, ")), "{:?}", config["text"]);
    }
    write(folder.path(), "config.json", b"{\"a\": Infinity,\n \"b\": }");
    let error = SafetensorsDir::open(folder.path()).unwrap_err();
    assert_eq!((error.place.as_str(), error.problem.contains("expected a value")), ("line 2", true), "{error}");
}
