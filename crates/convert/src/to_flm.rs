//! Converts a checkpoint of any format to FastLLM's `.flm`.
//!
//! ```text
//! Hugging Face, llama2.c, .flm ─ names stay ──────────────────────────────┐
//! GGUF ─ names of the class, rows in their order before conversion ───────┴─ f32, f16, bf16, 8 or 4 bits ─▶ FlmWriter
//! ```
//!
//! Tensors keep the form of the checkpoint: those of a GGUF file that one tensor was split into are joined again.
//! FastLLM computes with f32, f16 and per-row codes, and reads embeddings as f32 or bf16; all other values stay
//! unchanged.

use crate::chunk::row_elements;
use crate::describe::vocabulary_of;
use crate::flm_table;
use crate::mapping::Mapping;
use crate::overrides::Override;
use crate::permute::restore_rope_rows;
use crate::unit_rows::divide_rows;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use trueup_blocks::{DType, DeviationSums, first_not_finite};
use trueup_formats::flm::{FlmTensor, FlmType, FlmVocabulary, FlmWriter};
use trueup_formats::gguf::Split;
use trueup_formats::{Checkpoint, Description, Error, Result, element_indices, quote, significant};
use trueup_models::{
    ExpectedTensor, Model, ModelSpec, OUTPUT, Piece as RowPiece, SourceNames, SourceTensor, TOKEN_EMBEDDING, Transform,
    ValueChange, expected_tensors,
};
use trueup_quantize::{
    CHUNK_ELEMENTS, Layout, Progress, Report, Scratch, TensorReport, Transcoder, bytes_of, decode_exact, first_bytes,
    walk_with,
};
use trueup_tokenizer::Vocabulary;

/// What to do.
#[derive(Clone, Default, Debug)]
pub struct FlmOptions {
    /// Bits of matrices: 16, 8 or 4; `None` keeps values as they are.
    pub bits: Option<u32>,
    /// Keys to set, such as `pre_prompt`, `user_role`, `bot_role`, `history_sep`.
    pub overrides: Vec<Override>,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
    /// Plan and report, write nothing.
    pub dry_run: bool,
}

impl FlmOptions {
    /// What a conversion to a GGUF file would do, for the `.flm` file at `output`; `check` says whether it was to be
    /// compared with its source.
    ///
    /// # Errors
    /// What the format does not know: types other than f16, several files, fewer tokens; and what is done for GGUF
    /// files alone.
    pub fn of_conversion(output: &Path, options: crate::Options, check: bool) -> Result<FlmOptions> {
        let crate::Options { recipe, split, slim, overrides, threads, dry_run, resume } = options;
        let fault = |problem: &str, hint: &str| Err(Error::new(output, problem).help(hint));
        let bits = match recipe.scheme() {
            None => None,
            Some(scheme) if scheme.base() == DType::F16 => Some(16),
            Some(scheme) => {
                return fault(
                    &format!("--type: expected auto or f16 for .flm output, found {scheme}"),
                    "use `trueup quantize -b 8` or `-b 4` for a quantized .flm file",
                );
            }
        };
        let refused = [
            ("--check", check, "remove it; `trueup diff` compares a .flm file with its source"),
            ("--resume", resume, "remove it"),
            ("--split", matches!(split, Split::Layers), "remove it"),
            ("--split-max-size", matches!(split, Split::Bytes(_)), "remove it"),
        ];
        if let Some(flag) = recipe.selection_flag() {
            return fault(&format!("{flag}: not supported for .flm output"), "remove it");
        }
        if let Some((flag, _, help)) = refused.into_iter().find(|(_, is_given, _)| *is_given) {
            return fault(&format!("{flag}: not supported for .flm output"), help);
        }
        if slim.is_some() {
            return fault(
                "--prune-vocab: expected GGUF output, found .flm output",
                "convert to GGUF with it first, then convert the GGUF \
                file to .flm",
            );
        }
        Ok(FlmOptions { bits, overrides, threads, dry_run })
    }

    /// The same for a quantization, to so many bits.
    ///
    /// # Errors
    /// No bits, and what the format does not know: types, rules, layouts.
    pub fn of_quantization(output: &Path, bits: Option<u32>, options: &trueup_quantize::Options) -> Result<FlmOptions> {
        let trueup_quantize::Options { recipe, layout, threads, dry_run, resume } = options;
        let layout = (*layout != Layout::Block).then_some("--layout");
        let given = recipe.selection_flag().or(layout).or(resume.then_some("--resume"));
        match (bits, given) {
            (Some(16 | 8 | 4), None) => {
                Ok(FlmOptions { bits, overrides: Vec::new(), threads: *threads, dry_run: *dry_run })
            }
            (Some(16 | 8 | 4), Some(flag)) => {
                Err(Error::new(output, format!("{flag}: not supported for .flm output")).help("remove it"))
            }
            _ => Err(Error::new(output, "all matrices of a .flm file have 16, 8 or 4 bits")
                .help("use -b 16, 8 or 4 instead of a type")),
        }
    }
}

/// One tensor of the source, and where it goes.
struct Outgoing {
    shape: Vec<u64>,
    /// Its number in the source.
    source: usize,
    from: DType,
    /// How its rows stand in the checkpoint, where the source has another order.
    order: Option<Transform>,
    /// Whether rows are divided by their lengths.
    unit_rows: bool,
    /// The tensor of the file that has its rows.
    target: usize,
    /// The first of them there.
    first_row: u64,
    /// How they are written.
    dtype: FlmType,
}

/// The file to be written.
struct Plan {
    tensors: Vec<FlmTensor>,
    outgoing: Vec<Outgoing>,
    vocabulary: FlmVocabulary,
    /// What a person should know.
    notes: Vec<String>,
}

/// Whole rows of one tensor of the source.
struct Piece {
    outgoing: usize,
    rows: Range<u64>,
}

/// Writes a model as `.flm` to `output`, and says what each tensor lost.
///
/// # Errors
/// A model that the format cannot describe, a tokenizer that cannot be read, weights that are not finite or do not fit
/// their type, and I/O; nothing is then left under the name of the output.
pub fn to_flm(source: &dyn Checkpoint, output: &Path, options: &FlmOptions, progress: &dyn Progress) -> Result<Report> {
    let Plan { tensors, outgoing, mut vocabulary, mut notes } = plan(source, options)?;
    flm_table::set_keys(&mut vocabulary, &options.overrides, source.path(), &mut notes)?;
    vocabulary.table.sort();
    let shapes = tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect();
    flm_table::check(&vocabulary, &shapes, &options.overrides, source.path())?;
    let mut sums = vec![DeviationSums::default(); tensors.len()];
    if !options.dry_run {
        let writer = FlmWriter::create(output, &vocabulary, &tensors, &source.sources())?;
        progress.start(outgoing.iter().map(source_bytes).sum());
        let pieces = outgoing.iter().enumerate().flat_map(|(number, outgoing)| pieces(number, outgoing));
        let work = |own: &mut Own, piece: &Piece| {
            let outgoing = &outgoing[piece.outgoing];
            let sums = own.one(source, outgoing, &writer, piece)?;
            progress.advance(bytes_of((piece.rows.end - piece.rows.start) * row(outgoing), outgoing.from));
            Ok(sums)
        };
        let add = |piece: &Piece, found: DeviationSums| sums[outgoing[piece.outgoing].target].merge(&found);
        walk_with(pieces, options.threads, source.path(), work, add)?;
        source.unchanged()?;
        writer.finish()?;
    }
    let source_bytes = outgoing.iter().map(source_bytes).sum();
    let from = |target: usize| outgoing.iter().find(|outgoing| outgoing.target == target).map(|outgoing| outgoing.from);
    let lines = tensors.iter().zip(&sums).enumerate().map(|(number, (tensor, sums))| {
        line(tensor, from(number).unwrap_or(DType::F32), (!options.dry_run).then_some(sums))
    });
    let tensors: Vec<TensorReport> = lines.collect();
    let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    let notes = source.notes().iter().cloned().chain(notes).collect();
    Ok(Report { tensors, source_bytes, bytes, notes, resumed: None })
}

/// What a source says of the model and its tokens.
struct Described {
    spec: ModelSpec,
    expected: Vec<ExpectedTensor>,
    vocabulary: FlmVocabulary,
    notes: Vec<String>,
}

fn described(source: &dyn Checkpoint) -> Result<Described> {
    match source.description() {
        Description::Json(config) => {
            let mapping = Mapping::new(source)?;
            let (architecture, spec) = (mapping.architecture(), mapping.spec());
            let Some(name) = architecture.flm_name else {
                let class = architecture.classes.first().copied().unwrap_or_default();
                let problem = format!("the FastLLM format does not support {class}");
                return Err(Error::new(source.path(), problem).help("convert the model to GGUF instead"));
            };
            let table = flm_table::table(config, spec, name);
            let files = source.tokenizer();
            let (vocabulary, mut notes) = match &files.flm {
                Some(own) => (own.clone(), Vec::new()),
                None if files.is_left_out => (no_vocabulary(table), Vec::new()),
                None => vocabulary_of(source, &mapping)?.to_flm(&table)?,
            };
            notes.extend(flm_table::notes(spec));
            let expected = mapping.tensors().iter().map(|tensor| tensor.expected.clone()).collect();
            Ok(Described { spec: spec.clone(), expected, vocabulary, notes })
        }
        Description::Gguf(metadata) => {
            let model = Model::from_gguf(metadata, source.tensors(), source.path())?;
            let (architecture, spec) = (model.architecture(), model.spec());
            let config = spec.to_config().ok_or_else(|| {
                Error::new(
                    source.path(),
                    "the rotation is scaled by stored factors, but a GGUF file does not contain the parameters \
                     that they were computed from",
                )
                .help("convert the original checkpoint")
            })?;
            let table = flm_table::table(&config, spec, architecture.flm_name.unwrap_or(architecture.gguf_name));
            let (vocabulary, mut notes) = match Vocabulary::is_in(metadata) {
                true => Vocabulary::from_metadata(metadata, source.path())?.to_flm(&table)?,
                false => (no_vocabulary(table), Vec::new()),
            };
            notes.extend(flm_table::notes(spec));
            let expected = expected_tensors(spec, &SourceNames::of_tables(architecture));
            Ok(Described { spec: spec.clone(), expected, vocabulary, notes })
        }
    }
}

/// All tensors with their types, and the table with the vocabulary.
fn plan(source: &dyn Checkpoint, options: &FlmOptions) -> Result<Plan> {
    let Described { spec, expected, vocabulary, notes } = described(source)?;
    let is_gguf = matches!(source.description(), Description::Gguf(_));
    let names = match is_gguf {
        true => SourceNames::of_tables(spec.architecture()),
        false => SourceNames::new(spec.architecture(), source.tensors().iter().map(|tensor| tensor.name.as_str())),
    };
    let mut plan = Plan { tensors: Vec::new(), outgoing: Vec::new(), vocabulary, notes };
    let mut known = HashSet::new();
    for expected in &expected {
        for theirs in &expected.sources {
            let name = names.in_tables(&theirs.name);
            if is_gguf {
                let place = place_in(&expected.transform, source)?;
                plan.add(source, &expected.name, (&name, theirs), expected, place, options.bits)?;
            } else if known.insert(theirs.name.as_str()) {
                let whole = ExpectedTensor { shape: theirs.shape.clone(), ..expected.clone() };
                plan.add(source, &theirs.name, (&name, theirs), &whole, (None, 0), options.bits)?;
            }
        }
    }
    if spec.has_head_of_embedding()
        && let Some(embedding) = expected.iter().find(|tensor| tensor.name == TOKEN_EMBEDDING)
        && let Some(theirs) = embedding.sources.first()
    {
        // FastLLM looks for a head of its own, as its exporter writes one for every model.
        let name = if is_gguf { &embedding.name } else { &theirs.name };
        let head = expected.iter().find(|tensor| tensor.name == OUTPUT).unwrap_or(embedding);
        let head = ExpectedTensor { name: OUTPUT.to_owned(), ..head.clone() };
        plan.add(source, name, ("lm_head.weight", theirs), &head, (None, 0), options.bits)?;
    }
    Ok(plan)
}

impl Plan {
    /// Adds the tensor that the source has as `name`: all of a tensor of the file, or some of its rows from `place` on,
    /// with the order of rows there if it is another.
    fn add(
        &mut self,
        source: &dyn Checkpoint,
        name: &str,
        (whole, theirs): (&str, &SourceTensor),
        expected: &ExpectedTensor,
        place: (Option<Transform>, u64),
        bits: Option<u32>,
    ) -> Result<()> {
        let number = source
            .find(name)
            .ok_or_else(|| Error::new(source.path(), "is missing").at(format!("tensor {}", quote(name))))?;
        let from = source.tensors()[number].dtype;
        let dtype = type_of(expected, from, bits);
        let (order, first_row) = place;
        let target = self.tensors.iter().position(|tensor| tensor.name == whole).unwrap_or_else(|| {
            self.tensors.push(FlmTensor { name: whole.to_owned(), shape: theirs.shape.clone(), dtype });
            self.tensors.len() - 1
        });
        let shape = expected.shape.clone();
        let elements = first_row * row_elements(&shape);
        if self.tensors[target].dtype != dtype || dtype == FlmType::Int4 && !elements.is_multiple_of(2) {
            let problem = "differs in type or size from the tensors that it is joined with";
            return Err(Error::new(source.path(), problem).at(format!("tensor {}", quote(name))));
        }
        let unit_rows = expected.transform.values == ValueChange::NormalizeRows;
        self.outgoing.push(Outgoing { shape, source: number, from, order, unit_rows, target, first_row, dtype });
        Ok(())
    }
}

/// How a tensor's numbers are written.
fn type_of(expected: &ExpectedTensor, from: DType, bits: Option<u32>) -> FlmType {
    let is_matrix = expected.shape.len() > 1;
    let is_embedding = expected.name == TOKEN_EMBEDDING;
    match (bits, is_embedding) {
        _ if !is_matrix => FlmType::F32,
        (Some(_), true) => FlmType::Bf16,
        (Some(16), _) => FlmType::F16,
        (Some(8), _) => FlmType::Int8,
        (Some(_), _) => FlmType::Int4,
        (None, true) if from == DType::Bf16 => FlmType::Bf16,
        (None, false) if from == DType::F16 => FlmType::F16,
        (None, _) => FlmType::F32,
    }
}

/// Where the rows of a GGUF tensor are in the tensor of the checkpoint: their order there, if it is another, and the
/// first row.
fn place_in(transform: &Transform, source: &dyn Checkpoint) -> Result<(Option<Transform>, u64)> {
    if let [RowPiece { source: 0, groups: 1, offset, rows, .. }] = transform.pieces[..] {
        let own = Transform { pieces: vec![RowPiece::whole(0, rows)], ..transform.clone() };
        return Ok((transform.interleaved_heads.map(|_| own), offset));
    }
    let Some(pieces) = transform.inverse().filter(|pieces| !pieces.is_empty()) else {
        let problem = "the heads of queries and keys cannot be split into groups of equal size, which the format \
                       cannot describe for this model";
        return Err(Error::new(source.path(), problem));
    };
    Ok((Some(Transform { pieces, ..transform.clone() }), 0))
}

impl Outgoing {
    /// Rows of a head whose rows are interleaved in the source.
    fn interleaved_heads(&self) -> Option<usize> {
        self.order.as_ref().and_then(|order| order.interleaved_heads)
    }

    /// The rows of the source that a piece is made of, in their order.
    fn runs(&self, piece: &Piece) -> Vec<Range<u64>> {
        match &self.order {
            Some(order) if order.gathers() => {
                order.source_rows(piece.rows.clone()).into_iter().map(|(_, run)| run).collect()
            }
            _ => vec![piece.rows.clone()],
        }
    }

    /// What is wrong with the element at a place of a piece.
    fn unfit(&self, source: &dyn Checkpoint, piece: &Piece, place: u64, problem: &str) -> Error {
        let tensor = &source.tensors()[self.source];
        let element = element_indices(self.source_element(piece, place), &tensor.shape);
        Error::new(source.path(), format!("element {element:?} {problem}"))
            .at(format!("tensor {}", quote(&tensor.name)))
    }

    /// The element of the source that stands at a place of a piece.
    fn source_element(&self, piece: &Piece, place: u64) -> u64 {
        let row = row(self).max(1);
        let at = self.runs(piece).into_iter().flatten().nth((place / row) as usize);
        at.map_or(place, |source_row| source_row * row + place % row)
    }
}

/// Of a model that takes token ids alone.
fn no_vocabulary(table: Vec<(String, String)>) -> FlmVocabulary {
    FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table }
}

fn row(outgoing: &Outgoing) -> u64 {
    row_elements(&outgoing.shape)
}

fn source_bytes(outgoing: &Outgoing) -> u64 {
    bytes_of(outgoing.shape.iter().product(), outgoing.from)
}

/// Pieces of whole heads, or of pairs of rows, so that codes of 4 bits begin at whole bytes.
fn pieces(number: usize, outgoing: &Outgoing) -> impl Iterator<Item = Piece> {
    let row = row(outgoing);
    let rows: u64 = outgoing.shape.iter().product::<u64>() / row.max(1);
    // An even number, whatever a head has.
    let unit = 2 * outgoing.interleaved_heads().unwrap_or(1) as u64;
    let step = (CHUNK_ELEMENTS / row.max(1) / unit).max(1) * unit;
    (0..rows.div_ceil(step)).map(move |at| Piece { outgoing: number, rows: at * step..rows.min((at + 1) * step) })
}

/// What each thread has of its own.
#[derive(Default)]
struct Own {
    source: Vec<u8>,
    wide: Vec<u8>,
    scratch: Scratch,
}

impl Own {
    /// The numbers of a piece, in the order of the source. Fails where one is not finite, or where codes are to hold a
    /// row that none can.
    fn values(&mut self, source: &dyn Checkpoint, outgoing: &Outgoing, piece: &Piece) -> Result<Vec<f32>> {
        let row = row(outgoing);
        let elements = (piece.rows.end - piece.rows.start) * row;
        let bytes = first_bytes(&mut self.source, bytes_of(elements, outgoing.from));
        let mut rest = &mut *bytes;
        for run in outgoing.runs(piece) {
            let (target, after) = rest.split_at_mut(bytes_of((run.end - run.start) * row, outgoing.from) as usize);
            source.read(outgoing.source, bytes_of(run.start * row, outgoing.from), target)?;
            rest = after;
        }
        let wide = first_bytes(&mut self.wide, bytes_of(elements, DType::F32));
        Transcoder::new(outgoing.from, DType::F32).transcode_unchecked(bytes, wide, &mut self.scratch);
        let values: Vec<f32> = wide.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if let Some(place) = first_not_finite(&values) {
            let problem = format!("is {}, expected a finite number", significant(f64::from(values[place]), 7));
            return Err(outgoing.unfit(source, piece, place as u64, &problem));
        }
        let has_codes = matches!(outgoing.dtype, FlmType::Int8 | FlmType::Int4);
        if let Some(far) = values.chunks(row as usize).position(|row| has_codes && !spans_finitely(row)) {
            let problem = "starts a row whose range of values exceeds f32, so it cannot be quantized";
            let error = outgoing.unfit(source, piece, far as u64 * row, problem);
            return Err(error.help("convert without -b to keep f32 values"));
        }
        Ok(values)
    }

    fn one(
        &mut self,
        source: &dyn Checkpoint,
        outgoing: &Outgoing,
        writer: &FlmWriter,
        piece: &Piece,
    ) -> Result<DeviationSums> {
        let (row, first) = (row(outgoing), outgoing.first_row + piece.rows.start);
        let start = first * row;
        let mut values = self.values(source, outgoing, piece)?;
        let sorted = outgoing.interleaved_heads().map(|head_rows| {
            let sorted = values.clone();
            restore_rope_rows(&sorted, &mut values, head_rows, row as usize);
            sorted
        });
        if outgoing.unit_rows {
            divide_rows(&mut values, row as usize);
        }
        let mut written = values.clone();
        let number = outgoing.target;
        match outgoing.dtype {
            FlmType::Int8 | FlmType::Int4 => writer.write_rows(number, first, &mut written)?,
            FlmType::F32 => writer.write(number, start * 4, &bytes_of_values(&values))?,
            FlmType::F16 => {
                let mut halves = vec![0; values.len() * 2];
                Transcoder::new(DType::F32, DType::F16).transcode_unchecked(
                    &bytes_of_values(&values),
                    &mut halves,
                    &mut self.scratch,
                );
                let kept = decode_exact(DType::F16, &halves);
                written.iter_mut().zip(&kept).for_each(|(value, kept)| *value = *kept as f32);
                if let Some(place) = first_not_finite(&written) {
                    // Where it stands in the source, whose rows may be in another order.
                    let value = values[place];
                    let stands = sorted.as_ref().and_then(|sorted| sorted.iter().position(|other| *other == value));
                    let problem = format!("is {value}, which f16 cannot hold");
                    return Err(outgoing.unfit(source, piece, stands.unwrap_or(place) as u64, &problem));
                }
                writer.write(number, start * 2, &halves)?;
            }
            FlmType::Bf16 => {
                // FastLLM cuts embeddings off instead of rounding them.
                written.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits() & 0xffff_0000));
                let halves: Vec<u8> =
                    written.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
                writer.write(number, start * 2, &halves)?;
            }
        }
        let mut sums = DeviationSums::default();
        sums.add(&values, &written);
        Ok(sums)
    }
}

/// Whether the distance from the least to the largest value of a row, or from zero, is a finite number.
fn spans_finitely(row: &[f32]) -> bool {
    let (low, high) = row.iter().fold((0.0_f32, 0.0_f32), |(low, high), value| (low.min(*value), high.max(*value)));
    (high - low).is_finite()
}

fn bytes_of_values(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn line(tensor: &FlmTensor, from: DType, sums: Option<&DeviationSums>) -> TensorReport {
    let deviation = sums.map(DeviationSums::deviation);
    let bytes = tensor.bytes().unwrap_or(u64::MAX);
    let elements: u64 = tensor.shape.iter().product();
    TensorReport {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        source_type: from.name(),
        dtype: tensor.dtype.name(),
        bits_per_weight: 8.0 * bytes as f64 / elements.max(1) as f64,
        bytes,
        rmse: deviation.map(|deviation| deviation.rmse),
        cosine: deviation.map(|deviation| deviation.cosine),
        max_error: deviation.map(|deviation| deviation.max_abs),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_formats::TokenizerFiles;
    use trueup_tokenizer::ModelTokens;

    /// By the format: FastLLM merges, and normalizes by no map.
    #[test]
    fn vocabularies_that_a_flm_cannot_keep() {
        let notes = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
            let files = TokenizerFiles { tokenizer_model: std::fs::read(&path).ok(), ..TokenizerFiles::default() };
            Vocabulary::from_files(&files, &ModelTokens::default(), &path).unwrap().to_flm(&[]).map(|(_, notes)| notes)
        };
        let error = notes("tokenizers/unigram/tokenizer.model").unwrap_err().to_string();
        assert!(error.contains("unigram model") && error.contains("convert it to GGUF"), "{error}");
        let notes_of_map = notes("tokenizers/bpe-map/tokenizer.model").unwrap();
        assert!(notes_of_map.iter().any(|note| note.contains("trueup.tokenizer.normalizer")), "{notes_of_map:?}");
        assert!(notes("models/llama-linear/tokenizer.model").unwrap().is_empty());
    }
}
