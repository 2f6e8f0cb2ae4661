//! Memory of simulated cards: what is uploaded comes back, in blocks and without.

use crate::peer::{downloaded, from_card_to_card, tensor};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::TensorType;
use trueup::runtime::device::{Device, Usage};

/// What is not right; `open` gives a card by its number.
pub fn buffers(device: &dyn Device, open: &dyn Fn(usize) -> Arc<dyn Device>) -> Vec<String> {
    let mut wrong = round_trips(device);
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
