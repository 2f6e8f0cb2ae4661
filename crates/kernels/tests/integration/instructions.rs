//! Instruction sets, and instructions that the SSE4.1 variants compute by others.

#[cfg(target_arch = "x86_64")]
use half::f16;
use trueup_kernels::Isa;
#[cfg(target_arch = "x86_64")]
use trueup_kernels::samples::{sse41_multiply_add, sse41_widen};

#[test]
fn names_are_found_and_the_scalar_set_is_always_available() {
    for isa in Isa::ALL {
        assert_eq!(Isa::from_name(isa.name()), Some(*isa));
    }
    assert_eq!(Isa::available().last(), Some(&Isa::Scalar));
    assert_eq!(Isa::from_name("mmx"), None);
}

/// Ends of the ranges, and numbers whose products and sums lie close to the middle between two f32.
#[cfg(target_arch = "x86_64")]
fn numbers() -> Vec<f32> {
    let bits = [0, 1, 2, 0x007F_FFFF, 0x0080_0000, 0x0080_0001, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000];
    let near_one = [1.0, 1.0 - 2f32.powi(-15), 1.0 + 2f32.powi(-15), 1.0 + 2f32.powi(-23), 1.0 - 2f32.powi(-24)];
    let powers = [-140, -126, -75, -74, -63, -24, -12, 0, 64, 127];
    let scaled = powers.iter().flat_map(|power| near_one.map(|number| number * 2f32.powi(*power)));
    let positive: Vec<f32> = bits.into_iter().map(f32::from_bits).chain(scaled).collect();
    positive.iter().flat_map(|number| [*number, -number]).collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn sums_of_products_are_rounded_once() {
    if !Isa::Sse41.is_available() {
        return;
    }
    let numbers = numbers();
    let mut rounded_twice = 0;
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
        for c in numbers.as_chunks::<4>().0 {
            let found = sse41_multiply_add(a, b, c).expect("the processor has the instructions");
            for (found, c) in found.into_iter().zip(c) {
                let expected = a.mul_add(b, *c);
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{a:e} * {b:e} + {c:e} = {expected:e}, not {found:e}");
                let twice = (f64::from(a) * f64::from(b) + f64::from(*c)) as f32;
                rounded_twice += usize::from(!expected.is_nan() && twice.to_bits() != expected.to_bits());
            }
        }
    }
    assert!(rounded_twice > 100, "{rounded_twice} cases in which rounding twice differs");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_f16_is_widened() {
    if !Isa::Sse41.is_available() {
        return;
    }
    for bits in 0..=u16::MAX {
        let number = f16::from_bits(bits);
        let [.., found] = sse41_widen(&[number; 4]).expect("the processor has the instructions");
        assert!(found.to_bits() == number.to_f32().to_bits() || found.is_nan() && number.is_nan(), "{bits:#x}");
    }
}
