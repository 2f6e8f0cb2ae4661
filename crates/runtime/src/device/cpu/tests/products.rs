//! Matrix products, judged by the noise that their declared profile must cause: docs/numerics.md#sums-of-products.

use super::decoded::SUB_BLOCKS;
use super::*;
use crate::profile::{Accumulator, Activations, Products};
use trueup_graph::op::MulMat;

const PLAIN: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];
pub(super) const BLOCKS: [DType; 6] = [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q8_1];

/// Activations as declared: per 32 the scale in f32 and codes rounded half to even.
fn as_declared(x: &[f32], activations: Activations) -> Vec<f64> {
    match activations {
        Activations::Unchanged => x.iter().map(|x| f64::from(*x)).collect(),
        Activations::Q8 { .. } => x
            .chunks(32)
            .flat_map(|block| {
                let scale = block.iter().fold(0f32, |largest, x| largest.max(x.abs())) / 127.0;
                let code = move |x: &f32| f64::from((x / scale).round_ties_even()) * f64::from(scale);
                block.iter().map(move |x| if scale == 0.0 { 0.0 } else { code(x) })
            })
            .collect(),
        Activations::F16 | Activations::Bf16 | Activations::Q8_1 { .. } | Activations::Q8K => {
            panic!("no kernel here rounds activations to {activations:?}")
        }
    }
}

/// Elements that share a scale.
fn sub_block_len(dtype: DType) -> usize {
    if matches!(dtype, DType::Q2K | DType::Q3K | DType::Q6K | DType::Nvfp4) { 16 } else { 32 }
}

/// The minimum of each sub-block, of the formats that have them: what zero codes decode to.
fn minima(w: &Given) -> Vec<f64> {
    let codes = match w.ty.dtype {
        DType::Q4_1 | DType::Q5_1 => 4..w.ty.dtype.block_bytes(),
        DType::Q4K | DType::Q5K => 16..w.ty.dtype.block_bytes(),
        DType::Q2K => 16..80,
        _ => return Vec::new(),
    };
    let mut zeroed = w.clone();
    zeroed.bytes.chunks_mut(w.ty.dtype.block_bytes()).for_each(|block| block[codes.clone()].fill(0));
    zeroed.exact().into_iter().step_by(sub_block_len(w.ty.dtype)).collect()
}

/// Errors over their standard deviation, for each element of a product.
fn normalised_errors(cpu: &Cpu, w: &Given, x: &[f32], tokens: usize) -> Vec<f64> {
    let [len, rows, ..] = w.ty.shape.sizes();
    let inputs = [w.clone(), activation_of(&[len, tokens], x)];
    let profile = profile(cpu, &MulMat.into(), &inputs);
    let found = compute(cpu, &MulMat.into(), &inputs);
    let (weights, x, minima) = (w.exact(), as_declared(x, profile.activations), minima(w));
    let mut errors = Vec::new();
    for (i, found) in found.into_iter().enumerate() {
        let (row, token) = (&weights[i % rows * len..][..len], &x[i / rows * len..][..len]);
        let mut products: Vec<f64> = row.iter().zip(token).map(|(w, x)| w * x).collect();
        let blocks = profile.accumulator == Accumulator::Int32ThenF32;
        if blocks {
            let sub = sub_block_len(w.ty.dtype);
            let sums = |values: &[f64]| values.chunks(sub).map(|block| block.iter().sum()).collect::<Vec<f64>>();
            let of_minima = minima.chunks((len / sub).max(1)).nth(i % rows).unwrap_or_default();
            let of_minima = of_minima.iter().zip(sums(token)).map(|(minimum, sum)| minimum * sum);
            products = match of_minima.collect::<Vec<f64>>() {
                none if none.is_empty() => sums(&products),
                some => sums(&products)
                    .iter()
                    .zip(some)
                    .flat_map(|(sum, of_minimum)| [sum - of_minimum, of_minimum])
                    .collect(),
            };
        }
        let (sum, squares) = (products.iter().sum::<f64>(), products.iter().map(|p| p * p).sum::<f64>());
        let lanes = profile.lanes as f64;
        let terms = if profile.lanes > 1 { products.len() as f64 / lanes + lanes } else { products.len() as f64 };
        // The product of two scales is rounded.
        let rounded = if blocks || profile.products == Products::Rounded { squares } else { 0.0 };
        let accumulated = match profile.accumulator {
            Accumulator::F64 => sum * sum,
            Accumulator::F32 | Accumulator::Int32ThenF32 => terms / 3.0 * sum * sum + terms / 6.0 * squares,
            Accumulator::F16 | Accumulator::TensorCore { .. } => panic!("no kernel here sums that way"),
        };
        let variance = 0.18 * U * U * (accumulated + rounded);
        errors.push((f64::from(found) - sum) / (variance.sqrt() + f64::from(f32::MIN_POSITIVE)));
    }
    errors
}

#[test]
fn products_stay_within_the_declared_noise() {
    let cpu = default_cpu();
    for dtype in PLAIN.into_iter().chain(BLOCKS).chain(SUB_BLOCKS) {
        let lens: &[usize] = match dtype.block_len() {
            1 => &[1, 31, 33, 257, 1024],
            32 => &[32, 64, 96, 288, 1024],
            _ => &[256, 512, 768, 1024],
        };
        let mut errors = Vec::new();
        for (seed, len) in lens.iter().enumerate() {
            for (rows, tokens) in [(1, 1), (7, 2), (31, 3), (33, 4), (100, 5), (257, 1), (9, 9)] {
                let w = weight(dtype, &[*len, rows], 100 + seed as u64);
                errors.extend(normalised_errors(&cpu, &w, &numbers(len * tokens, 200 + seed as u64), tokens));
            }
        }
        let worst = errors.iter().fold(0f64, |worst, z| worst.max(z.abs()));
        let rms = (errors.iter().map(|z| z * z).sum::<f64>() / errors.len() as f64).sqrt();
        assert!(errors.iter().all(|z| z.is_finite()), "{dtype}: not finite");
        assert!(worst <= 8.0 && rms <= 1.3, "{dtype}: worst z {worst}, rms z {rms} of {}", errors.len());
    }
}

#[test]
fn outliers_and_zeros_among_activations_stay_within_the_declared_noise() {
    let cpu = default_cpu();
    for dtype in PLAIN.into_iter().chain(BLOCKS).chain(SUB_BLOCKS) {
        let mut x = numbers(512 * 3, 5);
        x[..512].fill(0.0);
        x.iter_mut().skip(515).step_by(97).for_each(|x| *x *= 1e4);
        let errors = normalised_errors(&cpu, &weight(dtype, &[512, 40], 6), &x, 3);
        assert!(errors.iter().all(|z| z.abs() <= 8.0), "{dtype}: {errors:?}");
    }
}

#[test]
fn integers_within_exact_range_have_no_error() {
    let cpu = default_cpu();
    for dtype in PLAIN {
        let whole = |len, seed| numbers(len, seed).iter().map(|x| (x * 8.0).round()).collect::<Vec<f32>>();
        let ty = TensorType::new(dtype, &[257, 33]);
        let mut bytes = vec![0; ty.bytes()];
        (dtype.codec().unwrap().encode)(&whole(257 * 33, 1), &mut bytes);
        let w = Given { ty, bytes, usage: Usage::Weight };
        let errors = normalised_errors(&cpu, &w, &whole(257 * 5, 2), 5);
        assert!(errors.iter().all(|z| *z == 0.0), "{dtype}");
    }
}

#[test]
fn the_extreme_codes_of_a_file_do_not_saturate() {
    let devices = Isa::available().into_iter().map(|isa| (isa, cpu(1, isa))).collect::<Vec<_>>();
    let types = BLOCKS.into_iter().chain(SUB_BLOCKS);
    for (dtype, code) in types.flat_map(|dtype| [0x00, 0x7F, 0x80, 0xFF].map(|code| (dtype, code))) {
        let len = row_len(dtype, 64);
        let ty = TensorType::new(dtype, &[len, 9]);
        let mut bytes = vec![code; ty.bytes()];
        for block in bytes.chunks_mut(dtype.block_bytes()) {
            // 0.5.
            match dtype {
                DType::Mxfp4 => block[0] = 126,
                DType::Nvfp4 => block[..4].fill(0x30),
                _ => dtype.scale_places().unwrap().iter().for_each(|at| block[*at..at + 2].copy_from_slice(&[0, 0x38])),
            }
        }
        let w = Given { ty, bytes, usage: Usage::Weight };
        for ((isa, cpu), sign) in devices.iter().flat_map(|device| [1.0, -1.0].map(|sign| (device, sign))) {
            let errors = normalised_errors(cpu, &w, &vec![127.0 * sign; len], 1);
            assert!(errors.iter().all(|z| *z == 0.0), "{dtype} {code:#x}, {isa}: {errors:?}");
        }
    }
}

#[test]
fn what_is_not_finite_reaches_the_result() {
    let cpu = default_cpu();
    for dtype in PLAIN.into_iter().chain(BLOCKS).chain(SUB_BLOCKS) {
        for bad in [f32::NAN, f32::INFINITY] {
            let len = row_len(dtype, 64);
            let mut x = numbers(len * 2, 3);
            x[len + 5] = bad;
            let inputs = [weight(dtype, &[len, 3], 4), activation_of(&[len, 2], &x)];
            let found = compute(&cpu, &MulMat.into(), &inputs);
            assert!(found[..3].iter().all(|y| y.is_finite()), "{dtype}: the other token is harmed");
            assert!(found[3..].iter().all(|y| !y.is_finite()), "{dtype}: {bad} is hidden: {found:?}");
        }
    }
}

/// Small scales of any byte: by the OCP formats' definitions e = 255 and 0x7F are NaN; the sign of UE4M3 is ignored.
#[test]
fn extreme_scales_of_fp4_give_zeros_numbers_or_nan() {
    const LEN: usize = 128;
    let cases = [
        (DType::Mxfp4, 1, vec![0u8, 1, 2, 127, 253, 254, 255]),
        (DType::Nvfp4, 4, vec![0x00, 0x01, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]),
    ];
    // The largest scale of mxfp4 times 8, that of the activations, is infinite.
    let x: Vec<f32> = (0..LEN).map(|k| if k % 32 == 0 { 1016.0 } else { (k * 37 % 97) as f32 * 8.0 }).collect();
    let types =
        cases.iter().flat_map(|(dtype, scales, values)| [0x00, 0x88, 0x27].map(|c| (*dtype, *scales, values, c)));
    for (dtype, scales, values, code) in types {
        let ty = TensorType::new(dtype, &[LEN, values.len()]);
        let mut bytes = vec![code; ty.bytes()];
        let blocks = LEN / dtype.block_len();
        for (number, block) in bytes.chunks_mut(dtype.block_bytes()).enumerate() {
            block[..scales].fill(values[number / blocks]);
        }
        let w = Given { ty, bytes, usage: Usage::Weight };
        let expected: Vec<f64> =
            w.exact().chunks(LEN).map(|w| w.iter().zip(&x).map(|(w, x)| w * f64::from(*x)).sum()).collect();
        for (isa, repack) in Isa::available().into_iter().flat_map(|isa| [true, false].map(|repack| (isa, repack))) {
            let cpu = Cpu::new(CpuOptions { threads: 1, isa: Some(isa), repack }).unwrap();
            let found = compute(&cpu, &MulMat.into(), &[w.clone(), activation_of(&[LEN, 1], &x)]);
            for ((found, expected), scale) in found.iter().zip(&expected).zip(values) {
                let close = (f64::from(*found) / expected - 1.0).abs() < 1e-6 || f64::from(*found) == *expected;
                let infinite = expected.abs() > f64::from(f32::MAX) && found.is_infinite();
                let same = close || infinite || expected.is_nan() && found.is_nan();
                assert!(same, "{dtype} {scale:#x}, codes {code:#x}, {isa}: {found:e}, expected {expected:e}");
            }
        }
    }
}

#[test]
fn rows_of_no_elements_make_zeros() {
    let cpu = default_cpu();
    for dtype in PLAIN.into_iter().chain(BLOCKS).chain(SUB_BLOCKS) {
        // The second matrix begins inside a panel.
        let inputs = [weight(dtype, &[0, 7, 2], 1), activation(&[0, 2, 2], 2)];
        assert_eq!(compute(&cpu, &MulMat.into(), &inputs), [0.0; 28], "{dtype}");
    }
}
