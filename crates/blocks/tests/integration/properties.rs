//! What holds for every input: distance of a round trip, finite results, and the exact inverse of the split layout.

use proptest::prelude::*;
use trueup_blocks::{DType, SplitScale};

/// Relative error of rounding to f16 that a normal scale may have.
const HALF_ROUNDING: f64 = 1.0 / 2048.0;
/// Half the distance of subnormal f16 numbers: the absolute error of a small scale.
const HALF_SUBNORMAL: f64 = 1.0 / 33_554_432.0;

fn round_trip(dtype: DType, weights: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let codec = dtype.codec().unwrap();
    let mut bytes = vec![0u8; dtype.row_bytes(weights.len() as u64).unwrap() as usize];
    (codec.encode)(weights, &mut bytes);
    let mut decoded = vec![f32::NAN; weights.len()];
    (codec.decode)(&bytes, &mut decoded);
    (bytes, decoded)
}

/// Largest distance between a weight of the block and what comes back: the part of a step that the rule of the format
/// may lose, and what the rounding of scale and minimum to f16 adds at the farthest code.
fn distance_max(dtype: DType, block: &[f32]) -> f64 {
    let magnitude = block.iter().fold(0.0f64, |largest, &weight| largest.max(f64::from(weight).abs()));
    let low = block.iter().fold(f64::MAX, |low, &weight| low.min(weight.into()));
    let high = block.iter().fold(f64::MIN, |high, &weight| high.max(weight.into()));
    let rounding = |value: f64| value.abs() * HALF_ROUNDING + HALF_SUBNORMAL;
    // Steps lost, the step, the farthest code, and the minimum.
    let (steps, step, code, minimum) = match dtype {
        // The far side has one code less: its extreme is cut by a whole step.
        DType::Q4_0 => (1.0, magnitude / 8.0, 8.0, 0.0),
        DType::Q5_0 => (1.0, magnitude / 16.0, 16.0, 0.0),
        DType::Q8_0 | DType::Q8_1 => (0.5, magnitude / 127.0, 127.0, 0.0),
        DType::Q4_1 => (0.5, (high - low) / 15.0, 15.0, low),
        DType::Q5_1 => (0.5, (high - low) / 31.0, 31.0, low),
        other => panic!("{other} has no step"),
    };
    let arithmetic = (magnitude + high - low) * f64::from(f32::EPSILON) * 4.0;
    steps * step + code * rounding(step) + rounding(minimum) + arithmetic
}

const QUANTIZED: [DType; 6] = [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q8_1];

/// Rows of 1 to 4 blocks whose scales stay in the range of f16: magnitudes from zero and subnormals up to 3e4.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    let exponent = -40..15i32;
    (1usize..=4, exponent).prop_flat_map(|(blocks, exponent)| {
        let weight = prop_oneof![
            8 => (-1.0f32..1.0).prop_map(move |unit| unit * 2f32.powi(exponent)),
            1 => (-20i32..20).prop_map(move |half_steps| half_steps as f32 / 20.0 * 2f32.powi(exponent)),
            1 => prop_oneof![Just(0.0f32), Just(-0.0f32), Just(f32::from_bits(1))],
        ];
        proptest::collection::vec(weight, blocks * 32)
    })
}

proptest! {
    #[test]
    fn a_round_trip_stays_within_the_step(weights in rows()) {
        for dtype in QUANTIZED {
            let (_, decoded) = round_trip(dtype, &weights);
            for (i, (block, decoded)) in weights.chunks(32).zip(decoded.chunks(32)).enumerate() {
                let limit = distance_max(dtype, block);
                for (&weight, &back) in block.iter().zip(decoded) {
                    let distance = (f64::from(weight) - f64::from(back)).abs();
                    prop_assert!(distance <= limit, "{} block {}: {} came back as {}, limit {}", dtype, i, weight, back, limit);
                }
            }
        }
    }

    #[test]
    fn finite_scales_decode_to_finite_weights(bits in proptest::collection::vec(any::<u32>(), 64)) {
        let weights: Vec<f32> = bits.into_iter().map(f32::from_bits).map(|w| if w.is_finite() { w } else { 0.0 }).collect();
        for dtype in QUANTIZED {
            let (bytes, decoded) = round_trip(dtype, &weights);
            // d, and in the types with a minimum m, are the first f16 fields.
            let fields = if matches!(dtype, DType::Q4_1 | DType::Q5_1) { 2 } else { 1 };
            for (block, decoded) in bytes.chunks(dtype.block_bytes()).zip(decoded.chunks(32)) {
                let scales = block[..2 * fields].chunks(2).map(|f| u16::from_le_bytes([f[0], f[1]]));
                let finite = scales.map(|bits| bits >> 10 & 31).all(|exponent| exponent != 31);
                prop_assert!(!finite || decoded.iter().all(|weight| weight.is_finite()), "{}: {:?}", dtype, decoded);
            }
        }
    }

    #[test]
    fn split_and_join_are_inverse_on_any_bytes(seed in any::<[u8; 34]>(), blocks in 0usize..9) {
        for dtype in SplitScale::DTYPES {
            let layout = SplitScale::of(dtype).unwrap();
            let bytes: Vec<u8> = (0..blocks * dtype.block_bytes()).map(|i| seed[i % 34].wrapping_mul(1 + (i / 34) as u8)).collect();
            let mut values = vec![0u8; blocks * layout.value_bytes()];
            let mut scales = vec![0u8; blocks * SplitScale::SCALE_BYTES];
            layout.split(&bytes, &mut values, &mut scales);
            let mut joined = vec![0xA5u8; bytes.len()];
            layout.join(&values, &scales, &mut joined);
            prop_assert_eq!(&joined, &bytes);
            // And from planes to blocks and back.
            let (mut values_again, mut scales_again) = (vec![0xA5u8; values.len()], vec![0xA5u8; scales.len()]);
            layout.split(&joined, &mut values_again, &mut scales_again);
            prop_assert_eq!((values, scales), (values_again, scales_again));
        }
    }

    #[test]
    fn plain_numbers_hold_what_they_can(bits in proptest::collection::vec(any::<u32>(), 33)) {
        let weights: Vec<f32> = bits.into_iter().map(f32::from_bits).filter(|weight| weight.is_finite()).collect();
        for dtype in [DType::F32, DType::F64] {
            let (_, decoded) = round_trip(dtype, &weights);
            prop_assert!(weights.iter().zip(&decoded).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", dtype);
        }
        let (_, decoded) = round_trip(DType::Bf16, &weights);
        for (&weight, &back) in weights.iter().zip(&decoded) {
            let (weight, back) = (f64::from(weight), f64::from(back));
            // Beyond the largest bf16 the nearest is infinity.
            prop_assert!(back.is_infinite() || (weight - back).abs() <= weight.abs() / 256.0 + 2f64.powi(-134), "{weight} {back}");
        }
    }
}
