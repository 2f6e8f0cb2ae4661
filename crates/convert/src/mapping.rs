//! Maps the tensors of a checkpoint to the tensors of a GGUF file. A tensor without a rule, or a rule without a
//! tensor, is an error that lists all of them.

use crate::check::Agreement;
use crate::chunk::{Order, row_elements};
use crate::mismatch::Mismatch;
use crate::omitted::{OmittedTensor, StandIn, computed_agreement, first_difference};
use crate::ternary::Magnitudes;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Checkpoint, Description, Error, Result, TensorInfo, counted, element_indices, listed, quote};
use trueup_models::OtherKind;
use trueup_models::{
    Architecture, ExpectedTensor, ModelSpec, Piece, SourceNames, SourceTensor, TOKEN_EMBEDDING, TensorKind,
    ValueChange, expected_tensors,
};

/// A checkpoint that is known to fit its architecture.
#[derive(Clone, Debug)]
pub struct Mapping {
    spec: ModelSpec,
    tensors: Vec<MappedTensor>,
    omitted: Vec<OmittedTensor>,
    notes: Vec<String>,
    /// The tokens that are kept, by their ids in the checkpoint, rising; `None` for all.
    kept: Option<Arc<[u32]>>,
}

/// One tensor of the file to be written, and where it comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct MappedTensor {
    /// What it is: names, shape, transform.
    pub expected: ExpectedTensor,
    /// The numbers of its sources in the checkpoint; empty if it is computed.
    pub sources: Vec<usize>,
    /// The type of the sources; `F32` if it is computed, or computed with, or if types differ.
    pub dtype: DType,
    /// The mean magnitude of each source, if conversion needs it.
    pub(crate) magnitudes: Magnitudes,
}

impl MappedTensor {
    fn new(expected: ExpectedTensor, sources: Vec<usize>, source: &dyn Checkpoint) -> MappedTensor {
        let magnitudes = Magnitudes::new(sources.len());
        let mut tensor = MappedTensor { expected, sources, dtype: DType::F32, magnitudes };
        if tensor.expected.transform.values == ValueChange::None
            && let Some(first) = tensor.sources.first().filter(|_| tensor.has_one_type(source))
        {
            tensor.dtype = source.tensors()[*first].dtype;
        }
        tensor
    }

    /// The name of the type of the first source in the checkpoint; `f32` if the tensor is computed without a source.
    pub(crate) fn source_type(&self, source: &dyn Checkpoint) -> &'static str {
        if let ValueChange::PackedTernary { .. } = self.expected.transform.values {
            // Unsigned bytes, which are read as `I8`.
            return "u8";
        }
        self.sources.first().map_or(DType::F32, |number| source.tensors()[*number].dtype).name()
    }

    /// Whether all sources have the same type.
    pub(crate) fn has_one_type(&self, source: &dyn Checkpoint) -> bool {
        let mut types = self.sources.iter().map(|number| source.tensors()[*number].dtype);
        let first = types.next();
        types.all(|dtype| Some(dtype) == first)
    }
}

impl Mapping {
    /// Matches a checkpoint with the tables of its architecture.
    ///
    /// # Errors
    /// An unknown class, a description that does not hold, and all missing, unknown and misshaped tensors at once.
    pub fn new(source: &dyn Checkpoint) -> Result<Mapping> {
        let path = source.path();
        let config = config_of(source)?;
        let architecture = Architecture::of_config(config, path)?;
        let (spec, mut notes) = ModelSpec::with_notes(architecture, config, source.tensors().len(), path)?;
        let names = SourceNames::new(architecture, source.tensors().iter().map(|tensor| tensor.name.as_str()));
        notes.extend(names.note());
        let head = TiedHead::of(source, &names, &spec)?;
        let spec = if head.is_kept() { spec.untied() } else { spec };
        let numbers: HashMap<&str, usize> =
            source.tensors().iter().enumerate().map(|(number, tensor)| (tensor.name.as_str(), number)).collect();
        let mut used = vec![false; source.tensors().len()];
        let mut mismatch = Mismatch::default();
        let mut tensors = Vec::new();
        for expected in expected_tensors(&spec, &names) {
            let is_split = check_rows(&expected, &mut mismatch.misfits);
            let mut sources = Vec::with_capacity(expected.sources.len());
            for wanted in &expected.sources {
                let Some(&number) = numbers.get(wanted.name.as_str()) else {
                    mismatch.add_missing(&wanted.name);
                    continue;
                };
                used[number] = true;
                sources.push(number);
                check_tensor(wanted, &source.tensors()[number], is_split, &mut mismatch.misfits);
            }
            tensors.push(MappedTensor::new(expected, sources, source));
        }
        let mut unused: Vec<usize> = (0..used.len()).filter(|number| !used[*number]).collect();
        unused.sort_unstable();
        notes.extend(head.note(source, &names));
        let stand_in = |tensor: &TensorInfo| {
            let sources = tensors.iter().flat_map(|tensor| &tensor.expected.sources);
            stand_in(&spec, &names, sources.map(|source| source.name.as_str()), tensor)
        };
        let mut omitted = omit(source, stand_in, &head, unused, &mut mismatch);
        let wanted = tensors.iter().flat_map(|tensor| &tensor.expected.sources).map(|source| source.name.as_str());
        mismatch.check(source, (&spec, config), &names, wanted)?;
        notes.extend(compare_copies(source, &names, &head, &mut omitted)?);
        notes.extend(notes_of_computed(source, &spec, &omitted)?);
        notes.extend(note_of_unused(source, &omitted));
        Ok(Mapping { spec, tensors, omitted, notes, kept: None })
    }

    /// The same for the tokens of these ids alone, rising: tensors with a row for each token have rows for these.
    ///
    /// # Errors
    /// No token is left, or one is missing that divides texts.
    pub(crate) fn slimmed(mut self, kept: Arc<[u32]>, path: &Path) -> Result<Mapping> {
        self.spec = self.spec.pruned(&kept).ok_or_else(|| {
            Error::new(path, "the kept vocabulary is empty, or lacks a required special token").at("--prune-vocab")
        })?;
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.expected.kind.is_per_token()) {
            if let Some(rows) = tensor.expected.shape.last_mut() {
                *rows = kept.len() as u64;
            }
        }
        self.kept = Some(kept);
        Ok(self)
    }

    /// The tokens that are kept, by their ids in the checkpoint; `None` for all.
    pub(crate) fn kept(&self) -> Option<&Arc<[u32]>> {
        self.kept.as_ref()
    }

    /// The tables that describe the model.
    pub fn architecture(&self) -> &'static Architecture {
        self.spec.architecture()
    }

    /// The model's parts and numbers.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// All tensors of the file to be written, in its order.
    pub fn tensors(&self) -> &[MappedTensor] {
        &self.tensors
    }

    /// Tensors of the checkpoint that the file does not have, because something stands for them.
    pub fn omitted(&self) -> &[OmittedTensor] {
        &self.omitted
    }

    /// The embedding alone, but read from the omitted copies of it: what stands for them in the file must be equal to
    /// them.
    pub(crate) fn of_copies(&self, source: &dyn Checkpoint) -> Mapping {
        let embedding = self.tensors.iter().find(|tensor| tensor.expected.name == TOKEN_EMBEDDING);
        let copies = self.omitted.iter().filter(|omitted| omitted.stand_in == StandIn::Embedding);
        let copy = |omitted: &OmittedTensor| {
            let mut tensor = embedding?.clone();
            let found = &source.tensors()[omitted.source];
            (tensor.sources, tensor.dtype) = (vec![omitted.source], found.dtype);
            tensor.expected.sources =
                vec![SourceTensor { name: found.name.clone(), shape: found.shape.clone(), dtype: None }];
            Some(tensor)
        };
        Mapping { tensors: copies.filter_map(copy).collect(), omitted: Vec::new(), ..self.clone() }
    }

    /// What a person should know: one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How the tensor's rows stand in the checkpoint, where that is another order.
    pub(crate) fn order(&self, tensor: &MappedTensor) -> Option<Order> {
        match &self.kept {
            Some(kept) if tensor.expected.kind.is_per_token() => Some(Order::Kept(Arc::clone(kept))),
            _ => Order::of(&tensor.expected.transform),
        }
    }

    /// The values of a tensor that no checkpoint holds.
    pub(crate) fn computed(&self, tensor: &MappedTensor) -> Vec<f32> {
        debug_assert_eq!(tensor.expected.kind, TensorKind::RopeFactors);
        self.spec.rope().and_then(|rope| rope.factors_of(&tensor.expected.name)).unwrap_or_default()
    }
}

/// The description in Hugging Face's words.
pub(crate) fn config_of(source: &dyn Checkpoint) -> Result<&Map<String, Value>> {
    match source.description() {
        Description::Json(config) => Ok(config),
        Description::Gguf(metadata) => {
            if let Some(kind) = OtherKind::of_metadata(metadata) {
                return Err(kind.error(source.path()));
            }
            let problem = format!("expected a checkpoint to convert, found {}", source.format());
            Err(Error::new(source.path(), problem).help(
                "to change the types of a GGUF file, use `trueup quantize`; for other changes, convert the original \
                 checkpoint again",
            ))
        }
    }
}

/// Whether the transform gives every row of the tensor, as it must.
fn check_rows(expected: &ExpectedTensor, misfits: &mut Vec<String>) -> bool {
    let rows: u64 = expected.transform.pieces.iter().map(Piece::len).sum();
    let wanted = expected.shape.iter().product::<u64>() / row_elements(&expected.shape).max(1);
    if let Some(source) = expected.sources.first().filter(|_| rows != wanted) {
        let name = quote(&source.name);
        misfits.push(format!(
            "tensor {name}: its rows cannot be split into groups of equal size for each head; the number of heads in \
             config.json is probably wrong"
        ));
    }
    rows == wanted
}

/// Compares a tensor with what is expected. A fused tensor, which several tensors are made of, is reported once.
/// Where `has_shape` is false, the expected shape is not known.
fn check_tensor(expected: &SourceTensor, found: &TensorInfo, has_shape: bool, misfits: &mut Vec<String>) {
    let name = quote(&found.name);
    let mut add = |sentence: String| {
        if !misfits.contains(&sentence) {
            misfits.push(sentence);
        }
    };
    if has_shape && found.shape != expected.shape {
        // As the checkpoint's own programs print it: outermost first.
        let outermost_first = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<u64>>();
        let (wanted, found) = (outermost_first(&expected.shape), outermost_first(&found.shape));
        add(format!("tensor {name}: expected shape {wanted:?}, found {found:?}"));
    }
    match expected.dtype {
        Some(dtype) if found.dtype != dtype => {
            add(format!("tensor {name}: expected packed values of type u8, found {}", found.dtype));
        }
        None if !found.dtype.is_float() => {
            add(format!("tensor {name}: expected a floating-point type, found {}", found.dtype));
        }
        Some(_) | None => {}
    }
}

/// The head of a checkpoint whose description ties it to the embedding.
enum TiedHead {
    /// There is none, or the description does not tie it.
    Absent,
    /// The tensor of this number, equal to the embedding.
    Copy(usize),
    /// The tensor of this number, which differs from the embedding, first in this element.
    Different(usize, u64),
}

impl TiedHead {
    /// Compares the head with the embedding when the description says that they are one.
    fn of(source: &dyn Checkpoint, names: &SourceNames, spec: &ModelSpec) -> Result<TiedHead> {
        let number = |name: Option<String>| source.find(&name?);
        let (Some(head), Some(embedding)) = (number(names.head()), number(names.source_of(TOKEN_EMBEDDING))) else {
            return Ok(TiedHead::Absent);
        };
        if !spec.has_head_of_embedding() {
            return Ok(TiedHead::Absent);
        }
        Ok(first_difference(source, head, embedding)?
            .map_or(TiedHead::Copy(head), |place| TiedHead::Different(head, place)))
    }

    fn is_kept(&self) -> bool {
        matches!(self, TiedHead::Different(..))
    }

    fn note(&self, source: &dyn Checkpoint, names: &SourceNames) -> Option<String> {
        let name = |number: usize| quote(&source.tensors()[number].name);
        let embedding = names.source_of(TOKEN_EMBEDDING)?;
        match *self {
            TiedHead::Absent => None,
            TiedHead::Copy(head) => Some(format!(
                "{} is omitted: it has the same values as {embedding}, which is used as the output head",
                name(head)
            )),
            TiedHead::Different(head, place) => Some(format!(
                "{} is kept as output.weight: its values differ from those of {embedding} (first in element {:?}), although \
                 config.json ties them (tie_word_embeddings)",
                name(head),
                element_indices(place, &source.tensors()[head].shape)
            )),
        }
    }
}

/// Tensors that become nothing because something stands for them; the others are unknown.
fn omit(
    source: &dyn Checkpoint,
    stand_in: impl Fn(&TensorInfo) -> Option<StandIn>,
    head: &TiedHead,
    unused: Vec<usize>,
    mismatch: &mut Mismatch,
) -> Vec<OmittedTensor> {
    let mut omitted = Vec::new();
    for number in unused {
        let tensor = &source.tensors()[number];
        let stand_in = match head {
            TiedHead::Copy(head) if *head == number => Some(StandIn::Embedding),
            _ => stand_in(tensor),
        };
        match stand_in {
            Some(stand_in) => omitted.push(OmittedTensor { source: number, stand_in }),
            None => mismatch.unknown.push(tensor.name.clone()),
        }
    }
    omitted
}

/// Why a tensor that the class replaces by the embedding is not used, if its values are others.
const OTHER_VALUES: &str = "its values differ from those of the embedding, which the class uses instead";

/// Compares copies of the embedding, other than the head, with the embedding. Those with other values become unused
/// tensors; a note names the equal ones.
fn compare_copies(
    source: &dyn Checkpoint,
    names: &SourceNames,
    head: &TiedHead,
    omitted: &mut [OmittedTensor],
) -> Result<Option<String>> {
    let Some(embedding) = names.source_of(TOKEN_EMBEDDING) else { return Ok(None) };
    let Some(number) = source.find(&embedding) else { return Ok(None) };
    let mut equal = Vec::new();
    for tensor in omitted.iter_mut().filter(|tensor| tensor.stand_in == StandIn::Embedding) {
        if matches!(head, TiedHead::Copy(head) if *head == tensor.source) {
            continue;
        }
        match first_difference(source, tensor.source, number)? {
            None => equal.push(quote(&source.tensors()[tensor.source].name)),
            Some(_) => tensor.stand_in = StandIn::Nothing(OTHER_VALUES),
        }
    }
    Ok((!equal.is_empty()).then(|| {
        let (tensors, verb) = (counted(equal.len(), "tensor"), if equal.len() == 1 { "is" } else { "are" });
        format!("{tensors} with the same values as {embedding} {verb} omitted: {}", listed(&equal, ", "))
    }))
}

/// Notes on tables that are computed: that they are omitted, and which ones have other values.
fn notes_of_computed(source: &dyn Checkpoint, spec: &ModelSpec, omitted: &[OmittedTensor]) -> Result<Vec<String>> {
    let (mut notes, mut others) = (Vec::new(), Vec::new());
    for (stand_in, what) in [
        (StandIn::Frequencies, "the RoPE frequencies"),
        (StandIn::CausalMask, "the causal mask"),
        (StandIn::HiddenScore, "the score of masked positions"),
    ] {
        let of_kind: Vec<OmittedTensor> =
            omitted.iter().copied().filter(|omitted| omitted.stand_in == stand_in).collect();
        if of_kind.is_empty() {
            continue;
        }
        let verb = if of_kind.len() == 1 { "is" } else { "are" };
        let tensors = counted(of_kind.len(), "tensor");
        notes.push(format!("{tensors} with {what} {verb} omitted: config.json determines these values"));
        for tensor in of_kind {
            if matches!(computed_agreement(source, spec, tensor)?, Agreement::Wrong { .. }) {
                others.push(quote(&source.tensors()[tensor.source].name));
            }
        }
    }
    if !others.is_empty() {
        let names = listed(&others, ", ");
        notes.push(format!("the values of these omitted tensors differ from those computed from config.json: {names}"));
    }
    Ok(notes)
}

/// Names the tensors that are omitted because no result depends on them.
fn note_of_unused(source: &dyn Checkpoint, omitted: &[OmittedTensor]) -> Option<String> {
    let of = |omitted: &OmittedTensor| match omitted.stand_in {
        StandIn::Nothing(what) => Some(format!("{} ({what})", quote(&source.tensors()[omitted.source].name))),
        StandIn::Embedding | StandIn::Frequencies | StandIn::CausalMask | StandIn::HiddenScore => None,
    };
    let names: Vec<String> = omitted.iter().filter_map(of).collect();
    (!names.is_empty()).then(|| {
        let (tensors, verb) = (counted(names.len(), "tensor"), if names.len() == 1 { "is" } else { "are" });
        format!("{tensors} {verb} unused and omitted: {}", listed(&names, ", "))
    })
}

/// What stands for a tensor that is not used; `None` if it is unknown. `sources` are the names of the tensors that are
/// used.
pub(crate) fn stand_in<'s>(
    spec: &ModelSpec,
    names: &SourceNames,
    sources: impl Iterator<Item = &'s str>,
    tensor: &TensorInfo,
) -> Option<StandIn> {
    if let Some(what) = names.unused_part(&tensor.name, spec.layer_count()) {
        return Some(StandIn::Nothing(what));
    }
    let table = names.in_tables(&tensor.name);
    if spec.architecture().copies.contains(&table.as_ref()) {
        return Some(StandIn::Embedding);
    }
    let fits = |pattern: &&str| match pattern.split_once("{l}") {
        None => *pattern == table,
        Some((before, after)) => {
            let layer = table.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            layer.is_some_and(|layer| !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit()))
        }
    };
    let is_spare = spec.architecture().ignorable.iter().any(fits) || names.is_buffer(&tensor.name, sources);
    is_spare.then(|| StandIn::of_tensor(tensor)).flatten()
}
