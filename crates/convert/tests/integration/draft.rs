//! A copy of a fixture that a test may change.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trueup_convert::{Options, TensorCheck, check, convert};
use trueup_formats::{Checkpoint, Gguf, OpenOptions, json, open};
use trueup_quantize::{NoProgress, Recipe};

/// Type, shape (outermost first) and bytes of one tensor.
pub type Tensor = (Dtype, Vec<usize>, Vec<u8>);

/// A copy of a fixture that a test may change.
pub struct Draft {
    pub folder: tempfile::TempDir,
    pub tensors: BTreeMap<String, Tensor>,
    pub config: serde_json::Map<String, Value>,
}

impl Draft {
    pub fn of(model: &str) -> Draft {
        Draft::at(&format!("models/{model}"))
    }

    /// The fixture in this folder of `fixtures`.
    pub fn at(folder: &str) -> Draft {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
        let folder = tempfile::tempdir().unwrap();
        copy(&fixture, folder.path());
        let bytes = std::fs::read(fixture.join("model.safetensors")).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = read
            .iter()
            .map(|(name, view)| (name.to_owned(), (view.dtype(), view.shape().to_vec(), view.data().to_vec())));
        let config = json::object("config.json", &std::fs::read(fixture.join("config.json")).unwrap()).unwrap();
        Draft { tensors: tensors.collect(), folder, config }
    }

    pub fn open(&self) -> Box<dyn Checkpoint> {
        self.write();
        open(self.folder.path(), &OpenOptions::default()).unwrap()
    }

    /// Writes the tensors and the description into the folder.
    pub fn write(&self) {
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(self.folder.path().join("model.safetensors"), bytes).unwrap();
        std::fs::write(self.folder.path().join("config.json"), serde_json::to_vec(&self.config).unwrap()).unwrap();
    }

    pub fn output(&self) -> PathBuf {
        self.folder.path().join("out.gguf")
    }

    /// The message of a conversion that must fail and leave no file.
    pub fn refused(&self, options: &Options) -> String {
        let message = convert(self.open().as_ref(), &self.output(), options, &NoProgress).unwrap_err().to_string();
        let left: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let leftovers = left.iter().filter(|name| name.to_string_lossy().contains("out.gguf")).count();
        assert_eq!(leftovers, 0, "{left:?} after {message}");
        message
    }

    /// Values as f32 in place of the fixture's.
    pub fn set(&mut self, name: &str, values: impl FnOnce(&mut Vec<f32>)) {
        let (dtype, _, bytes) = self.tensors.get_mut(name).unwrap();
        let mut numbers: Vec<f32> = bytes
            .chunks_exact(2)
            .map(|pair| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16))
            .collect();
        values(&mut numbers);
        *bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        *dtype = Dtype::F32;
    }
}

fn copy(source: &Path, target: &Path) {
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        let target = target.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Converts and checks; the notes in one text, and the checks.
pub fn converted(draft: &Draft, recipe: Recipe) -> (String, Vec<TensorCheck>) {
    let source = draft.open();
    let options = Options { recipe, ..Options::default() };
    let report = convert(source.as_ref(), &draft.output(), &options, &NoProgress).unwrap();
    let written = Gguf::open(draft.output()).unwrap();
    (report.notes.join("\n"), check(source.as_ref(), &written, Some(2)).unwrap())
}
