//! A checkpoint of any format to FastLLM's `.flm`.
//!
//! ```text
//! Hugging Face, llama2.c, .flm ─ names stay ──────────────────────────────┐
//! GGUF ─ names of the class, rows back in the order before conversion ────┴─ f32, f16, bf16, codes of 8 or 4 bits ─▶ FlmWriter
//! ```
//!
//! FastLLM computes with f32, f16 and codes of whole rows, and reads embeddings as f32 or bf16; what is not said otherwise keeps its values.

use crate::chunk::{Order, row_elements};
use crate::describe::vocabulary_of;
use crate::mapping::Mapping;
use crate::overrides::Override;
use crate::permute::restore_rope_rows;
use crate::unit_rows::divide_rows;
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::Path;
use trueup_blocks::{DType, DeviationSums, first_not_finite};
use trueup_formats::flm::{FlmTensor, FlmType, FlmVocabulary, FlmWriter, printed};
use trueup_formats::gguf::Split;
use trueup_formats::{Checkpoint, Description, Error, Result, quote};
use trueup_models::{ExpectedTensor, Model, Role, Transform, expected_tensors};
use trueup_quantize::{
    CHUNK_ELEMENTS, Layout, Progress, Report, Rooms, TensorReport, Transcoder, bytes_of, decode_exact, first_bytes,
    walk_with,
};
use trueup_tokenizer::{Algorithm, Vocabulary};

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
    /// What a conversion to a GGUF file would do, for the `.flm` file at `output`; `check` says whether it was to be compared with its source.
    ///
    /// # Errors
    /// What the format does not know: types other than f16, several files, fewer tokens; and what is done for GGUF files alone.
    pub fn of_conversion(output: &Path, options: crate::Options, check: bool) -> Result<FlmOptions> {
        let crate::Options { recipe, split, slim, overrides, threads, dry_run, resume } = options;
        let fault = |problem: &str, hint: &str| Err(Error::new(output, problem).help(hint));
        let bits = match recipe.dtype() {
            None => None,
            Some(DType::F16) => Some(16),
            Some(_) => {
                return fault(
                    "a .flm file keeps its types or takes f16",
                    "`trueup quantize -b 8` and `-b 4` write codes",
                );
            }
        };
        if check || resume || split != Split::Whole {
            return fault(
                "--check, --resume, --split and --split-max-size are for GGUF files",
                "`trueup diff` compares a .flm file with its source",
            );
        }
        if slim.is_some() {
            return fault("--slim-vocab writes GGUF", "convert to a GGUF file with it first, and that to .flm");
        }
        Ok(FlmOptions { bits, overrides, threads, dry_run })
    }

    /// The same for a quantization, to so many bits.
    ///
    /// # Errors
    /// No bits, and what the format does not know: types, rules, layouts.
    pub fn of_quantization(output: &Path, bits: Option<u32>, options: &trueup_quantize::Options) -> Result<FlmOptions> {
        let trueup_quantize::Options { recipe, layout, threads, dry_run, resume } = options;
        let is_plain = *layout == Layout::Block && !resume && recipe.is_plain();
        match bits {
            Some(16 | 8 | 4) if is_plain => {
                Ok(FlmOptions { bits, overrides: Vec::new(), threads: *threads, dry_run: *dry_run })
            }
            _ => Err(Error::new(output, "a .flm file holds 16, 8 or 4 bits in all matrices")
                .help("give -b, and no types, rules, layouts or --resume")),
        }
    }
}

/// One tensor of the file, and where it comes from.
struct Outgoing {
    tensor: FlmTensor,
    /// Its number in the source.
    source: usize,
    from: DType,
    /// How its rows stand in the checkpoint, where the source has another order.
    order: Option<Order>,
    /// Whether rows are divided by their lengths.
    unit_rows: bool,
}

/// The file to be written.
struct Plan {
    outgoing: Vec<Outgoing>,
    vocabulary: FlmVocabulary,
    /// What a person should know of the vocabulary.
    note: Option<String>,
}

/// Whole rows of one tensor.
struct Piece {
    tensor: usize,
    rows: Range<u64>,
}

/// Writes a model as `.flm` to `output`, and says what each tensor lost.
///
/// # Errors
/// A model that the format cannot describe, a tokenizer that cannot be read, weights that are not finite or do not fit their type, and I/O;
/// nothing is then left under the name of the output.
pub fn to_flm(source: &dyn Checkpoint, output: &Path, options: &FlmOptions, progress: &dyn Progress) -> Result<Report> {
    let Plan { outgoing, mut vocabulary, note } = plan(source, options)?;
    for (key, value) in options.overrides.iter().map(Override::pair) {
        set(&mut vocabulary.table, key, value.to_owned());
    }
    // Adapters stay behind, and with this key FastLLM would look for them.
    vocabulary.table.retain(|(key, _)| key != "peft_size");
    vocabulary.table.sort();
    let tensors: Vec<FlmTensor> = outgoing.iter().map(|outgoing| outgoing.tensor.clone()).collect();
    let mut sums = vec![DeviationSums::default(); tensors.len()];
    if !options.dry_run {
        let writer = FlmWriter::create(output, &vocabulary, &tensors, &source.sources())?;
        progress.start(outgoing.iter().map(source_bytes).sum());
        let pieces = outgoing.iter().enumerate().flat_map(|(number, outgoing)| pieces(number, outgoing));
        let work = |own: &mut Own, piece: &Piece| {
            let sums = own.one(source, &outgoing[piece.tensor], &writer, piece)?;
            progress.advance(bytes_of(
                (piece.rows.end - piece.rows.start) * row(&outgoing[piece.tensor]),
                outgoing[piece.tensor].from,
            ));
            Ok(sums)
        };
        walk_with(pieces, options.threads, source.path(), work, |piece, found| sums[piece.tensor].merge(&found))?;
        source.unchanged()?;
        writer.finish()?;
    }
    let lines = outgoing.iter().zip(&sums).map(|(outgoing, sums)| line(outgoing, (!options.dry_run).then_some(sums)));
    let tensors: Vec<TensorReport> = lines.collect();
    let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    let source_bytes = outgoing.iter().map(source_bytes).sum();
    let notes = source.notes().iter().cloned().chain(note).collect();
    Ok(Report { tensors, source_bytes, bytes, notes, resumed: None })
}

/// What a person should know of a vocabulary as the format keeps it.
///
/// # Errors
/// It is of a unigram model: FastLLM merges pieces by their scores, which gives other ids for almost every text.
fn note_of(vocabulary: &Vocabulary) -> Result<Option<String>> {
    if let Algorithm::Unigram { .. } = vocabulary.algorithm() {
        let problem = "the tokenizer is a unigram model, and FastLLM knows vocabularies that merge only";
        return Err(Error::new(vocabulary.path(), problem).at("vocabulary").help("convert it to GGUF instead"));
    }
    if let Algorithm::DecodeOnly { reason } = vocabulary.algorithm() {
        return Ok(Some(format!(
            "tokens are written as they are known, without an order that cuts text as the model wants it: {reason}"
        )));
    }
    Ok(vocabulary.folds_characters().then(|| {
        "the tokenizer folds characters by a map, which a .flm file cannot keep: full-width, composed and compatible characters of a text \
         become other ids there"
            .to_owned()
    }))
}

/// All tensors with their types, and the table with the vocabulary.
fn plan(source: &dyn Checkpoint, options: &FlmOptions) -> Result<Plan> {
    let mut note = None;
    let mut written = |vocabulary: Vocabulary| -> Result<FlmVocabulary> {
        note = note_of(&vocabulary)?;
        Ok(vocabulary.to_flm())
    };
    let (hyper, expected, config, vocabulary) = match source.description() {
        Description::Json(config) => {
            let mapping = Mapping::new(source)?;
            let architecture = mapping.architecture();
            if architecture.flm_name.is_none() {
                let class = architecture.classes.first().copied().unwrap_or_default();
                let problem = format!("FastLLM does not know tensors by the names of {class}");
                return Err(Error::new(source.path(), problem).help("convert it to GGUF first, and that to .flm"));
            }
            let expected: Vec<ExpectedTensor> =
                mapping.tensors().iter().map(|tensor| tensor.expected.clone()).collect();
            let files = source.tokenizer();
            let vocabulary = match &files.flm {
                Some(own) => own.clone(),
                None if files.is_left_out => no_vocabulary(),
                None => written(vocabulary_of(source, &mapping)?)?,
            };
            (mapping.hyper().clone(), expected, config.clone(), vocabulary)
        }
        Description::Gguf(metadata) => {
            let model = Model::from_gguf(metadata, source.tensors(), source.path())?;
            let config = model.hyper().to_config(model.architecture()).ok_or_else(|| {
                Error::new(
                    source.path(),
                    "the rotation is scaled by stored factors, and what they follow from is not in a GGUF file",
                )
                .help("convert the original checkpoint")
            })?;
            let vocabulary = match Vocabulary::is_in(metadata) {
                true => written(Vocabulary::from_metadata(metadata, source.path())?)?,
                false => no_vocabulary(),
            };
            (model.hyper().clone(), expected_tensors(model.architecture(), model.hyper()), config, vocabulary)
        }
    };
    let is_gguf = matches!(source.description(), Description::Gguf(_));
    let mut outgoing = Vec::new();
    for expected in &expected {
        // What conversion computes is not in a checkpoint.
        let Some(theirs) = expected.theirs.clone() else { continue };
        let order = Order::of(expected.transform, &hyper).filter(|_| is_gguf);
        if order.is_none() && is_gguf && matches!(expected.transform, Transform::KindsApart(_)) {
            let problem = format!("{} heads with the keys of {} are no whole groups", hyper.heads(), hyper.kv_heads());
            return Err(Error::new(source.path(), format!("{problem}, which the format cannot say of this model")));
        }
        let name = if is_gguf { &expected.name } else { &theirs };
        outgoing.push(outgoing_of(source, name, &theirs, expected, order, options)?);
    }
    if hyper.is_tied()
        && let Some(embedding) = expected.iter().find(|tensor| tensor.role == Role::TokenEmbedding)
    {
        // FastLLM looks for a head of its own, as its exporter writes one for every model.
        let theirs = embedding.theirs.clone().unwrap_or_default();
        let name = if is_gguf { &embedding.name } else { &theirs };
        let head = ExpectedTensor { role: Role::Output, ..embedding.clone() };
        outgoing.push(outgoing_of(source, name, "lm_head.weight", &head, None, options)?);
    }
    Ok(Plan { outgoing, vocabulary: described(vocabulary, &config), note })
}

impl Outgoing {
    /// The rows of the source that a piece is made of, in their order.
    fn runs(&self, piece: &Piece) -> Vec<Range<u64>> {
        match &self.order {
            Some(Order::Grouped(apart)) => apart.in_file(piece.rows.clone()),
            // A file of FastLLM has all tokens of its source.
            Some(Order::Halves(_) | Order::Kept(_)) | None => vec![piece.rows.clone()],
        }
    }

    /// The element of the source that stands at a place of a piece.
    fn source_element(&self, piece: &Piece, place: u64) -> u64 {
        let row = row(self).max(1);
        let at = self.runs(piece).into_iter().flatten().nth((place / row) as usize);
        at.map_or(place, |source_row| source_row * row + place % row)
    }
}

fn outgoing_of(
    source: &dyn Checkpoint,
    name: &str,
    theirs: &str,
    expected: &ExpectedTensor,
    order: Option<Order>,
    options: &FlmOptions,
) -> Result<Outgoing> {
    let number = source
        .find(name)
        .ok_or_else(|| Error::new(source.path(), "is missing").at(format!("tensor {}", quote(name))))?;
    let from = source.tensors()[number].dtype;
    let is_matrix = expected.shape.len() > 1;
    let dtype = match (options.bits, expected.role) {
        _ if !is_matrix => FlmType::F32,
        (Some(_), Role::TokenEmbedding) => FlmType::Bf16,
        (Some(16), _) => FlmType::F16,
        (Some(8), _) => FlmType::Int8,
        (Some(_), _) => FlmType::Int4,
        (None, Role::TokenEmbedding) if from == DType::Bf16 => FlmType::Bf16,
        (None, role) if from == DType::F16 && role != Role::TokenEmbedding => FlmType::F16,
        (None, _) => FlmType::F32,
    };
    let tensor = FlmTensor { name: theirs.to_owned(), shape: expected.shape.clone(), dtype };
    let unit_rows = expected.transform == Transform::UnitRows;
    Ok(Outgoing { tensor, source: number, from, order, unit_rows })
}

/// Of a model that takes token ids alone.
fn no_vocabulary() -> FlmVocabulary {
    FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table: Vec::new() }
}

/// The table: what the vocabulary says of itself, and the configuration where it says nothing.
fn described(mut vocabulary: FlmVocabulary, config: &Map<String, Value>) -> FlmVocabulary {
    let table = &mut vocabulary.table;
    let mut add = |key: &str, value: &Value| match table.iter_mut().find(|(known, _)| known == key) {
        // Of several ends a vocabulary names one.
        Some((_, old)) if value.is_array() => *old = printed(value),
        Some(_) => {}
        None => table.push((key.to_owned(), printed(value))),
    };
    for (key, value) in config {
        match value {
            Value::Object(parts) if key == "rope_scaling" => {
                parts.iter().for_each(|(part, value)| add(&format!("rope_scaling.{part}"), value));
            }
            _ => add(key, value),
        }
    }
    vocabulary
}

fn set(table: &mut Vec<(String, String)>, key: &str, value: String) {
    match table.iter_mut().find(|(known, _)| known == key) {
        Some((_, old)) => *old = value,
        None => table.push((key.to_owned(), value)),
    }
}

fn row(outgoing: &Outgoing) -> u64 {
    row_elements(&outgoing.tensor.shape)
}

fn source_bytes(outgoing: &Outgoing) -> u64 {
    bytes_of(outgoing.tensor.shape.iter().product(), outgoing.from)
}

/// Pieces of whole heads, or of pairs of rows, so that codes of 4 bits begin at whole bytes.
fn pieces(tensor: usize, outgoing: &Outgoing) -> impl Iterator<Item = Piece> {
    let row = row(outgoing);
    let rows: u64 = outgoing.tensor.shape.iter().product::<u64>() / row.max(1);
    // An even number, whatever a head has.
    let unit = match outgoing.order {
        Some(Order::Halves(head_rows)) => 2 * head_rows as u64,
        Some(Order::Grouped(_) | Order::Kept(_)) | None => 2,
    };
    let step = (CHUNK_ELEMENTS / row.max(1) / unit).max(1) * unit;
    (0..rows.div_ceil(step)).map(move |number| Piece { tensor, rows: number * step..rows.min((number + 1) * step) })
}

/// What each thread has of its own.
#[derive(Default)]
struct Own {
    source: Vec<u8>,
    wide: Vec<u8>,
    rooms: Rooms,
}

impl Own {
    fn one(
        &mut self,
        source: &dyn Checkpoint,
        outgoing: &Outgoing,
        writer: &FlmWriter,
        piece: &Piece,
    ) -> Result<DeviationSums> {
        let (row, start) = (row(outgoing), piece.rows.start * row(outgoing));
        let elements = (piece.rows.end - piece.rows.start) * row;
        let unfit = |place: u64, problem: String| {
            let name = quote(&source.tensors()[outgoing.source].name);
            Error::new(source.path(), format!("element {} {problem}", outgoing.source_element(piece, place)))
                .at(format!("tensor {name}"))
        };
        let bytes = first_bytes(&mut self.source, bytes_of(elements, outgoing.from));
        let mut rest = &mut *bytes;
        for run in outgoing.runs(piece) {
            let (target, after) = rest.split_at_mut(bytes_of((run.end - run.start) * row, outgoing.from) as usize);
            source.read(outgoing.source, bytes_of(run.start * row, outgoing.from), target)?;
            rest = after;
        }
        let wide = first_bytes(&mut self.wide, bytes_of(elements, DType::F32));
        Transcoder::new(outgoing.from, DType::F32).transcode_unchecked(bytes, wide, &mut self.rooms);
        let mut values: Vec<f32> = wide.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if let Some(place) = first_not_finite(&values) {
            return Err(unfit(place as u64, format!("is {}, expected a finite number", values[place])));
        }
        let sorted = match outgoing.order {
            Some(Order::Halves(head_rows)) => {
                let sorted = values.clone();
                restore_rope_rows(&sorted, &mut values, head_rows, row as usize);
                Some(sorted)
            }
            Some(Order::Grouped(_) | Order::Kept(_)) | None => None,
        };
        if outgoing.unit_rows {
            divide_rows(&mut values, row as usize);
        }
        let mut written = values.clone();
        let number = piece.tensor;
        match outgoing.tensor.dtype {
            FlmType::Int8 | FlmType::Int4 => writer.write_rows(number, piece.rows.start, &mut written)?,
            FlmType::F32 => writer.write(number, start * 4, &bytes_of_values(&values))?,
            FlmType::F16 => {
                let mut halves = vec![0; values.len() * 2];
                Transcoder::new(DType::F32, DType::F16).transcode_unchecked(
                    &bytes_of_values(&values),
                    &mut halves,
                    &mut self.rooms,
                );
                let kept = decode_exact(DType::F16, &halves);
                written.iter_mut().zip(&kept).for_each(|(value, kept)| *value = *kept as f32);
                if let Some(place) = first_not_finite(&written) {
                    // Where it stands in the source, whose rows may be in another order.
                    let value = values[place];
                    let stands = sorted.as_ref().and_then(|sorted| sorted.iter().position(|other| *other == value));
                    return Err(unfit(stands.unwrap_or(place) as u64, format!("is {value}, which f16 cannot hold")));
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

fn bytes_of_values(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn line(outgoing: &Outgoing, sums: Option<&DeviationSums>) -> TensorReport {
    let deviation = sums.map(DeviationSums::deviation);
    let bytes = outgoing.tensor.bytes().unwrap_or(u64::MAX);
    let elements: u64 = outgoing.tensor.shape.iter().product();
    TensorReport {
        name: outgoing.tensor.name.clone(),
        shape: outgoing.tensor.shape.clone(),
        source_type: outgoing.from.name(),
        dtype: outgoing.tensor.dtype.name(),
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
        let note = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
            let files = TokenizerFiles { tokenizer_model: std::fs::read(&path).ok(), ..TokenizerFiles::default() };
            note_of(&Vocabulary::from_files(&files, &ModelTokens::default(), &path).unwrap())
        };
        let error = note("tokenizers/unigram/tokenizer.model").unwrap_err().to_string();
        assert!(error.contains("unigram model") && error.contains("convert it to GGUF"), "{error}");
        assert!(note("tokenizers/bpe-map/tokenizer.model").unwrap().is_some_and(|note| note.contains("by a map")));
        assert_eq!(note("models/llama-linear/tokenizer.model").unwrap(), None);
    }
}
