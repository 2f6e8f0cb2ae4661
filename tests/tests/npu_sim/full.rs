//! Cards whose memory is full: room that compositions computed in goes to whoever needs it.

use crate::peer::{downloaded, tensor};
use trueup::blocks::DType;
use trueup::graph::Op;
use trueup::graph::TensorType;
use trueup::graph::op::{Cast, MulMat};
use trueup::runtime::HostTensor;
use trueup::runtime::device::ascend::{Ascend, AscendOptions, Chip, Place};
use trueup::runtime::device::reference::evaluate;
use trueup::runtime::device::{Buffer, Device, Step, Usage};

/// The parts, and their chips: one with virtual memory, one whose room is of cached buffers.
pub const FULL: [(&str, &str); 2] = [("full 910b", "910b"), ("full 310b", "310b")];

/// Bytes of memory of the card.
const MEMORY_BYTES: u64 = 512 << 20;

/// What does not count: the card's own, and what it takes up besides.
const SLACK_BYTES: u64 = 4 << 20;

/// Less than the product of [`graphs`] asks for.
const LITTLE_BYTES: u64 = 256 << 10;

/// What is not right.
pub fn full(chip: &str) -> Vec<String> {
    let chip = Chip::from_name(chip).expect("a chip that is known");
    // Work is late: what was lent is back on the host before the card has computed anything.
    let more = "\"timing\": \"late\"".to_owned();
    let place = Place::Simulated { chip, cards: 1, card: 0, memory_bytes: MEMORY_BYTES, more };
    let device = Ascend::new(&AscendOptions { place }).unwrap_or_else(|error| panic!("{error}"));
    let wrong: Vec<String> =
        [tensors(&device), rooms(&device), graphs(&device)].into_iter().filter_map(Result::err).collect();
    println!("npu-sim, simulated, {}: full memory, {} wrong", chip.name, wrong.len());
    wrong
}

/// A cast of zeros to blocks, which computes in several rooms as large as what it reads.
fn cast(device: &Ascend, rows: usize) -> Step {
    let x = tensor(device, TensorType::new(DType::F32, &[32, rows]), Usage::State);
    let output = tensor(device, TensorType::new(DType::Q8_0, &[32, rows]), Usage::Input);
    Step { node: 3, op: Cast { to: DType::Q8_0 }.into(), inputs: vec![x], output }
}

fn free(device: &Ascend) -> u64 {
    device.about().memory.map_or(0, |(_, free)| free)
}

/// Takes the card's memory up to so many bytes.
fn fill(device: &Ascend, left: u64) -> Result<Buffer, String> {
    let bytes = free(device) - left;
    let ty = TensorType::new(DType::I8, &[bytes as usize]);
    device.alloc(&ty, Usage::Input).map_err(|error| format!("memory that nobody uses is not had: {error}"))
}

/// A tensor finds the room of a cast that is over.
fn tensors(device: &Ascend) -> Result<(), String> {
    let before = free(device);
    device.execute(&[cast(device, 1 << 18)]).map_err(|error| error.to_string())?;
    device.sync().map_err(|error| error.to_string())?;
    let lent = before - free(device);
    if lent < 4 * SLACK_BYTES {
        return Err(format!("a cast left {lent} bytes of room: too few to show anything"));
    }
    let ty = TensorType::new(DType::I8, &[(before - SLACK_BYTES) as usize]);
    device.alloc(&ty, Usage::Input).map(drop).map_err(|error| format!("{lent} bytes of room stay: {error}"))
}

/// A cast finds the room of another one, whose buffers are too large for it, where nothing else is left.
fn rooms(device: &Ascend) -> Result<(), String> {
    let (large, small) = (cast(device, 1 << 18), cast(device, 1 << 16));
    device.execute(&[large]).map_err(|error| error.to_string())?;
    let _filled = fill(device, SLACK_BYTES)?;
    device.execute(&[small]).map_err(|error| format!("a cast finds no room: {error}"))?;
    device.sync().map_err(|error| error.to_string())
}

/// A product finds the room that a graph of casts computes in, where nothing else is left; the casts are kept anew,
/// where the chip keeps any, and right.
fn graphs(device: &Ascend) -> Result<(), String> {
    let told = |error: trueup::runtime::Error| error.to_string();
    let casts = vec![cast(device, 1 << 18); 4];
    let x = &casts[0].inputs[0];
    let numbers: Vec<u8> = (0..x.ty.shape.elements()).flat_map(|i| ((i % 997) as f32 - 400.0).to_le_bytes()).collect();
    device.upload(&numbers, x).map_err(told)?;
    let before = device.launched().graphs;
    (0..3).try_for_each(|_| device.execute(&casts)).map_err(told)?;
    let graphs = device.launched().graphs - before;
    let [w, y, output] = [[32, 1 << 18], [32, 1], [1 << 18, 1]]
        .map(|sizes| tensor(device, TensorType::new(DType::F32, &sizes), Usage::Input));
    device.upload(&vec![0; w.ty.bytes()], &w).map_err(told)?;
    device.upload(&vec![0; y.ty.bytes()], &y).map_err(told)?;
    let product = Step { node: 4, op: Op::from(MulMat), inputs: vec![w, y], output };
    let filled = fill(device, LITTLE_BYTES)?;
    device.execute(&[product]).map_err(|error| format!("a product finds no room: {error}"))?;
    device.sync().map_err(told)?;
    drop(filled);
    let before = device.launched().graphs;
    (0..2).try_for_each(|_| device.execute(&casts)).map_err(told)?;
    // Kept anew the first time, for the steps were seen before.
    let again = device.launched().graphs - before;
    if graphs != again || ![0, 2].contains(&graphs) {
        return Err(format!("casts are {graphs} graphs, and {again} when their memory was taken"));
    }
    let expected = evaluate(&casts[0].op, &[&HostTensor::stored(x.ty, numbers)]).map_err(told)?.to_bytes().into_owned();
    let is_right = downloaded(device, &casts[0].output) == expected;
    if is_right { Ok(()) } else { Err("casts are wrong when their graph's memory was taken".to_owned()) }
}
