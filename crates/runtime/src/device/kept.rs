//! Executed steps that may repeat. A tensor is identified by its buffer, its offset and its type. Remembered steps do
//! not keep buffers alive, but no other buffer gets the same address while they are remembered.

use super::{Step, Tensor};
use std::any::Any;
use std::sync::{Arc, Weak};
use trueup_graph::{Op, TensorType};

/// Steps, in order.
#[derive(Debug)]
pub struct KeptSteps(Vec<KeptStep>);

#[derive(Debug)]
struct KeptStep {
    op: Op,
    inputs: Vec<KeptTensor>,
    output: KeptTensor,
}

#[derive(Debug)]
struct KeptTensor {
    /// Its address is no other buffer's as long as this is here.
    buffer: Weak<dyn Any + Send + Sync>,
    offset_bytes: usize,
    ty: TensorType,
}

impl KeptSteps {
    /// What is remembered of steps.
    pub fn of(steps: &[Step]) -> KeptSteps {
        KeptSteps(steps.iter().map(KeptStep::of).collect())
    }

    /// Whether these are the same.
    pub fn is_of(&self, steps: &[Step]) -> bool {
        self.0.len() == steps.len() && self.0.iter().zip(steps).all(|(kept, step)| kept.is_of(step))
    }

    /// Whether all their buffers are still there.
    pub fn is_there(&self) -> bool {
        let mut tensors = self.0.iter().flat_map(|step| step.inputs.iter().chain([&step.output]));
        tensors.all(|tensor| tensor.buffer.strong_count() > 0)
    }
}

impl KeptStep {
    fn of(step: &Step) -> KeptStep {
        KeptStep {
            op: step.op.clone(),
            inputs: step.inputs.iter().map(KeptTensor::of).collect(),
            output: KeptTensor::of(&step.output),
        }
    }

    fn is_of(&self, step: &Step) -> bool {
        let inputs = || self.inputs.iter().zip(&step.inputs).all(|(kept, tensor)| kept.is_of(tensor));
        self.output.is_of(&step.output) && self.op == step.op && self.inputs.len() == step.inputs.len() && inputs()
    }
}

impl KeptTensor {
    fn of(tensor: &Tensor) -> KeptTensor {
        KeptTensor { buffer: Arc::downgrade(&tensor.buffer.0), offset_bytes: tensor.offset_bytes, ty: tensor.ty }
    }

    fn is_of(&self, tensor: &Tensor) -> bool {
        let same_buffer = std::ptr::addr_eq(self.buffer.as_ptr(), Arc::as_ptr(&tensor.buffer.0));
        same_buffer && self.offset_bytes == tensor.offset_bytes && self.ty == tensor.ty
    }
}
