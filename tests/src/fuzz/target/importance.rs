//! Importance matrices in both formats.

use super::super::grammar::gguf;
use super::super::node::{Cursor, Node, Width};
use super::super::seeds::tiny_gguf;
use super::super::{Answer, later, law, refused};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use trueup::blocks::DType;
use trueup::formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup::formats::{Checkpoint, Gguf, Importance, TensorInfo};
use trueup::quantize::{ImportanceOptions, Layout, NoProgress, Options, Recipe, quantize_with};

/// The model that is quantized.
fn model() -> &'static [u8] {
    static MODEL: OnceLock<Vec<u8>> = OnceLock::new();
    MODEL.get_or_init(|| tiny_gguf("qwen3"))
}

/// Names and columns of some matrices of the model.
fn matrices() -> Vec<(String, usize)> {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("model.gguf");
    fs::write(&path, model()).expect("a file can be written");
    let file = Gguf::open(&path).expect("the model is right");
    let matrices = file.tensors().iter().filter(|tensor| tensor.name.starts_with("blk.") && tensor.shape.len() > 1);
    matrices.map(|tensor| (tensor.name.clone(), tensor.shape[0] as usize)).collect()
}

/// The same entries in both formats.
pub fn seeds() -> Vec<Vec<u8>> {
    let number = |number: usize| (number as i32).to_le_bytes().to_vec();
    let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let folder = tempfile::tempdir().expect("a scratch directory");
    let (mut metadata, path) = (Metadata::default(), folder.path().join("importance.gguf"));
    metadata.insert("general.type", "imatrix");
    metadata.insert("imatrix.datasets", vec!["text".to_owned()]);
    metadata.insert("imatrix.chunk_count", 2u32);
    metadata.insert("imatrix.chunk_size", 8u32);
    let matrices = matrices();
    let (mut infos, mut contents, mut legacy) = (Vec::new(), Vec::new(), number(matrices.len()));
    for (name, columns) in &matrices {
        let sums: Vec<f32> = (0..*columns).map(|column| (column % 7) as f32).collect();
        legacy
            .extend([number(name.len()), name.as_bytes().to_vec(), number(2), number(*columns), f32s(&sums)].concat());
        for (end, values) in [("in_sum2", sums), ("counts", vec![16.0])] {
            let shape = [values.len() as u64];
            infos.push(TensorInfo::new(format!("{name}.{end}"), &shape, DType::F32).expect("a small tensor"));
            contents.push(f32s(&values));
        }
    }
    legacy.extend([number(2), number(4), b"text".to_vec()].concat());
    let plan = GgufPlan::new(&path, &metadata, &infos, None).expect("a small file");
    let writer = GgufWriter::create(plan, &[]).expect("a file can be written");
    contents.iter().enumerate().for_each(|(number, bytes)| writer.write(number, 0, bytes).expect("space"));
    writer.finish().expect("space");
    vec![legacy, fs::read(path).expect("it was just written")]
}

/// Fields of both formats.
pub fn grammar(bytes: &[u8]) -> Node {
    if bytes.starts_with(b"GGUF") {
        return gguf(bytes);
    }
    let mut cursor = Cursor(bytes);
    let mut fields: Vec<Node> = cursor.field(4).into_iter().collect();
    loop {
        let before = cursor;
        let head = cursor.counted_text(Width::Bytes(4)).zip(cursor.field(4));
        let count = head.as_ref().and_then(|_| cursor.number(4));
        let values = count.and_then(|count| cursor.take(usize::try_from(count).ok()?.checked_mul(4)?));
        match head.zip(count.zip(values)) {
            Some(((name, calls), (count, values))) => {
                let count = Node::Number((count as u32).to_le_bytes().to_vec());
                let values = values.chunks(4).map(|value| Node::Number(value.to_vec())).collect();
                fields.push(Node::Group(vec![name, calls, count, Node::Group(values)]));
            }
            None => {
                fields.push(Node::Bytes(before.0.to_vec()));
                return Node::Group(fields);
            }
        }
    }
}

/// Reads the file, and quantizes a tiny model by it.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let (path, source) = (folder.join("importance"), folder.join("model.gguf"));
    later(fs::write(&path, input), "the input cannot be written")?;
    let file = match Importance::open(&path) {
        Ok(file) => file,
        Err(problem) => return refused(&problem),
    };
    for entry in file.entries().values() {
        let is_right = entry.weights().iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        law(is_right, "an importance is not a finite number of 0 or more")?;
        [1, 2, 7].iter().for_each(|matrices| drop(entry.unseen(*matrices)));
    }
    later(fs::write(&source, model()), "the model cannot be written")?;
    let source = later(Gguf::open(&source), "the model is refused")?;
    let (allow_partial, exact) = (!input.len().is_multiple_of(3), input.len().is_multiple_of(2));
    let importance = ImportanceOptions { file, allow_partial, exact };
    let recipe = Recipe::new(Some(DType::Q4K));
    let options = Options { recipe, layout: Layout::Block, threads: Some(1), dry_run: false, resume: false };
    let target = folder.join("quantized.gguf");
    match quantize_with(&source, &target, &options, Some(&importance), &NoProgress) {
        Ok(_) => later(Gguf::open(&target), "a quantized file is refused").map(drop)?,
        Err(problem) => return refused(&problem),
    }
    Ok(Answer::Accepted("importance"))
}
