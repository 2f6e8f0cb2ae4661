//! The other operators against their formulas.

use super::*;
use trueup_graph::op::{Arithmetic, Gated, KvMix, KvScores, KvStore, RmsNorm, Rope, RopePairs, RopeScaling, SoftMax};

#[test]
fn rows_are_decoded_exactly() {
    let cpu = default_cpu();
    for dtype in DType::all().filter(|dtype| dtype.codec().is_some() && *dtype != DType::F64) {
        for (width, rows) in [(32, 1), (64, 9), (288, 31)] {
            let width = width * dtype.block_len().div_ceil(32);
            let table = weight(dtype, &[width, rows], 7);
            let indices: Vec<i32> = [0, rows - 1, rows / 2, 0].map(|row| row as i32).to_vec();
            let mut decoded = vec![0.0; width * rows];
            (dtype.codec().unwrap().decode)(&table.bytes, &mut decoded);
            let found = compute(&cpu, &Op::get_rows(DType::F32), &[table, integers(&indices)]);
            let expected: Vec<f32> =
                indices.iter().flat_map(|row| &decoded[*row as usize * width..][..width]).copied().collect();
            assert_eq!(found, expected, "{dtype} [{width}, {rows}]");
        }
    }
}

#[test]
fn activations_are_chosen_exactly() {
    let (x, indices) = (activation(&[33, 5], 1), integers(&[4, 0, 4]));
    let found = compute(&default_cpu(), &Op::get_rows(DType::F32), &[x.clone(), indices]);
    let rows = floats_of(&x.bytes);
    assert_eq!(found, [&rows[4 * 33..], &rows[..33], &rows[4 * 33..]].concat());
}

#[test]
fn sums_are_rounded_once() {
    let cpu = default_cpu();
    let cases: [(&[usize], &[usize]); 8] = [
        (&[33, 5], &[33]),
        (&[31, 4], &[31, 4]),
        (&[6, 4, 3, 2], &[3, 2, 1, 2]),
        (&[1], &[1]),
        (&[257, 2, 3], &[1, 1, 3]),
        (&[1], &[33, 5]),
        (&[3, 2, 1, 2], &[6, 4, 3, 2]),
        (&[8, 1, 6], &[2, 5, 3]),
    ];
    for (a_sizes, b_sizes) in cases {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let (a, b) = (activation(a_sizes, 1), weight(dtype, b_sizes, 2));
            let found = compute(&cpu, &Arithmetic::Add.into(), &[a.clone(), b.clone()]);
            let output = Op::from(Arithmetic::Add).infer(&[a.ty, b.ty]).unwrap().shape;
            let [n0, n1, n2, _] = output.sizes();
            let place = |i: usize, [s0, s1, s2, s3]: [usize; 4]| {
                let (i0, i1, i2, i3) = (i % n0, i / n0 % n1, i / (n0 * n1) % n2, i / (n0 * n1 * n2));
                i0 % s0 + s0 * (i1 % s1 + s1 * (i2 % s2 + s2 * (i3 % s3)))
            };
            let (exact_a, exact_b) = (a.exact(), b.exact());
            let element = |i| exact_a[place(i, a.ty.shape.sizes())] + exact_b[place(i, b.ty.shape.sizes())];
            let expected: Vec<f32> = (0..output.elements()).map(|i| element(i) as f32).collect();
            assert_eq!(found, expected, "{a_sizes:?} + {dtype}{b_sizes:?}");
        }
    }
}

#[test]
fn both_inputs_may_be_activations_of_the_arena() {
    let (a, b) = (activation(&[40, 3], 1), activation(&[40, 3], 2));
    let found = compute(&default_cpu(), &Arithmetic::Add.into(), &[a.clone(), b.clone()]);
    let expected: Vec<f32> = floats_of(&a.bytes).iter().zip(floats_of(&b.bytes)).map(|(a, b)| a + b).collect();
    assert_eq!(found, expected);
}

#[test]
fn rms_norm_is_the_formula() {
    let cpu = default_cpu();
    for sizes in [&[1][..], &[31, 3], &[33, 2, 4], &[257, 9], &[4096, 2]] {
        let (x, w) = (activation(sizes, 3), weight(DType::F32, &sizes[..1], 4));
        let found = compute(&cpu, &RmsNorm { epsilon: 1e-5 }.into(), &[x.clone(), w.clone()]);
        let (x, w, len) = (x.exact(), w.exact(), sizes[0]);
        let row = |row: &[f64]| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / len as f64;
            row.iter().zip(&w).map(|(x, w)| x / (mean + f64::from(1e-5f32)).sqrt() * w).collect::<Vec<f64>>()
        };
        let expected: Vec<f64> = x.chunks(len).flat_map(row).collect();
        let relative = 3.0 * U + 8.0 * U * (0.18 * len as f64 / 3.0).sqrt() / 2.0;
        expect_close(&format!("{sizes:?}"), &found, &expected, |i| relative * expected[i].abs());
    }
}

#[test]
fn swiglu_is_the_formula() {
    let (mut gate, up) = (numbers(31 * 77, 5), activation(&[31, 77], 6));
    gate.iter_mut().for_each(|gate| *gate *= 30.0);
    let gate = activation_of(&[31, 77], &gate);
    let found = compute(&default_cpu(), &Gated::Swiglu.into(), &[gate.clone(), up.clone()]);
    let expected: Vec<f64> =
        gate.exact().iter().zip(up.exact()).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
    expect_close("swiglu", &found, &expected, |i| 5.0 * U * expected[i].abs());
}

#[test]
fn soft_max_is_the_formula() {
    let cpu = default_cpu();
    for (capacity, tokens, heads) in [(1, 1, 1), (31, 2, 3), (64, 4, 2), (257, 3, 4)] {
        let x: Vec<f32> = numbers(capacity * tokens * heads, 8).iter().map(|x| x * 40.0).collect();
        let mut mask = vec![0.0; capacity * tokens];
        for (t, mask) in mask.chunks_mut(capacity).enumerate() {
            mask[(capacity * t / tokens)..].fill(f32::NEG_INFINITY);
        }
        let mask =
            Given { ty: TensorType::new(DType::F32, &[capacity, tokens]), bytes: bytes_of(&mask), usage: Usage::Input };
        let x = activation_of(&[capacity, tokens, heads], &x);
        let found = compute(&cpu, &SoftMax { scale: 0.3, max_bias: 0.0 }.into(), &[x.clone(), mask.clone()]);
        let (x, mask) = (x.exact(), mask.exact());
        for (row, x) in x.chunks(capacity).enumerate() {
            let mask = &mask[row % tokens * capacity..][..capacity];
            let s: Vec<f64> = x.iter().zip(mask).map(|(x, mask)| f64::from(0.3f32) * x + mask).collect();
            let largest = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = s.iter().map(|s| (s - largest).exp()).sum();
            let found = &found[row * capacity..][..capacity];
            if largest == f64::NEG_INFINITY {
                assert!(found.iter().all(|y| y.to_bits() == 0), "a row without anything is zero");
                continue;
            }
            let expected: Vec<f64> = s.iter().map(|s| (s - largest).exp() / total).collect();
            expect_close("soft_max", found, &expected, |j| {
                let relative = U * ((s[j] - largest).abs() + 4.0 + 8.0 * (0.18 * capacity as f64 / 3.0).sqrt());
                if expected[j] == 0.0 { 0.0 } else { relative * expected[j] + f64::from(f32::from_bits(1)) }
            });
        }
    }
}

/// `y[first], y[second]` of each pair by the formulas of the graph's documentation.
fn rotated(op: &Rope, x: &[f64], sizes: [usize; 3], positions: &[i32], factors: Option<&[f64]>) -> Vec<f64> {
    let [head_size, heads, _] = sizes;
    let (n, base) = (op.dimensions as f64, f64::from(op.base));
    let corner = |context: u32, beta: f32| {
        n * (f64::from(context) / (2.0 * std::f64::consts::PI * f64::from(beta))).ln() / (2.0 * base.ln())
    };
    let mut y = x.to_vec();
    for (t, position) in positions.iter().enumerate() {
        for h in 0..heads {
            for i in 0..op.dimensions / 2 {
                let turn = f64::from(*position) * base.powf(-2.0 * i as f64 / n) / factors.map_or(1.0, |f| f[i]);
                let (angle, s) = match op.scaling {
                    RopeScaling::None => (turn, 1.0),
                    RopeScaling::Linear { factor } => (turn / f64::from(factor), 1.0),
                    RopeScaling::Long { magnitude } => (turn, f64::from(magnitude)),
                    RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                        let low = corner(original_context, beta_fast).floor().max(0.0);
                        let high = corner(original_context, beta_slow).ceil().min(n - 1.0);
                        let r = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                        (turn * ((1.0 - r) / f64::from(factor) + r), f64::from(magnitude))
                    }
                };
                let (first, second) = match op.pairs {
                    RopePairs::Neighbours => (2 * i, 2 * i + 1),
                    RopePairs::Halves => (i, i + op.dimensions / 2),
                };
                let start = head_size * (h + heads * t);
                let (x_1, x_2) = (x[start + first], x[start + second]);
                y[start + first] = s * (x_1 * angle.cos() - x_2 * angle.sin());
                y[start + second] = s * (x_1 * angle.sin() + x_2 * angle.cos());
            }
        }
    }
    y
}

#[test]
fn rope_is_the_formula_at_any_position() {
    let cpu = default_cpu();
    let yarn =
        RopeScaling::Yarn { factor: 4.0, original_context: 4096, beta_fast: 32.0, beta_slow: 1.0, magnitude: 1.1386 };
    let positions = [0, 1, 77, 4095, 131071];
    for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 8.0 }, RopeScaling::Long { magnitude: 1.19 }, yarn]
    {
        for (pairs, dimensions) in [(RopePairs::Neighbours, 64), (RopePairs::Halves, 64), (RopePairs::Halves, 6)] {
            for with_factors in [false, true] {
                let op = Rope { pairs, dimensions, base: 10000.0, scaling };
                let x = activation(&[67, 3, 5], 9);
                let factors: Vec<f32> = numbers(dimensions / 2, 10).iter().map(|x| 2.0 + x).collect();
                let factor_type = TensorType::new(DType::F32, &[dimensions / 2]);
                let factors = Given { ty: factor_type, bytes: bytes_of(&factors), usage: Usage::Weight };
                let mut inputs = vec![x.clone(), integers(&positions)];
                inputs.extend(with_factors.then(|| factors.clone()));
                let found = compute(&cpu, &op.into(), &inputs);
                let factors = with_factors.then(|| factors.exact());
                let expected = rotated(&op, &x.exact(), [67, 3, 5], &positions, factors.as_deref());
                expect_close(&format!("{op:?}"), &found, &expected, |i| U * expected[i].abs() + 1e-10);
            }
        }
    }
}

#[test]
fn the_cache_takes_rows_rounded_to_its_type() {
    for (dtype, width) in [(DType::F16, 33), (DType::F32, 33), (DType::Q8_0, 96)] {
        let cache = stored(dtype, &[width, 5, 2], 11, Usage::State);
        let x = activation(&[width, 3], 12);
        let bytes = run(&default_cpu(), &KvStore.into(), &[cache.clone(), x.clone(), integers(&[9, 0, 4])]).unwrap();
        let row_bytes = width / dtype.block_len() * dtype.block_bytes();
        let mut expected = cache.bytes;
        for (row, x) in [9, 0, 4].into_iter().zip(floats_of(&x.bytes).chunks(width)) {
            (dtype.codec().unwrap().encode)(x, &mut expected[row * row_bytes..][..row_bytes]);
        }
        assert_eq!(bytes, expected, "{dtype}");
    }
}

#[test]
fn scores_and_mixtures_are_the_formulas() {
    let cpu = default_cpu();
    for (head_size, heads, kv_heads, tokens, capacity) in [
        (8usize, 1, 1, 1, 1),
        (31, 4, 2, 3, 33),
        (64, 6, 2, 2, 40),
        (80, 3, 3, 5, 7),
        (32, 2, 1, 4, 17),
        (96, 4, 4, 1, 33),
    ] {
        let fits = |dtype: &DType| head_size.is_multiple_of(dtype.block_len());
        for dtype in [DType::F16, DType::F32, DType::Q8_0].into_iter().filter(fits) {
            let cache = stored(dtype, &[head_size * kv_heads, 40, 3], 13, Usage::State);
            let sequence_of: Vec<usize> = (0..tokens).map(|t| (t * 2 + 1) % 3).collect();
            let sequences = integers(&sequence_of.iter().map(|s| *s as i32).collect::<Vec<i32>>());
            let cached = |j: usize, h: usize, t: usize, d: usize| {
                d + head_size * (h / (heads / kv_heads)) + head_size * kv_heads * (j + 40 * sequence_of[t])
            };
            let q = activation(&[head_size, heads, tokens], 14);
            let inputs = [q.clone(), cache.clone(), sequences.clone()];
            let found = compute(&cpu, &KvScores { capacity }.into(), &inputs);
            let (q, exact) = (q.exact(), cache.exact());
            for (i, found) in found.iter().enumerate() {
                let (j, t, h) = (i % capacity, i / capacity % tokens, i / (capacity * tokens));
                let product = |d: usize| exact[cached(j, h, t, d)] * q[d + head_size * (h + heads * t)];
                expect_sum(*found, &(0..head_size).map(product).collect::<Vec<f64>>());
            }
            let p = activation(&[capacity, tokens, heads], 15);
            let found = compute(&cpu, &KvMix { kv_heads }.into(), &[p.clone(), cache.clone(), sequences]);
            let p = p.exact();
            for (i, found) in found.iter().enumerate() {
                let (d, h, t) = (i % head_size, i / head_size % heads, i / (head_size * heads));
                let product = |j: usize| exact[cached(j, h, t, d)] * p[j + capacity * (t + tokens * h)];
                expect_sum(*found, &(0..capacity).map(product).collect::<Vec<f64>>());
            }
        }
    }
}

/// Within the deterministic bound of a sum of these products.
fn expect_sum(found: f32, products: &[f64]) {
    let (sum, magnitudes) = (products.iter().sum::<f64>(), products.iter().map(|p| p.abs()).sum::<f64>());
    let error = (f64::from(found) - sum).abs();
    assert!(error <= (products.len() as f64 + 1.0) * U * magnitudes, "{found} for {sum}");
}

#[test]
fn a_reshape_is_the_same_memory() {
    let x = activation(&[6, 4], 16);
    assert_eq!(run(&default_cpu(), &Op::reshape(&[3, 2, 4]), std::slice::from_ref(&x)).unwrap(), x.bytes);
}
