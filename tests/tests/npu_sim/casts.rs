//! Casts at the ends of their ranges, of halves and of blocks without extent: the bytes of the oracle.

use crate::peer::{downloaded, tensor};
use trueup::blocks::DType;
use trueup::graph::op::Cast;
use trueup::graph::{Op, TensorType};
use trueup::runtime::HostTensor;
use trueup::runtime::device::reference::evaluate;
use trueup::runtime::device::{Device, Step, Usage};

/// What is not right.
pub fn casts(device: &dyn Device) -> Vec<String> {
    let floats = bytes(&ends());
    let integers: Vec<u8> = [0, 1, -1, i64::MAX, i64::MIN, 1 << 31, -(1 << 31) - 1, (1 << 40) + 3]
        .into_iter()
        .flat_map(i64::to_le_bytes)
        .collect();
    let blocks = bytes(&hard_blocks());
    let cases = [
        (DType::F32, &floats, DType::I32),
        (DType::F32, &floats, DType::I64),
        (DType::F32, &floats, DType::F16),
        (DType::I64, &integers, DType::I32),
        (DType::I64, &integers, DType::F32),
        (DType::F32, &blocks, DType::Q8_0),
        (DType::F32, &blocks, DType::Q4_0),
    ];
    let wrong: Vec<String> = cases.into_iter().filter_map(|(from, x, to)| cast(device, from, x, to)).collect();
    println!("npu-sim, simulated: casts at the ends of ranges, {} wrong", wrong.len());
    wrong
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Numbers around halves, around what the types hold, and what is none.
fn ends() -> Vec<f32> {
    let sizes =
        [0.0, 0.5, 0.5f32.next_down(), 1.0f32.next_down(), 1.5, 2.5, 8_388_607.5, 8_388_609.0, 65_519.0, 65_520.0];
    let powers = [31, 63].into_iter().flat_map(|power| {
        let end = 2f32.powi(power);
        [end.next_down(), end, end.next_up(), 4.0 * end]
    });
    let all = sizes.into_iter().chain(powers).chain([1e-40, f32::MAX, f32::INFINITY]);
    all.flat_map(|size| [size, -size]).chain([f32::NAN]).collect()
}

/// Blocks of zeros, of the same magnitude with both signs, of codes in the middle between two, of numbers so small that
/// scales are none.
fn hard_blocks() -> Vec<f32> {
    let mut numbers = vec![0.0; 32];
    let signs = |first: f32| {
        (0..32).map(move |i| {
            if i % 3 == 1 {
                first
            } else if i % 3 == 2 {
                -first
            } else {
                0.25
            }
        })
    };
    numbers.extend(signs(2.0).chain(signs(-2.0)));
    numbers.extend((0..32).map(|i| if i == 0 { 127.0 } else { i as f32 - 15.5 }));
    numbers.extend((0..32).map(|i| if i == 5 { -8.0 } else { (i as f32 - 15.5) / 2.0 }));
    for size in [1e-6, 1e-30, 1e-38, 1e4] {
        numbers.extend((0..32).map(|i| size * ((i * 7 % 32) as f32 - 15.5)));
    }
    numbers
}

/// What is not right with one cast; casts that the device does not declare are as they should be.
fn cast(device: &dyn Device, from: DType, x: &[u8], to: DType) -> Option<String> {
    let ty = |dtype| TensorType::new(dtype, &[x.len() / from.block_bytes()]);
    let op = Op::from(Cast { to });
    device.supports(&op, &[ty(from)], &ty(to)).ok()?;
    let expected =
        evaluate(&op, &[&HostTensor::stored(ty(from), x.to_vec())]).unwrap_or_else(|error| panic!("{error}"));
    let [source, target] = [from, to].map(|dtype| tensor(device, ty(dtype), Usage::State));
    let step = Step { node: 0, op, inputs: vec![source.clone()], output: target.clone() };
    device.upload(x, &source).and_then(|()| device.execute(&[step])).unwrap_or_else(|error| panic!("{error}"));
    let (found, expected) = (downloaded(device, &target), expected.to_bytes());
    let size = to.block_bytes();
    let place = found.chunks(size).zip(expected.chunks(size)).position(|(found, expected)| {
        // Any NaN is one.
        let is_nan = |bits: &[u8]| to == DType::F16 && bits[1] & 0x7c == 0x7c && (bits[1] & 3 | bits[0]) != 0;
        found != expected && !(is_nan(found) && is_nan(expected))
    })?;
    let shown = |bytes: &[u8]| format!("{:?}", &bytes[place * size..][..size]);
    Some(format!("{from} as {to}: at {place} {} is {}", shown(&expected), shown(&found)))
}
