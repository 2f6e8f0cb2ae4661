//! Maps the tensors of a checkpoint to the tensors of a GGUF file. A tensor without a rule, or a rule without a
//! tensor, is an error that lists all of them.

use crate::chunk::Order;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Checkpoint, Description, Error, Result, TensorInfo, quote};
use trueup_models::{Architecture, Condition, ExpectedTensor, Faults, Hyper, Transform, expected_tensors};

/// A checkpoint that is known to fit its architecture.
#[derive(Clone, Debug)]
pub struct Mapping {
    architecture: &'static Architecture,
    hyper: Hyper,
    tensors: Vec<MappedTensor>,
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
        let mut left: HashMap<&str, usize> =
            source.tensors().iter().enumerate().map(|(number, tensor)| (tensor.name.as_str(), number)).collect();
        let mut faults = Faults::default();
        let mut tensors = Vec::new();
        for expected in expected_tensors(architecture, &hyper) {
            match &expected.theirs {
                None => tensors.push(MappedTensor { expected, source: None, dtype: DType::F32 }),
                Some(theirs) => match left.remove(theirs.as_str()) {
                    None => faults.add(format!("tensor {theirs} is missing")),
                    Some(number) => {
                        let found = &source.tensors()[number];
                        check_tensor(&expected, found, &mut faults);
                        if matches!(expected.transform, Transform::KindsApart(_))
                            && Order::of(expected.transform, &hyper).is_none()
                        {
                            let heads = hyper.heads();
                            faults.add(format!("tensor {theirs}: the rows of {heads} heads are no whole groups"));
                        }
                        let is_computed_with = expected.transform == Transform::UnitRows;
                        let dtype = if is_computed_with { DType::F32 } else { found.dtype };
                        tensors.push(MappedTensor { expected, source: Some(number), dtype });
                    }
                },
            }
        }
        let unused: Vec<&TensorInfo> =
            source.tensors().iter().filter(|tensor| left.contains_key(tensor.name.as_str())).collect();
        let mut notes = architecture.notes_of_config(config, &hyper);
        notes.extend(account_for(architecture, &hyper, &unused, &mut faults));
        faults.check(path, "tensors", "nothing was written; the checkpoint is of a variant that is not supported")?;
        Ok(Mapping { architecture, hyper, tensors, notes, kept: None })
    }

    /// The same for the tokens of these ids alone, rising: tensors with a row for each token have rows for these.
    ///
    /// # Errors
    /// No token is left, or one is missing that divides texts.
    pub(crate) fn slimmed(mut self, kept: Arc<[u32]>, path: &Path) -> Result<Mapping> {
        self.hyper = self.hyper.slimmed(&kept).ok_or_else(|| {
            Error::new(path, "the tokens to be kept lack one that divides texts, or are none").at("--prune-vocab")
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
        debug_assert_eq!(tensor.expected.role, trueup_models::Role::RopeFactors);
        self.hyper.rope().factors().unwrap_or_default()
    }
}

/// The description in Hugging Face's words.
pub(crate) fn config_of(source: &dyn Checkpoint) -> Result<&Map<String, Value>> {
    match source.description() {
        Description::Json(config) => Ok(config),
        Description::Gguf(_) => Err(Error::new(source.path(), format!("is {} already", source.format())).help(
            "`trueup quantize` changes the types of a GGUF file; all else is chosen where its source is converted",
        )),
    }
}

fn check_tensor(expected: &ExpectedTensor, found: &TensorInfo, faults: &mut Faults) {
    let name = quote(&found.name);
    if found.shape != expected.shape {
        // As the checkpoint's own programs print it: outermost first.
        let outermost_first = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<u64>>();
        let (wanted, found) = (outermost_first(&expected.shape), outermost_first(&found.shape));
        faults.add(format!("tensor {name}: expected shape {wanted:?}, found {found:?}"));
    }
    if !found.dtype.is_float() {
        faults.add(format!("tensor {name}: expected floating point, found {}", found.dtype));
    }
}

/// Tensors that become nothing: fine for known reasons, else faults. Returns notes.
fn account_for(architecture: &Architecture, hyper: &Hyper, unused: &[&TensorInfo], faults: &mut Faults) -> Vec<String> {
    let mut notes = Vec::new();
    let head = architecture.tensors.iter().find(|rule| rule.when == Condition::Untied).and_then(|rule| rule.theirs);
    let ignored = unused.iter().filter(|tensor| is_ignorable(architecture, &tensor.name)).count();
    if ignored > 0 {
        notes.push(format!(
            "{ignored} tensors with frequencies of the rotation are left out: they follow from the description"
        ));
    }
    for tensor in unused.iter().filter(|tensor| !is_ignorable(architecture, &tensor.name)) {
        if hyper.is_tied() && head == Some(tensor.name.as_str()) {
            let name = &tensor.name;
            notes.push(format!("{name} is left out: the description ties the head to the embedding"));
        } else {
            faults.add(format!("tensor {} is not known to {}", quote(&tensor.name), architecture.classes[0]));
        }
    }
    notes
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
