//! Attention over the KV cache gives, bit for bit, what its three pieces give one after the other.

use super::*;
use std::ops::Range;
use trueup_graph::op::{KvAttention, KvMix, KvScores, SoftMax};
use trueup_guard::{Side, expect_in_child, is_child};

/// Sizes of the tensors of one computation.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Of a head of keys, and of one of values.
    head: [usize; 2],
    heads: usize,
    kv_heads: usize,
    capacity: usize,
    context: usize,
}

/// Which positions each token sees, its sequence, and heads with masks of their own.
#[derive(Clone)]
struct Batch {
    seen: Vec<Range<usize>>,
    sequences: Vec<i32>,
    mask_heads: usize,
}

fn batch(seen: impl IntoIterator<Item = Range<usize>>, sequences: &[i32]) -> Batch {
    Batch { seen: seen.into_iter().collect(), sequences: sequences.to_vec(), mask_heads: 1 }
}

/// Whether a position is seen. A range that ends before it starts wraps around the end.
fn sees(seen: &Range<usize>, position: usize) -> bool {
    let wraps = seen.start > seen.end;
    seen.contains(&position) || wraps && (position >= seen.start || position < seen.end)
}

/// The inputs in the operator's order. What no token sees of the last sequence is no number.
fn inputs(sizes: Sizes, batch: &Batch, cache: DType, mask: DType) -> Vec<Given> {
    let Sizes { head, heads, kv_heads, capacity, context } = sizes;
    let tokens = batch.seen.len();
    let mut cells = Vec::new();
    for plane in 0..batch.mask_heads {
        for seen in &batch.seen {
            let cell = |j: usize| {
                if sees(seen, j) { (plane + 1) as f32 * -0.125 * (j % 9) as f32 } else { f32::NEG_INFINITY }
            };
            cells.extend((0..capacity).map(cell));
        }
    }
    let sizes = if batch.mask_heads > 1 { vec![capacity, tokens, batch.mask_heads] } else { vec![capacity, tokens] };
    let ty = TensorType::new(mask, &sizes);
    let mut bytes = vec![0; ty.bytes()];
    (mask.codec().unwrap().encode)(&cells, &mut bytes);
    let mask = Given { ty, bytes, usage: Usage::Input };
    let last = |seen: &Range<usize>| if seen.start > seen.end { capacity } else { seen.end };
    let end = batch.seen.iter().map(last).max().unwrap_or(0);
    let cached = |len: usize, seed| {
        let mut cache = stored(cache, &[len * kv_heads, context, 3], seed, Usage::State);
        let row = cache.bytes.len() / (context * 3);
        for sequence in cache.bytes.chunks_mut(row * context) {
            sequence[row * end..].fill(0xff);
        }
        cache
    };
    let q = activation(&[head[0], heads, tokens], 21);
    vec![q, cached(head[0], 22), cached(head[1], 23), integers(&batch.sequences), mask]
}

/// Scores, softmax and mixture as three operators.
fn one_by_one(cpu: &Cpu, op: &KvAttention, kv_heads: usize, inputs: &[Given]) -> Vec<u8> {
    let [q, keys, values, sequences, mask] = inputs else { panic!("five inputs") };
    let capacity = mask.ty.shape[0];
    let sizes = [capacity, q.ty.shape[2], q.ty.shape[1]];
    let scores = compute(cpu, &KvScores { capacity }.into(), &[q.clone(), keys.clone(), sequences.clone()]);
    let soft_max = SoftMax { scale: op.scale, max_bias: op.max_bias };
    let weights = compute(cpu, &soft_max.into(), &[activation_of(&sizes, &scores), mask.clone()]);
    let weights = activation_of(&sizes, &weights);
    run(cpu, &KvMix { kv_heads }.into(), &[weights, values.clone(), sequences.clone()]).unwrap()
}

/// Types of a cache with heads of these sizes.
fn caches(sizes: Sizes) -> impl Iterator<Item = DType> {
    let fits = move |dtype: &DType| sizes.head.iter().all(|len| len.is_multiple_of(dtype.block_len()));
    [DType::F16, DType::F32, DType::Q8_0].into_iter().filter(fits)
}

/// Prompts, parts of them, steps and mixtures of all, on heads that fill registers and that do not.
fn cases() -> Vec<(Sizes, Batch)> {
    let sizes = |head, heads, kv_heads, capacity| Sizes { head, heads, kv_heads, capacity, context: capacity + 9 };
    let causal = |first: usize, tokens: usize| (first..first + tokens).map(|last| 0..last + 1);
    let windows = |first: usize, tokens: usize| (first..first + tokens).map(|last| last.saturating_sub(20)..last + 1);
    vec![
        (sizes([64, 64], 8, 2, 192), batch(causal(0, 150), &[1; 150])),
        (sizes([64, 64], 8, 2, 320), batch(windows(100, 40), &[0; 40])),
        (sizes([33, 17], 6, 6, 65), batch(causal(20, 30), &[2; 30])),
        (sizes([128, 128], 8, 1, 257), batch([0..250, 0..3, 0..77, 0..1], &[0, 1, 2, 0])),
        (
            sizes([40, 80], 12, 4, 128),
            batch(causal(3, 50).chain([0..0, 0..9, 60..64]), &[vec![0; 50], vec![2, 1, 1]].concat()),
        ),
        (sizes([1, 1], 3, 3, 1), batch([0..1, 0..0], &[1, 1])),
        (
            sizes([64, 32], 4, 2, 700),
            batch(windows(560, 12).chain([0..690, 3..400]), &[vec![1; 12], vec![0, 2]].concat()),
        ),
        (sizes([64, 32], 4, 2, 700), batch((0..9).map(|token| 680 + token..5 + token), &[1; 9])),
        (sizes([16, 16], 8, 2, 96), Batch { mask_heads: 4, ..batch(causal(40, 20), &[1; 20]) }),
    ]
}

const OPS: [KvAttention; 2] = [KvAttention { scale: 0.125, max_bias: 0.0 }, KvAttention { scale: 0.3, max_bias: 8.0 }];

#[test]
fn fused_attention_has_the_bits_of_its_pieces() {
    let scalar = cpu(1, Isa::Scalar);
    let devices: Vec<(Isa, usize, Cpu)> = Isa::available()
        .into_iter()
        .flat_map(|isa| [1, 2, 5].map(|threads| (isa, threads, cpu(threads, isa))))
        .collect();
    for (sizes, batch) in cases() {
        for cache in caches(sizes) {
            let mask = if cache == DType::F32 { DType::F16 } else { DType::F32 };
            let inputs = inputs(sizes, &batch, cache, mask);
            for op in OPS {
                let expected = one_by_one(&scalar, &op, sizes.kv_heads, &inputs);
                assert!(floats_of(&expected).iter().all(|y| y.is_finite()), "{sizes:?}: nothing hidden is read");
                for (isa, threads, cpu) in &devices {
                    let found = run(cpu, &op.into(), &inputs).unwrap();
                    assert_eq!(found, expected, "{sizes:?}, {op:?}, {cache}, {isa}, {threads} threads");
                }
            }
        }
    }
}

/// Scores that are no numbers stay what the pieces make of them.
#[test]
fn infinite_and_missing_numbers_have_the_bits_of_the_pieces_too() {
    let cpu = default_cpu();
    let sizes = Sizes { head: [64, 64], heads: 4, kv_heads: 2, capacity: 128, context: 128 };
    for broken in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let mut inputs = inputs(sizes, &batch((60..80).map(|last| 0..last + 1), &[1; 20]), DType::F16, DType::F32);
        let mut q = floats_of(&inputs[0].bytes);
        q[64 * 4 * 7 + 3] = broken;
        inputs[0] = activation_of(&[64, 4, 20], &q);
        let expected = floats_of(&one_by_one(&cpu, &OPS[0], sizes.kv_heads, &inputs));
        let found = compute(&cpu, &OPS[0].into(), &inputs);
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(found.iter().zip(&expected).all(same), "{broken}");
    }
}

#[test]
fn a_token_in_a_batch_is_the_token_alone_in_fused_attention() {
    let cpu = default_cpu();
    let cases =
        cases().into_iter().flat_map(|(sizes, batch)| caches(sizes).map(move |cache| (sizes, batch.clone(), cache)));
    for (sizes, batch, cache) in cases {
        let inputs = inputs(sizes, &batch, cache, DType::F32);
        let together = compute(&cpu, &OPS[1].into(), &inputs);
        let (q, masks) = (floats_of(&inputs[0].bytes), floats_of(&inputs[4].bytes));
        let (width, tokens) = (sizes.head[1] * sizes.heads, batch.seen.len());
        for token in 0..tokens {
            let len = sizes.head[0] * sizes.heads;
            let row = |plane: usize| &masks[(plane * tokens + token) * sizes.capacity..][..sizes.capacity];
            let cells = (0..batch.mask_heads).flat_map(row).copied().collect::<Vec<f32>>();
            let ty = TensorType::new(DType::F32, &[sizes.capacity, 1, batch.mask_heads]);
            let mut alone = inputs.clone();
            alone[0] = activation_of(&[sizes.head[0], sizes.heads, 1], &q[token * len..][..len]);
            alone[3] = integers(&batch.sequences[token..][..1]);
            alone[4] = Given { ty, bytes: bytes_of(&cells), usage: Usage::Input };
            assert_eq!(
                compute(&cpu, &OPS[1].into(), &alone),
                together[token * width..][..width],
                "{sizes:?}, {cache}, {token}"
            );
        }
    }
}

#[test]
fn fused_attention_stays_within_its_slices() {
    if !is_child() {
        return expect_in_child(&format!("{}::fused_attention_stays_within_its_slices", module_path!()));
    }
    for isa in Isa::available() {
        let plain = cpu(2, isa);
        for side in Side::BOTH {
            let mut guarded = cpu(2, isa);
            guarded.instructions = guarded.instructions.with_guards(Some(side));
            for (sizes, batch) in cases().into_iter().skip(2) {
                for cache in caches(sizes).filter(|cache| *cache != DType::F32) {
                    let inputs = inputs(sizes, &batch, cache, DType::F32);
                    let op = Op::from(OPS[0]);
                    assert_eq!(
                        run(&guarded, &op, &inputs).unwrap(),
                        run(&plain, &op, &inputs).unwrap(),
                        "{sizes:?}, {cache}, {isa}"
                    );
                }
            }
        }
    }
}

/// What threads keep is what is planned for them at most, and all of that where every thread meets a whole piece.
#[test]
fn rooms_of_fused_attention_are_no_larger_than_planned() {
    let op = Op::from(OPS[0]);
    for (sizes, batch) in cases() {
        for (cache, threads) in caches(sizes).flat_map(|cache| [(cache, 1), (cache, 3)]) {
            let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() }).unwrap();
            let inputs = inputs(sizes, &batch, cache, DType::F32);
            run(&cpu, &op, &inputs).unwrap();
            let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
            let (kept, planned) = (cpu.spares.rooms.sum(|room| room.bytes()), cpu.scratch_bytes(&op, &types)[0]);
            assert!(kept > 0 && kept <= planned, "{kept} of {planned} bytes: {sizes:?}, {cache}, {threads} threads");
        }
    }
    let sizes = Sizes { head: [64, 32], heads: 8, kv_heads: 2, capacity: 320, context: 320 };
    for (isa, tokens) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 50)]) {
        let cpu = cpu(1, isa);
        let inputs = inputs(sizes, &batch(vec![0..320; tokens], &vec![1; tokens]), DType::F16, DType::F32);
        run(&cpu, &op, &inputs).unwrap();
        let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
        // A piece has 4 heads and at most 24 tokens: queries, scores and results in f32.
        let bytes = 4 * tokens.min(24) * (64 + 320 + 32) * 4;
        assert_eq!(
            (cpu.spares.rooms.sum(|room| room.bytes()), cpu.scratch_bytes(&op, &types)[0]),
            (bytes, bytes),
            "{isa}"
        );
    }
}
