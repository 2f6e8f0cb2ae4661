use super::{Rule, exactly, expect};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};

/// The same elements in the same order under another shape. Shares its input's memory.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reshape {
    /// The new shape, of as many elements.
    pub shape: Shape,
}

impl Rule for Reshape {
    const NAMES: &'static [&'static str] = &["reshape"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [x] = exactly(inputs)?;
        expect(x.shape.elements() == self.shape.elements(), || {
            format!("{} has {} elements, {} has {}", x.shape, x.shape.elements(), self.shape, self.shape.elements())
        })?;
        Ok(TensorType { dtype: x.dtype, shape: self.shape })
    }
}
