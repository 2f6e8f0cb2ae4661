//! Byte offsets of a block's f16 scales, used to check whether a block decodes to finite values, and to find
//! their magnitude.
//!
//! ```text
//! q4_0  d . . . .      q4_1  d m . . .      q2_k  . . . d m      q3_k  . . . . d      q4_k, q5_k  d m . . .      q6_k  . . . . d
//! ```

use crate::DType;

/// Types and the byte offsets of their scales in a block: the scale of the codes, then the scale of the minima. All
/// other bytes of a block are integers.
const SCALE_PLACES: &[(DType, &[usize])] = &[
    (DType::Q4_0, &[0]),
    (DType::Q4_1, &[0, 2]),
    (DType::Q5_0, &[0]),
    (DType::Q5_1, &[0, 2]),
    (DType::Q8_0, &[0]),
    (DType::Q8_1, &[0]),
    (DType::Q2K, &[80, 82]),
    (DType::Q3K, &[108]),
    (DType::Q4K, &[0, 2]),
    (DType::Q5K, &[0, 2]),
    (DType::Q6K, &[208]),
    (DType::Iq4Nl, &[0]),
    (DType::Iq4Xs, &[0]),
    (DType::Tq1_0, &[52]),
    (DType::Tq2_0, &[64]),
];

impl DType {
    /// Byte offsets of the f16 scales in a block: the scale of the codes, then the scale of the minima. `None` for
    /// types without f16 scales or without a [`Decoder`](crate::Decoder). All elements are finite if all scales are
    /// finite, and zero if all scales are zero.
    ///
    /// ```
    /// use trueup_blocks::DType;
    ///
    /// assert_eq!(DType::Q4_1.scale_places(), Some(&[0, 2][..]));
    /// assert_eq!(DType::F16.scale_places(), None);
    /// ```
    pub fn scale_places(self) -> Option<&'static [usize]> {
        SCALE_PLACES.iter().find(|(dtype, _)| *dtype == self).map(|(_, places)| *places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    /// A block whose integers are all ones, with these scales.
    fn decoded(dtype: DType, scales: impl Fn(usize) -> f16) -> Vec<f32> {
        let mut bytes = vec![0x11; dtype.block_bytes()];
        for (number, place) in dtype.scale_places().unwrap().iter().enumerate() {
            bytes[*place..place + 2].copy_from_slice(&scales(number).to_le_bytes());
        }
        let mut weights = vec![0.0; dtype.block_len()];
        (dtype.decoder().unwrap().decode)(&bytes, &mut weights);
        weights
    }

    #[test]
    fn every_block_that_can_be_decoded_has_its_scales_listed() {
        for dtype in DType::all().filter(|dtype| dtype.is_quantized()) {
            let has_other_scales = matches!(dtype, DType::Mxfp4 | DType::Nvfp4);
            let expected = dtype.decoder().is_some() && !has_other_scales;
            assert_eq!(dtype.scale_places().is_some(), expected, "{dtype}");
        }
    }

    #[test]
    fn scales_alone_decide_what_is_finite_and_what_is_zero() {
        for dtype in DType::all().filter(|dtype| dtype.scale_places().is_some()) {
            assert!(decoded(dtype, |_| f16::ZERO).iter().all(|weight| *weight == 0.0), "{dtype}");
            assert!(decoded(dtype, |_| f16::MAX).iter().all(|weight| weight.is_finite()), "{dtype}");
            for bad in 0..dtype.scale_places().unwrap().len() {
                let weights = decoded(dtype, |number| if number == bad { f16::NAN } else { f16::ONE });
                assert!(weights.iter().all(|weight| weight.is_nan()), "{dtype}, scale {bad}");
            }
        }
    }
}
