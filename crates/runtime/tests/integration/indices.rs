//! Indices that one node computes and the next one reads, in one arena of each device.

use trueup_blocks::DType::{F32, I8, I32};
use trueup_graph::op::{Rank, RankRule};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::cpu::{Cpu, CpuOptions};
use trueup_runtime::device::reference::Reference;
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};

/// Scores `[5]` and a table `[1, 5]` of the same numbers: the rows of the largest three, and their indices.
fn largest_rows(device: &dyn Device, scores: [f32; 5]) -> (Vec<i32>, Vec<f32>) {
    let arena = device.alloc(&TensorType::new(I8, &[4 * ARENA_ALIGN_BYTES]), Usage::Arena).unwrap();
    let at = |place: usize, ty| Tensor { buffer: arena.clone(), offset_bytes: place * ARENA_ALIGN_BYTES, ty };
    let (x, table) = (at(0, TensorType::new(F32, &[5])), at(1, TensorType::new(F32, &[1, 5])));
    let bytes: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
    device.upload(&bytes, &x).unwrap();
    device.upload(&bytes, &table).unwrap();
    let rank: Op = Rank { rule: RankRule::TopK { k: 3 } }.into();
    let (indices, rows) = (at(2, rank.infer(&[x.ty]).unwrap()), at(3, TensorType::new(F32, &[1, 3])));
    assert_eq!(indices.ty, TensorType::new(I32, &[3]));
    assert!(device.supports(&rank, &[x.ty], &indices.ty).is_ok());
    let steps = [
        Step { node: 0, op: rank, inputs: vec![x], output: indices.clone() },
        Step { node: 1, op: Op::get_rows(F32), inputs: vec![table, indices.clone()], output: rows.clone() },
    ];
    device.execute(&steps).unwrap();
    let download = |tensor: &Tensor| {
        let mut bytes = vec![0; 12];
        device.download(tensor, &mut bytes).unwrap();
        bytes.as_chunks::<4>().0.to_vec()
    };
    let indices = download(&indices).into_iter().map(i32::from_le_bytes).collect();
    (indices, download(&rows).into_iter().map(f32::from_le_bytes).collect())
}

#[test]
fn computed_indices_choose_rows_on_every_device() {
    let cpu = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
    let oracle = Reference::new(2).unwrap();
    for device in [&cpu as &dyn Device, &oracle] {
        let found = largest_rows(device, [0.5, 3.0, -7.0, 3.0, 1.5]);
        assert_eq!(found, (vec![1, 3, 4], vec![3.0, 3.0, 1.5]), "{}", device.name());
    }
}
