//! A model whose file is known to fit its architecture: numbers, and the stored type of each weight.

use crate::architecture::Architecture;
use crate::build::{self, Batch};
use crate::faults::Faults;
use crate::hyper::Hyper;
use crate::role::Role;
use crate::tensor_table::{ExpectedTensor, expected_tensors};
use std::collections::HashMap;
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Result, TensorInfo, quote};
use trueup_graph::{Graph, ShapeError, TensorType};

/// A model that graphs can be built of.
#[derive(Clone, Debug)]
pub struct Model {
    architecture: &'static Architecture,
    hyper: Hyper,
    weights: HashMap<(Role, usize), TensorType>,
    slices: Vec<Slice>,
}

/// A weight that is some rows of a tensor of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The name that it has in graphs.
    pub name: String,
    /// The tensor in the file.
    pub stored: String,
    /// Its type.
    pub ty: TensorType,
}

impl Model {
    /// Checks metadata and every tensor of a GGUF file against the architecture's tables. The error names all that is
    /// missing, too much or misshaped at once. Tensors in the split-scale layout must be presented joined.
    pub fn from_gguf(metadata: &Metadata, tensors: &[TensorInfo], path: &Path) -> Result<Model> {
        let architecture = Architecture::of_metadata(metadata, path)?;
        let hyper = Hyper::from_metadata(architecture, metadata, tensors, path)?;
        let mut found: HashMap<&str, &TensorInfo> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut faults = Faults::default();
        let (mut weights, mut slices) = (HashMap::new(), Vec::new());
        for expected in expected_tensors(architecture, &hyper) {
            match found.remove(expected.name.as_str()) {
                None => faults.add(format!("tensor {} is missing", expected.name)),
                Some(tensor) => match weight_type(&expected, tensor) {
                    Ok(ty) => match expected.role.parts(&hyper) {
                        None => drop(weights.insert((expected.role, expected.layer), ty)),
                        Some(parts) => {
                            for (role, slice) in sliced(&expected, &parts, ty) {
                                weights.insert((role, expected.layer), slice.ty);
                                slices.push(slice);
                            }
                        }
                    },
                    Err(fault) => faults.add(format!("tensor {}: {fault}", expected.name)),
                },
            }
        }
        for unknown in tensors.iter().filter(|tensor| found.contains_key(tensor.name.as_str())) {
            faults.add(format!("tensor {} is not known to {}", quote(&unknown.name), architecture.gguf_name));
        }
        faults.check(path, "tensors", "the file is damaged, or this variant of the model is not supported")?;
        Ok(Model { architecture, hyper, weights, slices })
    }

    /// The tables that describe it.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Its numbers.
    pub fn hyper(&self) -> &Hyper {
        &self.hyper
    }

    /// The stored type of a weight; `None` when the model has no such tensor. `layer` is 0 where there is only one.
    pub fn weight(&self, role: Role, layer: usize) -> Option<TensorType> {
        self.weights.get(&(role, layer)).copied()
    }

    /// Weights that are rows of tensors of the file, which graphs know by other names: those of one tensor stand
    /// together, from its first row to its last.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The graph of one batch.
    pub fn graph(&self, batch: &Batch) -> std::result::Result<Graph, ShapeError> {
        build::graph(self, batch)
    }
}

/// The parts of a tensor that stores several.
fn sliced(expected: &ExpectedTensor, parts: &[(Role, usize)], ty: TensorType) -> Vec<(Role, Slice)> {
    let slice = |(role, rows): &(Role, usize)| {
        let sizes = match expected.shape.len() {
            1 => vec![*rows],
            _ => vec![ty.shape[0], *rows],
        };
        let name = role.name(expected.layer);
        (*role, Slice { name, stored: expected.name.clone(), ty: TensorType::new(ty.dtype, &sizes) })
    };
    parts.iter().map(slice).collect()
}

/// The type of a stored tensor that fits what is expected, or what does not.
fn weight_type(expected: &ExpectedTensor, found: &TensorInfo) -> std::result::Result<TensorType, String> {
    let dtype = found.dtype;
    // Outer sizes of 1 say nothing.
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
