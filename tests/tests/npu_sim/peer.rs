//! Memory of one simulated card copied to another, behind slow work.

use trueup::blocks::DType;
use trueup::graph::op::Unary;
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::{Buffer, Device, Step, Tensor, Usage};

/// A tensor in memory of its own.
pub fn tensor(device: &dyn Device, ty: TensorType, usage: Usage) -> Tensor {
    let buffer: Buffer = device.alloc(&ty, usage).unwrap_or_else(|error| panic!("{error}"));
    Tensor { buffer, offset_bytes: 0, ty }
}

/// The bytes of a tensor.
pub fn downloaded(device: &dyn Device, tensor: &Tensor) -> Vec<u8> {
    let mut found = vec![0; tensor.ty.bytes()];
    device.download(tensor, &mut found).unwrap_or_else(|error| panic!("{error}"));
    found
}

/// A copy waits for what the other card was asked for before, and what that is asked for next waits for the copy: what
/// is not right.
pub fn from_card_to_card(first: &dyn Device, second: &dyn Device) -> Vec<String> {
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
