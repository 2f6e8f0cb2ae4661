//! Sizes of tensors: up to four, the innermost first.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Index;
use trueup_blocks::DType;

/// Up to four sizes, innermost first; the missing outer ones are 1. A matrix of `rows` rows is `[columns, rows]`.
///
/// Elements are contiguous, unless the shape is a view, which stores their offset and strides in the source:
///
/// ```text
///   source   0 │ 1 │ 2 │ 3 │ 4 │ 5        view [3, 2] at 0 by [2, 1]   0 2 4 │ 1 3 5
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "StoredShape", into = "StoredShape")]
pub struct Shape {
    sizes: [usize; 4],
    /// `None` for contiguous elements, so that equal shapes are equal.
    view: Option<Strides>,
}

/// Offset and strides of a view in its source, in elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Strides {
    /// Index of the first element.
    pub offset: usize,
    /// The stride of each dimension.
    pub steps: [usize; 4],
}

/// A shape in JSON: four sizes, or an object where it is a view.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredShape {
    Dense([usize; 4]),
    View { sizes: [usize; 4], view: Strides },
}

impl TryFrom<StoredShape> for Shape {
    type Error = String;

    /// Returns an error if the number of elements overflows.
    fn try_from(stored: StoredShape) -> Result<Shape, String> {
        let (StoredShape::Dense(sizes) | StoredShape::View { sizes, .. }) = stored;
        if sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size)).is_none() {
            return Err(format!("the number of elements of shape {sizes:?} overflows"));
        }
        Ok(match stored {
            StoredShape::Dense(sizes) => Shape::new(&sizes),
            StoredShape::View { sizes, view } => Shape::new(&sizes).seen_by(view),
        })
    }
}

impl From<Shape> for StoredShape {
    fn from(Shape { sizes, view }: Shape) -> StoredShape {
        view.map_or(StoredShape::Dense(sizes), |view| StoredShape::View { sizes, view })
    }
}

impl Shape {
    /// The shape with these sizes. Panics on more than four: graphs are made by code, not by files.
    pub fn new(sizes: &[usize]) -> Shape {
        let mut all = [1; 4];
        all[..sizes.len()].copy_from_slice(sizes);
        Shape { sizes: all, view: None }
    }

    /// A view of these sizes with the given strides.
    #[must_use]
    pub fn seen_by(&self, strides: Strides) -> Shape {
        let dense = self.dense();
        // The stride of a dimension of size 1 has no effect.
        let steps = dense.strides().steps;
        let same = (0..4).all(|d| self.sizes[d] == 1 || strides.steps[d] == steps[d]);
        let plain = self.elements() == 0 || (strides.offset == 0 && same);
        Shape { view: (!plain).then_some(strides), ..dense }
    }

    /// The same sizes with contiguous elements.
    #[must_use]
    pub fn dense(&self) -> Shape {
        Shape { view: None, ..*self }
    }

    /// Whether elements are contiguous, starting with the first of the source.
    pub fn is_dense(&self) -> bool {
        self.view.is_none()
    }

    /// Offset and strides, of a view or of contiguous elements.
    pub fn strides(&self) -> Strides {
        let [n0, n1, n2, _] = self.sizes;
        self.view.unwrap_or(Strides { offset: 0, steps: [1, n0, n0 * n1, n0 * n1 * n2] })
    }

    /// Minimum number of elements of the source: up to the last one that the view reads. `None` if it overflows.
    pub fn span(&self) -> Option<usize> {
        let Strides { offset, steps } = self.strides();
        if self.elements() == 0 {
            return Some(0);
        }
        let mut dimensions = self.sizes.iter().zip(steps);
        let last = dimensions.try_fold(offset, |last, (size, step)| last.checked_add((size - 1).checked_mul(step)?));
        last?.checked_add(1)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Number of innermost rows: all sizes but the first, multiplied.
    pub fn rows(&self) -> usize {
        self.sizes[1..].iter().product()
    }

    /// All four sizes.
    pub fn sizes(&self) -> [usize; 4] {
        self.sizes
    }

    /// Whether repeating `self` along some dimensions gives `target`: each size divides the other's.
    pub fn repeats_to(&self, target: &Shape) -> bool {
        self.sizes.iter().zip(target.sizes).all(|(size, target)| *size > 0 && target % size == 0)
    }
}

impl Shape {
    /// The shape to which both can be repeated: in each dimension the larger size, of which the other is a divisor,
    /// where 0 is a multiple of every size. `None` where neither size divides the other.
    pub fn repeated_with(&self, other: &Shape) -> Option<Shape> {
        let mut sizes = self.sizes;
        for (size, other) in sizes.iter_mut().zip(other.sizes) {
            *size = if other > 0 && size.is_multiple_of(other) {
                *size
            } else if *size > 0 && other.is_multiple_of(*size) || *size == other {
                other
            } else {
                return None;
            };
        }
        Some(Shape::new(&sizes))
    }
}

impl Index<usize> for Shape {
    type Output = usize;

    fn index(&self, dimension: usize) -> &usize {
        &self.sizes[dimension]
    }
}

impl fmt::Display for Shape {
    /// Without the outer ones: `[64, 7]`; of a view `[7, 64] at 0 by [64, 1]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.sizes.iter().rposition(|size| *size != 1).map_or(1, |last| last + 1);
        f.debug_list().entries(&self.sizes[..used]).finish()?;
        let Some(Strides { offset, steps }) = self.view else { return Ok(()) };
        write!(f, " at {offset} by {:?}", &steps[..used])
    }
}

/// Shape and data type of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TensorType {
    /// Type of an element. Activations are `F32`, and `F64` on the `ref` device.
    pub dtype: DType,
    /// Its sizes.
    pub shape: Shape,
}

impl TensorType {
    /// The type with these sizes, innermost first.
    pub fn new(dtype: DType, sizes: &[usize]) -> TensorType {
        TensorType { dtype, shape: Shape::new(sizes) }
    }

    /// The same type with contiguous elements.
    #[must_use]
    pub fn dense(&self) -> TensorType {
        TensorType { shape: self.shape.dense(), ..*self }
    }

    /// For a view, the contiguous part of its source up to the last element that it reads. Panics if its size
    /// overflows; [`Op::infer`](crate::Op::infer) rejects such views.
    #[must_use]
    pub fn held(&self) -> TensorType {
        if self.shape.is_dense() {
            return *self;
        }
        let span = self.shape.span().unwrap_or_else(|| panic!("the end of {self} overflows"));
        TensorType::new(self.dtype, &[span])
    }

    /// Bytes of the tensor without padding; for a view, of the elements that it reads. Panics if blocks do not divide a
    /// row; the readers of model files reject such tensors.
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
