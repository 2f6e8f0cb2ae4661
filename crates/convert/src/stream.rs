//! The conversion: plan, describe, then chunks on all cores.

use crate::chunk::{Chunk, bytes_of, chunks, codec_of, decode, read_source, sort_rows};
use crate::describe::describe;
use crate::mapping::Mapping;
use crate::overrides::Override;
use crate::report::{Report, TensorReport};
use rayon::prelude::*;
use std::path::Path;
use trueup_blocks::{DType, first_not_finite};
use trueup_formats::gguf::{GgufPlan, GgufWriter};
use trueup_formats::{Checkpoint, Error, Result, TensorInfo};
use trueup_models::Transform;
use trueup_quantize::{Choice, Progress, Recipe};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which tensor becomes what. `Recipe::new(None)` is `auto`: matrices keep their type, one-dimensional tensors become f32.
    pub recipe: Recipe,
    /// The largest size of a file; more than that becomes several files.
    pub split_bytes_max: Option<u64>,
    /// Keys to set.
    pub overrides: Vec<Override>,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
    /// Plan and report, write nothing.
    pub dry_run: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            recipe: Recipe::new(None),
            split_bytes_max: None,
            overrides: Vec::new(),
            threads: None,
            dry_run: false,
        }
    }
}

/// Writes a checkpoint as GGUF to `output`. Everything that can be known to be wrong is refused before a byte is written.
///
/// # Errors
/// What [`Mapping::new`] refuses, a tokenizer that cannot be read, a rule that matches nothing, a weight that is not finite or becomes
/// infinite in its new type (with tensor and element), and I/O; nothing is then left under the name of the output.
pub fn convert(source: &dyn Checkpoint, output: &Path, options: &Options, progress: &dyn Progress) -> Result<Report> {
    let mapping = Mapping::new(source)?;
    let choices = choose(source, &mapping, &options.recipe)?;
    let tensors = targets(&mapping, &choices)?;
    let (metadata, notes) = describe(source, &mapping, &tensors, &options.overrides)?;
    let plan = GgufPlan::new(output, &metadata, &tensors, options.split_bytes_max)?;
    let files = plan.files().iter().map(|file| file.path.clone()).collect();
    let bytes = plan.bytes();
    let architecture = mapping.architecture().gguf_name;
    let tensors = lines(source, &mapping, &tensors, &choices);
    let report = Report { architecture, files, bytes, tensors, notes };
    if options.dry_run {
        return Ok(report);
    }
    let writer = GgufWriter::create(plan, &source.sources())?;
    Stream { source, mapping: &mapping, writer: &writer, progress }.run(options.threads)?;
    source.unchanged()?;
    writer.finish()?;
    Ok(report)
}

/// One choice per tensor. The recipe sees our names and the types that tensors have without it.
fn choose(source: &dyn Checkpoint, mapping: &Mapping, recipe: &Recipe) -> Result<Vec<Choice>> {
    let plain = |tensor: &crate::MappedTensor| {
        let is_matrix = tensor.expected.shape.len() > 1;
        let dtype = if is_matrix && tensor.dtype != DType::F64 { tensor.dtype } else { DType::F32 };
        TensorInfo::new(tensor.expected.name.as_str(), &tensor.expected.shape, dtype)
    };
    let plain = mapping.tensors().iter().map(plain).collect::<Result<Vec<TensorInfo>>>()?;
    recipe.choose(&plain).map_err(|fault| Error::new(source.path(), fault.0).help("nothing was written"))
}

fn targets(mapping: &Mapping, choices: &[Choice]) -> Result<Vec<TensorInfo>> {
    let target = |(tensor, choice): (&crate::MappedTensor, &Choice)| {
        TensorInfo::new(tensor.expected.name.as_str(), &tensor.expected.shape, choice.dtype)
    };
    mapping.tensors().iter().zip(choices).map(target).collect()
}

fn lines(source: &dyn Checkpoint, mapping: &Mapping, targets: &[TensorInfo], choices: &[Choice]) -> Vec<TensorReport> {
    let line = |((tensor, target), choice): ((&crate::MappedTensor, &TensorInfo), &Choice)| TensorReport {
        name: target.name.clone(),
        source: tensor.source.map(|number| source.tensors()[number].name.clone()),
        shape: target.shape.clone(),
        source_type: tensor.dtype.name(),
        dtype: target.dtype.name(),
        bytes: target.bytes,
        sorted: tensor.expected.transform != Transform::None,
        note: choice.note.clone(),
    };
    mapping.tensors().iter().zip(targets).zip(choices).map(line).collect()
}

/// The work on all chunks of all tensors. Every thread holds one chunk.
struct Stream<'a> {
    source: &'a dyn Checkpoint,
    mapping: &'a Mapping,
    writer: &'a GgufWriter,
    progress: &'a dyn Progress,
}

impl Stream<'_> {
    fn run(&self, threads: Option<usize>) -> Result<()> {
        let source_bytes =
            |tensor: &crate::MappedTensor| bytes_of(tensor.expected.shape.iter().product(), tensor.dtype);
        self.progress.start(self.mapping.tensors().iter().map(source_bytes).sum());
        let chunks = chunks(self.mapping);
        pool(threads, self.source.path())?
            // One chunk at a time and thread: rayon would otherwise hand out long runs of neighbours.
            .install(|| chunks.par_iter().with_max_len(1).try_for_each(|chunk| self.one(chunk)))
    }

    fn one(&self, chunk: &Chunk) -> Result<()> {
        let from = self.mapping.tensors()[chunk.tensor].dtype;
        let to = self.writer.tensors()[chunk.tensor].dtype;
        let bytes = sort_rows(self.mapping, chunk, read_source(self.source, self.mapping, chunk)?);
        let read_bytes = bytes.len() as u64;
        let bytes = if from == to { bytes } else { self.change_type(chunk, &bytes, from, to)? };
        self.writer.write(chunk.tensor, bytes_of(chunk.first, to), &bytes)?;
        self.progress.advance(read_bytes);
        Ok(())
    }

    fn change_type(&self, chunk: &Chunk, bytes: &[u8], from: DType, to: DType) -> Result<Vec<u8>> {
        let values = decode(from, bytes, chunk.elements);
        self.check_finite(chunk, &values, &values, "is not a finite number; the checkpoint is damaged")?;
        let mut encoded = vec![0; bytes_of(chunk.elements, to) as usize];
        (codec_of(to).encode)(&values, &mut encoded);
        if to != DType::F32 {
            let decoded = decode(to, &encoded, chunk.elements);
            self.check_finite(chunk, &values, &decoded, &format!("is too large for {to}; choose bf16 or f32"))?;
        }
        Ok(encoded)
    }

    /// Refuses a chunk with a place where `judged` is not finite; the message shows the value there.
    fn check_finite(&self, chunk: &Chunk, values: &[f32], judged: &[f32], problem: &str) -> Result<()> {
        let Some(place) = first_not_finite(judged) else { return Ok(()) };
        let tensor = &self.mapping.tensors()[chunk.tensor].expected;
        let element = chunk.first + place as u64;
        let error = Error::new(
            self.source.path(),
            format!("element {element} of its GGUF order is {} and {problem}", values[place]),
        );
        Err(error.at(format!("tensor {}", tensor.theirs.as_ref().unwrap_or(&tensor.name))))
    }
}

/// A pool of that many threads; `None` is one per core.
pub(crate) fn pool(threads: Option<usize>, path: &Path) -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    pool.map_err(|error| Error::new(path, format!("no threads could be started: {error}")))
}
