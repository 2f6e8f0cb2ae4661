//! Memory of simulated cards: what is uploaded comes back, in blocks and without.

use crate::peer::{downloaded, from_card_to_card, tensor};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::op::{Cast, Unary};
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::{Device, Step, Tensor, Usage};

/// What is not right; `open` gives a card by its number.
pub fn buffers(device: &dyn Device, open: &dyn Fn(usize) -> Arc<dyn Device>) -> Vec<String> {
    let mut wrong = round_trips(device);
    wrong.extend(parts_of_blocks(device));
    let cards = [open(0), open(1)];
    wrong.extend(from_card_to_card(&*cards[0], &*cards[1]));
    wrong.extend(copies_in_turn(&*cards[0], &*cards[1]));
    wrong.extend(foreign(&*cards[0], &*cards[1]));
    wrong.extend(foreign(&*cards[0], &*open(0)));
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
        // Types that the chip stores as f16 do not come back: `decoded`.
        if device.weight_type(dtype) != dtype {
            return None;
        }
        let tensor = tensor(device, TensorType::new(dtype, sizes), Usage::Weight);
        let uploaded = bytes(tensor.ty.bytes(), sizes.len());
        device.upload(&uploaded, &tensor).unwrap_or_else(|error| panic!("{error}"));
        (downloaded(device, &tensor) != uploaded).then(|| format!("{} does not come back", tensor.ty))
    };
    types.into_iter().filter_map(trip).collect()
}

/// Copies in both directions one behind the other, each of what was just computed, into the place that the last one
/// came from.
fn copies_in_turn(first: &dyn Device, second: &dyn Device) -> Vec<String> {
    let ty = TensorType::new(DType::F32, &[512, 32]);
    let [x, y] = [first, second].map(|device| [0, 1].map(|_| tensor(device, ty, Usage::Input)));
    let twice = |device: &dyn Device, [from, to]: &[Tensor; 2]| {
        let op = Op::from(Unary::Scale { factor: 2.0, bias: 0.0 });
        device.execute(&[Step { node: 0, op, inputs: vec![from.clone()], output: to.clone() }])
    };
    let numbers: Vec<u8> = (0..ty.shape.elements()).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let work = || {
        first.upload(&numbers, &x[0])?;
        for _ in 0..4 {
            twice(first, &x)?;
            second.copy(&x[1], first, &y[0])?;
            twice(second, &y)?;
            first.copy(&y[1], second, &x[0])?;
        }
        first.sync()
    };
    let expected: Vec<u8> = (0..ty.shape.elements()).flat_map(|i| (256.0 * i as f32).to_le_bytes()).collect();
    match work() {
        Ok(()) if downloaded(first, &x[0]) == expected => Vec::new(),
        Ok(()) => vec!["copies in turn mix what cards compute".to_owned()],
        Err(error) => vec![error.to_string()],
    }
}

/// A tensor of another device is refused, also of another one on the same card.
fn foreign(device: &dyn Device, other: &dyn Device) -> Vec<String> {
    let ty = TensorType::new(DType::F32, &[8]);
    let (own, others) = (tensor(device, ty, Usage::Input), tensor(other, ty, Usage::Input));
    let op = Op::from(Unary::Scale { factor: 2.0, bias: 0.0 });
    let step = |x: &Tensor, y: &Tensor| Step { node: 0, op: op.clone(), inputs: vec![x.clone()], output: y.clone() };
    let tried = [
        ("an input", device.execute(&[step(&others, &own)])),
        ("an output", device.execute(&[step(&own, &others)])),
        ("an upload", device.upload(&[0; 32], &others)),
        ("a download", device.download(&others, &mut [0; 32])),
    ];
    let is_told = |done: &Result<(), trueup::runtime::Error>| {
        done.as_ref().is_err_and(|error| error.to_string().contains("is in the memory of another device"))
    };
    let taken = tried.iter().filter(|(_, done)| !is_told(done));
    taken.map(|(what, _)| format!("{what} of another device is taken")).collect()
}

/// Some rows of a tensor in blocks are written and read by themselves, across its matrices, and the others stay; of a
/// state as of a weight. What operators see of them is the same: rows that are decoded by a cast are those of the
/// codec.
fn parts_of_blocks(device: &dyn Device) -> Vec<String> {
    let mut wrong = Vec::new();
    for (dtype, usage) in
        [DType::Q8_0, DType::Q4_0].into_iter().flat_map(|dtype| [(dtype, Usage::Weight), (dtype, Usage::State)])
    {
        if usage == Usage::Weight && device.weight_type(dtype) != dtype {
            continue;
        }
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
