//! The same elements in another type.

use crate::host_tensor::HostTensor;
use trueup_blocks::DType;
use trueup_graph::TensorType;

pub(super) fn evaluate(inputs: &[&HostTensor], output: &TensorType) -> HostTensor {
    let x = inputs[0];
    if x.ty() == output {
        return x.clone();
    }
    // Here the rounding is the operator.
    let cast = HostTensor::real(*output, numbers(x));
    HostTensor::stored(*output, cast.to_bytes().into_owned())
}

/// The elements as numbers, integers too.
fn numbers(x: &HostTensor) -> Vec<f64> {
    let dtype = x.ty().dtype;
    if dtype == DType::I32 {
        x.to_indices().into_iter().map(f64::from).collect()
    } else if dtype == DType::I64 {
        x.to_bytes().as_chunks().0.iter().map(|bytes| to_f64_odd(i64::from_le_bytes(*bytes))).collect()
    } else {
        x.values().into_owned()
    }
}

/// i64 to f64 so that a second rounding, to a narrower type, gives what one rounding would have: bits beyond the 53
/// that an f64 holds are cut off, and the last one kept is set where any of them was ("round to odd", Boldo and
/// Melquiond 2008).
fn to_f64_odd(value: i64) -> f64 {
    let magnitude = value.unsigned_abs();
    let beyond = (64 - f64::MANTISSA_DIGITS).saturating_sub(magnitude.leading_zeros());
    let kept = magnitude >> beyond << beyond;
    let odd = if kept == magnitude { kept } else { kept | (1 << beyond) };
    if value < 0 { -(odd as f64) } else { odd as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_integer_is_rounded_once() {
        // 2^60 + 2^36 lies in the middle between two f32; 1 more, lost in an f64, must still decide.
        let middle = (1i64 << 60) + (1 << 36);
        let cast = |value: i64| to_f64_odd(value) as f32;
        assert_eq!(cast(middle), (60f32).exp2());
        assert_eq!(cast(middle + 1), (60f32).exp2() + (37f32).exp2());
        assert_eq!(cast(-middle - 1), -(60f32).exp2() - (37f32).exp2());
        for value in [0, 1, -7, i64::from(i32::MIN), (1 << 53) - 1, i64::MIN] {
            assert_eq!(to_f64_odd(value) as i64, value);
        }
    }
}
