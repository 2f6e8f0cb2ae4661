//! What a device answered when it was asked what it fuses. A node has one place in the graphs of all batches only where
//! the answers do not depend on the number of tokens.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::{Decorator, Device};
use trueup_runtime::profile::Profile;

/// An operator and its types without the number of tokens: the types of the elements and the innermost sizes.
type Form = (&'static str, Vec<(DType, usize)>);

/// Answers by form: whether the device computes it.
pub type Answers = HashMap<Form, bool>;

/// A device whose answers are kept.
pub struct Asked<'a> {
    device: &'a dyn Device,
    answers: Mutex<Answers>,
}

impl<'a> Asked<'a> {
    pub fn new(device: &'a dyn Device) -> Asked<'a> {
        Asked { device, answers: Mutex::default() }
    }

    /// What it answered.
    pub fn into_answers(self) -> Answers {
        self.answers.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decorator for Asked<'_> {
    fn device(&self) -> &dyn Device {
        self.device
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> Result<Profile, String> {
        let answer = self.device.supports(op, inputs, output);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(form(op, inputs, output), answer.is_ok());
        answer
    }
}

/// The form of a computation.
pub fn form(op: &Op, inputs: &[TensorType], output: &TensorType) -> Form {
    (op.name(), inputs.iter().chain([output]).map(|ty| (ty.dtype, ty.shape[0])).collect())
}
