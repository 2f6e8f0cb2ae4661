//! Fused operators give, bit for bit, what their pieces give one after the other.

use super::*;
use trueup_graph::op::{Gated, MulMat, MulMatGated};

/// Types of weights with the numbers that their rows must be a multiple of.
const WEIGHTS: [(DType, usize); 8] = [
    (DType::F32, 1),
    (DType::F16, 1),
    (DType::Bf16, 1),
    (DType::Q4_0, 32),
    (DType::Q8_0, 32),
    (DType::Q5_1, 32),
    (DType::Iq4Nl, 32),
    (DType::Mxfp4, 32),
];

/// The feed-forward's first half in three operators.
fn one_by_one(cpu: &Cpu, gated: Gated, gate: &Given, up: &Given, x: &Given) -> Vec<u8> {
    let product = |w: &Given| {
        let sizes = Op::from(MulMat).infer(&[w.ty, x.ty]).unwrap().shape.sizes();
        activation_of(&sizes, &compute(cpu, &MulMat.into(), &[w.clone(), x.clone()]))
    };
    run(cpu, &gated.into(), &[product(gate), product(up)]).unwrap()
}

fn devices() -> Vec<(String, Cpu)> {
    let mut devices = Vec::new();
    for isa in Isa::available() {
        for threads in [1, 3] {
            devices.push((format!("{isa}, {threads} threads"), cpu(threads, isa)));
        }
        let unpacked = CpuOptions { threads: 2, isa: Some(isa), repack: false };
        devices.push((format!("{isa}, unpacked"), Cpu::new(unpacked).unwrap()));
    }
    devices
}

#[test]
fn a_fused_feed_forward_has_the_bits_of_its_pieces() {
    let scalar = cpu(1, Isa::Scalar);
    let devices = devices();
    for (dtype, unit) in WEIGHTS {
        let blocks = [(32, 1, 1), (288, 517, 1), (288, 517, 2), (96, 33, 9), (512, 40, 33)];
        let odd = [(33, 7, 1), (257, 130, 5)].into_iter().filter(|_| unit == 1);
        for (len, rows, tokens) in blocks.into_iter().chain(odd) {
            let (gate, up) = (weight(dtype, &[len, rows], 1), weight(dtype, &[len, rows], 2));
            let x = activation(&[len, tokens], 3);
            for gated in Gated::ALL {
                let expected = one_by_one(&scalar, gated, &gate, &up, &x);
                let op = Op::from(MulMatGated { gated });
                for (name, cpu) in &devices {
                    let found = run(cpu, &op, &[gate.clone(), up.clone(), x.clone()]).unwrap();
                    assert_eq!(found, expected, "{}, {dtype} [{len}, {rows}] by {tokens}, {name}", op.name());
                }
            }
        }
    }
}

#[test]
fn stacks_and_weights_of_two_types_have_the_bits_of_their_pieces_too() {
    let cpu = default_cpu();
    let op = Op::from(MulMatGated { gated: Gated::Swiglu });
    let stacks: [(&[usize], &[usize]); 3] =
        [(&[64, 13, 2], &[64, 3, 6]), (&[96, 5, 2, 3], &[96, 1, 4, 3]), (&[32, 16], &[32, 2, 5])];
    let types =
        [(DType::Q4_0, DType::Q8_0), (DType::F16, DType::F32), (DType::Q4_1, DType::Q5_0), (DType::Bf16, DType::Tq1_0)];
    let sub_blocks = [
        (DType::Q4K, DType::Q6K),
        (DType::Iq4Nl, DType::Q2K),
        (DType::Q5K, DType::Q4_0),
        (DType::Mxfp4, DType::Nvfp4),
        (DType::Tq2_0, DType::Q8_0),
    ];
    for (gate_type, up_type) in types.into_iter().chain(sub_blocks).chain(WEIGHTS.map(|(dtype, _)| (dtype, dtype))) {
        for (w, x) in stacks {
            let len = w[0].next_multiple_of(gate_type.block_len().max(up_type.block_len()));
            let (w, x) = (&[&[len], &w[1..]].concat(), &[&[len], &x[1..]].concat());
            let (gate, up, x) = (weight(gate_type, w, 1), weight(up_type, w, 2), activation(x, 3));
            let expected = one_by_one(&cpu, Gated::Swiglu, &gate, &up, &x);
            assert_eq!(run(&cpu, &op, &[gate, up, x]).unwrap(), expected, "{gate_type} and {up_type}, {w:?}");
        }
    }
}

#[test]
fn a_token_in_a_batch_is_the_token_alone_in_a_fused_operator() {
    let (cpu, op) = (default_cpu(), Op::from(MulMatGated { gated: Gated::Swiglu }));
    for (dtype, _) in WEIGHTS {
        let (len, rows) = (288, 77);
        let (gate, up) = (weight(dtype, &[len, rows], 1), weight(dtype, &[len, rows], 2));
        let x = numbers(len * 9, 3);
        let fused =
            |x: &[f32]| compute(&cpu, &op, &[gate.clone(), up.clone(), activation_of(&[len, x.len() / len], x)]);
        let alone: Vec<Vec<f32>> = x.chunks(len).map(fused).collect();
        for tokens in 1..=9 {
            assert_eq!(fused(&x[..tokens * len]), alone[..tokens].concat(), "{dtype}, {tokens} tokens");
        }
    }
}

/// Activations of q8_0 are rounded and those of f32 are not: one profile cannot say both.
#[test]
fn weights_that_are_multiplied_in_different_ways_are_refused() {
    let cpu = default_cpu();
    let ty = |dtype, sizes: &[usize]| TensorType::new(dtype, sizes);
    let op = Op::from(MulMatGated { gated: Gated::Swiglu });
    let inputs = [ty(DType::Q8_0, &[64, 8]), ty(DType::F32, &[64, 8]), ty(DType::F32, &[64, 2])];
    let refused = cpu.supports(&op, &inputs, &op.infer(&inputs).unwrap()).unwrap_err();
    assert!(refused.contains("q8_0 and f32 weights need different kernels"), "{refused}");
}
