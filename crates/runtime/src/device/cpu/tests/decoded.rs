//! Weights of types with sub-blocks, and of tq1_0, which is decoded before it is multiplied: rows as the decoder gives
//! them, products of tq1_0 as the oracle's.

use super::*;
use crate::device::reference::evaluate;
use crate::host_tensor::HostTensor;
use trueup_graph::op::{Gated, MulMat, MulMatGated};

pub(super) const SUB_BLOCKS: [DType; 10] = [
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Tq2_0,
];

pub(super) const DECODED: [DType; 1] = [DType::Tq1_0];

/// Blocks of bytes that count up, with scales of 1 where the type's layout has them.
pub(super) fn weights(dtype: DType, sizes: &[usize], seed: u64) -> Given {
    let ty = TensorType::new(dtype, sizes);
    let mut bytes: Vec<u8> = (0..ty.bytes()).map(|i| ((i + 7 * seed as usize) * 37 % 251) as u8).collect();
    for (number, block) in bytes.chunks_mut(dtype.block_bytes()).enumerate() {
        match dtype {
            DType::Mxfp4 => block[0] = 127 + (number % 3) as u8,
            DType::Nvfp4 => block[..4].iter_mut().zip(0..).for_each(|(s, i)| *s = 0x30 + ((number + i) * 5 % 16) as u8),
            // Each block has another scale, and another minimum. Both are f16 numbers from 0.5 to 2.
            _ => dtype.scale_places().unwrap().iter().enumerate().for_each(|(place, at)| {
                let fraction = (number * [37, 29][place % 2] % 61) as u8;
                block[*at..at + 2].copy_from_slice(&[fraction, [0x3C, 0x38][place % 2]]);
            }),
        }
    }
    Given { ty, bytes, usage: Usage::Weight }
}

#[test]
fn rows_are_those_of_the_decoder() {
    for dtype in DECODED.into_iter().chain(SUB_BLOCKS) {
        let table = weights(dtype, &[512, 7], 0);
        let mut decoded = vec![0.0; 512 * 7];
        (dtype.decoder().unwrap().decode)(&table.bytes, &mut decoded);
        let rows = compute(&default_cpu(), &Op::get_rows(DType::F32), &[table, integers(&[6, 0, 3])]);
        let expected = [6, 0, 3].map(|row| &decoded[512 * row..][..512]).concat();
        assert_eq!(rows, expected, "{dtype}");
    }
}

/// Sizes of weights and activations: one token, a few, enough for the transposed product, and a stack.
const PRODUCTS: [(&[usize], &[usize]); 4] =
    [(&[512, 33], &[512, 1]), (&[512, 33], &[512, 3]), (&[256, 70], &[256, 43]), (&[512, 13, 2], &[512, 3, 4])];

#[test]
fn products_are_the_oracle_s_but_for_rounding() {
    for dtype in DECODED {
        for (rows, columns) in PRODUCTS {
            let (w, x) = (weights(dtype, rows, 0), activation(columns, 21));
            let found = compute(&default_cpu(), &MulMat.into(), &[w.clone(), x.clone()]);
            let host = |given: &Given| HostTensor::stored(given.ty, given.bytes.clone());
            let expected = evaluate(&MulMat.into(), &[&host(&w), &host(&x)]).unwrap();
            let absolute = |given: &Given| {
                let bytes = host(given).values().iter().flat_map(|value| (value.abs() as f32).to_le_bytes()).collect();
                HostTensor::stored(TensorType::new(DType::F32, &given.ty.shape.sizes()), bytes)
            };
            let products = evaluate(&MulMat.into(), &[&absolute(&w), &absolute(&x)]).unwrap();
            let products = products.values();
            expect_close(&format!("{dtype} {rows:?}"), &found, &expected.values(), |i| 20.0 * U * products[i]);
        }
    }
}

#[test]
fn products_have_the_same_bits_with_every_instruction_set() {
    let scalar = cpu(1, Isa::Scalar);
    let unpacked = |isa| Cpu::new(CpuOptions { threads: 2, isa: Some(isa), repack: false }).unwrap();
    for dtype in DECODED {
        for (rows, columns) in PRODUCTS {
            let (w, up, x) = (weights(dtype, rows, 0), weights(dtype, rows, 3), activation(columns, 21));
            let gated = Op::from(MulMatGated { gated: Gated::Swiglu });
            for (op, inputs) in [(MulMat.into(), vec![w.clone(), x.clone()]), (gated, vec![w, up, x])] {
                let expected = run(&scalar, &op, &inputs).unwrap();
                for isa in Isa::available() {
                    for (name, cpu) in [("1 thread", cpu(1, isa)), ("3", cpu(3, isa)), ("unpacked", unpacked(isa))] {
                        let found = run(&cpu, &op, &inputs).unwrap();
                        assert_eq!(found, expected, "{}, {dtype} {rows:?}, {isa}, {name}", op.name());
                    }
                }
            }
        }
    }
}
