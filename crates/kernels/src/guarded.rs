//! Arguments of a kernel, copied between guard pages and back: what a test gives a kernel in place of its own slices.
//!
//! Slices of rows end with the last cell of the last row: what lies behind it is no part of what a kernel may look at.

use super::isa::Instructions;
use super::kernel;
use super::rows::Rows;
use trueup_graph::op::{Gated, Unary};
use trueup_guard::{Guarded, Side};

/// One argument: the caller's, and its copy.
pub struct Laid<A: Argument> {
    argument: A,
    copy: A::Copy,
}

impl<A: Argument> Laid<A> {
    /// Copies what the argument refers to, with this side at a guard page.
    pub fn new(argument: A, side: Side) -> Laid<A> {
        let copy = argument.copy(side);
        Laid { argument, copy }
    }

    /// What the kernel gets.
    pub fn view(&mut self) -> A::View<'_> {
        self.argument.view(&mut self.copy)
    }

    /// What the kernel wrote goes to the caller.
    pub fn give_back(self) {
        self.argument.give_back(self.copy);
    }
}

/// A type among the kernels' arguments.
pub trait Argument: Sized {
    /// Keeps what the argument refers to.
    type Copy;
    /// The argument again, of the copy.
    type View<'c>;

    /// Copies what the argument refers to.
    fn copy(&self, side: Side) -> Self::Copy;

    /// The argument of the copy.
    fn view<'c>(&self, copy: &'c mut Self::Copy) -> Self::View<'c>;

    /// Writes back what may have been written.
    fn give_back(self, _copy: Self::Copy) {}
}

impl<T: Copy + 'static> Argument for &[T] {
    type Copy = Guarded<T>;
    type View<'c> = &'c [T];

    fn copy(&self, side: Side) -> Guarded<T> {
        Guarded::of(self, side)
    }

    fn view<'c>(&self, copy: &'c mut Guarded<T>) -> &'c [T] {
        copy.as_slice()
    }
}

impl<T: Copy + 'static> Argument for &mut [T] {
    type Copy = Guarded<T>;
    type View<'c> = &'c mut [T];

    fn copy(&self, side: Side) -> Guarded<T> {
        Guarded::of(self, side)
    }

    fn view<'c>(&self, copy: &'c mut Guarded<T>) -> &'c mut [T] {
        copy.as_mut_slice()
    }

    fn give_back(self, copy: Guarded<T>) {
        self.copy_from_slice(copy.as_slice());
    }
}

impl<T: Copy + 'static, const N: usize> Argument for &mut [T; N] {
    type Copy = Guarded<T>;
    type View<'c> = &'c mut [T; N];

    fn copy(&self, side: Side) -> Guarded<T> {
        Guarded::of(&self[..], side)
    }

    fn view<'c>(&self, copy: &'c mut Guarded<T>) -> &'c mut [T; N] {
        copy.as_mut_slice().try_into().expect("as many as were copied")
    }

    fn give_back(self, copy: Guarded<T>) {
        self.copy_from_slice(copy.as_slice());
    }
}

impl<E: Copy + 'static> Argument for Rows<'_, E> {
    type Copy = Guarded<E>;
    type View<'c> = Rows<'c, E>;

    fn copy(&self, side: Side) -> Guarded<E> {
        Guarded::of(self.held(), side)
    }

    fn view<'c>(&self, copy: &'c mut Guarded<E>) -> Rows<'c, E> {
        self.over(copy.as_slice())
    }
}

/// Types that refer to nothing.
macro_rules! plain {
    ($($Type:ty),+) => {$(
        impl Argument for $Type {
            type Copy = ();
            type View<'c> = $Type;

            fn copy(&self, _: Side) {}

            fn view(&self, (): &mut ()) -> $Type {
                *self
            }
        }
    )+};
}

plain!(f32, usize, Gated, Unary);

kernel! {
    /// A copy, in variants that read one element too many.
    fn careless(x: &[f32], y: &mut [f32]) {
        avx2 => one_too_far,
        neon => one_too_far,
        scalar => copied,
    }
    careless_samples on samples
}

fn copied(x: &[f32], y: &mut [f32]) {
    y.copy_from_slice(x);
}

/// Copies, and reads one element more.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(unsafe_code, reason = "memory outside of a slice is touched on purpose")]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon,dotprod"))]
fn one_too_far(x: &[f32], y: &mut [f32]) {
    copied(x, y);
    // SAFETY: none: what follows the slice is read on purpose, in a child that a guard page kills.
    unsafe { x.as_ptr().wrapping_add(x.len()).read_volatile() };
}

fn samples(instructions: Instructions) -> Vec<f32> {
    let (x, mut y) = ([1.0; 101], vec![0.0; 77]);
    careless(instructions, &x[..77], &mut y);
    y
}
