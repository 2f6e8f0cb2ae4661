//! Quantizes a file in chunks of whole rows, on all cores, in bounded memory.
//!
//! ```text
//! tensor  |  chunk 0  |  chunk 1  |  chunk 2 |     each: read -> f32 -> blocks -> measure -> write at its offset
//! ```
//!
//! Errors are summed in the order of chunks, so neither the bytes nor the report depend on the number of threads.

use crate::exact::{OnGrid, exact_types_of_change};
use crate::importance::{ImportanceOptions, TensorImportance, WeightedRows};
use crate::loss::Loss;
use crate::progress::Progress;
use crate::recipe::{Choice, ModelFacts, Recipe};
use crate::report::{Report, TensorReport};
use crate::resume::{Resumed, open_writer, take_over};
use crate::transcode::{Scratch, Transcoder};
use crate::walk::{CHUNK_ELEMENTS, bytes_of, chunk_ranges, first_bytes, walk_with};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use trueup_blocks::{DType, DeviationSums, SplitScale};
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure, Metadata};
use trueup_formats::{Checkpoint, Description, Error, Result, SourceFile, TensorInfo, counted, listed, quote};
use trueup_formats::{LAYOUT_KEY, LAYOUT_SPLIT_SCALE, split_scale_tensors};

/// Layout of blocks in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// The standard layout of GGUF.
    Block,
    /// Values and scales as two tensors, for types that have this layout; other types are stored in blocks.
    Split,
}

/// Quantization options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Assigns a type to each tensor.
    pub recipe: Recipe,
    /// Layout of blocks.
    pub layout: Layout,
    /// Number of threads; `None` means one per core.
    pub threads: Option<usize>,
    /// Report the types, but do not write the output.
    pub dry_run: bool,
    /// Resume an interrupted run; if interrupted, keep finished tensors for the next run.
    pub resume: bool,
}

/// Writes `source`, a GGUF file, to `output` with other types. Returns a report on each tensor.
///
/// # Errors
/// A rule that matches nothing, a type that cannot be decoded, a weight that is not finite, and I/O. The output file is
/// then not written.
pub fn quantize(source: &dyn Checkpoint, output: &Path, options: &Options, progress: &dyn Progress) -> Result<Report> {
    quantize_with(source, output, options, None, progress)
}

/// [`quantize`] with an importance matrix.
///
/// # Errors
/// As [`quantize`], and an importance matrix that does not cover the tensors.
pub fn quantize_with(
    source: &dyn Checkpoint,
    output: &Path,
    options: &Options,
    importance: Option<&ImportanceOptions>,
    progress: &dyn Progress,
) -> Result<Report> {
    let metadata = expect_gguf(source)?;
    let tensors = source.tensors();
    let choices = choices_of(source, &options.recipe, importance.is_some())?;
    let targets: Vec<Target> =
        tensors.iter().zip(&choices).map(|(tensor, choice)| Target::new(tensor, choice, options)).collect();
    refuse_unreadable(source, &targets)?;
    let columns = importance.map_or_else(|| Ok(TensorImportance::default()), |file| file.prepare(tensors, &choices))?;
    let is_reference = importance.is_some_and(|importance| importance.exact);
    let on_grid = if is_reference { OnGrid::default() } else { look_for_grids(source, &targets, options.threads)? };
    let mut report = report_of(&targets, options);
    report.notes.extend(options.recipe.notes(source.tensors()));
    report.notes.extend(columns.notes(&on_grid));
    report.notes.extend(on_grid.notes());
    if options.dry_run {
        return Ok(report);
    }
    // llama-quantize also names a matrix that is not used.
    let named = importance.filter(|importance| importance.exact || columns.is_used(&on_grid));
    let metadata = describe(metadata, &report, options, named);
    let infos: Vec<TensorInfo> = targets.iter().flat_map(|target| target.infos.iter().cloned()).collect();
    let plan = GgufPlan::new(output, &metadata, &infos, None)?;
    let inputs: Vec<&SourceFile> =
        source.sources().into_iter().chain(importance.map(|file| file.file.source())).collect();
    let command = if importance.is_some_and(|file| file.exact) { "quantize --imatrix-exact" } else { "quantize" };
    let writer = open_writer(plan, &inputs, options.resume, command)?;
    report.notes.extend(writer.note().map(str::to_owned));
    let mut stream = Stream::new(source, &writer, &targets, (&columns, &on_grid, progress));
    progress.start(tensors.iter().map(|tensor| tensor.bytes).sum());
    if options.resume {
        report.resumed = Some(stream.take_over(options.threads)?);
    }
    stream.run(options.threads).map_err(|error| writer.explain(error))?;
    for (line, loss) in report.tensors.iter_mut().zip(stream.losses) {
        let deviation = loss.deviation();
        line.rmse = deviation.map(|deviation| deviation.rmse);
        line.cosine = deviation.map(|deviation| deviation.cosine);
        line.max_error = deviation.map(|deviation| deviation.max_abs);
    }
    inputs.iter().try_for_each(|input| input.unchanged()).map_err(|error| writer.explain(error))?;
    source.unchanged().map_err(|error| writer.explain(error))?;
    writer.finish()?;
    Ok(report)
}

/// The choice for each tensor of a GGUF file, in file order.
///
/// # Errors
/// A source that is not a GGUF file, and those of [`Recipe::choose`].
pub fn choices_of(source: &dyn Checkpoint, recipe: &Recipe, has_importance: bool) -> Result<Vec<Choice>> {
    let tensors = source.tensors();
    let facts = ModelFacts { has_importance, ..ModelFacts::new(expect_gguf(source)?, tensors) };
    let choices = recipe.choose(tensors, &facts);
    choices.map_err(|fault| Error::new(source.path(), fault.0).help("nothing was written"))
}

/// The keys of a GGUF file.
pub(crate) fn expect_gguf(source: &dyn Checkpoint) -> Result<&Metadata> {
    let Description::Gguf(metadata) = source.description() else {
        let problem = format!("expected a GGUF file, found {}", source.format());
        let path = quote(&source.path().to_string_lossy());
        let help = format!("convert it first with `trueup convert {path} model.gguf`");
        return Err(Error::new(source.path(), problem).help(help));
    };
    Ok(metadata)
}

/// Size of the file that [`quantize_with`] would write, in bytes, with its keys and padding. This is an upper bound:
/// weights are not read, so the keys of the importance matrix are counted even if all tensors that would use it are on
/// a grid.
///
/// # Errors
/// As [`quantize_with`], before it writes.
pub fn file_bytes(source: &dyn Checkpoint, options: &Options, importance: Option<&ImportanceOptions>) -> Result<u64> {
    let metadata = expect_gguf(source)?;
    let choices = choices_of(source, &options.recipe, importance.is_some())?;
    let tensors = source.tensors();
    let targets: Vec<Target> =
        tensors.iter().zip(&choices).map(|(tensor, choice)| Target::new(tensor, choice, options)).collect();
    refuse_unreadable(source, &targets)?;
    let columns = importance.map_or_else(|| Ok(TensorImportance::default()), |file| file.prepare(tensors, &choices))?;
    let named = importance.filter(|importance| importance.exact || columns.is_used(&OnGrid::default()));
    let metadata = describe(metadata, &report_of(&targets, options), options, named);
    let infos: Vec<TensorInfo> = targets.iter().flat_map(|target| target.infos.iter().cloned()).collect();
    Ok(GgufPlan::new(source.path(), &metadata, &infos, None)?.bytes())
}

/// One tensor of the source and its output.
struct Target<'a> {
    source: &'a TensorInfo,
    choice: &'a Choice,
    /// The split-scale layout of the new type, if it is used.
    split: Option<SplitScale>,
    /// The output tensors: the tensor, or its values and scales.
    infos: Vec<TensorInfo>,
}

impl<'a> Target<'a> {
    fn new(source: &'a TensorInfo, choice: &'a Choice, options: &Options) -> Target<'a> {
        let split = SplitScale::of(choice.dtype).filter(|_| options.layout == Layout::Split);
        let infos = match split {
            Some(split) => split_scale_tensors(&source.name, &source.shape, split),
            None => {
                vec![TensorInfo {
                    dtype: choice.dtype,
                    bytes: bytes_of(source.shape.iter().product(), choice.dtype),
                    ..source.clone()
                }]
            }
        };
        Target { source, choice, split, infos }
    }

    fn transcoder(&self) -> Transcoder {
        Transcoder::new(self.source.dtype, self.choice.dtype)
    }

    /// The elements of each chunk. Rows with importance are not divided.
    fn chunks(&self, is_weighted: bool) -> impl Iterator<Item = Range<u64>> + use<> {
        let (total, row) = (self.source.shape.iter().product(), self.source.shape[0]);
        let rows = (is_weighted && row > CHUNK_ELEMENTS)
            .then(|| (0..total / row).map(move |number| number * row..(number + 1) * row));
        let parts = rows.is_none().then(|| chunk_ranges(total, row));
        rows.into_iter().flatten().chain(parts.into_iter().flatten())
    }
}

/// Rejects tensors that must be decoded but cannot be. The message lists all of them.
fn refuse_unreadable(source: &dyn Checkpoint, targets: &[Target]) -> Result<()> {
    let unreadable =
        targets.iter().filter(|target| !target.transcoder().is_copy() && target.source.dtype.codec().is_none());
    let names: Vec<String> =
        unreadable.map(|target| format!("{} ({})", quote(&target.source.name), target.source.dtype)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let problem = format!("expected tensor types that trueup can decode, found {}", listed(&names, ", "));
    Err(Error::new(source.path(), problem).help("start from the f16, bf16 or f32 file of the model"))
}

/// The tensors on a grid, among those that are converted from floats to blocks.
fn look_for_grids(source: &dyn Checkpoint, targets: &[Target], threads: Option<usize>) -> Result<OnGrid> {
    let mut on_grid = OnGrid::default();
    for (number, Target { source: tensor, choice, .. }) in targets.iter().enumerate() {
        let types = exact_types_of_change(source, number, choice.dtype, threads)?;
        on_grid.push(&tensor.name, choice, types.as_ref());
    }
    Ok(on_grid)
}

/// The report before the run, without errors.
fn report_of(targets: &[Target], options: &Options) -> Report {
    let line = |target: &Target| TensorReport {
        name: target.source.name.clone(),
        shape: target.source.shape.clone(),
        source_type: target.source.dtype.name(),
        dtype: target.choice.dtype.name(),
        bits_per_weight: target.choice.dtype.bits_per_weight(),
        bytes: target.infos.iter().map(|info| info.bytes).sum(),
        rmse: None,
        cosine: None,
        max_error: None,
        note: target.choice.note.clone(),
    };
    let tensors: Vec<TensorReport> = targets.iter().map(line).collect();
    let mut notes = Vec::new();
    if targets.iter().any(|target| target.choice.dtype == DType::Q8_1) {
        notes.push("only trueup reads files with q8_1 tensors; other GGUF programs reject them".to_owned());
    }
    let changed = |target: &&Target| target.source.dtype.is_quantized() && !target.transcoder().is_copy();
    let (again, decoded): (Vec<&Target>, Vec<&Target>) =
        targets.iter().filter(changed).partition(|target| target.choice.dtype.is_quantized());
    let (again, decoded) = (again.len(), decoded.len());
    if decoded > 0 {
        let (noun, verb) = if decoded == 1 { ("tensor", "is") } else { ("tensors", "are") };
        notes.push(format!(
            "{decoded} quantized {noun} {verb} decoded to floating point; this does not restore the lost precision"
        ));
    }
    if again > 0 {
        let verb = if again == 1 { "is" } else { "are" };
        notes.push(format!(
            "{} {verb} quantized a second time, so the errors add up; start from the unquantized file",
            counted(again, "tensor")
        ));
    }
    if options.layout == Layout::Split {
        notes.push(
            "only trueup reads the split-scale layout; `trueup quantize --layout block` converts it back to blocks"
                .to_owned(),
        );
    }
    let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    Report {
        tensors,
        source_bytes: targets.iter().map(|target| target.source.bytes).sum(),
        bytes,
        notes,
        resumed: None,
    }
}

/// The metadata of the output. `importance` is the importance matrix, if a tensor uses it.
fn describe(
    metadata: &Metadata,
    report: &Report,
    options: &Options,
    importance: Option<&ImportanceOptions>,
) -> Metadata {
    let mut metadata = metadata.clone();
    metadata.remove(LAYOUT_KEY);
    let is_quantized = |line: &TensorReport| DType::from_name(line.dtype).is_some_and(DType::is_quantized);
    if report.tensors.iter().any(is_quantized) {
        metadata.insert("general.quantization_version", 2u32);
    }
    if let Some(scheme) = options.recipe.scheme() {
        metadata.remove("general.file_type");
        if let Some(number) = scheme.file_type() {
            metadata.insert("general.file_type", number);
        }
    }
    if options.recipe.has_assigned() {
        // No published recipe has these types. Without the key, other programs count the tensors of each type.
        metadata.remove("general.file_type");
    }
    importance.iter().for_each(|importance| importance.describe(&mut metadata));
    if options.layout == Layout::Split {
        metadata.insert(LAYOUT_KEY, LAYOUT_SPLIT_SCALE);
    }
    metadata
}

/// A run over all chunks of all tensors.
struct Stream<'a> {
    source: &'a dyn Checkpoint,
    writer: &'a GgufWriter,
    targets: &'a [Target<'a>],
    importance: &'a TensorImportance<'a>,
    on_grid: &'a OnGrid,
    progress: &'a dyn Progress,
    /// The output tensors of each tensor.
    outputs: Vec<Range<usize>>,
    /// The quantization error of each tensor. For reused tensors, it is known before the run.
    losses: Vec<Loss>,
}

/// Per-thread buffers.
#[derive(Default)]
struct Own {
    source: Vec<u8>,
    target: Vec<u8>,
    scratch: Scratch,
}

/// Consecutive elements of one tensor.
struct Chunk {
    /// The tensor's number.
    tensor: usize,
    elements: Range<u64>,
}

impl<'a> Stream<'a> {
    fn new(
        source: &'a dyn Checkpoint,
        writer: &'a GgufWriter,
        targets: &'a [Target<'a>],
        (importance, on_grid, progress): (&'a TensorImportance<'a>, &'a OnGrid, &'a dyn Progress),
    ) -> Stream<'a> {
        let outputs = targets.iter().scan(0, |next, target| {
            let first = *next;
            *next += target.infos.len();
            Some(first..*next)
        });
        let losses = targets.iter().map(|target| Loss::new(target.source.elements())).collect();
        Stream { source, writer, targets, importance, on_grid, progress, outputs: outputs.collect(), losses }
    }

    /// Reuses the tensors that an earlier run finished.
    fn take_over(&mut self, threads: Option<usize>) -> Result<Resumed> {
        let accept = |measure: &Measure| Loss::of_measure(measure).is_some();
        let (taken, resumed) = take_over(self.writer, &self.outputs, accept, (threads, self.source.path()))?;
        for ((target, loss), measure) in self.targets.iter().zip(&mut self.losses).zip(taken) {
            if let Some(known) = measure.as_ref().and_then(Loss::of_measure) {
                *loss = known;
                self.progress.reused(target.source.bytes);
            }
        }
        Ok(resumed)
    }

    /// Converts all chunks of the tensors that are not reused.
    fn run(&self, threads: Option<usize>) -> Result<()> {
        let missing = self.targets.iter().zip(&self.losses).enumerate();
        // Evaluated before the first chunk of a tensor is listed.
        let missing = missing.filter(|(_, (_, loss))| loss.deviation().is_none());
        let chunks = missing.flat_map(|(tensor, (target, _))| {
            let is_weighted = self.importance.of(tensor).is_some();
            target.chunks(is_weighted).map(move |elements| Chunk { tensor, elements })
        });
        walk_with(chunks, threads, self.source.path(), |own, chunk| self.one(own, chunk), |_, ()| ())
    }

    fn one(&self, own: &mut Own, chunk: &Chunk) -> Result<()> {
        let target = &self.targets[chunk.tensor];
        let (from, to) = (target.source.dtype, target.choice.dtype);
        let (first, elements) = (chunk.elements.start, chunk.elements.end - chunk.elements.start);
        let bytes = first_bytes(&mut own.source, bytes_of(elements, from));
        self.source.read(chunk.tensor, bytes_of(first, from), bytes)?;
        self.progress.advance(bytes.len() as u64);
        let mut loss = DeviationSums::default();
        let blocks = first_bytes(&mut own.target, bytes_of(elements, to));
        let transcoder = target.transcoder();
        let done = match self.importance.of(chunk.tensor) {
            _ if self.on_grid.is_exact(chunk.tensor) => {
                transcoder.transcode_exact(bytes, blocks, &mut own.scratch, &mut loss)
            }
            Some(importance) => {
                let rows = WeightedRows::new(target.source, &chunk.elements, importance);
                transcoder.transcode_weighted(bytes, blocks, &mut own.scratch, &rows, &mut loss)
            }
            None => transcoder.transcode(bytes, blocks, &mut own.scratch, Some(&mut loss)),
        };
        done.map_err(|unfit| {
            let element = first + unfit.place;
            unfit.in_tensor(self.source.path(), target.source, element)
        })?;
        let outputs = &self.outputs[chunk.tensor];
        match target.split {
            None => self.writer.write(outputs.start, bytes_of(first, to), blocks)?,
            Some(split) => self.write_planes(split, chunk, blocks)?,
        }
        match self.losses[chunk.tensor].add(first, elements, loss) {
            Some(deviation) => self.writer.finished(outputs.clone(), Loss::measure(&deviation)),
            None => Ok(()),
        }
    }

    fn write_planes(&self, split: SplitScale, chunk: &Chunk, blocks: &[u8]) -> Result<()> {
        let output = self.outputs[chunk.tensor].start;
        let count = blocks.len() / split.dtype().block_bytes();
        let first = chunk.elements.start / split.dtype().block_len() as u64;
        let mut values = vec![0; count * split.value_bytes()];
        let mut scales = vec![0; count * SplitScale::SCALE_BYTES];
        split.split(blocks, &mut values, &mut scales);
        self.writer.write(output, first * split.value_bytes() as u64, &values)?;
        self.writer.write(output + 1, first * SplitScale::SCALE_BYTES as u64, &scales)
    }
}
