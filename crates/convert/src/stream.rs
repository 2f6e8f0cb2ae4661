//! The conversion: plan, describe, then chunks on all cores.

use crate::chunk::{Chunk, chunks};
use crate::describe::describe;
use crate::mapping::Mapping;
use crate::overrides::Override;
use crate::report::{Report, TensorReport};
use crate::slim::Slim;
use std::ops::Range;
use std::path::Path;
use trueup_blocks::{DType, DeviationSums};
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure, Metadata, Split};
use trueup_formats::{Checkpoint, Error, Result, TensorInfo};
use trueup_quantize::{Choice, Loss, ModelFacts, Progress, Recipe, Resumed, Rooms, Transcoder, bytes_of, first_bytes};
use trueup_quantize::{open_writer, stays_f32, take_over, walk_with};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which tensor becomes what. `Recipe::new(None)` is `auto`: matrices keep their type, one-dimensional tensors
    /// become f32.
    pub recipe: Recipe,
    /// Where the model is cut into files.
    pub split: Split,
    /// Which tokens are kept; `None` for all.
    pub slim: Option<Slim>,
    /// Keys to set.
    pub overrides: Vec<Override>,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
    /// Plan and report, write nothing.
    pub dry_run: bool,
    /// Go on with what an earlier run of this kind left unfinished, and leave what is finished when this one is
    /// interrupted.
    pub resume: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            recipe: Recipe::new(None),
            split: Split::Whole,
            slim: None,
            overrides: Vec::new(),
            threads: None,
            dry_run: false,
            resume: false,
        }
    }
}

/// Writes a checkpoint as GGUF to `output`. Everything that can be known to be wrong is refused before a byte is
/// written.
///
/// # Errors
/// What [`Mapping::new`] refuses, a tokenizer that cannot be read, a rule that matches nothing, a weight that is not
/// finite or becomes infinite in its new type (with tensor and element), and I/O; nothing is then left under the name
/// of the output.
pub fn convert(source: &dyn Checkpoint, output: &Path, options: &Options, progress: &dyn Progress) -> Result<Report> {
    let mut mapping = Mapping::new(source)?;
    if let Some(slim) = &options.slim {
        let kept = slim.kept(source, &mapping)?;
        mapping = mapping.slimmed(kept.into(), source.path())?;
    }
    let choices = choose(source, &mapping, &options.recipe)?;
    let tensors = targets(&mapping, &choices)?;
    let (metadata, notes) = describe(source, &mapping, (&tensors, &options.recipe), &options.overrides)?;
    let plan = GgufPlan::new(output, &metadata, &tensors, options.split)?;
    let files = plan.files().iter().map(|file| file.path.clone()).collect();
    let bytes = plan.bytes();
    let architecture = mapping.architecture().gguf_name;
    let tensors = lines(source, &mapping, &tensors, &choices);
    let mut report = Report { architecture, files, bytes, tensors, notes, resumed: None };
    if options.dry_run {
        return Ok(report);
    }
    let writer = open_writer(plan, &source.sources(), options.resume, "convert")?;
    report.notes.extend(writer.note().map(str::to_owned));
    let mut stream = Stream::new(source, &mapping, &writer, progress);
    if options.resume {
        report.resumed = Some(stream.take_over(options.threads)?);
    }
    stream.run(options.threads).map_err(|error| writer.explain(error))?;
    stream.tell_losses(&mut report.tensors);
    source.unchanged().map_err(|error| writer.explain(error))?;
    writer.finish()?;
    Ok(report)
}

/// One choice per tensor. The recipe sees our names and the types that tensors have without it.
fn choose(source: &dyn Checkpoint, mapping: &Mapping, recipe: &Recipe) -> Result<Vec<Choice>> {
    let plain = |tensor: &crate::MappedTensor| {
        let is_matrix = tensor.expected.shape.len() > 1 && !stays_f32(&tensor.expected.name);
        let dtype = if is_matrix && tensor.dtype != DType::F64 { tensor.dtype } else { DType::F32 };
        TensorInfo::new(tensor.expected.name.as_str(), &tensor.expected.shape, dtype)
    };
    let plain = mapping.tensors().iter().map(plain).collect::<Result<Vec<TensorInfo>>>()?;
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", mapping.architecture().gguf_name);
    mapping.spec().write_metadata(&mut metadata);
    recipe
        .choose(&plain, &ModelFacts::new(&metadata, &plain))
        .map_err(|fault| Error::new(source.path(), fault.0).help("nothing was written"))
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
        source: tensor.sources.first().map(|number| source.tensors()[*number].name.clone()),
        shape: target.shape.clone(),
        source_type: tensor.source_type(source),
        dtype: target.dtype.name(),
        bytes: target.bytes,
        rmse: None,
        cosine: None,
        max_error: None,
        sorted: tensor.expected.transform.interleaved_heads.is_some(),
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
    /// What each tensor loses, where it is known whether all of it is written.
    losses: Vec<Loss>,
}

/// What each thread has of its own.
#[derive(Default)]
struct Own {
    source: Vec<u8>,
    target: Vec<u8>,
    sorted: Vec<u8>,
    rooms: Rooms,
}

impl<'a> Stream<'a> {
    fn new(
        source: &'a dyn Checkpoint,
        mapping: &'a Mapping,
        writer: &'a GgufWriter,
        progress: &'a dyn Progress,
    ) -> Stream<'a> {
        progress.start(mapping.tensors().iter().map(source_bytes).sum());
        let losses = writer.tensors().iter().map(|tensor| Loss::new(tensor.elements())).collect();
        Stream { source, mapping, writer, progress, losses }
    }

    /// Takes over what an earlier run finished.
    fn take_over(&mut self, threads: Option<usize>) -> Result<Resumed> {
        let outputs: Vec<Range<usize>> = (0..self.losses.len()).map(|tensor| tensor..tensor + 1).collect();
        let accept = |measure: &Measure| Loss::of_measure(measure).is_some();
        let (taken, resumed) = take_over(self.writer, &outputs, accept, (threads, self.source.path()))?;
        for ((tensor, loss), measure) in self.mapping.tensors().iter().zip(&mut self.losses).zip(taken) {
            if let Some(known) = measure.as_ref().and_then(Loss::of_measure) {
                *loss = known;
                self.progress.taken_over(source_bytes(tensor));
            }
        }
        Ok(resumed)
    }

    /// Does all chunks of what is not taken over.
    fn run(&self, threads: Option<usize>) -> Result<()> {
        let taken: Vec<bool> = self.losses.iter().map(|loss| loss.deviation().is_some()).collect();
        let chunks = chunks(self.mapping).filter(|chunk| !taken[chunk.tensor]);
        walk_with(chunks, threads, self.source.path(), |own, chunk| self.one(own, chunk), |_, ()| ())
    }

    /// Says of tensors in blocks what they lost.
    fn tell_losses(&self, lines: &mut [TensorReport]) {
        for ((line, loss), tensor) in lines.iter_mut().zip(&self.losses).zip(self.writer.tensors()) {
            if let Some(deviation) = loss.deviation().filter(|_| tensor.dtype.is_quantized()) {
                (line.rmse, line.cosine) = (Some(deviation.rmse), Some(deviation.cosine));
                line.max_error = Some(deviation.max_abs);
            }
        }
    }

    /// Types change before rows are sorted, so that a message names the element of the checkpoint.
    fn one(&self, own: &mut Own, chunk: &Chunk) -> Result<()> {
        let tensor = &self.mapping.tensors()[chunk.tensor];
        let (from, to) = (tensor.dtype, self.writer.tensors()[chunk.tensor].dtype);
        let transcoder = Transcoder::new(from, to);
        let mut loss = DeviationSums::default();
        let bytes = first_bytes(&mut own.target, bytes_of(chunk.len(), to));
        if transcoder.is_copy() {
            chunk.read_source(self.source, self.mapping, bytes)?;
        } else {
            let source = first_bytes(&mut own.source, bytes_of(chunk.len(), from));
            chunk.read_source(self.source, self.mapping, source)?;
            let measured = to.is_quantized().then_some(&mut loss);
            transcoder.transcode(source, bytes, &mut own.rooms, measured).map_err(|unfit| {
                let (number, element) = chunk.source_element(unfit.place);
                let element = tensor.expected.source_element(element);
                let source = tensor.sources.get(number).and_then(|place| self.source.tensors().get(*place));
                let computed =
                    TensorInfo { name: tensor.expected.name.clone(), shape: vec![u64::MAX], dtype: from, bytes: 0 };
                unfit.in_checkpoint_tensor(self.source.path(), source.unwrap_or(&computed), element)
            })?;
        }
        let sorted = chunk.sort_rows(to, bytes, &mut own.sorted);
        self.writer.write(chunk.tensor, bytes_of(chunk.elements.start, to), sorted)?;
        self.progress.advance(bytes_of(chunk.len(), from));
        match self.losses[chunk.tensor].add(chunk.elements.start, chunk.len(), loss) {
            Some(deviation) => self.writer.finished(chunk.tensor..chunk.tensor + 1, Loss::measure(&deviation)),
            None => Ok(()),
        }
    }
}

fn source_bytes(tensor: &crate::MappedTensor) -> u64 {
    bytes_of(tensor.expected.shape.iter().product(), tensor.dtype)
}
