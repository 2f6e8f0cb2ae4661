//! Chooses the types with the best quality at a target size, or with the smallest size at a target quality.
//!
//! ```text
//! source ─ reference predictions ─┐
//!        ─ all groups in q8_0: base ─ residual streams
//!                                 └─ one group in another type, from its layer on ─ KL divergence ─▶ Measurements
//! Measurements ─ costs of all types of all groups ─ allocation within the budget ─▶ TargetPlan
//! ```
//!
//! The base uses q8_0 because it is fast and close to the source. The measurement of a group is the difference of two
//! divergences from the source's predictions at the same positions: with the group in another type, and of the base.
//! Matrices in quantized types also round their inputs. Both divergences contain this effect, so it is subtracted from
//! the costs of floating-point types separately.

mod allocation;
mod divergence;
mod groups;
mod measurements;
mod measuring;
mod passes;
mod search;
mod sensitivity;

pub use allocation::{Choice, allocate, cost};
pub use measurements::{MeasuredWith, Measurements, hash_files};

use crate::corpus::Corpus;
use crate::statistics::{Estimate, Moments};
use divergence::Prediction;
use groups::{Group, groups};
use measurements::hash_numbers;
use passes::{check_memory, divergences, predictions};
use search::Search;
use sensitivity::credit_floats;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use trueup_blocks::DType;
use trueup_formats::{Checkpoint, Description, LAYOUT_KEY, TensorInfo, listed, quote, significant};
use trueup_quantize::{
    Encoder, Freedom, ImportanceOptions, Layout, ModelFacts, NoProgress, Options, Progress, Recipe, choices_of,
    file_bytes,
};
use trueup_runtime::device::Device;
use trueup_runtime::{Error, ModelFile, Result, Session, SessionOptions, Weights};

/// Maximum number of allocations that are measured for a limit of the KL divergence.
const TRIES_MAX: usize = 10;

/// Maximum number of allocations that are computed for a limit; several can be equal.
const ROUNDS_MAX: usize = 40;

/// The search ends at an allocation with at least this share of the limit.
const CLOSE: f64 = 0.98;

/// The model to quantize, and the conditions of the measurements.
pub struct TargetInput {
    /// The GGUF file; tensors in the split-scale layout are joined.
    pub source: Arc<dyn Checkpoint>,
    /// The same file, opened as a model.
    pub model: Arc<ModelFile>,
    /// The importance matrix that is used, if any.
    pub importance: Option<Arc<ImportanceOptions>>,
    /// Rules and options for single tensors, without a base type.
    pub recipe: Recipe,
    /// The text.
    pub corpus: Corpus,
    /// The devices that compute.
    pub devices: Vec<Arc<dyn Device>>,
    /// The device that computes the operators that `devices` lack.
    pub fallback: Option<Arc<dyn Device>>,
    /// Number of threads that encode; `None` is one per core.
    pub threads: Option<usize>,
    /// Whether all candidate types of a group are measured, instead of at most two.
    pub measures_all: bool,
}

/// The goal of a choice of types.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// Maximum size of the file, in bytes.
    Bytes(u64),
    /// Maximum KL divergence from the source, in nats.
    Divergence(f64),
}

/// A step of the work, for a progress display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetStep {
    /// The predictions of the source are computed.
    Reference,
    /// Groups are measured: number of finished groups, and number of all groups.
    Groups(usize, usize),
    /// An allocation is measured: its number, starting at 1.
    Try(usize),
    /// The written file is measured.
    Result,
}

/// An allocation: one type for each group.
#[derive(Clone, PartialEq, Debug)]
pub struct TargetPlan {
    /// The types of the tensors, by their names.
    pub types: BTreeMap<String, DType>,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// The KL divergence that the measurements predict, in nats.
    pub predicted_kl: f64,
}

/// Measures a model and chooses types for it.
pub struct Tuner {
    input: TargetInput,
    groups: Vec<Group>,
    /// Upper bound of the size of everything but the groups' tensors, in bytes. It is not exact: some keys depend on
    /// the types.
    fixed_bytes: u64,
    /// Size of the smallest possible file, in bytes.
    smallest_bytes: u64,
    reference: Option<Vec<Prediction>>,
}

/// The first error among tensors that are encoded when a device requests them.
type Fault = Arc<Mutex<Option<trueup_formats::Error>>>;

impl Tuner {
    /// Checks the input and divides the tensors into groups.
    ///
    /// # Errors
    /// A rule that matches nothing, an importance matrix of another model, or a text that needs too much memory.
    pub fn new(input: TargetInput) -> Result<Tuner> {
        let tensors = input.source.tensors();
        let Description::Gguf(metadata) = input.source.description() else {
            return Err(Error::Request("expected a GGUF file; convert the model with `trueup convert`".to_owned()));
        };
        let facts = ModelFacts { has_importance: input.importance.is_some(), ..ModelFacts::new(metadata, tensors) };
        check_memory(&input.model, &input.corpus)?;
        // The blocks of a named type may not divide the rows; the choice has the type that replaces it.
        let choices = choices_of(&*input.source, &input.recipe, input.importance.is_some())?;
        let fitted = |(freedom, dtype): (Freedom, DType)| match freedom {
            Freedom::Named(_) => Freedom::Named(dtype),
            Freedom::Free | Freedom::Kept => freedom,
        };
        let freedom = input.recipe.freedom(tensors, &facts).into_iter();
        let freedom: Vec<Freedom> = freedom.zip(choices.iter().map(|choice| choice.dtype)).map(fitted).collect();
        let groups = groups(tensors, &freedom);
        if groups.iter().all(|group| group.candidates.len() == 1) {
            return Err(Error::Request(format!(
                "{}: expected a tensor whose type is not fixed, found none; remove rules, or use --type instead of a target",
                quote(&input.source.path().to_string_lossy())
            )));
        }
        let mut tuner = Tuner { input, groups, fixed_bytes: 0, smallest_bytes: 0, reference: None };
        let smallest = vec![0; tuner.groups.len()];
        // Try types that use importance first: this rejects an unsuitable importance matrix before any measurement, and
        // includes the keys that a used matrix adds.
        for numbers in [tuner.weighted(), smallest] {
            let (whole, of_groups) = (tuner.bytes_of_file(tuner.types(&numbers))?, tuner.group_bytes(&numbers));
            let fixed = whole.checked_sub(of_groups).ok_or_else(|| {
                Error::Request(format!("expected a file of at least {of_groups} bytes, found {whole}; use --type"))
            })?;
            (tuner.fixed_bytes, tuner.smallest_bytes) = (tuner.fixed_bytes.max(fixed), whole);
        }
        Ok(tuner)
    }

    /// For each group, the number of a candidate that uses importance, or 0 if there is none.
    fn weighted(&self) -> Vec<usize> {
        let is_used = |dtype: &DType| dtype.codec().is_some_and(|codec| codec.uses_importance);
        self.groups.iter().map(|group| group.candidates.iter().position(is_used).unwrap_or(0)).collect()
    }

    /// Bytes of the file with these types.
    fn bytes_of_file(&self, types: BTreeMap<String, DType>) -> Result<u64> {
        let TargetInput { source, importance, .. } = &self.input;
        Ok(file_bytes(&**source, &self.options(types), importance.as_deref())?)
    }

    /// The conditions that the measurements depend on. `progress` counts the bytes of the model, which are hashed.
    ///
    /// # Errors
    /// I/O.
    pub fn measured_with(&self, progress: &dyn Progress) -> Result<MeasuredWith> {
        let TargetInput { source, importance, recipe, corpus, devices, .. } = &self.input;
        let tokens = corpus.ids().len();
        let devices: Vec<String> = devices.iter().map(|device| device.name()).collect();
        let bos = corpus.input(0).first().copied().unwrap_or(0);
        let numbers = [corpus.context() as u32, bos].into_iter().chain(corpus.ids().iter().copied());
        Ok(MeasuredWith {
            model: hash_files(&source.sources(), progress)?,
            corpus: hash_numbers(numbers),
            imatrix: importance.as_deref().map(|file| hash_files(&[file.file.source()], &NoProgress)).transpose()?,
            imatrix_exact: importance.as_deref().is_some_and(|importance| importance.exact),
            allow_partial_imatrix: importance.as_deref().is_some_and(|importance| importance.allow_partial),
            recipe: recipe.parameters(),
            device: devices.join(","),
            tokens,
        })
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The size of the smallest possible file, and an upper bound of the size of the largest one, in bytes.
    pub fn sizes(&self) -> (u64, u64) {
        let largest: Vec<usize> = self.groups.iter().map(|group| group.candidates.len() - 1).collect();
        (self.smallest_bytes, self.bytes(&largest))
    }

    /// Number of weights in the model, for sizes in bits per weight.
    pub fn parameters(&self) -> u64 {
        self.input.source.tensors().iter().map(TensorInfo::elements).fold(0, u64::saturating_add)
    }

    /// Notes about types that cannot be used, one sentence each.
    pub fn notes(&self, known: &Measurements) -> Vec<String> {
        let of = |group: &Group| {
            let measured = known.groups.get(&group.name)?;
            let unfit = group.candidates.iter().filter(|dtype| measured.is_unfit(**dtype));
            let unfit: Vec<String> = unfit.map(|dtype| dtype.to_string()).collect();
            let types = listed(&unfit, ", ");
            (!unfit.is_empty()).then(|| format!("{}: {types} not used: a weight is too large", group.name))
        };
        self.groups.iter().filter_map(of).collect()
    }

    /// Chooses types for a goal from the measurements. For a limit of the KL divergence, allocations are measured until
    /// one is slightly below the limit.
    ///
    /// # Errors
    /// A goal that cannot be reached, or incomplete measurements.
    pub fn plan(&mut self, known: &Measurements, goal: Goal, step: &mut dyn FnMut(TargetStep)) -> Result<TargetPlan> {
        let costs = self.costs(known)?;
        let plan = match goal {
            Goal::Bytes(bytes) => self.plan_of_size(known, &costs, bytes)?,
            Goal::Divergence(most) => self.plan_of_divergence(known, &costs, most, step)?,
        };
        // The file can be smaller than planned: `general.quantization_version` is written only with quantized tensors,
        // and the importance matrix keys only if a tensor uses the matrix.
        let bytes = self.bytes_of_file(plan.types.clone())?;
        let most = if let Goal::Bytes(most) = goal { most } else { plan.bytes };
        if bytes > most {
            return Err(Error::Request(format!(
                "expected types that need at most {most} bytes, found {bytes}; use another target, or --type"
            )));
        }
        Ok(TargetPlan { bytes, ..plan })
    }

    fn plan_of_size(&self, known: &Measurements, costs: &[Vec<f64>], most: u64) -> Result<TargetPlan> {
        let (smallest, largest) = self.sizes();
        if most < smallest || most > largest {
            return Err(Error::Request(format!(
                "expected a target of {smallest} to {largest} bytes, found {most}; use a target in this range"
            )));
        }
        let tensors = self.input.source.tensors();
        let option =
            |group: &Group, dtype: DType, cost: f64| Choice { weight: group.bytes(dtype, tensors) as f64, cost };
        let options = self.options_of(costs, option);
        // The smallest file fits, even if the upper bound of its size does not.
        let chosen = allocate(&options, most.saturating_sub(self.fixed_bytes) as f64);
        let chosen = chosen.unwrap_or_else(|| vec![0; self.groups.len()]);
        Ok(self.plan_of(known, costs, &chosen))
    }

    fn plan_of_divergence(
        &mut self,
        known: &Measurements,
        costs: &[Vec<f64>],
        most: f64,
        step: &mut dyn FnMut(TargetStep),
    ) -> Result<TargetPlan> {
        self.compute_reference(step)?;
        let tensors = self.input.source.tensors().to_vec();
        let option =
            |group: &Group, dtype: DType, cost: f64| Choice { weight: cost, cost: group.bytes(dtype, &tensors) as f64 };
        let options = self.options_of(costs, option);
        let least = |group: &Vec<Choice>| group.iter().map(|choice| choice.weight).fold(f64::INFINITY, f64::min);
        // A sum in another order can be rounded up.
        let floor = options.iter().map(least).sum::<f64>() + 1e-9;
        let mut search = Search::new(floor, most - known.base_kl.map_or(0.0, f64::from));
        let mut best: Option<TargetPlan> = None;
        let mut tried: Vec<(BTreeMap<String, DType>, f64)> = Vec::new();
        let mut number = 0;
        for _ in 0..ROUNDS_MAX {
            let Some(chosen) = allocate(&options, search.limit()) else { break };
            let plan = self.plan_of(known, costs, &chosen);
            let found = match tried.iter().find(|(types, _)| *types == plan.types) {
                Some((_, found)) => *found,
                None if number == TRIES_MAX => break,
                None => {
                    number += 1;
                    step(TargetStep::Try(number));
                    self.divergence_of_types(&plan.types)?.value
                }
            };
            tried.push((plan.types.clone(), found));
            if found <= most && best.as_ref().is_none_or(|best| plan.bytes < best.bytes) {
                best = Some(plan);
            }
            if (CLOSE * most..=most).contains(&found) {
                break;
            }
            search.learn(found, most);
        }
        let smallest_found = tried.iter().map(|(_, found)| *found).fold(f64::INFINITY, f64::min);
        best.ok_or_else(|| {
            Error::Request(format!(
                "--max-kl: expected at least {}, the smallest KL divergence that was measured, found {}; use a larger \
                 limit",
                significant(smallest_found, 4),
                significant(most, 4)
            ))
        })
    }

    /// The KL divergence of the model with these types, encoded in memory.
    ///
    /// # Errors
    /// Failures of devices and files.
    pub fn divergence_of_types(&mut self, types: &BTreeMap<String, DType>) -> Result<Estimate> {
        self.compute_reference(&mut |_| ())?;
        let tensors = self.input.source.tensors();
        let numbered = tensors.iter().enumerate().filter_map(|(number, info)| Some((number, *types.get(&info.name)?)));
        let (model, fault) = self.made(numbered.collect(), HashMap::new())?;
        let mut session = self.session(Arc::new(self.weights(model)), &fault)?;
        let found = self.divergence_in(&mut session);
        check(&fault)?;
        found
    }

    /// The KL divergence of a file from the source.
    ///
    /// # Errors
    /// A model with another vocabulary; failures of devices and files.
    pub fn divergence_of_file(&mut self, model: Arc<ModelFile>, step: &mut dyn FnMut(TargetStep)) -> Result<Estimate> {
        self.compute_reference(step)?;
        step(TargetStep::Result);
        let weights = Weights::over(model, self.input.devices.clone(), self.input.fallback.clone());
        let mut session = self.session(Arc::new(weights), &Fault::default())?;
        self.divergence_in(&mut session)
    }

    fn divergence_in(&self, session: &mut Session) -> Result<Estimate> {
        let reference = self.reference.as_deref().unwrap_or_default();
        divergences(session, &self.input.corpus, reference, None, None, &mut || ()).map(|found| mean(&found))
    }

    /// The options that quantize with these types.
    pub fn options(&self, types: BTreeMap<String, DType>) -> Options {
        Options {
            recipe: self.input.recipe.clone().assigned(types),
            layout: Layout::Block,
            threads: self.input.threads,
            dry_run: false,
            resume: false,
        }
    }

    fn compute_reference(&mut self, step: &mut dyn FnMut(TargetStep)) -> Result<()> {
        if self.reference.is_none() {
            step(TargetStep::Reference);
            let TargetInput { model, devices, fallback, corpus, .. } = &self.input;
            let weights = Weights::over(model.clone(), devices.clone(), fallback.clone());
            let mut session = self.session(Arc::new(weights), &Fault::default())?;
            self.reference = Some(predictions(&mut session, corpus, &mut || ())?);
        }
        Ok(())
    }

    /// The first layer that must be computed when the type of a group changes.
    fn first_layer(&self, group: &Group) -> usize {
        let last = self.input.model.model().spec().layer_count().saturating_sub(1);
        match group.layer {
            Some(layer) => layer.min(last),
            None if group.name.starts_with("output.") => last,
            None => 0,
        }
    }

    /// The names of the group's tensors in graphs.
    fn graph_names(&self, group: &Group, model: &ModelFile) -> Vec<String> {
        let tensors = self.input.source.tensors();
        let stored: Vec<&str> = group.tensors.iter().map(|number| tensors[*number].name.as_str()).collect();
        let slices = model.model().slices().iter().filter(|slice| stored.contains(&slice.stored.as_str()));
        slices.map(|slice| slice.name.clone()).chain(stored.iter().map(|name| (*name).to_owned())).collect()
    }

    /// The model with other types. Tensors in `known` have these bytes; others are encoded when a device requests them.
    fn made(&self, types: HashMap<usize, DType>, known: HashMap<usize, Vec<u8>>) -> Result<(ModelFile, Fault)> {
        let TargetInput { source, importance, threads, .. } = &self.input;
        let Description::Gguf(metadata) = source.description() else {
            return Err(Error::Request("expected a GGUF file".to_owned()));
        };
        let mut metadata = metadata.clone();
        metadata.remove(LAYOUT_KEY);
        let mut tensors = source.tensors().to_vec();
        for (number, dtype) in &types {
            let info = &tensors[*number];
            tensors[*number] = TensorInfo::new(info.name.clone(), &info.shape, *dtype)?;
        }
        let numbers: HashMap<String, usize> =
            tensors.iter().enumerate().map(|(number, info)| (info.name.clone(), number)).collect();
        let (fault, source, importance, threads) = (Fault::default(), source.clone(), importance.clone(), *threads);
        let found = fault.clone();
        let make = move |info: &TensorInfo| {
            let number = numbers.get(&info.name).copied().unwrap_or(usize::MAX);
            if let Some(bytes) = known.get(&number) {
                return bytes.clone();
            }
            let encoder = Encoder::new(&*source, importance.as_deref(), threads);
            match encoder.and_then(|encoder| encoder.encode(number, info.dtype)) {
                Ok(encoded) => encoded.bytes,
                Err(error) => {
                    found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    vec![0; info.bytes as usize]
                }
            }
        };
        let model = ModelFile::made(self.input.source.path(), metadata, tensors, Box::new(make))?;
        Ok((model, fault))
    }

    fn weights(&self, model: ModelFile) -> Weights {
        Weights::over(Arc::new(model), self.input.devices.clone(), self.input.fallback.clone())
    }

    fn session(&self, weights: Arc<Weights>, fault: &Fault) -> Result<Session> {
        let options = SessionOptions { context: Some(self.input.corpus.context()), ..SessionOptions::default() };
        let session = Session::new(weights, &options)?;
        check(fault)?;
        Ok(session)
    }

    /// The cost of each candidate of each group.
    fn costs(&self, known: &Measurements) -> Result<Vec<Vec<f64>>> {
        let of = |group: &Group| {
            let measured = known.groups.get(&group.name).filter(|measured| measured.is_complete(group, false));
            measured.map(|measured| measured.costs(group))
        };
        let costs: Option<Vec<Vec<f64>>> = self.groups.iter().map(of).collect();
        let missing = || Error::Request("the measurements are not complete; measure again".to_owned());
        let mut costs = costs.ok_or_else(missing)?;
        credit_floats(&self.groups, &mut costs, known.base_kl.map_or(0.0, f64::from));
        Ok(costs)
    }

    fn options_of(&self, costs: &[Vec<f64>], option: impl Fn(&Group, DType, f64) -> Choice) -> Vec<Vec<Choice>> {
        let of = |(group, costs): (&Group, &Vec<f64>)| {
            group.candidates.iter().zip(costs).map(|(dtype, cost)| option(group, *dtype, *cost)).collect()
        };
        self.groups.iter().zip(costs).map(of).collect()
    }

    fn plan_of(&self, known: &Measurements, costs: &[Vec<f64>], chosen: &[usize]) -> TargetPlan {
        let base = known.base_kl.map_or(0.0, f64::from);
        let more: f64 = costs.iter().zip(chosen).map(|(costs, option)| costs[*option]).sum();
        let predicted_kl = (base + more).max(0.0);
        TargetPlan { types: self.types(chosen), bytes: self.bytes(chosen), predicted_kl }
    }

    fn types(&self, chosen: &[usize]) -> BTreeMap<String, DType> {
        let tensors = self.input.source.tensors();
        let of = |(group, option): (&Group, &usize)| {
            let dtype = group.candidates[*option];
            group.tensors.iter().map(|number| (tensors[*number].name.clone(), dtype)).collect::<Vec<_>>()
        };
        self.groups.iter().zip(chosen).flat_map(of).collect()
    }

    fn bytes(&self, chosen: &[usize]) -> u64 {
        self.fixed_bytes.saturating_add(self.group_bytes(chosen))
    }

    fn group_bytes(&self, chosen: &[usize]) -> u64 {
        let tensors = self.input.source.tensors();
        let of = |(group, option): (&Group, &usize)| group.bytes(group.candidates[*option], tensors);
        self.groups.iter().zip(chosen).map(of).fold(0, u64::saturating_add)
    }
}

/// Fails if a tensor could not be encoded.
fn check(fault: &Fault) -> Result<()> {
    match fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The mean with its standard error.
fn mean(values: &[f64]) -> Estimate {
    let mut moments = Moments::default();
    values.iter().for_each(|value| moments.add(*value as f32));
    moments.mean(values.len().max(1))
}
