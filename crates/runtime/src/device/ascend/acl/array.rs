//! What an operator is given: elements on the card, numbers, lists of both; and the handles that the libraries know
//! them by.
//!
//! ```text
//!  ours     sizes [4096, 7]     innermost first     steps in elements
//!  theirs   sizes [7, 4096]     outermost first     steps in elements     data: a multiple of 32 bytes, and an offset in elements
//! ```

use super::library::Library;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `aclDataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Type {
    /// 32-bit floating point.
    F32 = 0,
    /// 16-bit floating point.
    F16 = 1,
    /// Signed bytes.
    I8 = 2,
    /// Signed words of 32 bits.
    I32 = 3,
    /// Unsigned bytes.
    U8 = 4,
    /// Signed words of 64 bits.
    I64 = 9,
    /// A byte, 0 or 1.
    Bool = 12,
    /// The upper half of an f32.
    Bf16 = 27,
    /// Signed nibbles, the first of two in the low half of a byte.
    I4 = 29,
}

impl Type {
    /// Bits of an element.
    pub fn bits(self) -> u64 {
        match self {
            Type::I4 => 4,
            Type::I8 | Type::U8 | Type::Bool => 8,
            Type::F16 | Type::Bf16 => 16,
            Type::F32 | Type::I32 => 32,
            Type::I64 => 64,
        }
    }
}

/// Operators want data at multiples of this.
const ALIGN_BYTES: u64 = 32;

/// `ACL_FORMAT_ND`: dimensions without names.
const ND: c_int = 2;

/// Elements on a card, the outermost dimension first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// What an element is.
    pub ty: Type,
    /// A multiple of an element's bytes: where the storage begins.
    pub address: u64,
    /// Where the first element lies behind it, in elements.
    pub offset: i64,
    /// Outermost first.
    pub sizes: Vec<i64>,
    /// From one element to the next of each dimension, in elements; 0 shows the same one again.
    pub steps: Vec<i64>,
}

impl Array {
    /// Elements behind each other.
    pub fn dense(ty: Type, address: u64, sizes: &[i64]) -> Array {
        let mut steps = vec![1; sizes.len()];
        for d in (1..sizes.len()).rev() {
            steps[d - 1] = steps[d] * sizes[d];
        }
        Array { ty, address, offset: 0, sizes: sizes.to_vec(), steps }
    }

    /// How many there are.
    pub fn elements(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Bytes of as many elements behind each other.
    pub fn bytes(&self) -> usize {
        (self.elements().unsigned_abs() * self.ty.bits()).div_ceil(8) as usize
    }

    /// Whether elements lie behind each other.
    pub fn is_dense(&self) -> bool {
        let dense = Array::dense(self.ty, self.address, &self.sizes);
        (0..self.sizes.len()).all(|d| self.sizes[d] == 1 || self.steps[d] == dense.steps[d])
    }

    /// With two dimensions exchanged.
    #[must_use]
    pub fn exchanged(mut self, first: usize, second: usize) -> Array {
        self.sizes.swap(first, second);
        self.steps.swap(first, second);
        self
    }

    /// A part of one dimension.
    #[must_use]
    pub fn part(mut self, dimension: usize, first: i64, size: i64) -> Array {
        self.offset += first * self.steps[dimension];
        self.sizes[dimension] = size;
        self
    }

    /// One dimension as two: `outer` of what is left.
    #[must_use]
    pub fn split(mut self, dimension: usize, outer: i64) -> Array {
        let inner = self.sizes[dimension] / outer.max(1);
        let step = self.steps[dimension];
        self.sizes.splice(dimension..=dimension, [outer, inner]);
        self.steps.splice(dimension..=dimension, [inner * step, step]);
        self
    }

    /// A dimension of size 1 before another.
    #[must_use]
    pub fn inserted(mut self, dimension: usize) -> Array {
        self.sizes.insert(dimension, 1);
        self.steps.insert(dimension, 0);
        self
    }

    /// Dimensions in another order.
    #[must_use]
    pub fn ordered(self, order: &[usize]) -> Array {
        let pick = |numbers: &[i64]| order.iter().map(|d| numbers[*d]).collect();
        Array { sizes: pick(&self.sizes), steps: pick(&self.steps), ..self }
    }

    /// The same elements under other sizes: only of those behind each other.
    #[must_use]
    pub fn under(self, sizes: &[i64]) -> Array {
        Array { offset: self.offset, ..Array::dense(self.ty, self.address, sizes) }
    }

    /// The same bytes as elements of another type: only of those behind each other from the first on.
    #[must_use]
    pub fn of(self, ty: Type) -> Array {
        Array { ty, ..self }
    }

    /// Where the first element lies: data at a multiple of what operators want, and elements from there.
    fn placed(&self) -> (u64, i64) {
        let bits = self.ty.bits();
        let first = self.address * 8 + self.offset.unsigned_abs() * bits;
        let data = first / 8 / ALIGN_BYTES * ALIGN_BYTES;
        (data, ((first - data * 8) / bits) as i64)
    }
}

/// A number that an operator is given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// 32-bit floating point.
    F32(f32),
    /// An integer.
    I64(i64),
}

type CreateTensor =
    unsafe extern "C" fn(*const i64, u64, c_int, *const i64, i64, c_int, *const i64, u64, *mut c_void) -> *mut c_void;
type CreateScalar = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
type CreateNumbers = unsafe extern "C" fn(*const i64, u64) -> *mut c_void;
type CreateList = unsafe extern "C" fn(*const *mut c_void, u64) -> *mut c_void;
/// What destroys a handle.
pub(super) type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Handles that were made for a call, destroyed behind it.
pub(super) struct Held<'a> {
    library: &'a Library,
    handles: Vec<(Destroy, *mut c_void)>,
}

impl<'a> Held<'a> {
    pub fn new(library: &'a Library) -> Held<'a> {
        Held { library, handles: Vec::new() }
    }

    /// Makes a handle, once there is what destroys it.
    fn keep(
        &mut self,
        destroy: &'static CStr,
        what: &str,
        make: impl FnOnce() -> Result<*mut c_void, String>,
    ) -> Result<*mut c_void, String> {
        // SAFETY: a function of that name has this form.
        let destroy = unsafe { self.library.function::<Destroy>(destroy) }?;
        let handle = make()?;
        if handle.is_null() {
            return Err(format!("CANN cannot create a handle for {what}"));
        }
        self.handles.push((destroy, handle));
        Ok(handle)
    }

    fn tensor(&mut self, array: &Array) -> Result<*mut c_void, String> {
        let library = self.library;
        self.keep(c"aclDestroyTensor", "elements", || make_tensor(library, array))
    }

    /// A list of what was made last, which owns it: destroying the list destroys its tensors.
    fn list(&mut self, tensors: &[*mut c_void]) -> Result<*mut c_void, String> {
        let library = self.library;
        let list = self.keep(c"aclDestroyTensorList", "a list", || {
            // SAFETY: a function of that name has this form.
            let create = unsafe { library.function::<CreateList>(c"aclCreateTensorList") }?;
            // SAFETY: an array of this length, which is copied.
            Ok(unsafe { create(tensors.as_ptr(), tensors.len() as u64) })
        })?;
        self.handles.retain(|(_, handle)| !tensors.contains(handle));
        Ok(list)
    }
}

fn make_tensor(library: &Library, array: &Array) -> Result<*mut c_void, String> {
    let rank = array.sizes.len() as u64;
    let (data, offset) = array.placed();
    let last = array.sizes.iter().zip(&array.steps).map(|(size, step)| (size - 1).max(0) * step).sum::<i64>();
    let storage = [offset + last + 1];
    // SAFETY: a function of that name has this form.
    let create = unsafe { library.function::<CreateTensor>(c"aclCreateTensor") }?;
    let (sizes, steps) = (array.sizes.as_ptr(), array.steps.as_ptr());
    // SAFETY: arrays of these lengths, which are copied; the address is the card's.
    Ok(unsafe { create(sizes, rank, array.ty as c_int, steps, offset, ND, storage.as_ptr(), 1, data as *mut c_void) })
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (destroy, handle) in self.handles.drain(..).rev() {
            // SAFETY: a handle that was made by the function of the same name, destroyed once.
            let _told = unsafe { destroy(handle) };
        }
    }
}

/// Something that operators are given, as C has it.
pub(super) trait Pass {
    /// Its type in C.
    type C: Copy;

    /// What C is given, with the handles that it takes.
    fn pass(&self, held: &mut Held) -> Result<Self::C, String>;
}

impl Pass for &Array {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        held.tensor(self)
    }
}

impl Pass for Option<&Array> {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        self.map_or(Ok(std::ptr::null_mut()), |array| array.pass(held))
    }
}

impl Pass for &[&Array] {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        let tensors = self.iter().map(|array| held.tensor(array)).collect::<Result<Vec<_>, String>>()?;
        held.list(&tensors)
    }
}

impl Pass for Scalar {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        let library = held.library;
        held.keep(c"aclDestroyScalar", "a number", || {
            // SAFETY: a function of that name has this form.
            let create = unsafe { library.function::<CreateScalar>(c"aclCreateScalar") }?;
            Ok(match *self {
                // SAFETY: a number of that type, which is copied.
                Scalar::F32(mut number) => unsafe { create((&raw mut number).cast(), Type::F32 as c_int) },
                // SAFETY: as above.
                Scalar::I64(mut number) => unsafe { create((&raw mut number).cast(), Type::I64 as c_int) },
            })
        })
    }
}

impl Pass for &[i64] {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        let library = held.library;
        held.keep(c"aclDestroyIntArray", "a list of numbers", || {
            // SAFETY: a function of that name has this form.
            let create = unsafe { library.function::<CreateNumbers>(c"aclCreateIntArray") }?;
            // SAFETY: an array of this length, which is copied.
            Ok(unsafe { create(self.as_ptr(), self.len() as u64) })
        })
    }
}

impl Pass for Option<&[i64]> {
    type C = *mut c_void;

    fn pass(&self, held: &mut Held) -> Result<*mut c_void, String> {
        self.map_or(Ok(std::ptr::null_mut()), |numbers| numbers.pass(held))
    }
}

impl Pass for &CStr {
    type C = *const c_char;

    fn pass(&self, _: &mut Held) -> Result<*const c_char, String> {
        Ok(self.as_ptr())
    }
}

impl Pass for Type {
    type C = c_int;

    fn pass(&self, _: &mut Held) -> Result<c_int, String> {
        Ok(*self as c_int)
    }
}

macro_rules! plain {
    ($($Type:ty),*) => {
        $(impl Pass for $Type {
            type C = $Type;

            fn pass(&self, _: &mut Held) -> Result<$Type, String> {
                Ok(*self)
            }
        })*
    };
}

plain!(i64, i32, i8, f64, bool);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn views_are_placed_at_aligned_data() {
        let array = Array::dense(Type::F16, 4096, &[3, 40]).part(0, 1, 2);
        assert_eq!(array.placed(), (4096 + 64, 8));
        let nibbles = Array::dense(Type::I4, 4096, &[2, 96]).part(0, 1, 1);
        assert_eq!(nibbles.placed(), (4096 + 32, 32));
    }

    #[test]
    fn dimensions_are_split_and_exchanged() {
        let array = Array::dense(Type::F32, 0, &[6, 4]).split(0, 2).exchanged(0, 1);
        assert_eq!((array.sizes.as_slice(), array.steps.as_slice()), (&[3, 2, 4][..], &[4, 12, 1][..]));
        assert!(!array.is_dense());
        assert!(array.exchanged(0, 1).is_dense());
    }

    /// Handles that were made and destroyed in a test: as many at its end as it says.
    static TENSORS: AtomicUsize = AtomicUsize::new(0);
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    /// Every third tensor is none.
    extern "C" fn create_tensor(
        _: *const i64,
        _: u64,
        _: c_int,
        _: *const i64,
        _: i64,
        _: c_int,
        _: *const i64,
        _: u64,
        _: *mut c_void,
    ) -> *mut c_void {
        let number = TENSORS.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(3) { std::ptr::null_mut() } else { number as *mut c_void }
    }

    extern "C" fn create_list(_: *const *mut c_void, _: u64) -> *mut c_void {
        100 as *mut c_void
    }

    extern "C" fn destroy(_: *mut c_void) -> c_int {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
        0
    }

    /// A list owns its tensors; where it is not made, those that were made for it go all the same.
    #[test]
    fn handles_are_destroyed_once() {
        let functions = [
            (c"aclCreateTensor", create_tensor as CreateTensor as usize),
            (c"aclCreateTensorList", create_list as CreateList as usize),
            (c"aclDestroyTensor", destroy as Destroy as usize),
            (c"aclDestroyTensorList", destroy as Destroy as usize),
        ];
        let array = Array::dense(Type::F32, 0, &[4]);
        let destroyed = || DESTROYED.swap(0, Ordering::Relaxed);
        let library = Library::of(&functions);
        let pass = |arrays: &[&Array]| {
            let passed = arrays.pass(&mut Held::new(&library));
            passed.is_ok()
        };
        assert_eq!((pass(&[&array, &array]), destroyed()), (true, 1));
        assert_eq!((pass(&[&array]), destroyed()), (false, 0));
        assert_eq!((pass(&[&array, &array, &array]), destroyed()), (false, 2));
        // Without what makes lists, and without what destroys tensors, of which none is made then.
        let library = Library::of(&[functions[0], functions[2]]);
        assert!((&[&array, &array][..]).pass(&mut Held::new(&library)).is_err());
        assert_eq!(destroyed(), 2);
        let library = Library::of(&functions[..1]);
        let made = TENSORS.load(Ordering::Relaxed);
        assert!((&array).pass(&mut Held::new(&library)).is_err());
        assert_eq!(TENSORS.load(Ordering::Relaxed), made);
    }
}
