//! The oracle against NumPy and transformers.
//!
//! Inputs are `r(n, step)[i] = ((i * step) % 23 - 11) / 8`. The goldens are the output of this script (NumPy 2, arrays
//! outermost first):
//!
//! ```text
//! r = lambda n, s: ((np.arange(n) * s) % 23 - 11) / 8
//! x, w = r(6, 5).reshape(2, 3), r(3, 7)
//! rms_norm         x / np.sqrt((x ** 2).mean(-1, keepdims=True) + np.float64(np.float32(1e-5))) * w
//! mul_mat          r(6, 7).reshape(2, 3) @ r(12, 5).reshape(4, 3).T
//! swiglu           g, u = r(4, 5), r(4, 7); g / (1 + np.exp(-g)) * u
//! soft_max         z = np.float64(np.float32(0.7)) * r(8, 5).reshape(2, 1, 4) + np.array([[0, -np.inf, 0, 0]])
//!                  e = np.exp(z - z.max(-1, keepdims=True)); e / e.sum(-1, keepdims=True)
//! kv_scores        K, q, seq = r(12, 5).reshape(2, 3, 2), r(8, 7).reshape(2, 2, 2), [1, 0]
//!                  [[[q[t, h] @ K[seq[t], j] for j in range(2)] for t in range(2)] for h in range(2)]
//! kv_mix           p = r(8, 3).reshape(2, 2, 2)
//!                  [[sum(p[h, t, j] * K[seq[t], j] for j in range(2)) for h in range(2)] for t in range(2)]
//! rope             x = r(12, 5).reshape(2, 6); a = np.array([[3.0], [100.0]]) * 10000.0 ** (-np.arange(2) / 2)
//!                  y[:, i], y[:, j] = x[:, i] * cos(a) - x[:, j] * sin(a), x[:, i] * sin(a) + x[:, j] * cos(a)
//! ```

use super::*;
use trueup_graph::op::{
    Arithmetic, Gated, KvMix, KvScores, KvStore, MulMat, RmsNorm, Rope, RopePairs, RopeScaling, SoftMax,
};

fn r(sizes: &[usize], step: usize) -> HostTensor {
    let ty = TensorType::new(DType::F64, sizes);
    let value = |i: usize| ((i * step % 23) as f64 - 11.0) / 8.0;
    HostTensor::real(ty, (0..ty.shape.elements()).map(value).collect())
}

fn computed(op: impl Into<Op>, inputs: &[&HostTensor]) -> Vec<f64> {
    evaluate(&op.into(), inputs).unwrap().values().into_owned()
}

#[track_caller]
fn assert_close(computed: &[f64], expected: &[f64]) {
    assert_eq!(computed.len(), expected.len());
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-14 * (1.0 + b.abs());
    assert!(computed.iter().zip(expected).all(close), "computed {computed:?}\nexpected {expected:?}");
}

#[test]
fn add_repeats_a_bias() {
    let bias = HostTensor::real(TensorType::new(DType::F64, &[3]), vec![1.0, 2.0, 4.0]);
    let x = HostTensor::real(TensorType::new(DType::F64, &[3, 2]), vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_close(&computed(Arithmetic::Add, &[&x, &bias]), &[1.0, 3.0, 6.0, 4.0, 6.0, 9.0]);
}

#[test]
fn get_rows_decodes_rows_by_index() {
    let ty = TensorType::new(DType::Q8_0, &[32, 3]);
    // Row `i`: the scale 1 as f16, then 32 codes of `i + 1`.
    let bytes = (0..3u8).flat_map(|row| [0, 0x3C].into_iter().chain([row + 1; 32])).collect();
    let table = HostTensor::stored(ty, bytes);
    let rows = computed(Op::get_rows(DType::F64), &[&table, &HostTensor::indices(&[2, 0])]);
    assert_close(&rows, &[[3.0; 32], [1.0; 32]].concat());
    for outside in [3, -1] {
        let error = evaluate(&Op::get_rows(DType::F64), &[&table, &HostTensor::indices(&[outside])]).unwrap_err();
        assert!(error.to_string().contains(&format!("row {outside} is not between 0 and 2")), "{error}");
    }
}

#[test]
fn rms_norm_agrees_with_numpy() {
    let expected = [
        2.084130112212116,
        0.41338117928174206,
        -0.05167264741021776,
        -0.714020981083869,
        -0.5841989845231655,
        -0.4381492383923742,
    ];
    assert_close(&computed(RmsNorm { epsilon: 1e-5 }, &[&r(&[3, 2], 5), &r(&[3], 7)]), &expected);
}

#[test]
fn mul_mat_agrees_with_numpy() {
    let expected = [2.21875, -1.671875, 0.90625, -1.546875, -1.171875, -0.359375, -0.625, 2.34375];
    assert_close(&computed(MulMat, &[&r(&[3, 4], 5), &r(&[3, 2], 7)]), &expected);
}

#[test]
fn mul_mat_takes_any_number_of_rows() {
    for rows in 1..10 {
        let (w, x) = (r(&[3, rows], 5), r(&[3, 2], 7));
        let expected: Vec<f64> = x.values().chunks(3).flat_map(|x| plain_rows(&w, x)).collect();
        assert_close(&computed(MulMat, &[&w, &x]), &expected);
    }
}

fn plain_rows(w: &HostTensor, x: &[f64]) -> Vec<f64> {
    w.values().chunks(3).map(|w| w[0] * x[0] + w[1] * x[1] + w[2] * x[2]).collect()
}

#[test]
fn swiglu_agrees_with_numpy() {
    let expected = [0.38155312333602875, 0.12030798780922763, -0.021974560623105176, 0.3890370820011591];
    assert_close(&computed(Gated::Swiglu, &[&r(&[4], 5), &r(&[4], 7)]), &expected);
}

#[test]
fn soft_max_agrees_with_numpy_and_masks_exactly() {
    let infinity = f64::INFINITY;
    let mask = HostTensor::real(TensorType::new(DType::F32, &[4, 1]), vec![0.0, -infinity, 0.0, 0.0]);
    let y = computed(SoftMax { scale: 0.7, max_bias: 0.0 }, &[&r(&[4, 1, 2], 5), &mask]);
    let expected = [
        0.140561454762212,
        0.0,
        0.33718939608863063,
        0.5222491491491574,
        0.5502956809911043,
        0.0,
        0.17643556783121028,
        0.2732687511776854,
    ];
    assert_close(&y, &expected);
    assert_eq!(y[1].to_bits(), 0, "a masked position is exactly 0");
    let hidden = HostTensor::real(TensorType::new(DType::F32, &[4, 1]), vec![-infinity; 4]);
    assert_eq!(computed(SoftMax { scale: 0.7, max_bias: 0.0 }, &[&r(&[4, 1, 2], 5), &hidden]), [0.0; 8]);
}

#[test]
fn attention_agrees_with_numpy() {
    let (cache, sequences) = (r(&[2, 3, 2], 5), HostTensor::indices(&[1, 0]));
    let scores = computed(KvScores { capacity: 2 }, &[&r(&[2, 2, 2], 7), &cache, &sequences]);
    assert_close(&scores, &[0.625, -1.71875, 0.9375, 0.15625, -0.03125, 2.0, -0.625, -0.625]);
    let mixed = computed(KvMix { kv_heads: 1 }, &[&r(&[2, 2, 2], 3), &cache, &sequences]);
    assert_close(&mixed, &[-0.0625, -1.546875, 0.3125, 0.703125, 0.890625, 0.34375, -1.359375, -0.03125]);
}

#[test]
fn what_is_not_seen_may_hold_anything() {
    let infinity = f64::INFINITY;
    let real = |sizes: &[usize], values: &[f64]| HostTensor::real(TensorType::new(DType::F64, sizes), values.to_vec());
    let mask = HostTensor::real(TensorType::new(DType::F32, &[4, 1]), vec![0.0, -infinity, 0.0, -infinity]);
    let y =
        computed(SoftMax { scale: 1.0, max_bias: 0.0 }, &[&real(&[4, 1, 1], &[2.0, f64::NAN, 2.0, infinity]), &mask]);
    assert_eq!(y, [0.5, 0.0, 0.5, 0.0]);
    let cache = real(&[1, 4, 1], &[3.0, f64::NAN, 5.0, -infinity]);
    let y = computed(KvMix { kv_heads: 1 }, &[&real(&[4, 1, 1], &y), &cache, &HostTensor::indices(&[0])]);
    assert_eq!(y, [4.0]);
}

#[test]
fn kv_store_rounds_into_the_cache_and_leaves_the_rest() {
    let ty = TensorType::new(DType::F16, &[2, 2, 2]);
    let cache = HostTensor::stored(ty, vec![0x11; ty.bytes()]);
    let x = HostTensor::real(TensorType::new(DType::F64, &[2, 1]), vec![1.0, 1.0 + (-11f64).exp2()]);
    let stored = evaluate(&KvStore.into(), &[&cache, &x, &HostTensor::indices(&[2])]).unwrap();
    let expected = [0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0, 0x3C, 0, 0x3C, 0x11, 0x11, 0x11, 0x11];
    assert_eq!(*stored.to_bytes(), expected);
}

fn rope(pairs: RopePairs, scaling: RopeScaling, factors: Option<&HostTensor>) -> Vec<f64> {
    let op = Rope { pairs, dimensions: 4, base: 10_000.0, scaling };
    let (x, positions) = (r(&[6, 1, 2], 5), HostTensor::indices(&[3, 100]));
    let inputs: Vec<&HostTensor> = [Some(&x), Some(&positions), factors].into_iter().flatten().collect();
    computed(op, &inputs)
}

#[test]
fn rope_agrees_with_numpy() {
    let neighbours = [1.4670796888705127, 0.5484543613680167, -0.13994150431987126, 0.4960255793491818, 1.125, -1.125];
    assert_close(&rope(RopePairs::Neighbours, RopeScaling::None, None)[..6], &neighbours);
    let halves = [
        [1.3788796838330957, -0.7646602754129884, -0.07029094900726174, 0.47727839172262204, 1.125, -1.125],
        [-0.05138520531152285, -1.0894848158773403, 0.8999219747706423, 0.8480995436696792, -0.875, -0.25],
    ];
    assert_close(&rope(RopePairs::Halves, RopeScaling::None, None), &halves.concat());
}

#[test]
fn scaled_rope_agrees_with_numpy() {
    // As above with frequencies / 4, and / [1.5, 8].
    let linear = [
        [-0.9208673496985869, -0.7537288711927257, -1.028714403641312, 0.4943609903001445, 1.125, -1.125],
        [-0.396337593358407, -0.21906639126113847, 0.8095779839464917, 1.363180074758952, -0.875, -0.25],
    ];
    assert_close(&rope(RopePairs::Halves, RopeScaling::Linear { factor: 4.0 }, None), &linear.concat());
    let factors = HostTensor::real(TensorType::new(DType::F32, &[2]), vec![1.5, 8.0]);
    let divided = [
        [0.685864078605531, -0.7518697221741517, -1.1982656073169196, 0.4971839909709121, 1.125, -1.125],
        [0.8638593951570581, -0.04740305000102195, -0.25738481967451304, 1.3798561341134807, -0.875, -0.25],
    ];
    assert_close(&rope(RopePairs::Halves, RopeScaling::None, Some(&factors)), &divided.concat());
}

#[test]
fn threads_change_no_bit() {
    let (w, x) = (r(&[64, 37], 5), r(&[64, 3], 7));
    let results = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| computed(MulMat, &[&w, &x]))
    });
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn memory_and_threads_that_cannot_be_had_are_refused() {
    let ty = TensorType::new(DType::F16, &[1 << 20, 1 << 30]);
    for (usage, part) in [(Usage::State, "reduce the context (-c)"), (Usage::Arena, "shorter prompts")] {
        let error = Reference::new(1).unwrap().alloc(&ty, usage).unwrap_err().to_string();
        assert!(
            error.contains("not enough memory for 2251799813685248 bytes of f16") && error.contains(part),
            "{error}"
        );
    }
    for threads in [1025, usize::MAX] {
        let error = Reference::new(threads).err().unwrap().to_string();
        assert!(error.contains(&format!("expected at most 1024 threads, found {threads}")), "{error}");
    }
    let all = std::thread::available_parallelism().map_or(1, usize::from).min(1024);
    assert_eq!(Reference::new(0).unwrap().pool.current_num_threads(), all);
}

#[test]
fn unknown_types_are_refused_by_name() {
    let ty = TensorType::new(DType::Iq2Xs, &[256, 1]);
    let w = HostTensor::stored(ty, vec![0; ty.bytes()]);
    let error = evaluate(&MulMat.into(), &[&w, &r(&[256, 1], 1)]).unwrap_err().to_string();
    assert!(error.contains("iq2_xs"), "{error}");
}

/// `ROPE_INIT_FUNCTIONS["yarn"]` of transformers 4.57.6 (f32) for `LlamaConfig(head_dim=16, rope_theta=10000.0,
/// max_position_embeddings=16384, rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings":
/// 4096})` gives these frequencies and this magnitude.
#[test]
fn yarn_agrees_with_transformers() {
    let frequencies = [
        1.0,
        0.3162277638912201,
        0.10000000149011612,
        0.025693506002426147,
        0.00624999962747097,
        0.0013834965648129582,
        0.0002500000118743628,
        7.905694656074047e-05,
    ];
    let magnitude = 1.138629436111989;
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude: magnitude as f32,
    };
    let op = Rope { pairs: RopePairs::Halves, dimensions: 16, base: 10_000.0, scaling };
    let x = [[1.0; 8], [0.0; 8]].concat();
    let x = HostTensor::real(TensorType::new(DType::F64, &[16, 1, 1]), x);
    let y = computed(op, &[&x, &HostTensor::indices(&[1])]);
    for (i, frequency) in frequencies.iter().enumerate() {
        let (found, length) = (y[i + 8].atan2(y[i]), y[i].hypot(y[i + 8]));
        assert!((found / frequency - 1.0).abs() < 1e-6, "{i}: {found} for {frequency}");
        assert!((length / magnitude - 1.0).abs() < 1e-6, "{i}: {length}");
    }
}
