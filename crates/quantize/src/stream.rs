//! The stream of a file through the block codecs: chunks of whole rows, on all cores, in bounded memory.
//!
//! ```text
//! tensor  |  chunk 0  |  chunk 1  |  chunk 2 |     each: read -> f32 -> blocks -> measure -> written at its place
//! ```
//!
//! Every thread holds one chunk. Where a chunk begins depends on the tensor alone, and the measures are added up in the order
//! of chunks, so neither bytes nor report depend on the number of threads.

use crate::file_type::file_type;
use crate::progress::Progress;
use crate::recipe::{Choice, Recipe};
use crate::report::{Report, TensorReport};
use rayon::prelude::*;
use std::path::Path;
use trueup_blocks::{Codec, DType, DeviationSums, SplitScale, first_not_finite};
use trueup_formats::gguf::{GgufPlan, GgufWriter, Metadata};
use trueup_formats::{Checkpoint, Description, Error, Result, TensorInfo};
use trueup_formats::{LAYOUT_KEY, LAYOUT_SPLIT_SCALE, split_scale_tensors};

/// Elements of a chunk, about; rounded to whole rows, or to whole blocks of one very long row.
const CHUNK_ELEMENTS: u64 = 1 << 20;

/// How blocks are laid out in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Blocks as GGUF programs read them.
    Block,
    /// Values and scales as two tensors (types that have this layout; others stay in blocks).
    Split,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which tensor becomes what.
    pub recipe: Recipe,
    /// How blocks are laid out.
    pub layout: Layout,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
    /// Plan and report, write nothing.
    pub dry_run: bool,
}

/// Writes `source`, a GGUF file, to `output` with other types. Returns what became of each tensor.
///
/// # Errors
/// A rule that matches nothing, a type this build cannot decode, a weight that is not finite, and I/O; nothing is then left under
/// the name of the output.
pub fn quantize(source: &dyn Checkpoint, output: &Path, options: &Options, progress: &dyn Progress) -> Result<Report> {
    let Description::Gguf(metadata) = source.description() else {
        return Err(Error::new(source.path(), format!("is {}, not GGUF", source.format())).help("convert it first"));
    };
    let tensors = source.tensors();
    let choices = options
        .recipe
        .choose(tensors)
        .map_err(|fault| Error::new(source.path(), fault.0).help("nothing was written"))?;
    let targets: Vec<Target> =
        tensors.iter().zip(&choices).map(|(tensor, choice)| Target::new(tensor, choice, options)).collect();
    refuse_unreadable(source, &targets)?;
    let mut report = report_of(&targets, options);
    if options.dry_run {
        return Ok(report);
    }
    let metadata = describe(metadata, &report, options);
    let infos: Vec<TensorInfo> = targets.iter().flat_map(|target| target.infos.iter().cloned()).collect();
    let writer = GgufWriter::create(GgufPlan::new(output, &metadata, &infos, None)?, &source.sources())?;
    progress.start(tensors.iter().map(|tensor| tensor.bytes).sum());
    let stream = Stream { source, writer: &writer, targets: &targets, progress };
    for (line, sums) in report.tensors.iter_mut().zip(stream.run(options.threads)?) {
        let deviation = sums.deviation();
        line.rmse = Some(deviation.rmse);
        line.cosine = Some(deviation.cosine);
        line.max_error = Some(deviation.max_abs);
    }
    source.unchanged()?;
    writer.finish()?;
    Ok(report)
}

/// One tensor on its way.
struct Target<'a> {
    source: &'a TensorInfo,
    choice: &'a Choice,
    /// How the new type is split, when it is.
    split: Option<SplitScale>,
    /// What the file will hold: the tensor, or its values and scales.
    infos: Vec<TensorInfo>,
}

impl<'a> Target<'a> {
    fn new(source: &'a TensorInfo, choice: &'a Choice, options: &Options) -> Target<'a> {
        let split = SplitScale::of(choice.dtype).filter(|_| options.layout == Layout::Split);
        let infos = match split {
            Some(split) => split_scale_tensors(&source.name, &source.shape, split),
            None => {
                vec![TensorInfo { dtype: choice.dtype, bytes: bytes_of(&source.shape, choice.dtype), ..source.clone() }]
            }
        };
        Target { source, choice, split, infos }
    }

    /// Whether bytes are copied as they are.
    fn is_copy(&self) -> bool {
        self.source.dtype == self.choice.dtype
    }

    /// First element and number of elements of each chunk.
    fn chunks(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let total: u64 = self.source.shape.iter().product();
        let row = self.source.shape[0].max(1);
        // A multiple of every block length here, for rows longer than a chunk.
        let step = if row > CHUNK_ELEMENTS { CHUNK_ELEMENTS } else { CHUNK_ELEMENTS / row * row };
        (0..total.div_ceil(step)).map(move |chunk| (chunk * step, step.min(total - chunk * step)))
    }
}

/// Bytes of a tensor whose rows the blocks divide, as the recipe has made sure.
fn bytes_of(shape: &[u64], dtype: DType) -> u64 {
    dtype.row_bytes(shape[0]).unwrap_or(0) * shape[1..].iter().product::<u64>()
}

/// A tensor that must be decoded but cannot be is refused before anything is written; all are listed.
fn refuse_unreadable(source: &dyn Checkpoint, targets: &[Target]) -> Result<()> {
    let unreadable = targets.iter().filter(|target| !target.is_copy() && target.source.dtype.codec().is_none());
    let names: Vec<String> =
        unreadable.map(|target| format!("{} ({})", target.source.name, target.source.dtype)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let problem = format!("these tensors have types that cannot be decoded here: {}", names.join(", "));
    Err(Error::new(source.path(), problem).help("start from the f16, bf16 or f32 file of the model"))
}

/// The report as far as it is known before the work.
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
        notes.push("q8_1 is read by trueup only: other GGUF programs do not load tensors of this type".to_owned());
    }
    let again = |target: &&Target| target.source.dtype.is_quantized() && !target.is_copy();
    let again = targets.iter().filter(again).count();
    if again > 0 {
        notes.push(format!("{again} tensors were quantized already and lose twice; start from the unquantized file"));
    }
    if options.layout == Layout::Split {
        notes.push(
            "the split-scale layout is read by trueup only; quantize it with --layout block to get blocks back"
                .to_owned(),
        );
    }
    let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    Report { tensors, source_bytes: targets.iter().map(|target| target.source.bytes).sum(), bytes, notes }
}

/// The source's metadata with what is new about the file.
fn describe(metadata: &Metadata, report: &Report, options: &Options) -> Metadata {
    let mut metadata = metadata.clone();
    metadata.remove(LAYOUT_KEY);
    if let Some(dtype) = options.recipe.dtype() {
        metadata.remove("general.file_type");
        if let Some(number) = file_type(dtype) {
            metadata.insert("general.file_type", number);
        }
    }
    let is_quantized = |line: &TensorReport| DType::from_name(line.dtype).is_some_and(DType::is_quantized);
    if report.tensors.iter().any(is_quantized) {
        metadata.insert("general.quantization_version", 2u32);
    }
    if options.layout == Layout::Split {
        metadata.insert(LAYOUT_KEY, LAYOUT_SPLIT_SCALE);
    }
    metadata
}

/// The work on all chunks of all tensors.
struct Stream<'a> {
    source: &'a dyn Checkpoint,
    writer: &'a GgufWriter,
    targets: &'a [Target<'a>],
    progress: &'a dyn Progress,
}

/// One chunk: which tensor, the number of its first output tensor, first element, elements.
struct Chunk {
    tensor: usize,
    output: usize,
    first: u64,
    elements: u64,
}

impl Stream<'_> {
    /// Does all chunks and returns what each tensor lost.
    fn run(&self, threads: Option<usize>) -> Result<Vec<DeviationSums>> {
        let mut chunks = Vec::new();
        let mut output = 0;
        for (tensor, target) in self.targets.iter().enumerate() {
            chunks.extend(target.chunks().map(|(first, elements)| Chunk { tensor, output, first, elements }));
            output += target.infos.len();
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
        let pool =
            pool.map_err(|error| Error::new(self.source.path(), format!("no threads could be started: {error}")))?;
        // One chunk at a time and thread: rayon would otherwise hand out long runs of neighbours.
        let losses: Vec<DeviationSums> =
            pool.install(|| chunks.par_iter().with_max_len(1).map(|chunk| self.one(chunk)).collect::<Result<_>>())?;
        let mut sums = vec![DeviationSums::default(); self.targets.len()];
        for (chunk, loss) in chunks.iter().zip(&losses) {
            sums[chunk.tensor].merge(loss);
        }
        Ok(sums)
    }

    fn one(&self, chunk: &Chunk) -> Result<DeviationSums> {
        let target = &self.targets[chunk.tensor];
        let mut bytes = vec![0; bytes_of(&[chunk.elements], target.source.dtype) as usize];
        self.source.read(chunk.tensor, bytes_of(&[chunk.first], target.source.dtype), &mut bytes)?;
        self.progress.advance(bytes.len() as u64);
        let (blocks, loss) =
            if target.is_copy() { (bytes, DeviationSums::default()) } else { self.encode(target, chunk, &bytes)? };
        match target.split {
            None => self.writer.write(chunk.output, bytes_of(&[chunk.first], target.choice.dtype), &blocks)?,
            Some(split) => self.write_planes(split, chunk, &blocks)?,
        }
        Ok(loss)
    }

    /// New blocks and what they lost.
    fn encode(&self, target: &Target, chunk: &Chunk, bytes: &[u8]) -> Result<(Vec<u8>, DeviationSums)> {
        let elements = chunk.elements as usize;
        let mut weights = vec![0f32; elements];
        (codec_of(target.source.dtype).decode)(bytes, &mut weights);
        if let Some(place) = first_not_finite(&weights) {
            let problem = format!("element {} is {}, not a finite number", chunk.first + place as u64, weights[place]);
            let error = Error::new(self.source.path(), problem).at(format!("tensor {}", target.source.name));
            return Err(error.help("the model is damaged: convert it again from its source"));
        }
        let codec = codec_of(target.choice.dtype);
        let mut blocks = vec![0; bytes_of(&[chunk.elements], target.choice.dtype) as usize];
        (codec.encode)(&weights, &mut blocks);
        let mut decoded = vec![0f32; elements];
        (codec.decode)(&blocks, &mut decoded);
        let mut loss = DeviationSums::default();
        loss.add(&weights, &decoded);
        if loss.deviation().not_finite > 0 {
            let problem = format!("a weight is too large for {}", target.choice.dtype);
            let error = Error::new(self.source.path(), problem).at(format!("tensor {}", target.source.name));
            return Err(error.help("keep it in bf16 or f32 with --rule"));
        }
        Ok((blocks, loss))
    }

    fn write_planes(&self, split: SplitScale, chunk: &Chunk, blocks: &[u8]) -> Result<()> {
        let count = blocks.len() / split.dtype().block_bytes();
        let first = chunk.first / split.dtype().block_len() as u64;
        let mut values = vec![0; count * split.value_bytes()];
        let mut scales = vec![0; count * SplitScale::SCALE_BYTES];
        split.split(blocks, &mut values, &mut scales);
        self.writer.write(chunk.output, first * split.value_bytes() as u64, &values)?;
        self.writer.write(chunk.output + 1, first * SplitScale::SCALE_BYTES as u64, &scales)
    }
}

/// The codec of a type that was checked to have one.
fn codec_of(dtype: DType) -> &'static Codec {
    dtype.codec().unwrap_or_else(|| unreachable!("{dtype} was refused before"))
}
