//! A model folder taken apart into the fields that a lie can be told in, and put together again without any check.

use crate::case::{Entry, Files};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The folder's name in a case.
pub const FOLDER: &str = "model";

/// What stands for Python's `Infinity` in a [`Value`].
const QUOTED_INFINITY: &str = "\"Infinity\"";

/// All of a folder. What stands in `files` replaces what would be written.
#[derive(Clone)]
pub struct Folder {
    pub config: Value,
    pub tokenizer: Value,
    pub tokenizer_config: Value,
    /// Header of the safetensors file.
    pub header: Value,
    /// Overrides the text of the header.
    pub header_text: Option<Vec<u8>>,
    /// Overrides the length of the header.
    pub header_length: Option<u64>,
    pub data: Vec<u8>,
    /// Names without the folder.
    pub files: Files,
    /// Files that are not written.
    pub missing: Vec<&'static str>,
}

impl Folder {
    /// Takes a good folder apart.
    pub fn read(path: &Path) -> Folder {
        let read = |name: &str| fs::read(path.join(name)).expect("a fixture");
        let json = |name: &str| {
            // Python writes numbers that are not JSON.
            let text = String::from_utf8(read(name)).expect("UTF-8 of a fixture").replace("Infinity", QUOTED_INFINITY);
            serde_json::from_str(&text).expect("JSON of a fixture")
        };
        let tensors = read("model.safetensors");
        let missing = if path.join("tokenizer.json").exists() { Vec::new() } else { vec!["tokenizer.json"] };
        let (length, rest) = tensors.split_first_chunk().expect("a header");
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        Folder {
            config: json("config.json"),
            tokenizer: if missing.is_empty() { json("tokenizer.json") } else { Value::Null },
            tokenizer_config: json("tokenizer_config.json"),
            header: serde_json::from_slice(header).expect("a header is JSON"),
            header_text: None,
            header_length: None,
            data: data.to_vec(),
            files: Vec::new(),
            missing,
        }
    }

    /// As [`Folder::read`], with the other files of the folder, goldens excepted.
    pub fn read_whole(path: &Path) -> Folder {
        let mut folder = Folder::read(path);
        let written = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(path.join(&directory)).expect("a fixture").map(|entry| entry.expect("an entry")) {
                let name = format!("{directory}{}", entry.file_name().to_str().expect("a name in UTF-8"));
                if entry.path().is_dir() {
                    directories.push(format!("{name}/"));
                } else if !written.contains(&name.as_str()) && !name.starts_with("golden.") {
                    folder.put(&name, fs::read(entry.path()).expect("a fixture"));
                }
            }
        }
        folder
    }

    /// The safetensors file.
    pub fn tensors(&self) -> Vec<u8> {
        let header = self.header_text.clone().unwrap_or_else(|| self.header.to_string().into_bytes());
        let length = self.header_length.unwrap_or(header.len() as u64);
        [&length.to_le_bytes(), &header[..], &self.data].concat()
    }

    /// The files of a case.
    pub fn files(&self) -> Files {
        let text = |value: &Value| value.to_string().replace(QUOTED_INFINITY, "Infinity").into_bytes();
        let mut written = vec![
            ("config.json", text(&self.config)),
            ("tokenizer.json", text(&self.tokenizer)),
            ("tokenizer_config.json", text(&self.tokenizer_config)),
            ("model.safetensors", self.tensors()),
        ];
        written.retain(|(name, _)| !self.missing.contains(name) && self.files.iter().all(|(other, _)| other != name));
        let written = written.into_iter().map(|(name, bytes)| (name.to_owned(), Entry::File(bytes)));
        let all = written.chain(self.files.iter().cloned());
        all.map(|(name, entry)| (format!("{FOLDER}/{name}"), entry)).collect()
    }

    /// What the header says of a tensor.
    pub fn tensor(&mut self, name: &str) -> &mut Value {
        self.header.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Gives a tensor another shape. Its data is cut or extended by zeros.
    pub fn reshape(&mut self, name: &str, shape: &[u64]) {
        let dtype = self.tensor(name)["dtype"].clone();
        let element_bytes = if dtype == "F32" { 4 } else { 2 };
        self.resize(name, shape.iter().product::<u64>() as usize * element_bytes);
        self.tensor(name)["shape"] = json!(shape);
    }

    /// Adds a tensor of zeros in bf16.
    pub fn add_tensor(&mut self, name: &str, shape: &[u64]) {
        let end = self.data.len();
        self.header[name] = json!({"dtype": "BF16", "shape": shape, "data_offsets": [end, end]});
        self.reshape(name, shape);
    }

    /// Removes a tensor and its data.
    pub fn remove_tensor(&mut self, name: &str) {
        self.resize(name, 0);
        self.header.as_object_mut().expect("an object").remove(name);
    }

    /// Changes the size of a tensor's data, and moves the data that follows.
    fn resize(&mut self, name: &str, bytes: usize) {
        let offset = |tensor: &Value, side: usize| tensor["data_offsets"][side].as_u64().expect("an offset") as usize;
        let [start, end] = [0, 1].map(|side| offset(self.tensor(name), side));
        let mut data = self.data[start..end].to_vec();
        data.resize(bytes, 0);
        self.data.splice(start..end, data);
        for (other, tensor) in self.header.as_object_mut().expect("an object") {
            if other == "__metadata__" {
                continue;
            }
            let [from, to] = [0, 1].map(|side| offset(tensor, side));
            let moved = |place: usize| place + bytes - (end - start);
            if other == name {
                tensor["data_offsets"] = json!([start, start + bytes]);
            } else if from >= end {
                tensor["data_offsets"] = json!([moved(from), moved(to)]);
            }
        }
    }

    /// Replaces a file.
    pub fn replace(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.retain(|(other, _)| other != name);
        self.put(name, bytes);
    }

    /// The bytes of a file that a change can be applied to.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let json = match name {
            "config.json" => Some(&self.config),
            "tokenizer.json" => Some(&self.tokenizer),
            "tokenizer_config.json" => Some(&self.tokenizer_config),
            _ => None,
        };
        let file = self.files.iter().find(|(other, _)| other == name);
        match (file, json) {
            (Some((_, Entry::File(bytes))), _) => bytes.clone(),
            (None, Some(json)) => json.to_string().into_bytes(),
            _ => panic!("no file {name}"),
        }
    }

    /// A JSON file that is stored as a parsed value.
    pub fn json(&mut self, name: &str) -> &mut Value {
        match name {
            "config.json" => &mut self.config,
            "tokenizer.json" => &mut self.tokenizer,
            "tokenizer_config.json" => &mut self.tokenizer_config,
            _ => panic!("{name} is not stored as JSON"),
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &'static str) {
        self.files.retain(|(other, _)| other != name);
        self.missing.push(name);
    }

    /// Sets a file.
    pub fn put(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.files.push((name.to_owned(), Entry::File(bytes.into())));
    }

    /// Sets something that is no regular file.
    pub fn put_entry(&mut self, name: &str, entry: Entry) {
        self.files.push((name.to_owned(), entry));
    }

    /// Moves tensors into two files and names them in an index.
    pub fn split(&mut self) {
        let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        let mut headers = [json!({}), json!({})];
        let mut data = [Vec::new(), Vec::new()];
        let mut places = serde_json::Map::new();
        for (number, (name, tensor)) in self.header.as_object().expect("an object").iter().enumerate() {
            if name == "__metadata__" {
                continue;
            }
            let shard = number % 2;
            let [start, end] = [0, 1].map(|side| tensor["data_offsets"][side].as_u64().expect("an offset") as usize);
            let (mut tensor, from) = (tensor.clone(), data[shard].len());
            data[shard].extend(&self.data[start..end]);
            tensor["data_offsets"] = json!([from, data[shard].len()]);
            headers[shard][name] = tensor;
            places.insert(name.clone(), json!(shards[shard]));
        }
        for shard in 0..2 {
            let header = headers[shard].to_string().into_bytes();
            let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &data[shard]].concat();
            self.put(shards[shard], bytes);
        }
        self.put("model.safetensors.index.json", json!({"metadata": {}, "weight_map": places}).to_string());
        self.missing.push("model.safetensors");
    }

    /// Changes the index of a split folder.
    pub fn change_index(&mut self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        let (_, entry) = self.files.iter_mut().find(|(name, _)| name.ends_with("index.json")).expect("an index");
        let Entry::File(bytes) = entry else { panic!("the index is a file") };
        let mut index: Value = serde_json::from_slice(bytes).expect("an index is JSON");
        change(index["weight_map"].as_object_mut().expect("an object"));
        *bytes = index.to_string().into_bytes();
    }
}
