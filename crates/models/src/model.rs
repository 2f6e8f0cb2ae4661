//! A model that was checked against its architecture: its parts, and the stored type of each weight.

use crate::architecture::Architecture;
use crate::build::{self, Batch};
use crate::diagnostics::Diagnostics;
use crate::layer_names::LayerNames;
use crate::spec::ModelSpec;
use crate::tensor::TensorSpec;
use std::collections::HashMap;
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Result, TensorInfo, quote};
use trueup_graph::{Graph, ShapeError, TensorType};

/// A validated model, ready for the graph builder.
#[derive(Clone, Debug)]
pub struct Model {
    spec: ModelSpec,
    /// Types of weights, by their names in graphs.
    weights: HashMap<String, TensorType>,
    slices: Vec<Slice>,
    notes: Vec<String>,
}

/// A weight stored as consecutive rows of a tensor in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Its name in graphs.
    pub name: String,
    /// The tensor in the file.
    pub stored: String,
    /// Its type.
    pub ty: TensorType,
}

impl Model {
    /// Checks the keys and every tensor of a GGUF file. Tensors in the split-scale layout must be presented joined.
    ///
    /// # Errors
    /// All missing, unknown and misshapen tensors in one message.
    pub fn from_gguf(metadata: &Metadata, tensors: &[TensorInfo], path: &Path) -> Result<Model> {
        let architecture = Architecture::of_metadata(metadata, path)?;
        let spec = ModelSpec::from_metadata(architecture, metadata, tensors, path)?;
        let mut found: HashMap<&str, &TensorInfo> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut diagnostics = Diagnostics::default();
        let (mut weights, mut slices) = (HashMap::new(), Vec::new());
        for expected in spec.tensors() {
            let Some(tensor) = found.remove(expected.name.as_str()) else {
                diagnostics.add(format!("tensor {} is missing", expected.name));
                continue;
            };
            match weight_type(&expected, tensor) {
                Ok(ty) if expected.slices.is_empty() => drop(weights.insert(expected.name, ty)),
                Ok(ty) => {
                    for slice in sliced(&expected, ty) {
                        weights.insert(slice.name.clone(), slice.ty);
                        slices.push(slice);
                    }
                }
                Err(problem) => diagnostics.add(format!("tensor {}: {problem}", expected.name)),
            }
        }
        let unknown = tensors.iter().filter(|tensor| found.contains_key(tensor.name.as_str()));
        let notes = check_unknown(&spec, unknown, diagnostics, path)?;
        Ok(Model { spec, weights, slices, notes })
    }

    /// The architecture.
    pub fn architecture(&self) -> &'static Architecture {
        self.spec.architecture()
    }

    /// Sentences about tensors of the file that no result depends on.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Its parts and their numbers.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The stored type of a weight, by its name in graphs; `None` if the model has no such weight.
    pub fn weight(&self, name: &str) -> Option<TensorType> {
        self.weights.get(name).copied()
    }

    /// Weights that are rows of tensors of the file. Those of one tensor follow each other, from its first row to its
    /// last.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The graph of one batch.
    ///
    /// # Errors
    /// Shapes that do not fit, which is a bug of the builder.
    pub fn graph(&self, batch: &Batch) -> std::result::Result<Graph, ShapeError> {
        build::graph(self, batch)
    }
}

/// The weights that are consecutive rows of a tensor.
fn sliced(expected: &TensorSpec, ty: TensorType) -> Vec<Slice> {
    let slice = |(name, rows): &(String, usize)| {
        let sizes = match expected.shape.len() {
            1 => vec![*rows],
            _ => vec![ty.shape[0], *rows],
        };
        Slice { name: name.clone(), stored: expected.name.clone(), ty: TensorType::new(ty.dtype, &sizes) }
    };
    expected.slices.iter().map(slice).collect()
}

/// Fails if a tensor is not known to the architecture or has any other problem. Returns notes about unused tensors.
fn check_unknown<'a>(
    spec: &ModelSpec,
    unknown: impl Iterator<Item = &'a TensorInfo>,
    mut diagnostics: Diagnostics,
    path: &Path,
) -> Result<Vec<String>> {
    let architecture = spec.architecture();
    let expected = spec.tensors();
    let layers = LayerNames::new(expected.iter().map(|tensor| tensor.name.as_str()));
    let (mut notes, mut of_other_layers) = (Vec::new(), Vec::new());
    for unknown in unknown {
        let name = quote(&unknown.name);
        match architecture.unused_in_gguf(&unknown.name) {
            Some(what) => notes.push(format!("tensor {name} is not used ({what})")),
            None if layers.is_of_other_layer(&unknown.name) => of_other_layers.push(unknown.name.as_str()),
            None => diagnostics.add(format!("tensor {name} is not known to {}", architecture.gguf_name)),
        }
    }
    let is_sound = diagnostics.list().is_empty();
    let mut help = "get the file again or convert the model again; if the file is correct, trueup does not support \
                    this variant of the model"
        .to_owned();
    for others in layers.others(of_other_layers) {
        let key = others.gguf_key(architecture.gguf_name);
        diagnostics.add(others.problem(&key));
        if is_sound {
            help = format!("correct {key}, or get the file again");
        }
    }
    diagnostics.check(path, "tensors", &help)?;
    Ok(notes)
}

/// The type of a stored tensor that fits the expected one, or the difference.
fn weight_type(expected: &TensorSpec, found: &TensorInfo) -> std::result::Result<TensorType, String> {
    let dtype = found.dtype;
    // Outer sizes of 1 have no meaning.
    let mut shape = found.shape.clone();
    while shape.len() > expected.shape.len() && shape.last() == Some(&1) {
        shape.pop();
    }
    if shape != expected.shape {
        return Err(format!("expected shape {:?}, found {:?}", expected.shape, found.shape));
    }
    let is_number = dtype.is_float() || dtype.is_quantized();
    if dtype.decoder().is_none() || !is_number {
        return Err(format!("expected a type that this version supports, found {dtype}"));
    }
    if expected.shape.len() == 1 && !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return Err(format!("expected f32, f16 or bf16 for one dimension, found {dtype}"));
    }
    let sizes: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
    Ok(TensorType::new(dtype, &sizes.ok_or("expected a size that fits into the address space")?))
}
