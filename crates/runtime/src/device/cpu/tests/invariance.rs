//! What may not change one bit.

use super::*;
use trueup_graph::op::{Gated, KvMix, KvScores, MulMat, RmsNorm, Rope, RopePairs, RopeScaling, SoftMax, Unary};
use trueup_graph::op::{Norm, NormRule, Rank, RankRule, Reduce, Reduction, SsmScan};

/// One case of each operator and stored type, large enough for several pieces.
fn cases() -> Vec<(Op, Vec<Given>)> {
    let mut cases: Vec<(Op, Vec<Given>)> = Vec::new();
    for dtype in MATRICES {
        let len = row_len(dtype, 288);
        for tokens in [1, 2, 9] {
            cases.push((MulMat.into(), vec![weight(dtype, &[len, 517], 1), activation(&[len, tokens], 2)]));
        }
        cases.push((Op::get_rows(DType::F32), vec![weight(dtype, &[len, 517], 1), integers(&[516, 3, 3])]));
    }
    cases.push((RmsNorm { epsilon: 1e-6 }.into(), vec![activation(&[257, 300], 3), weight(DType::F32, &[257], 4)]));
    for gated in Gated::ALL {
        cases.push((gated.into(), vec![activation(&[511, 300], 5), activation(&[511, 300], 6)]));
    }
    cases.extend(Unary::PLAIN.map(|unary| (unary.into(), vec![activation(&[511, 300], 5)])));
    let mask = Given { ty: TensorType::new(DType::F32, &[96, 9]), bytes: vec![0; 96 * 9 * 4], usage: Usage::Input };
    cases.push((SoftMax { scale: 3.0, max_bias: 0.0 }.into(), vec![activation(&[96, 9, 16], 7), mask]));
    let sequences = integers(&[0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let cache = |dtype| stored(dtype, &[128, 100, 3], 8, Usage::State);
    for dtype in [DType::F16, DType::F32, DType::Q8_0] {
        let q = activation(&[64, 16, 9], 9);
        cases.push((KvScores { capacity: 96 }.into(), vec![q, cache(dtype), sequences.clone()]));
        let p = activation(&[96, 9, 16], 10);
        cases.push((KvMix { kv_heads: 2 }.into(), vec![p, cache(dtype), sequences.clone()]));
    }
    let rope = Rope { pairs: RopePairs::Halves, dimensions: 64, base: 5e5, scaling: RopeScaling::None };
    cases.push((rope.into(), vec![activation(&[64, 16, 9], 11), integers(&[0, 1, 2, 3, 4, 5, 6, 7, 8])]));
    cases.push((Reduce { rule: Reduction::Sum }.into(), vec![activation(&[257, 300], 12)]));
    cases.push((Norm { rule: NormRule::Layer, epsilon: 1e-5 }.into(), vec![activation(&[257, 300], 13)]));
    cases.push((Rank { rule: RankRule::TopK { k: 5 } }.into(), vec![activation(&[257, 300], 14)]));
    let scanned = [[16, 1, 80, 3], [1, 80, 9, 2], [80, 9, 2, 1], [16, 80, 1, 1], [16, 1, 9, 2], [16, 1, 9, 2]];
    let mut inputs: Vec<Given> = scanned.iter().map(|sizes| activation(sizes, 15)).collect();
    inputs.push(integers(&[2, 0]));
    cases.push((SsmScan.into(), inputs));
    cases
}

#[test]
fn neither_threads_nor_instruction_sets_nor_packing_change_a_bit() {
    let cases = cases();
    let results =
        |cpu: Cpu| -> Vec<Vec<u8>> { cases.iter().map(|(op, inputs)| run(&cpu, op, inputs).unwrap()).collect() };
    let expected = results(cpu(1, Isa::Scalar));
    let unpacked = |isa| Cpu::new(CpuOptions { threads: 2, isa: Some(isa), repack: false }).unwrap();
    for isa in Isa::available() {
        let variants = [("1 thread", cpu(1, isa)), ("2", cpu(2, isa)), ("3", cpu(3, isa)), ("unpacked", unpacked(isa))];
        for (variant, cpu) in variants {
            for (place, (found, expected)) in results(cpu).iter().zip(&expected).enumerate() {
                let (op, inputs) = &cases[place];
                assert_eq!(found, expected, "{isa}, {variant}: {} of {}", op.name(), inputs[0].ty);
            }
        }
    }
}

#[test]
fn a_token_in_a_batch_is_the_token_alone() {
    let cpu = default_cpu();
    for dtype in MATRICES {
        let (len, rows) = (row_len(dtype, 288), 77);
        let (w, x) = (weight(dtype, &[len, rows], 1), numbers(len * 43, 2));
        let product = |x: &[f32]| compute(&cpu, &MulMat.into(), &[w.clone(), activation_of(&[len, x.len() / len], x)]);
        let alone: Vec<Vec<f32>> = x.chunks(len).map(product).collect();
        for tokens in (1..=9).chain([16, 31, 32, 43]) {
            assert_eq!(product(&x[..tokens * len]), alone[..tokens].concat(), "{dtype}, {tokens} tokens");
        }
    }
}

/// The same attention over a larger capacity, whose further positions are masked, beside another token.
#[test]
fn attention_of_a_token_does_not_see_the_batch_or_the_capacity() {
    let cpu = default_cpu();
    let (head_size, heads, context) = (64, 4, 128);
    for dtype in [DType::F16, DType::F32, DType::Q8_0] {
        let cache = stored(dtype, &[head_size * 2, context, 2], 3, Usage::State);
        let q = numbers(head_size * heads * 2, 4);
        let attention = |capacity: usize, lengths: &[usize], sequences: &[i32], q: &[f32]| {
            let tokens = lengths.len();
            let mut mask = vec![0.0; capacity * tokens];
            for (mask, length) in mask.chunks_mut(capacity).zip(lengths) {
                mask[*length..].fill(f32::NEG_INFINITY);
            }
            let ty = TensorType::new(DType::F32, &[capacity, tokens]);
            let mask = Given { ty, bytes: bytes_of(&mask), usage: Usage::Input };
            let q = activation_of(&[head_size, heads, tokens], q);
            let s = compute(&cpu, &KvScores { capacity }.into(), &[q, cache.clone(), integers(sequences)]);
            let s = activation_of(&[capacity, tokens, heads], &s);
            let p = compute(&cpu, &SoftMax { scale: 0.125, max_bias: 0.0 }.into(), &[s, mask]);
            let p = activation_of(&[capacity, tokens, heads], &p);
            compute(&cpu, &KvMix { kv_heads: 2 }.into(), &[p, cache.clone(), integers(sequences)])
        };
        let width = head_size * heads;
        let together = attention(128, &[37, 101], &[1, 0], &q);
        assert_eq!(together[..width], attention(64, &[37], &[1], &q[..width]), "{dtype}, first");
        assert_eq!(together[width..], attention(104, &[101], &[0], &q[width..]), "{dtype}, second");
    }
}

/// Blocks of the cache mean the numbers that they decode to, to the last bit: the order of sums is theirs too.
#[test]
fn attention_over_blocks_is_attention_over_what_they_decode_to() {
    let (head_size, kv_heads, heads, tokens, capacity) = (96, 2, 6, 5, 600);
    let blocks = stored(DType::Q8_0, &[head_size * kv_heads, 640, 3], 21, Usage::State);
    let mut floats = vec![0.0; blocks.ty.shape.elements()];
    (DType::Q8_0.codec().unwrap().decode)(&blocks.bytes, &mut floats);
    let ty = TensorType { dtype: DType::F32, ..blocks.ty };
    let decoded = Given { ty, bytes: bytes_of(&floats), usage: Usage::State };
    let sequences = integers(&[1, 1, 1, 0, 2]);
    let q = activation(&[head_size, heads, tokens], 22);
    // Windows: positions that nobody looks at before, between and behind those that some do.
    let mut p = numbers(capacity * tokens * heads, 23);
    for (row, p) in p.chunks_mut(capacity).enumerate() {
        p[..row % 40].fill(0.0);
        p[64..80].fill(0.0);
        if row % 3 == 0 {
            p[250..520].fill(0.0);
        }
        p[590 - 19 * row..].fill(0.0);
    }
    let p = activation_of(&[capacity, tokens, heads], &p);
    for isa in Isa::available() {
        let cpu = cpu(2, isa);
        let attention = |cache: &Given| {
            let scores = KvScores { capacity }.into();
            let scores = run(&cpu, &scores, &[q.clone(), cache.clone(), sequences.clone()]).unwrap();
            (scores, run(&cpu, &KvMix { kv_heads }.into(), &[p.clone(), cache.clone(), sequences.clone()]).unwrap())
        };
        assert_eq!(attention(&blocks), attention(&decoded), "{isa}");
    }
}
