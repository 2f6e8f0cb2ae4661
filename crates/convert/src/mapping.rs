//! Maps the tensors of a checkpoint to the tensors of a GGUF file. A tensor without a rule, or a rule without a
//! tensor, is an error that lists all of them.

use crate::check::Agreement;
use crate::chunk::Order;
use crate::mismatch::Mismatch;
use crate::omitted::{OmittedTensor, StandIn, computed_agreement, first_difference};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Checkpoint, Description, Error, Result, TensorInfo, counted, listed, quote};
use trueup_models::{Architecture, ExpectedTensor, Hyper, Role, Transform, expected_tensors};

/// A checkpoint that is known to fit its architecture.
#[derive(Clone, Debug)]
pub struct Mapping {
    architecture: &'static Architecture,
    hyper: Hyper,
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
    /// The tensor's number in the checkpoint; `None` when it is computed.
    pub source: Option<usize>,
    /// The type of the source; `F32` when it is computed, or computed with.
    pub dtype: DType,
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
        let hyper = Hyper::from_config(architecture, config, source.tensors().len(), path)?;
        let head = TiedHead::of(source, architecture, &hyper)?;
        let hyper = if head.is_kept() { hyper.untied() } else { hyper };
        let mut left: HashMap<&str, usize> =
            source.tensors().iter().enumerate().map(|(number, tensor)| (tensor.name.as_str(), number)).collect();
        let mut mismatch = Mismatch::default();
        let mut tensors = Vec::new();
        for expected in expected_tensors(architecture, &hyper) {
            match &expected.theirs {
                None => tensors.push(MappedTensor { expected, source: None, dtype: DType::F32 }),
                Some(theirs) => match left.remove(theirs.as_str()) {
                    None => mismatch.missing.push(theirs.clone()),
                    Some(number) => {
                        let found = &source.tensors()[number];
                        check_tensor(&expected, found, &mut mismatch.misfits);
                        if matches!(expected.transform, Transform::KindsApart(_))
                            && Order::of(expected.transform, &hyper).is_none()
                        {
                            let heads = hyper.heads();
                            let problem = format!(
                                "tensor {theirs}: the rows of {heads} heads cannot be split \
                                into groups of equal size"
                            );
                            mismatch.misfits.push(problem);
                        }
                        let is_computed_with = expected.transform == Transform::UnitRows;
                        let dtype = if is_computed_with { DType::F32 } else { found.dtype };
                        tensors.push(MappedTensor { expected, source: Some(number), dtype });
                    }
                },
            }
        }
        let mut unused: Vec<usize> = left.into_values().collect();
        unused.sort_unstable();
        let mut notes = architecture.notes_of_config(config, &hyper);
        notes.extend(head.note(source, architecture));
        let omitted = omit(source, architecture, &head, unused, &mut mismatch);
        mismatch.check(source, architecture)?;
        notes.extend(note_of_computed(source, &hyper, &omitted)?);
        Ok(Mapping { architecture, hyper, tensors, omitted, notes, kept: None })
    }

    /// The same for the tokens of these ids alone, rising: tensors with a row for each token have rows for these.
    ///
    /// # Errors
    /// No token is left, or one is missing that divides texts.
    pub(crate) fn slimmed(mut self, kept: Arc<[u32]>, path: &Path) -> Result<Mapping> {
        self.hyper = self.hyper.slimmed(&kept).ok_or_else(|| {
            Error::new(path, "the kept vocabulary is empty, or lacks a required special token").at("--prune-vocab")
        })?;
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.expected.role.is_per_token()) {
            tensor.expected.shape = tensor.expected.role.shape(&self.hyper);
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
        self.architecture
    }

    /// The model's numbers.
    pub fn hyper(&self) -> &Hyper {
        &self.hyper
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
        let embedding = self.tensors.iter().find(|tensor| tensor.expected.role == Role::TokenEmbedding);
        let copies = self.omitted.iter().filter(|omitted| omitted.stand_in == StandIn::Embedding);
        let copy = |omitted: &OmittedTensor| {
            let mut tensor = embedding?.clone();
            let found = &source.tensors()[omitted.source];
            (tensor.source, tensor.dtype) = (Some(omitted.source), found.dtype);
            tensor.expected.theirs = Some(found.name.clone());
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
            Some(kept) if tensor.expected.role.is_per_token() => Some(Order::Kept(Arc::clone(kept))),
            _ => Order::of(tensor.expected.transform, &self.hyper),
        }
    }

    /// The values of a tensor that no checkpoint holds.
    pub(crate) fn computed(&self, tensor: &MappedTensor) -> Vec<f32> {
        debug_assert_eq!(tensor.expected.role, Role::RopeFactors);
        self.hyper.rope().factors().unwrap_or_default()
    }
}

/// The description in Hugging Face's words.
pub(crate) fn config_of(source: &dyn Checkpoint) -> Result<&Map<String, Value>> {
    match source.description() {
        Description::Json(config) => Ok(config),
        Description::Gguf(_) => {
            let problem = format!("expected a checkpoint to convert, found {}", source.format());
            Err(Error::new(source.path(), problem).help(
                "to change the types of a GGUF file, use `trueup quantize`; for everything else, convert its source again",
            ))
        }
    }
}

fn check_tensor(expected: &ExpectedTensor, found: &TensorInfo, misfits: &mut Vec<String>) {
    let name = quote(&found.name);
    if found.shape != expected.shape {
        // As the checkpoint's own programs print it: outermost first.
        let outermost_first = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<u64>>();
        let (wanted, found) = (outermost_first(&expected.shape), outermost_first(&found.shape));
        misfits.push(format!("tensor {name}: expected shape {wanted:?}, found {found:?}"));
    }
    if !found.dtype.is_float() {
        misfits.push(format!("tensor {name}: expected floating point, found {}", found.dtype));
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
    fn of(source: &dyn Checkpoint, architecture: &Architecture, hyper: &Hyper) -> Result<TiedHead> {
        let number = |role: Role| source.find(architecture.tensor(role)?.theirs?);
        let (Some(head), Some(embedding)) = (number(Role::Output), number(Role::TokenEmbedding)) else {
            return Ok(TiedHead::Absent);
        };
        if !hyper.is_tied() {
            return Ok(TiedHead::Absent);
        }
        Ok(first_difference(source, head, embedding)?
            .map_or(TiedHead::Copy(head), |place| TiedHead::Different(head, place)))
    }

    fn is_kept(&self) -> bool {
        matches!(self, TiedHead::Different(..))
    }

    fn note(&self, source: &dyn Checkpoint, architecture: &Architecture) -> Option<String> {
        let name = |number: usize| quote(&source.tensors()[number].name);
        let embedding = architecture.tensor(Role::TokenEmbedding)?.theirs?;
        match *self {
            TiedHead::Absent => None,
            TiedHead::Copy(head) => Some(format!(
                "{} is omitted: it has the same values as {embedding}, which is used as the output head",
                name(head)
            )),
            TiedHead::Different(head, place) => Some(format!(
                "{} is kept as output.weight: its values differ from those of {embedding} (first in element {place}), although \
                 config.json ties them (tie_word_embeddings)",
                name(head)
            )),
        }
    }
}

/// Tensors that become nothing because something stands for them; the others are unknown.
fn omit(
    source: &dyn Checkpoint,
    architecture: &Architecture,
    head: &TiedHead,
    unused: Vec<usize>,
    mismatch: &mut Mismatch,
) -> Vec<OmittedTensor> {
    let mut omitted = Vec::new();
    for number in unused {
        let name = &source.tensors()[number].name;
        if matches!(head, TiedHead::Copy(head) if *head == number) {
            omitted.push(OmittedTensor { source: number, stand_in: StandIn::Embedding });
        } else if is_ignorable(architecture, name) {
            omitted.push(OmittedTensor { source: number, stand_in: StandIn::of_name(name) });
        } else {
            mismatch.unknown.push(name.clone());
        }
    }
    omitted
}

/// What is said about tables that are computed anyway: that they are omitted, and which ones hold other values.
fn note_of_computed(source: &dyn Checkpoint, hyper: &Hyper, omitted: &[OmittedTensor]) -> Result<Vec<String>> {
    let computed: Vec<OmittedTensor> =
        omitted.iter().copied().filter(|omitted| omitted.stand_in != StandIn::Embedding).collect();
    let Some(first) = computed.first() else { return Ok(Vec::new()) };
    let what = match first.stand_in {
        StandIn::CausalMask => "the causal mask",
        StandIn::Frequencies | StandIn::Embedding => "the RoPE frequencies",
    };
    let tensors = counted(computed.len(), "tensor");
    let verb = if computed.len() == 1 { "is" } else { "are" };
    let mut notes = vec![format!("{tensors} with {what} {verb} omitted: config.json determines these values")];
    let mut others = Vec::new();
    for tensor in &computed {
        if matches!(computed_agreement(source, hyper, *tensor)?, Agreement::Wrong { .. }) {
            others.push(quote(&source.tensors()[tensor.source].name));
        }
    }
    if !others.is_empty() {
        let names = listed(&others, ", ");
        notes.push(format!("omitted tensors with other values than those computed from config.json: {names}"));
    }
    Ok(notes)
}

/// Whether a name fits one of the patterns of tensors that hold nothing of their own.
pub(crate) fn is_ignorable(architecture: &Architecture, name: &str) -> bool {
    architecture.ignorable.iter().any(|pattern| match pattern.split_once("{l}") {
        None => *pattern == name,
        Some((before, after)) => {
            let layer = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            layer.is_some_and(|layer| !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit()))
        }
    })
}
