//! Every variant of every kernel has the bits of the scalar rule, and accesses no byte outside its slices.

use trueup_guard::{Side, expect_in_child, is_child, run_in_child};
use trueup_kernels::samples::{Laid, careless_samples};
use trueup_kernels::{Instructions, Isa, Rows};

/// A test for each kernel.
macro_rules! tests {
    ($($module:ident: $($samples:ident),+;)+) => {
        $($(
            #[test]
            fn $samples() {
                let test = concat!(module_path!(), "::", stringify!($samples));
                super::expect_agreement(test, trueup_kernels::samples::$samples);
            }
        )+)+
    };
}

mod variants_agree {
    trueup_kernels::each_samples!(tests);
}

/// Compares each variant that this machine can run with the scalar one, and prints which it cannot run. `test` is the
/// path of the calling test, which runs again in a child, with the arguments of the variants between guard pages.
fn expect_agreement(test: &str, samples: fn(Instructions) -> Vec<f32>) {
    let scalar = Instructions::of(Isa::Scalar).expect("every machine has the scalar set");
    let expected = samples(scalar);
    assert!(expected.len() >= 64, "too few samples of {test}");
    let placements: &[Option<Side>] = if is_child() { &[Some(Side::Start), Some(Side::End)] } else { &[None] };
    for isa in Isa::ALL {
        let Some(instructions) = Instructions::of(*isa) else {
            #[allow(clippy::print_stderr, reason = "a skipped variant is reported")]
            {
                eprintln!("skipped: the {isa} variant of {test}, which this machine cannot run");
            }
            continue;
        };
        for guards in placements {
            let found = samples(instructions.with_guards(*guards));
            expect_same_bits(test, *isa, &expected, &found);
        }
    }
    if !is_child() {
        expect_in_child(test);
    }
}

/// For NaN, only that both are NaN: Rust does not define its bits.
fn expect_same_bits(test: &str, isa: Isa, expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len());
    for (place, (expected, found)) in expected.iter().zip(found).enumerate() {
        let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
        assert!(same, "{test}, {isa}, result {place}: {expected:e} is {found:e}");
    }
}

#[test]
fn a_variant_that_reads_one_element_too_many_is_found() {
    let test = concat!(module_path!(), "::a_variant_that_reads_one_element_too_many_is_found");
    if is_child() {
        return expect_agreement(test, careless_samples);
    }
    let death = run_in_child(test);
    let expected = Isa::available().iter().any(|isa| ["avx2", "neon"].contains(&isa.name()));
    assert_eq!(death.as_ref().is_err_and(|death| death.contains("(SIG")), expected, "{death:?}");
}

#[test]
fn rows_keep_their_distance_and_end_at_the_guard() {
    let cells: Vec<f32> = (0..40).map(|cell| cell as f32).collect();
    let rows = Rows::strided(&cells, 3, 5, 9);
    let mut laid = Laid::new(rows, Side::End);
    let view = laid.view();
    assert_eq!(view.held().len(), 2 * 9 + 5, "the last row ends the copy");
    assert_eq!((view.count(), view.len(), view.row(2)), (3, 5, rows.row(2)));
}
