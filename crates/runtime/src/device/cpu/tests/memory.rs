//! What is uploaded comes back, and what does not fit is refused with a reason.

use super::*;
use trueup_graph::op::{Gated, KvStore, MulMat};

fn alone(cpu: &Cpu, given: &Given) -> Tensor {
    let tensor = Tensor { buffer: cpu.alloc(&given.ty, given.usage).unwrap(), offset_bytes: 0, ty: given.ty };
    cpu.upload(&given.bytes, &tensor).unwrap();
    tensor
}

/// Any bytes: also NaN and codes that no encoder writes.
#[test]
fn uploads_come_back_byte_for_byte() {
    for repack in [false, true] {
        let cpu = Cpu::new(CpuOptions { threads: 2, isa: None, repack }).unwrap();
        for dtype in DType::all().filter(|dtype| dtype.codec().is_some() && *dtype != DType::F64) {
            for sizes in [&[32, 1][..], &[64, 7], &[96, 8], &[32, 33], &[64, 5, 3], &[32, 0]] {
                let mut sizes = sizes.to_vec();
                sizes[0] *= dtype.block_len().div_ceil(32);
                let ty = TensorType::new(dtype, &sizes);
                let bytes: Vec<u8> = (0..ty.bytes()).map(|i| (i * 167 % 257) as u8).collect();
                for usage in [Usage::Weight, Usage::State, Usage::Input] {
                    let tensor = alone(&cpu, &Given { ty, bytes: bytes.clone(), usage });
                    let mut found = vec![0x5A; bytes.len()];
                    cpu.download(&tensor, &mut found).unwrap();
                    assert!(found == bytes, "{ty} as {usage:?}, repack {repack}");
                }
            }
        }
    }
}

/// Seventeen rows are two tiles, in which a block of mxfp4 has 18 bytes.
#[test]
fn weights_take_the_bytes_of_their_tiles() {
    for (repack, mxfp4) in [(true, 32 * 3 * 18), (false, 17 * 3 * 17)] {
        let cpu = Cpu::new(CpuOptions { threads: 1, isa: None, repack }).unwrap();
        assert_eq!(cpu.weight_bytes(&TensorType::new(DType::Mxfp4, &[96, 17]), true), mxfp4);
        assert_eq!(cpu.weight_bytes(&TensorType::new(DType::Q4_0, &[96, 17]), true), 17 * 3 * 18);
    }
}

#[test]
fn states_are_zero_at_first() {
    let cpu = default_cpu();
    for dtype in [DType::F16, DType::F32, DType::Q8_0] {
        let ty = TensorType::new(dtype, &[32, 4, 2]);
        let tensor = Tensor { buffer: cpu.alloc(&ty, Usage::State).unwrap(), offset_bytes: 0, ty };
        let mut found = vec![1; ty.bytes()];
        cpu.download(&tensor, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_cannot_be_kept_or_computed_says_why() {
    let cpu = default_cpu();
    let message = |result: Result<Buffer>| result.unwrap_err().to_string();
    let f64_type = TensorType::new(DType::F64, &[32, 2]);
    assert!(message(cpu.alloc(&f64_type, Usage::State)).contains("does not support f64"));
    assert!(
        message(cpu.alloc(&TensorType::new(DType::Iq2Xs, &[256, 2]), Usage::Weight))
            .contains("does not support iq2_xs")
    );
    let (w, x) = (TensorType::new(DType::Iq2Xs, &[256, 2]), TensorType::new(DType::F32, &[256, 1]));
    let output = TensorType::new(DType::F32, &[2, 1]);
    assert!(cpu.supports(&MulMat.into(), &[w, x], &output).unwrap_err().contains("iq2_xs weights"));
    let wrong = TensorType::new(DType::F32, &[3, 1]);
    assert!(
        cpu.supports(&MulMat.into(), &[x, x], &wrong).unwrap_err().contains("gives f32[1]"),
        "the output's type is checked"
    );
}

/// 2^48 bytes and more: beyond what a process can address.
#[test]
fn what_is_larger_than_any_memory_is_refused() {
    for repack in [false, true] {
        let cpu = Cpu::new(CpuOptions { threads: 1, isa: None, repack }).unwrap();
        for (dtype, usage, part) in [
            (DType::F32, Usage::State, "reduce the context (-c)"),
            (DType::F16, Usage::State, "or use fewer sequences"),
            (DType::Q8_0, Usage::State, "or use fewer sequences"),
            (DType::I8, Usage::Arena, "shorter prompts"),
            (DType::Bf16, Usage::Weight, "smaller model"),
            (DType::Q4_0, Usage::Weight, "smaller model"),
            (DType::Q8_0, Usage::Weight, "smaller model"),
        ] {
            let ty = TensorType::new(dtype, &[1 << 20, 1 << 30]);
            let error = cpu.alloc(&ty, usage).unwrap_err().to_string();
            assert!(error.contains(&format!("bytes of {ty}")) && error.contains(part), "{error}");
        }
    }
}

#[test]
fn indices_outside_are_refused() {
    let cpu = default_cpu();
    for index in [-1, 4] {
        let table = weight(DType::Q8_0, &[32, 4], 1);
        let error = run(&cpu, &Op::get_rows(DType::F32), &[table, integers(&[0, index])]).unwrap_err().to_string();
        assert!(error.contains(&format!("row {index} must be at least 0 and below 4")), "{error}");
        let cache = stored(DType::F16, &[8, 2, 2], 1, Usage::State);
        let inputs = [cache, activation(&[8, 1], 2), integers(&[index])];
        let error = run(&cpu, &KvStore.into(), &inputs).unwrap_err().to_string();
        assert!(error.contains("row of the KV cache"), "{error}");
    }
}

#[test]
fn tensors_outside_their_buffer_and_overlaps_are_refused() {
    let cpu = default_cpu();
    let arena = cpu.alloc(&TensorType::new(DType::I8, &[1024]), Usage::Arena).unwrap();
    let ty = TensorType::new(DType::F32, &[64]);
    let at = |offset_bytes| Tensor { buffer: arena.clone(), offset_bytes, ty };
    let step = |inputs: Vec<Tensor>, output| Step { node: 0, op: Gated::Swiglu.into(), inputs, output };
    assert!(cpu.execute(&[step(vec![at(256), at(256)], at(0))]).is_ok(), "one tensor may be both inputs");
    let error = cpu.execute(&[step(vec![at(0), at(256)], at(128))]).unwrap_err().to_string();
    assert!(error.contains("overlaps the output"), "{error}");
    for offset_bytes in [1024, 900, 2, usize::MAX - 3] {
        let error = cpu.execute(&[step(vec![at(0), at(0)], at(offset_bytes))]).unwrap_err().to_string();
        assert!(error.contains("is outside a buffer"), "{error}");
    }
    let foreign = Tensor { buffer: Buffer(std::sync::Arc::new(5)), offset_bytes: 0, ty };
    assert!(cpu.upload(&[0; 256], &foreign).unwrap_err().to_string().contains("another device"));
    assert!(cpu.upload(&[0; 255], &at(0)).unwrap_err().to_string().contains("256 bytes, not 255"));
}

#[test]
fn options_that_cannot_be_are_refused() {
    for (threads, part) in [(0, "at least 1"), (1025, "at most 1024 threads"), (usize::MAX, "at most 1024 threads")] {
        let error = Cpu::new(CpuOptions { threads, isa: None, repack: true }).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let cpu = default_cpu();
    assert_eq!(cpu.threads(), 2);
    assert!(cpu.about().description.contains(cpu.isa().name()));
    let alone = super::cpu(1, cpu.isa()).about().description;
    assert!(alone.ends_with(", 1 thread") && cpu.about().description.ends_with(" threads"), "{alone}");
}
