//! Memory of simulated cards: what is uploaded comes back, in blocks and without, on one card and from another behind slow work.

use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::op::Unary;
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::{Buffer, Device, Step, Tensor, Usage};

/// What is not right; `open` gives a card by its number.
pub fn buffers(device: &dyn Device, open: &dyn Fn(usize) -> Arc<dyn Device>) -> Vec<String> {
    let mut wrong = round_trips(device);
    wrong.extend(from_card_to_card(&*open(0), &*open(1)));
    println!("npu-sim, simulated: memory, {} wrong", wrong.len());
    wrong
}

fn tensor(device: &dyn Device, ty: TensorType, usage: Usage) -> Tensor {
    let buffer: Buffer = device.alloc(&ty, usage).unwrap_or_else(|error| panic!("{error}"));
    Tensor { buffer, offset_bytes: 0, ty }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8).collect()
}

fn downloaded(device: &dyn Device, tensor: &Tensor) -> Vec<u8> {
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
