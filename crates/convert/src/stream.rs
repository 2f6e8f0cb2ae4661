//! The conversion: plan, describe, then chunks on all cores.

use crate::chunk::{Chunk, chunks};
use crate::describe::describe;
use crate::encoding::{Encoding, plain_tensors};
use crate::mapping::Mapping;
use crate::overrides::Override;
use crate::report::{Report, TensorReport};
use crate::slim::Slim;
use std::ops::Range;
use std::path::Path;
use trueup_blocks::DeviationSums;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure, Metadata, Split};
use trueup_formats::{Checkpoint, Error, Result, SourceFile, TensorInfo};
use trueup_quantize::{Choice, ImportanceOptions, Loss, ModelFacts, Progress, Recipe, Resumed, Scratch, Transcoder};
use trueup_quantize::{bytes_of, first_bytes, open_writer, take_over, walk_with};

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
    convert_with(source, output, options, None, progress)
}

/// As [`convert`]; types with blocks are encoded by the importance of the columns of weights.
///
/// # Errors
/// As [`convert`], and an importance matrix that does not cover the tensors.
pub fn convert_with(
    source: &dyn Checkpoint,
    output: &Path,
    options: &Options,
    importance: Option<&ImportanceOptions>,
    progress: &dyn Progress,
) -> Result<Report> {
    options.recipe.expect_effect(source.path(), importance.is_some())?;
    let mut mapping = Mapping::new(source)?;
    if let Some(slim) = &options.slim {
        let kept = slim.kept(source, &mapping)?;
        mapping = mapping.slimmed(kept.into(), source.path())?;
    }
    let (plain, choices) = choose(source, &mapping, &options.recipe, importance.is_some())?;
    let encoding = Encoding::new(source, &mapping, (&plain, &choices), importance, options.threads)?;
    let tensors = targets(&mapping, &choices)?;
    let (mut metadata, mut notes) = describe(source, &mapping, (&tensors, &options.recipe), &options.overrides)?;
    let used = importance.filter(|_| encoding.importance.is_used(&encoding.on_grid));
    used.iter().for_each(|importance| importance.describe(&mut metadata));
    notes.extend(options.recipe.notes(&plain));
    notes.extend(encoding.importance.notes(&encoding.on_grid).into_iter().chain(encoding.on_grid.notes()));
    let plan = GgufPlan::new(output, &metadata, &tensors, options.split)?;
    let files = plan.files().iter().map(|file| file.path.clone()).collect();
    let bytes = plan.bytes();
    let architecture = mapping.architecture().gguf_name;
    let tensors = lines(source, &mapping, &tensors, &choices);
    let mut report = Report { architecture, files, bytes, tensors, notes, resumed: None };
    if options.dry_run {
        return Ok(report);
    }
    let inputs: Vec<&SourceFile> =
        source.sources().into_iter().chain(importance.map(|file| file.file.source())).collect();
    let is_reference = importance.is_some_and(|importance| importance.exact);
    let command = if is_reference { "convert --imatrix-exact" } else { "convert" };
    let writer = open_writer(plan, &inputs, options.resume, command)?;
    report.notes.extend(writer.note().map(str::to_owned));
    let mut stream = Stream::new(source, &mapping, &writer, (&encoding, progress));
    if options.resume {
        report.resumed = Some(stream.take_over(options.threads)?);
    }
    stream.run(options.threads).map_err(|error| writer.explain(error))?;
    stream.tell_losses(&mut report.tensors);
    inputs.iter().try_for_each(|input| input.unchanged()).map_err(|error| writer.explain(error))?;
    source.unchanged().map_err(|error| writer.explain(error))?;
    writer.finish()?;
    Ok(report)
}

/// The tensors as the recipe sees them, with our names and the types that they have without it; and a choice for each.
fn choose(
    source: &dyn Checkpoint,
    mapping: &Mapping,
    recipe: &Recipe,
    has_importance: bool,
) -> Result<(Vec<TensorInfo>, Vec<Choice>)> {
    let plain = plain_tensors(mapping)?;
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", mapping.architecture().gguf_name);
    mapping.spec().write_metadata(&mut metadata);
    let facts = ModelFacts { has_importance, ..ModelFacts::new(&metadata, &plain) };
    let choices = recipe.choose(&plain, &facts);
    let choices = choices.map_err(|fault| Error::new(source.path(), fault.0).help("nothing was written"))?;
    Ok((plain, choices))
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
    encoding: &'a Encoding<'a>,
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
    scratch: Scratch,
}

impl<'a> Stream<'a> {
    fn new(
        source: &'a dyn Checkpoint,
        mapping: &'a Mapping,
        writer: &'a GgufWriter,
        (encoding, progress): (&'a Encoding<'a>, &'a dyn Progress),
    ) -> Stream<'a> {
        progress.start(mapping.tensors().iter().map(source_bytes).sum());
        let losses = writer.tensors().iter().map(|tensor| Loss::new(tensor.elements())).collect();
        Stream { source, mapping, writer, encoding, progress, losses }
    }

    /// Takes over what an earlier run finished.
    fn take_over(&mut self, threads: Option<usize>) -> Result<Resumed> {
        let outputs: Vec<Range<usize>> = (0..self.losses.len()).map(|tensor| tensor..tensor + 1).collect();
        let accept = |measure: &Measure| Loss::of_measure(measure).is_some();
        let (taken, resumed) = take_over(self.writer, &outputs, accept, (threads, self.source.path()))?;
        for ((tensor, loss), measure) in self.mapping.tensors().iter().zip(&mut self.losses).zip(taken) {
            if let Some(known) = measure.as_ref().and_then(Loss::of_measure) {
                *loss = known;
                self.progress.reused(source_bytes(tensor));
            }
        }
        Ok(resumed)
    }

    /// Does all chunks of what is not taken over.
    fn run(&self, threads: Option<usize>) -> Result<()> {
        let taken: Vec<bool> = self.losses.iter().map(|loss| loss.deviation().is_some()).collect();
        let all = chunks(self.mapping, |tensor| self.encoding.importance.of(tensor).is_some());
        let chunks = all.filter(|chunk| !taken[chunk.tensor]);
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
        let info = &self.writer.tensors()[chunk.tensor];
        let (from, to) = (tensor.dtype, info.dtype);
        let mut loss = DeviationSums::default();
        let bytes = first_bytes(&mut own.target, bytes_of(chunk.len(), to));
        let done = if Transcoder::new(from, to).is_copy() {
            chunk.read_source(self.source, self.mapping, bytes)?;
            Transcoder::new(from, to).check_copy(bytes)
        } else {
            let source = first_bytes(&mut own.source, bytes_of(chunk.len(), from));
            chunk.read_source(self.source, self.mapping, source)?;
            let place = (chunk.tensor, &chunk.elements);
            self.encoding.transcode(place, (from, info), (source, bytes), &mut own.scratch, &mut loss)
        };
        done.map_err(|unfit| {
            let (number, element) = chunk.source_element(unfit.place);
            let element = tensor.expected.source_element(element);
            let source = tensor.sources.get(number).and_then(|place| self.source.tensors().get(*place));
            let computed =
                TensorInfo { name: tensor.expected.name.clone(), shape: vec![u64::MAX], dtype: from, bytes: 0 };
            unfit.in_checkpoint_tensor(self.source.path(), source.unwrap_or(&computed), element)
        })?;
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
