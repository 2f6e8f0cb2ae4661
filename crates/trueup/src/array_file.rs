//! A safetensors file that is not a model (logits, traces, a single shard), as a checkpoint without hyper-parameters.

use serde_json::{Map, Value};
use std::path::Path;
use trueup_formats::{
    Checkpoint, Description, OpenOptions, Result, SafetensorsFile, SourceFile, TensorInfo, TokenizerFiles,
};

/// Opens a model in any format, or a safetensors file without a `config.json` in its folder.
pub fn open_arrays(path: &Path) -> Result<Box<dyn Checkpoint>> {
    trueup_models::open(path, &OpenOptions::default()).or_else(|error| {
        let described = path.parent().is_some_and(|folder| folder.join("config.json").exists());
        match SafetensorsFile::open(path) {
            Ok(file) if !described => {
                let file: Box<dyn Checkpoint> = Box::new(ArrayFile::new(file));
                Ok(file)
            }
            Ok(_) | Err(_) => Err(error),
        }
    })
}

/// A file of named arrays.
struct ArrayFile {
    file: SafetensorsFile,
    metadata: Map<String, Value>,
    tokenizer: TokenizerFiles,
}

impl ArrayFile {
    fn new(file: SafetensorsFile) -> ArrayFile {
        let metadata = file.metadata().iter().map(|(key, text)| (key.clone(), Value::String(text.clone()))).collect();
        ArrayFile { file, metadata, tokenizer: TokenizerFiles::default() }
    }
}

impl Checkpoint for ArrayFile {
    fn format(&self) -> &str {
        "safetensors, arrays alone"
    }

    fn path(&self) -> &Path {
        self.file.source().path()
    }

    fn description(&self) -> Description<'_> {
        Description::Json(&self.metadata)
    }

    fn tokenizer(&self) -> &TokenizerFiles {
        &self.tokenizer
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.file.tensors()
    }

    fn read(&self, tensor: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read(tensor, offset, out)
    }

    fn unchanged(&self) -> Result<()> {
        self.file.source().unchanged()
    }

    fn sources(&self) -> Vec<&SourceFile> {
        vec![self.file.source()]
    }
}
