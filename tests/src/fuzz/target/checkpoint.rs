//! Checkpoints that are converted: safetensors files and folders, llama2.c, FastLLM.

use super::super::grammar::split_frames;
use super::super::{Answer, later, law, refused};
use safetensors::SafeTensors;
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use trueup::convert;
use trueup::formats::{Checkpoint, Gguf, OpenOptions, SafetensorsArray, SafetensorsFile, open, write_safetensors};
use trueup::models::Model;
use trueup::quantize::NoProgress;

/// One file: what is accepted is accepted by the reference implementation, and is the same after being written again.
pub fn safetensors(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("model.safetensors");
    later(fs::write(&path, input), "the input cannot be written")?;
    let file = match SafetensorsFile::open(&path) {
        Ok(file) => file,
        Err(problem) => return refused(&problem),
    };
    let theirs = later(SafeTensors::deserialize(input), "the safetensors crate refuses what is accepted")?;
    law(theirs.len() == file.tensors().len(), "the safetensors crate finds another number of tensors")?;
    let mut arrays = Vec::new();
    for (number, tensor) in file.tensors().iter().enumerate() {
        let mut bytes = vec![0; tensor.bytes as usize];
        later(file.read(number, 0, &mut bytes), "a tensor of an accepted file cannot be read")?;
        let their = later(theirs.tensor(&tensor.name), "the safetensors crate lacks a tensor")?;
        law(their.data() == bytes, "the safetensors crate finds other bytes")?;
        let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
        arrays.push(SafetensorsArray { name, shape, dtype: tensor.dtype, bytes: Cow::Owned(bytes) });
    }
    let again = folder.join("again.safetensors");
    if let Err(problem) = write_safetensors(&again, &arrays, file.metadata(), &[]) {
        return refused(&problem);
    }
    let read = later(SafetensorsFile::open(&again), "what was written is refused")?;
    law(read.tensors().len() == file.tensors().len(), "tensors are lost when they are written and read")?;
    law(read.metadata().len() == file.metadata().len(), "texts are lost when they are written and read")?;
    for (number, array) in arrays.iter().enumerate() {
        let place = read.find(&array.name).ok_or_else(|| format!("array {number} is lost"))?;
        let mut bytes = vec![0; array.bytes.len()];
        later(read.read(place, 0, &mut bytes), "a written tensor cannot be read")?;
        law(bytes == *array.bytes && read.tensors()[place].shape == array.shape, "a written tensor is another")?;
    }
    Ok(Answer::Accepted("arrays"))
}

/// A folder: config, tokenizer, an index or none, one or two files of weights.
pub fn folder(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let files = split_frames(input, 5);
    let [config, tokenizer, index, first, second] = files.as_slice() else { return Err("five files".to_owned()) };
    let model = folder.join("model");
    later(fs::create_dir(&model), "a directory cannot be made")?;
    let put = |name: &str, bytes: &[u8]| later(fs::write(model.join(name), bytes), "the input cannot be written");
    put("config.json", config)?;
    put("tokenizer.json", tokenizer)?;
    if index.is_empty() {
        put("model.safetensors", first)?;
    } else {
        put("model.safetensors.index.json", index)?;
        put("model-00001-of-00002.safetensors", first)?;
        put("model-00002-of-00002.safetensors", second)?;
    }
    match open(&model, &OpenOptions::default()) {
        Ok(source) => converted(source.as_ref(), folder),
        Err(problem) => refused(&problem),
    }
}

/// A llama2.c model with its vocabulary.
pub fn llama2c(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let files = split_frames(input, 2);
    let (model, tokenizer) = (folder.join("model.bin"), folder.join("tokenizer.bin"));
    for (path, bytes) in [&model, &tokenizer].into_iter().zip(&files) {
        later(fs::write(path, bytes), "the input cannot be written")?;
    }
    match open(&model, &OpenOptions { tokenizer: Some(tokenizer) }) {
        Ok(source) => converted(source.as_ref(), folder),
        Err(problem) => refused(&problem),
    }
}

/// A model of FastLLM, its vocabulary within.
pub fn flm(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let model = folder.join("model.flm");
    later(fs::write(&model, input), "the input cannot be written")?;
    match open(&model, &OpenOptions::default()) {
        Ok(source) => converted(source.as_ref(), folder),
        Err(problem) => refused(&problem),
    }
}

/// What is converted is a model, and each of its tensors is what it was made of.
pub fn converted(source: &dyn Checkpoint, folder: &Path) -> Result<Answer, String> {
    for (number, tensor) in source.tensors().iter().enumerate() {
        let mut bytes = vec![0; tensor.bytes as usize];
        later(source.read(number, 0, &mut bytes), "a tensor of an accepted checkpoint cannot be read")?;
    }
    let target = folder.join("converted.gguf");
    let options = convert::Options { threads: Some(1), ..convert::Options::default() };
    if let Err(problem) = convert::convert(source, &target, &options, &NoProgress) {
        law(!target.exists(), "a refused conversion left a file")?;
        return refused(&problem);
    }
    let written = later(Gguf::open(&target), "a converted file is refused")?;
    later(Model::from_gguf(written.metadata(), written.tensors(), &target), "a converted model is refused")?;
    let checks =
        later(convert::check(source, &written, Some(1)), "a converted file cannot be compared with its source")?;
    let wrong = checks.iter().find(|check| matches!(check.agreement, convert::Agreement::Wrong { .. }));
    law(wrong.is_none(), "a converted tensor differs from its source")?;
    Ok(Answer::Accepted("converted"))
}
