//! Memory of simulated cards: what is uploaded comes back, in blocks and without.

use crate::peer::{downloaded, from_card_to_card, tensor};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::op::Cast;
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::{Device, Step, Tensor, Usage};

/// What is not right; `open` gives a card by its number.
pub fn buffers(device: &dyn Device, open: &dyn Fn(usize) -> Arc<dyn Device>) -> Vec<String> {
    let mut wrong = round_trips(device);
    wrong.extend(parts_of_blocks(device));
    wrong.extend(from_card_to_card(&*open(0), &*open(1)));
    println!("npu-sim, simulated: memory, {} wrong", wrong.len());
    wrong
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8).collect()
}

fn round_trips(device: &dyn Device) -> Vec<String> {
    let types = [
        (DType::F32, &[33, 5][..]),
        (DType::F16, &[1, 7]),
        (DType::I32, &[4099]),
        (DType::Q8_0, &[96, 5, 3]),
        (DType::Q4_0, &[32, 1]),
        (DType::Q4_0, &[288, 7, 2]),
        // More than the pinned memory holds.
        (DType::F32, &[1024, 5000]),
    ];
    let trip = |(dtype, sizes): (DType, &[usize])| {
        let tensor = tensor(device, TensorType::new(dtype, sizes), Usage::Weight);
        let uploaded = bytes(tensor.ty.bytes(), sizes.len());
        device.upload(&uploaded, &tensor).unwrap_or_else(|error| panic!("{error}"));
        (downloaded(device, &tensor) != uploaded).then(|| format!("{} does not come back", tensor.ty))
    };
    types.into_iter().filter_map(trip).collect()
}

/// Some rows of a tensor in blocks are written and read by themselves, across its matrices, and the others stay; of a state as of a weight. What
/// operators see of them is the same: rows that are decoded by a cast are those of the codec.
fn parts_of_blocks(device: &dyn Device) -> Vec<String> {
    let mut wrong = Vec::new();
    for (dtype, usage) in
        [DType::Q8_0, DType::Q4_0].into_iter().flat_map(|dtype| [(dtype, Usage::Weight), (dtype, Usage::State)])
    {
        let whole = tensor(device, TensorType::new(dtype, &[96, 5, 3]), usage);
        let (row, codec) = (TensorType::new(dtype, &[96]).bytes(), dtype.codec().expect("blocks have a codec"));
        let mut blocks = vec![0; whole.ty.bytes()];
        let numbers = |seed: usize| (0..96 * 15).map(move |i| ((i * 37 + seed) % 251) as f32 / 8.0 - 14.0);
        (codec.encode)(&numbers(0).collect::<Vec<_>>(), &mut blocks);
        device.upload(&blocks, &whole).unwrap_or_else(|error| panic!("{error}"));
        let part = Tensor { offset_bytes: 3 * row, ty: TensorType::new(dtype, &[96, 4]), ..whole.clone() };
        let mut four = vec![0; part.ty.bytes()];
        (codec.encode)(&numbers(5).take(96 * 4).collect::<Vec<_>>(), &mut four);
        device.upload(&four, &part).unwrap_or_else(|error| panic!("{error}"));
        blocks[3 * row..7 * row].copy_from_slice(&four);
        if downloaded(device, &whole) != blocks || downloaded(device, &part) != four {
            wrong.push(format!("rows of {} are not where they were written", whole.ty));
        }
        // Two rows of the second matrix.
        let two = Tensor { offset_bytes: 6 * row, ty: TensorType::new(dtype, &[96, 2]), ..whole.clone() };
        let decoded = tensor(device, TensorType::new(DType::F32, &[96, 2]), Usage::Input);
        let op = Op::from(Cast { to: DType::F32 });
        if device.supports(&op, &[two.ty], &decoded.ty).is_err() {
            continue;
        }
        let step = Step { node: 0, op, inputs: vec![two], output: decoded.clone() };
        device.execute(std::slice::from_ref(&step)).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![0.0; 192];
        (codec.decode)(&blocks[6 * row..8 * row], &mut expected);
        let expected: Vec<u8> = expected.iter().flat_map(|number| number.to_le_bytes()).collect();
        if downloaded(device, &decoded) != expected {
            wrong.push(format!("rows of {} are decoded to others", whole.ty));
        }
    }
    wrong
}
