//! Functions over rows with several variants. The fastest variant that the machine supports is selected at run time.
//! The same declaration generates a test that all variants write the same bits, and that none accesses a byte outside
//! its slices: the test is repeated in a child process with guard pages.
//!
//! ```text
//!  dispatch! {
//!      fn NAME(source: &[S], target: &mut [T]) {
//!          fast VARIANT("feature", ...) => path of the function that enables exactly these features,
//!          neon => path of the function for aarch64, if it has one,
//!          portable => path of a function for all other machines, if the rule is too slow,
//!          scalar => path of the readable rule,
//!      }
//!      TEST_NAME on SOURCE_ELEMENTS, in DTYPE
//!  }
//! ```
//!
//! The encoders with importance have a second source, `importance: &[f32]`.
//!
//! Variants are listed fastest first, the scalar rule last. If there is a portable variant, only the test uses the
//! rule.

/// Declares a function with variants and the test of their agreement; the form stands above.
macro_rules! dispatch {
    (
        $vis:vis fn $name:ident($source:ident: &[$S:ty], $target:ident: &mut [$T:ty]) {
            $(fast $variant:ident($($feature:tt),+) => $fast:path,)*
            $(neon => $neon:path,)?
            $(portable => $portable:path,)?
            scalar => $scalar:path,
        }
        $test:ident on $samples:expr, in $dtype:expr
    ) => {
        $vis fn $name($source: &[$S], $target: &mut [$T]) {
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::arch::is_x86_feature_detected!($feature))&&+ {
                    // SAFETY: every feature that the function enables was just found on this processor.
                    #[allow(unsafe_code)]
                    unsafe {
                        return $fast($source, $target);
                    }
                }
            )*
            dispatch!(@last [$($neon)?] [$($portable)?] $scalar, $source, $target)
        }

        #[cfg(test)]
        #[test]
        fn $test() {
            #[allow(unused_mut)]
            let mut agreement = $crate::dispatch::Agreement::<$S, $T>::of($dtype, $samples, $scalar);
            $(agreement.check("portable", &$portable);)?
            $(
                #[cfg(target_arch = "aarch64")]
                agreement.check("neon", &$neon);
            )?
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::arch::is_x86_feature_detected!($feature))&&+ {
                    // SAFETY: every feature that the function enables was just found on this processor.
                    #[allow(unsafe_code)]
                    agreement.check(stringify!($variant), &|source, target| unsafe { $fast(source, target) });
                } else {
                    agreement.skip(stringify!($variant));
                }
            )*
            agreement.finish(concat!(module_path!(), "::", stringify!($test)));
        }
    };
    (
        $vis:vis fn $name:ident($weights:ident: &[f32], $importance:ident: &[f32], $bytes:ident: &mut [u8]) {
            $(fast $variant:ident($($feature:tt),+) => $fast:path,)*
            $(neon => $neon:path,)?
            scalar => $scalar:path,
        }
        $test:ident on $samples:expr, in $dtype:expr
    ) => {
        $vis fn $name($weights: &[f32], $importance: &[f32], $bytes: &mut [u8]) {
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::arch::is_x86_feature_detected!($feature))&&+ {
                    // SAFETY: every feature that the function enables was just found on this processor.
                    #[allow(unsafe_code)]
                    unsafe {
                        return $fast($weights, $importance, $bytes);
                    }
                }
            )*
            dispatch!(@last [$($neon)?] [] $scalar, $weights, $importance, $bytes)
        }

        #[cfg(test)]
        #[test]
        fn $test() {
            use $crate::samples::importance;

            fn rule(weights: &[f32], bytes: &mut [u8]) {
                $scalar(weights, &importance(weights.len()), bytes);
            }

            #[allow(unused_mut)]
            let mut agreement = $crate::dispatch::Agreement::<f32, u8>::of($dtype, $samples, rule);
            $(
                #[cfg(target_arch = "aarch64")]
                agreement.check("neon", &|weights, bytes| $neon(weights, &importance(weights.len()), bytes));
            )?
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::arch::is_x86_feature_detected!($feature))&&+ {
                    agreement.check(stringify!($variant), &|weights, bytes| {
                        // SAFETY: every feature that the function enables was just found on this processor.
                        #[allow(unsafe_code)]
                        unsafe { $fast(weights, &importance(weights.len()), bytes) }
                    });
                } else {
                    agreement.skip(stringify!($variant));
                }
            )*
            agreement.finish(concat!(module_path!(), "::", stringify!($test)));
        }
    };
    (@last [] [] $scalar:path, $($argument:ident),+) => {
        $scalar($($argument),+)
    };
    (@last [] [$portable:path] $scalar:path, $($argument:ident),+) => {
        $portable($($argument),+)
    };
    (@last [$neon:path] [$($portable:path)?] $scalar:path, $($argument:ident),+) => {{
        #[cfg(target_arch = "aarch64")]
        {
            $neon($($argument),+)
        }
        #[cfg(not(target_arch = "aarch64"))]
        {
            dispatch!(@last [] [$($portable)?] $scalar, $($argument),+)
        }
    }};
}

#[cfg(test)]
pub(crate) use agreement::Agreement;

#[cfg(test)]
mod agreement {
    use crate::DType;
    use crate::decoder::K_LEN;
    use trueup_guard::{Guarded, Side, expect_in_child, is_child};

    /// What a row is made of, on either side of a codec.
    pub(crate) trait Element: Copy + Default {
        /// Elements of one block.
        fn per_block(dtype: DType) -> usize;
        fn bits(self) -> u32;
        fn is_nan(self) -> bool;
        /// Differs from the bits of the default, so that an element left unwritten is seen.
        fn poison() -> Self;
    }

    impl Element for u8 {
        fn per_block(dtype: DType) -> usize {
            dtype.block_bytes()
        }
        fn bits(self) -> u32 {
            self.into()
        }
        fn is_nan(self) -> bool {
            false
        }
        fn poison() -> u8 {
            0xA5
        }
    }

    impl Element for f32 {
        fn per_block(dtype: DType) -> usize {
            dtype.block_len()
        }
        fn bits(self) -> u32 {
            self.to_bits()
        }
        fn is_nan(self) -> bool {
            f32::is_nan(self)
        }
        fn poison() -> f32 {
            f32::from_bits(0x7FA5_A5A5)
        }
    }

    /// One function's scalar results, against which its other variants are held.
    pub(crate) struct Agreement<S, T> {
        dtype: DType,
        source: Vec<S>,
        scalar: fn(&[S], &mut [T]),
        faults: Vec<String>,
    }

    impl<S: Element, T: Element> Agreement<S, T> {
        pub(crate) fn of(dtype: DType, source: Vec<S>, scalar: fn(&[S], &mut [T])) -> Agreement<S, T> {
            assert!(source.len() >= 64 * S::per_block(dtype), "too few samples to mean anything");
            assert!(source.len().is_multiple_of(S::per_block(dtype)), "samples end inside a block");
            Agreement { dtype, source, scalar, faults: Vec::new() }
        }

        /// Runs the variant on the first blocks, for its tails, and on all; in the child between guard pages. The first
        /// blocks are 0 ..= 40, and 0 ..= 17 for blocks of 256 weights, of which a variant takes at most 16 at once.
        pub(crate) fn check(&mut self, variant: &str, run: &dyn Fn(&[S], &mut [T])) {
            if is_child() {
                return Side::BOTH.into_iter().for_each(|side| self.check_with(variant, &between_guards(side, run)));
            }
            self.check_with(variant, run);
        }

        fn check_with(&mut self, variant: &str, run: &dyn Fn(&[S], &mut [T])) {
            let all = self.source.len() / S::per_block(self.dtype);
            let tails = if self.dtype.block_len() == K_LEN { 17 } else { 40 };
            for blocks in (0..=tails).chain([all]) {
                let source = &self.source[..blocks * S::per_block(self.dtype)];
                let expected = fill(source, self.dtype, blocks, &self.scalar);
                let found = fill(source, self.dtype, blocks, run);
                let differing = expected.iter().zip(&found).position(|(&a, &b)| !self.agree(a, b));
                if let Some(place) = differing {
                    let block = place / T::per_block(self.dtype);
                    let (a, b) = (expected[place].bits(), found[place].bits());
                    self.faults
                        .push(format!("{variant}, {blocks} blocks: block {block}, place {place}: {a:#x} is {b:#x}"));
                }
            }
        }

        /// Bit for bit. Of sums and products only that they are NaN: Rust leaves open which of two NaNs comes out of
        /// them. Plain numbers are moved, not computed, and keep their payload.
        fn agree(&self, a: T, b: T) -> bool {
            a.bits() == b.bits() || self.dtype.is_quantized() && a.is_nan() && b.is_nan()
        }

        /// Only x86-64 variants can be missing at run time.
        #[cfg(target_arch = "x86_64")]
        pub(crate) fn skip(&self, variant: &str) {
            #[allow(clippy::print_stderr, reason = "a skipped variant is said")]
            {
                eprintln!("skipped: the {variant} variant of {}, which this machine cannot run", self.dtype);
            }
        }

        /// Reports what differs. `test` is the path of the test that calls, which is run again in a child.
        pub(crate) fn finish(self, test: &str) {
            assert!(
                self.faults.is_empty(),
                "{} variants differ from the rule:\n{}",
                self.dtype,
                self.faults.join("\n")
            );
            if !is_child() {
                expect_in_child(test);
            }
        }
    }

    /// Runs with both slices at a guard page, the target with what stood there before.
    fn between_guards<S: Copy, T: Copy>(side: Side, run: impl Fn(&[S], &mut [T])) -> impl Fn(&[S], &mut [T]) {
        move |source, target| {
            let (source, mut written) = (Guarded::of(source, side), Guarded::of(target, side));
            run(source.as_slice(), written.as_mut_slice());
            target.copy_from_slice(written.as_slice());
        }
    }

    /// Copies that touch one byte more, on either end: what the test of a variant must find.
    #[allow(unsafe_code, reason = "memory outside of a slice is touched on purpose")]
    mod careless {
        use super::*;
        use trueup_guard::run_in_child;

        fn copy(source: &[u8], target: &mut [u8]) {
            target.copy_from_slice(source);
        }

        fn finds(test: &str, run: impl Fn(&[u8], &mut [u8])) {
            if is_child() {
                let mut agreement = Agreement::<u8, u8>::of(DType::F32, vec![1; 65 * 4], copy);
                agreement.check("careless", &run);
                agreement.finish("");
                return;
            }
            let death = run_in_child(&format!("{}::{test}", module_path!()));
            assert!(death.as_ref().is_err_and(|death| death.contains("(SIG")), "{test}: {death:?}");
        }

        #[test]
        fn a_read_behind_the_source_is_found() {
            finds("a_read_behind_the_source_is_found", |source, target| {
                copy(source, target);
                // SAFETY: none: a byte behind the source is read on purpose, in a child that a guard page kills.
                unsafe { source.as_ptr().wrapping_add(source.len()).read_volatile() };
            });
        }

        #[test]
        fn a_read_before_the_source_is_found() {
            finds("a_read_before_the_source_is_found", |source, target| {
                copy(source, target);
                // SAFETY: none: a byte before the source is read on purpose, in a child that a guard page kills.
                unsafe { source.as_ptr().wrapping_sub(1).read_volatile() };
            });
        }

        #[test]
        fn a_write_behind_the_target_is_found() {
            finds("a_write_behind_the_target_is_found", |source, target| {
                copy(source, target);
                // SAFETY: none: a byte behind the target is written on purpose, in a child that a guard page kills.
                unsafe { target.as_mut_ptr().wrapping_add(target.len()).write_volatile(0) };
            });
        }
    }

    fn fill<S, T: Element>(source: &[S], dtype: DType, blocks: usize, run: &dyn Fn(&[S], &mut [T])) -> Vec<T> {
        let mut target = vec![T::poison(); blocks * T::per_block(dtype)];
        run(source, &mut target);
        target
    }
}
