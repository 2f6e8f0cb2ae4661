//! How arguments of C become values: tensors with a type and a checked view, numbers, lists.

use crate::{
    element::Type,
    object::{self, FRACTAL_NZ, Handle, ScalarObject, TensorObject},
    status::{PARAMETER_INVALID, PARAMETER_NULL, Refusal},
    view::View,
};
use std::ffi::c_char;

/// A tensor argument whose view is sound in itself.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// The argument's name.
    pub argument: &'static str,
    /// The handle it came by.
    pub handle: u64,
    /// Its view.
    pub view: View,
    /// `aclFormat`.
    pub format: i32,
}

/// A number argument.
#[derive(Debug, Clone, Copy)]
pub struct Scalar {
    /// Type and value.
    pub value: ScalarObject,
}

/// Elements of a view at most: beyond, no card holds it.
const COUNT_MAX: u64 = 1 << 40;

/// Elements of a view that shows some of its memory more than once: each takes memory of the host when it is computed
/// with.
const REPEATED_MAX: u64 = 1 << 28;

/// Tensor data lies at multiples of this.
const ALIGNMENT: u64 = 32;

/// Why a tensor's data cannot lie at an address; none where it can.
pub fn no_place(at: u64) -> Option<String> {
    // No processor of today has longer addresses.
    const ADDRESS_BITS: u32 = 57;
    if at >> ADDRESS_BITS > 0 {
        return Some(format!("is at {at:#x}, which is not an address"));
    }
    let aligned = at.is_multiple_of(ALIGNMENT);
    (!aligned).then(|| format!("is at {at:#x}, but tensor data must be aligned to {ALIGNMENT}"))
}

impl Tensor {
    /// The view of a tensor object.
    ///
    /// # Errors
    /// 161001: no data although it has elements; 161002: a type that is not computed with, more than 8 axes, a negative
    /// size, no address or an unaligned one.
    pub fn of(object: &TensorObject, handle: u64, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        let refuse = |what: String| Err(Refusal::new(PARAMETER_INVALID, format!("{operator}: {argument} {what}")));
        let Some(ty) = Type::of(object.type_code) else {
            return refuse(format!("has the data type {}, which no simulated operator supports", object.type_code));
        };
        if object.shape.len() > 8 {
            return refuse(format!("has {} axes, at most 8 are taken", object.shape.len()));
        }
        let unsigned =
            |numbers: &[i64]| numbers.iter().map(|&number| u64::try_from(number).ok()).collect::<Option<Vec<u64>>>();
        let (Some(shape), Some(strides), Ok(offset)) =
            (unsigned(&object.shape), unsigned(&object.strides), u64::try_from(object.offset))
        else {
            return refuse("has a negative size, stride or offset".to_owned());
        };
        let reach = shape
            .iter()
            .zip(&strides)
            .try_fold(offset, |reach, (&size, &stride)| reach.checked_add(stride.checked_mul(size.saturating_sub(1))?));
        let count = shape.iter().try_fold(1u64, |count, &size| count.checked_mul(size.max(1)));
        if count.is_none_or(|count| count > COUNT_MAX) || reach.is_none_or(|reach| reach > COUNT_MAX) {
            return refuse("is larger than any card's memory".to_owned());
        }
        let shown = reach.map_or(0, |reach| reach.saturating_sub(offset)).saturating_add(1);
        if count.is_some_and(|count| count > shown && count > REPEATED_MAX) {
            return refuse(format!(
                "repeats its memory to more than the {REPEATED_MAX} elements that are computed with"
            ));
        }
        let uneven = |(&size, &stride): (&u64, &u64)| size > 1 && stride != 1 && !stride.is_multiple_of(2);
        if ty == Type::I4 && shape.iter().zip(&strides).any(uneven) {
            return refuse("is int4, and a stride of it is odd, which only the innermost axis may have".to_owned());
        }
        let view = View { at: object.data, offset, ty, shape, strides };
        if view.count() > 0 && object.data == 0 {
            return Err(Refusal::new(
                PARAMETER_NULL,
                format!("{operator}: {argument} has elements and a null data pointer"),
            ));
        }
        if let Some(what) = no_place(object.data) {
            return refuse(what);
        }
        Ok(Self { argument, handle, view, format: object.format })
    }

    /// Its type.
    pub fn ty(&self) -> Type {
        self.view.ty
    }

    /// Its sizes.
    pub fn shape(&self) -> &[u64] {
        &self.view.shape
    }

    /// Its axes.
    pub fn rank(&self) -> usize {
        self.view.rank()
    }

    /// Whether it is FRACTAL_NZ.
    pub fn is_nz(&self) -> bool {
        self.format == FRACTAL_NZ
    }
}

/// An argument of the C surface.
pub trait Argument: Sized {
    /// Its type in C.
    type C: Copy;

    /// Takes and checks it.
    fn take(given: Self::C, operator: &str, argument: &'static str) -> Result<Self, Refusal>;

    /// One drawn at random, right or wrong.
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Self::C;
}

impl Argument for Tensor {
    type C = Handle;
    fn take(given: Handle, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        let object = object::tensor(given, &format!("{operator}: {argument}"))?;
        Self::of(&object, given as u64, operator, argument)
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Handle {
        draw.tensor()
    }
}

impl Argument for Scalar {
    type C = Handle;
    fn take(given: Handle, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        Ok(Self { value: object::scalar(given, &format!("{operator}: {argument}"))? })
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Handle {
        draw.scalar()
    }
}

/// An `aclIntArray`.
pub type Ints = Vec<i64>;

impl Argument for Ints {
    type C = Handle;
    fn take(given: Handle, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        object::ints(given, &format!("{operator}: {argument}"))
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Handle {
        draw.ints()
    }
}

/// An `aclTensorList`.
pub type Tensors = Vec<Tensor>;

impl Argument for Tensors {
    type C = Handle;
    fn take(given: Handle, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        let members = object::tensors(given, &format!("{operator}: {argument}"))?;
        members.into_iter().map(|member| Tensor::take(member as Handle, operator, argument)).collect()
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Handle {
        draw.tensors()
    }
}

impl<T: Argument<C = Handle>> Argument for Option<T> {
    type C = Handle;
    fn take(given: Handle, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        if given.is_null() { Ok(None) } else { T::take(given, operator, argument).map(Some) }
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> Handle {
        if draw.chance(3) { std::ptr::null_mut() } else { T::draw(draw) }
    }
}

macro_rules! plain_arguments {
    ($($kind:ty),+) => {
        $(impl Argument for $kind {
            type C = $kind;
            fn take(given: $kind, _: &str, _: &'static str) -> Result<Self, Refusal> {
                Ok(given)
            }
            #[cfg(test)]
            fn draw(draw: &mut super::tests::Draw) -> $kind {
                draw.integer() as $kind
            }
        })+
    };
}

plain_arguments!(i64, i32, i8, u64, f64);

impl Argument for bool {
    /// A byte: C may hand over any, and only 0 is false.
    type C = u8;
    fn take(given: u8, _: &str, _: &'static str) -> Result<Self, Refusal> {
        Ok(given != 0)
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> u8 {
        u8::from(draw.chance(2))
    }
}

/// A text argument.
pub type Text = String;

impl Argument for Text {
    type C = *const c_char;
    fn take(given: *const c_char, operator: &str, argument: &'static str) -> Result<Self, Refusal> {
        object::text(given, &format!("{operator}: {argument}"))
    }
    #[cfg(test)]
    fn draw(draw: &mut super::tests::Draw) -> *const c_char {
        draw.text()
    }
}
