//! Memory of simulated cards: what is uploaded comes back, in blocks and without, on one card and from another behind slow work.

use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::op::{Cast, Unary};
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::{Buffer, Device, Step, Tensor, Usage};

/// What is not right; `open` gives a card by its number.
pub fn buffers(device: &dyn Device, open: &dyn Fn(usize) -> Arc<dyn Device>) -> Vec<String> {
    let mut wrong = round_trips(device);
    wrong.extend(parts_of_blocks(device));
    wrong.extend(from_card_to_card(&*open(0), &*open(1)));
    println!("npu-sim, simulated: memory, {} wrong", wrong.len());
    wrong
}

pub fn tensor(device: &dyn Device, ty: TensorType, usage: Usage) -> Tensor {
    let buffer: Buffer = device.alloc(&ty, usage).unwrap_or_else(|error| panic!("{error}"));
    Tensor { buffer, offset_bytes: 0, ty }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8).collect()
}

pub fn downloaded(device: &dyn Device, tensor: &Tensor) -> Vec<u8> {
    let mut found = vec![0; tensor.ty.bytes()];
    device.download(tensor, &mut found).unwrap_or_else(|error| panic!("{error}"));
    found
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

/// A copy waits for what the other card was asked for before, and what that is asked for next waits for the copy.
fn from_card_to_card(first: &dyn Device, second: &dyn Device) -> Vec<String> {
    let ty = TensorType::new(DType::F32, &[1024, 64]);
    let [x, y] = [0, 1].map(|_| tensor(first, ty, Usage::Input));
    let there = tensor(second, ty, Usage::Input);
    let numbers: Vec<u8> = (0..ty.shape.elements()).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let twice: Vec<u8> = (0..ty.shape.elements()).flat_map(|i| (2.0 * i as f32).to_le_bytes()).collect();
    let scale = Op::from(Unary::Scale { factor: 2.0, bias: 0.0 });
    let step = Step { node: 0, op: scale, inputs: vec![x.clone()], output: y.clone() };
    let work = || {
        first.upload(&numbers, &x)?;
        first.execute(std::slice::from_ref(&step))?;
        second.copy(&y, first, &there)?;
        // What was copied is overwritten at once.
        first.upload(&numbers, &y)?;
        second.sync()
    };
    match work() {
        Ok(()) if downloaded(second, &there) == twice => Vec::new(),
        Ok(()) => vec!["a copy from card to card did not wait, or was not waited for".to_owned()],
        Err(error) => vec![error.to_string()],
    }
}
