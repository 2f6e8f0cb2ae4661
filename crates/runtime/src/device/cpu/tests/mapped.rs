//! Weights in a mapped file: the bits of copies, for as long as the device has them, and never written.

use super::decoded::SUB_BLOCKS;
use super::products::BLOCKS;
use super::*;
use crate::device::CopyRoom;
use std::path::Path;
use trueup_formats::Gguf;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::op::{Gated, MulMat, MulMatGated, MulMatId};

/// The smallest alignment that a file may have.
const ALIGNMENT: usize = 8;

/// A file of one tensor, whose data begins `place` bytes behind a multiple of 64.
fn write(path: &Path, given: &Given, place: usize) {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut bytes = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    bytes.extend(
        [text("general.alignment"), 4u32.to_le_bytes().into(), (ALIGNMENT as u32).to_le_bytes().into()].concat(),
    );
    let sizes = given.ty.shape.sizes();
    let end = |name: usize| (bytes.len() + 8 + name + 4 + 8 * sizes.len() + 4 + 8).next_multiple_of(ALIGNMENT);
    let name = (1..).find(|name| end(*name) % 64 == place).unwrap();
    let end = end(name);
    bytes.extend(text(&"w".repeat(name)));
    bytes.extend((sizes.len() as u32).to_le_bytes());
    bytes.extend(sizes.iter().flat_map(|size| (*size as u64).to_le_bytes()));
    bytes.extend(given.ty.dtype.gguf_id().to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(end, 0);
    bytes.extend(&given.bytes);
    std::fs::write(path, bytes).unwrap();
}

/// A weight in a map that nobody else has, of a file that is gone.
fn mapped(given: &Given, place: usize) -> MappedBytes {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, given, place);
    let bytes = Gguf::open(&path).unwrap().map().unwrap().tensor(0);
    assert!(*bytes == *given.bytes);
    bytes
}

fn device(repack: bool) -> Cpu {
    Cpu::new(CpuOptions { threads: 2, isa: None, repack }).unwrap()
}

fn adopted(cpu: &Cpu, given: &Given, place: usize, room: CopyRoom) -> Option<Tensor> {
    let buffer = cpu.adopt(&mapped(given, place), &given.ty, room).unwrap()?;
    Some(Tensor { buffer, offset_bytes: 0, ty: given.ty })
}

/// A tensor in memory of its own.
fn alone(cpu: &Cpu, given: &Given) -> Tensor {
    let tensor = Tensor { buffer: cpu.alloc(&given.ty, given.usage).unwrap(), offset_bytes: 0, ty: given.ty };
    cpu.upload(&given.bytes, &tensor).unwrap();
    tensor
}

fn downloaded(cpu: &Cpu, tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0x5A; tensor.ty.bytes()];
    cpu.download(tensor, &mut bytes).unwrap();
    bytes
}

/// What an operator makes of a weight and another input.
fn result(cpu: &Cpu, op: &Op, weight: Tensor, other: &Given) -> Vec<u8> {
    result_of(cpu, op, vec![weight], std::slice::from_ref(other))
}

/// What an operator makes of weights and the inputs behind them.
fn result_of(cpu: &Cpu, op: &Op, weights: Vec<Tensor>, others: &[Given]) -> Vec<u8> {
    let others = others.iter().map(|other| alone(cpu, &Given { usage: Usage::Input, ..other.clone() }));
    let inputs: Vec<Tensor> = weights.into_iter().chain(others).collect();
    let ty = op.infer(&inputs.iter().map(|input| input.ty).collect::<Vec<TensorType>>()).unwrap();
    let output = Tensor { buffer: cpu.alloc(&ty, Usage::Input).unwrap(), offset_bytes: 0, ty };
    cpu.execute(&[Step { node: 0, op: op.clone(), inputs, output: output.clone() }]).unwrap();
    downloaded(cpu, &output)
}

fn types() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| dtype.codec().is_some() && *dtype != DType::F64)
}

/// Those that products take.
fn multiplied() -> impl Iterator<Item = DType> {
    types().filter(|dtype| !matches!(dtype, DType::I8 | DType::I32 | DType::I64))
}

#[test]
fn a_mapped_weight_has_the_bits_of_a_copy() {
    let (copying, mapping) = (device(true), device(false));
    for dtype in multiplied() {
        for (sizes, place) in [(&[256, 7][..], 0), (&[512, 33], 8), (&[256, 5, 3], 24)] {
            let given = weight(dtype, sizes, 3);
            let tensor = adopted(&mapping, &given, place, CopyRoom::Enough).unwrap_or_else(|| panic!("{dtype}"));
            assert!(downloaded(&mapping, &tensor) == given.bytes, "{}", given.ty);
            let tokens: &[usize] = if sizes.len() == 3 { &[256, 13, 3] } else { &[sizes[0], 13] };
            let x = activation(tokens, 5);
            let op = MulMat.into();
            let expected = result(&copying, &op, alone(&copying, &given), &x);
            assert!(result(&mapping, &op, tensor.clone(), &x) == expected, "product of {}", given.ty);
            if sizes.len() == 2 {
                let (op, rows) = (Op::get_rows(DType::F32), integers(&[6, 0, 3]));
                let expected = result(&copying, &op, alone(&copying, &given), &rows);
                assert!(result(&mapping, &op, tensor, &rows) == expected, "rows of {}", given.ty);
            }
        }
    }
}

/// Experts behind each other in one tensor, each used by several tokens or by none.
#[test]
fn mapped_experts_have_the_bits_of_copies() {
    let (copying, mapping) = (device(true), device(false));
    let op = Op::from(MulMatId);
    for dtype in multiplied() {
        for (sizes, place, used) in [([256, 7, 3], 8, 1), ([512, 33, 5], 24, 2), ([256, 40, 4], 0, 4)] {
            let given = weight(dtype, &sizes, 3);
            let tensor = adopted(&mapping, &given, place, CopyRoom::Enough).unwrap_or_else(|| panic!("{dtype}"));
            for (seen, tokens) in [(1, 1), (used, 13)] {
                let ids: Vec<i32> = (0..used * tokens).map(|place| (place * place % (sizes[2] - 1)) as i32).collect();
                let ids = Given { ty: TensorType::new(DType::I32, &[used, tokens]), ..integers(&ids) };
                let others = [activation(&[sizes[0], seen, tokens], 5), ids];
                let expected = result_of(&copying, &op, vec![alone(&copying, &given)], &others);
                let found = result_of(&mapping, &op, vec![tensor.clone()], &others);
                assert!(found == expected, "{}, {used} experts for each of {tokens} tokens", given.ty);
            }
        }
    }
}

/// Gate and up in two files, or one of them in memory of its own.
#[test]
fn mapped_weights_of_a_fused_feed_forward_have_the_bits_of_copies() {
    let (copying, mapping) = (device(true), device(false));
    let op = Op::from(MulMatGated { gated: Gated::Swiglu });
    for dtype in multiplied() {
        for (sizes, tokens) in [(&[256, 7][..], 1), (&[512, 33], 13), (&[256, 40], 33), (&[256, 5, 3], 2)] {
            let (gate, up) = (weight(dtype, sizes, 1), weight(dtype, sizes, 2));
            let behind = [&[sizes[0], tokens], sizes.get(2..).unwrap_or_default()].concat();
            let x = [activation(&behind, 3)];
            let adopted = |given, place| adopted(&mapping, given, place, CopyRoom::Enough).unwrap();
            let expected = result_of(&copying, &op, vec![alone(&copying, &gate), alone(&copying, &up)], &x);
            for weights in [
                [adopted(&gate, 8), adopted(&up, 24)],
                [alone(&mapping, &gate), adopted(&up, 40)],
                [adopted(&gate, 0), alone(&mapping, &up)],
            ] {
                let found = result_of(&mapping, &op, weights.to_vec(), &x);
                assert!(found == expected, "{} with {tokens} tokens", gate.ty);
            }
        }
    }
}

/// The type decides, what is repacked, and whether there is room for a copy.
#[test]
fn what_gains_from_a_copy_is_copied_where_there_is_room() {
    for dtype in types() {
        let floats = [DType::F32, DType::F16, DType::Bf16].contains(&dtype);
        let blocks = BLOCKS.contains(&dtype) || SUB_BLOCKS.contains(&dtype);
        let gains = floats || blocks;
        let is_kept = !matches!(dtype, DType::I8);
        let ty = TensorType::new(dtype, &[dtype.block_len().max(64), 2]);
        let given = Given { ty, bytes: vec![1; ty.bytes()], ..weight(DType::F32, &[1], 1) };
        for (repack, room) in [(true, CopyRoom::Enough), (true, CopyRoom::TooLittle), (false, CopyRoom::Enough)] {
            let expected = is_kept && !(gains && repack && room == CopyRoom::Enough);
            let found = adopted(&device(repack), &given, 0, room).is_some();
            assert_eq!(found, expected, "{dtype}, repack {repack}, {room:?}");
        }
        let vector = Given { ty: TensorType::new(dtype, &[2 * ty.shape[0]]), ..given };
        assert!(adopted(&device(false), &vector, 0, CopyRoom::TooLittle).is_none(), "{dtype}: vectors are copied");
    }
}

#[test]
fn nothing_is_written_to_a_file() {
    let cpu = device(false);
    let given = weight(DType::F32, &[32, 4], 1);
    let tensor = adopted(&cpu, &given, 0, CopyRoom::Enough).unwrap();
    let error = cpu.upload(&given.bytes, &tensor).unwrap_err().to_string();
    assert!(error.contains("from the model file and cannot be written"), "{error}");
    let inputs = vec![alone(&cpu, &given), alone(&cpu, &given)];
    let op = Gated::Swiglu.into();
    let error = cpu.execute(&[Step { node: 0, op, inputs, output: tensor.clone() }]).unwrap_err().to_string();
    assert!(error.contains("from the model file and cannot be written"), "{error}");
    assert!(downloaded(&cpu, &tensor) == given.bytes);
    let short = cpu.adopt(&mapped(&given, 0), &TensorType::new(DType::F32, &[32, 5]), CopyRoom::Enough);
    assert!(short.unwrap_err().to_string().contains("640 bytes, not 512"));
}
