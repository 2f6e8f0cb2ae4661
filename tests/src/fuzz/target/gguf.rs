//! GGUF files, whole and split: read, written again, and used as a model.

use super::super::grammar::split_frames;
use super::super::{Answer, later, law, refused};
use super::model_spec::graph_of;
use super::tokenizer::check_vocabulary;
use std::fs;
use std::path::{Path, PathBuf};
use trueup::blocks::DType;
use trueup::formats::gguf::{GgufPlan, GgufWriter};
use trueup::formats::{Checkpoint, Gguf, OpenOptions, join_split_scale, open};
use trueup::models::{Architecture, Model, ModelSpec};
use trueup::quantize::{self, Layout, NoProgress, Recipe};
use trueup::tokenizer::{ChatTemplate, Vocabulary};

/// Types that an accepted model is quantized to, chosen by its size.
const TYPES: [DType; 4] = [DType::Q8_0, DType::Q4_0, DType::Q4K, DType::F16];

/// One file.
pub fn whole(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("model.gguf");
    later(fs::write(&path, input), "the input cannot be written")?;
    check(&path, folder)
}

/// Two files that claim to belong together.
pub fn split(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let names = ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"];
    for (name, bytes) in names.iter().zip(split_frames(input, names.len())) {
        later(fs::write(folder.join(name), bytes), "the input cannot be written")?;
    }
    check(&folder.join(names[0]), folder)
}

fn check(path: &Path, folder: &Path) -> Result<Answer, String> {
    let file = match Gguf::open(path) {
        Ok(file) => file,
        Err(problem) => return refused(&problem),
    };
    for (key, value) in file.metadata().iter() {
        law(!key.is_empty() && !value.type_name().is_empty(), "a key without name or type")?;
        drop(value.to_string());
    }
    let tensors = contents(&file)?;
    if let Some(written) = write_again(&file, &tensors, &folder.join("again.gguf"))? {
        let again = later(Gguf::open(&written[0]), "what was written is refused")?;
        law(contents(&again)? == tensors, "tensors change when they are written and read")?;
        let twice = write_again(&again, &tensors, &folder.join("twice.gguf"))?;
        let same = twice.is_some_and(|twice| {
            twice.len() == written.len()
                && twice.iter().zip(&written).all(|(a, b)| fs::read(a).ok() == fs::read(b).ok())
        });
        law(same, "what was read back is written otherwise")?;
    }
    use_model(path, folder, &file)
}

/// All bytes of all tensors.
fn contents(file: &Gguf) -> Result<Vec<Vec<u8>>, String> {
    let read = |(number, tensor): (usize, &trueup::formats::TensorInfo)| {
        let mut bytes = vec![0; tensor.bytes as usize];
        later(file.read(number, 0, &mut bytes), "a tensor of an accepted file cannot be read").map(|()| bytes)
    };
    file.tensors().iter().enumerate().map(read).collect()
}

/// Writes the same keys and tensors; `None` where the writer refuses what the reader takes, long names for example.
fn write_again(file: &Gguf, tensors: &[Vec<u8>], target: &Path) -> Result<Option<Vec<PathBuf>>, String> {
    let Ok(plan) = GgufPlan::new(target, file.metadata(), file.tensors(), None) else { return Ok(None) };
    let writer = later(GgufWriter::create(plan, &[]), "a planned file cannot be written")?;
    for (number, bytes) in tensors.iter().enumerate() {
        later(writer.write(number, 0, bytes), "a tensor cannot be written")?;
    }
    later(writer.finish(), "a file cannot be finished").map(Some)
}

/// Everything a command asks of the model: its numbers, its graph, its vocabulary, its template, another type.
fn use_model(path: &Path, folder: &Path, file: &Gguf) -> Result<Answer, String> {
    let metadata = file.metadata();
    let joined = later(open(path, &OpenOptions::default()), "the file is refused when it is opened by content")?;
    let joined = match join_split_scale(joined) {
        Ok(joined) => joined,
        Err(problem) => return refused(&problem),
    };
    let vocabulary = Vocabulary::from_metadata(metadata, path);
    if let Ok(vocabulary) = &vocabulary {
        check_vocabulary(vocabulary)?;
        if let Ok(Some(template)) = ChatTemplate::of(vocabulary) {
            super::template::check(&template)?;
        }
    }
    if let Ok(architecture) = Architecture::of_metadata(metadata, path)
        && let Ok(spec) = ModelSpec::from_metadata(architecture, metadata, joined.tensors(), path)
    {
        graph_of(&spec, path)?;
    }
    if let Err(problem) = Model::from_gguf(metadata, joined.tensors(), path) {
        return refused(&problem);
    }
    let bytes = later(fs::metadata(path), "the file is gone")?.len();
    let recipe = Recipe::new(Some(TYPES[bytes as usize % TYPES.len()]));
    let layout = if bytes.is_multiple_of(3) { Layout::Split } else { Layout::Block };
    let options = quantize::Options { recipe, layout, threads: Some(1), dry_run: false, resume: false };
    let target = folder.join("quantized.gguf");
    match quantize::quantize(joined.as_ref(), &target, &options, &NoProgress) {
        Ok(_) => later(Gguf::open(&target), "a quantized file is refused").map(drop)?,
        Err(problem) => return refused(&problem),
    }
    match vocabulary {
        Ok(_) => Ok(Answer::Accepted("model and vocabulary")),
        Err(problem) => refused(&problem),
    }
}
