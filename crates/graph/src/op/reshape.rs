use super::{Rule, exactly, expect};
use crate::case::{Case, Fill};
use crate::shape::{Shape, TensorType};
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

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
        Ok(TensorType { dtype: x.dtype, shape: self.shape.dense() })
    }

    fn cases() -> Vec<Case> {
        let shapes: [(&[usize], &[usize]); 9] = [
            (&[1], &[1, 1, 1]),
            (&[31], &[1, 31]),
            (&[257, 3], &[3, 257]),
            (&[64, 7], &[16, 4, 7]),
            (&[16, 4, 7], &[64, 7]),
            (&[5, 3, 2, 2], &[60]),
            (&[60], &[2, 3, 5, 2]),
            (&[0, 4], &[4, 0]),
            (&[2048, 64], &[64, 32, 64]),
        ];
        let case = |(from, to): (&[usize], &[usize])| {
            Case::new(Reshape { shape: Shape::new(to) }, &[(TensorType::new(DType::F32, from), Fill::Normal(1.0))])
        };
        shapes.into_iter().map(case).collect()
    }
}
