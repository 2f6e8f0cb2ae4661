//! Sizes of tensors: up to four, the innermost first.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Index;
use trueup_blocks::DType;

/// Up to four sizes, innermost first; the missing outer ones are 1. A matrix of `rows` rows is `[columns, rows]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Shape([usize; 4]);

impl Shape {
    /// The shape with these sizes. Panics on more than four: graphs are made by code, not by files.
    pub fn new(sizes: &[usize]) -> Shape {
        let mut all = [1; 4];
        all[..sizes.len()].copy_from_slice(sizes);
        Shape(all)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of innermost rows: all sizes but the first, multiplied.
    pub fn rows(&self) -> usize {
        self.0[1..].iter().product()
    }

    /// All four sizes.
    pub fn sizes(&self) -> [usize; 4] {
        self.0
    }

    /// Whether repeating `self` along some dimensions gives `target`: each size divides the other's.
    pub fn repeats_to(&self, target: &Shape) -> bool {
        self.0.iter().zip(target.0).all(|(size, target)| *size > 0 && target % size == 0)
    }
}

impl Shape {
    /// The shape to which both can be repeated: in each dimension the larger size, of which the other is a divisor, where 0 is a multiple of
    /// every size. `None` where neither size divides the other.
    pub fn repeated_with(&self, other: &Shape) -> Option<Shape> {
        let mut sizes = self.0;
        for (size, other) in sizes.iter_mut().zip(other.0) {
            *size = if other > 0 && size.is_multiple_of(other) {
                *size
            } else if *size > 0 && other.is_multiple_of(*size) || *size == other {
                other
            } else {
                return None;
            };
        }
        Some(Shape(sizes))
    }
}

impl Index<usize> for Shape {
    type Output = usize;

    fn index(&self, dimension: usize) -> &usize {
        &self.0[dimension]
    }
}

impl fmt::Display for Shape {
    /// Without the outer ones: `[64, 7]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|size| *size != 1).map_or(1, |last| last + 1);
        f.debug_list().entries(&self.0[..used]).finish()
    }
}

/// Shape and data type of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TensorType {
    /// What an element is. Activations are `F32`, on the oracle `F64`.
    pub dtype: DType,
    /// Its sizes.
    pub shape: Shape,
}

impl TensorType {
    /// The type with these sizes, innermost first.
    pub fn new(dtype: DType, sizes: &[usize]) -> TensorType {
        TensorType { dtype, shape: Shape::new(sizes) }
    }

    /// Bytes of the tensor without padding. Panics where blocks do not divide a row, which inference refuses.
    pub fn bytes(&self) -> usize {
        assert!(self.shape[0].is_multiple_of(self.dtype.block_len()), "blocks of {} do not divide {self}", self.dtype);
        self.shape.elements() / self.dtype.block_len() * self.dtype.block_bytes()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
