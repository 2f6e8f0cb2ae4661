//! Bytes on their way to a card and back: more than the pinned memory holds, small ones between, and inputs that change
//! while kernels that read them may not have begun.

use trueup::blocks::DType::{F32, I8, I32};
use trueup::graph::{Op, TensorType};
use trueup::runtime::Error;
use trueup::runtime::device::{Device, Step, Tensor, Usage};

/// Sizes of tensors: around the halves of the pinned memory, of 8 MiB each, and small ones.
const SIZES: [usize; 9] = [1, (8 << 20) - 255, 300, 8 << 20, 7, (8 << 20) + 1, (20 << 20) + 3, 256, 16 << 20];

/// Rounds of a changing input.
const ROUNDS: i32 = 300;

/// What arrives as something else than was sent.
pub fn transfers(device: &dyn Device) -> Vec<String> {
    let wrong: Vec<String> = [sizes(device), changing(device)].into_iter().filter_map(said).collect();
    println!("cuda-sim, simulated: bytes sent and brought back, {} wrong", wrong.len());
    wrong
}

fn said(found: Result<Option<String>, Error>) -> Option<String> {
    found.unwrap_or_else(|error| Some(error.to_string()))
}

fn tensor(device: &dyn Device, ty: TensorType) -> Result<Tensor, Error> {
    Ok(Tensor { buffer: device.alloc(&ty, Usage::Input)?, offset_bytes: 0, ty })
}

/// All are sent before the first is brought back.
fn sizes(device: &dyn Device) -> Result<Option<String>, Error> {
    let bytes = |size: usize| (0..size).map(|place| (place * 7 + place / 251 + size) as u8).collect::<Vec<u8>>();
    let mut sent = Vec::new();
    for size in SIZES {
        let tensor = tensor(device, TensorType::new(I8, &[size]))?;
        device.upload(&bytes(size), &tensor)?;
        sent.push(tensor);
    }
    for (tensor, size) in sent.iter().zip(SIZES) {
        let mut found = vec![0; size];
        device.download(tensor, &mut found)?;
        if found != bytes(size) {
            return Ok(Some(format!("{size} bytes come back changed")));
        }
    }
    Ok(None)
}

/// One input, which is sent again right behind the kernel that reads it: each result is of the input before.
fn changing(device: &dyn Device) -> Result<Option<String>, Error> {
    let table = tensor(device, TensorType::new(F32, &[2048, 8]))?;
    let rows: Vec<u8> = (0..8).flat_map(|row| (row as f32).to_le_bytes().repeat(2048)).collect();
    device.upload(&rows, &table)?;
    let index = tensor(device, TensorType::new(I32, &[1]))?;
    let mut results = Vec::new();
    for round in 0..ROUNDS {
        let output = tensor(device, TensorType::new(F32, &[2048, 1]))?;
        device.upload(&(round % 8).to_le_bytes(), &index)?;
        let inputs = vec![table.clone(), index.clone()];
        device.execute(&[Step { node: 0, op: Op::get_rows(F32), inputs, output: output.clone() }])?;
        results.push(output);
    }
    for (round, output) in (0..ROUNDS).zip(&results) {
        let mut found = vec![0; output.ty.bytes()];
        device.download(output, &mut found)?;
        if found != ((round % 8) as f32).to_le_bytes().repeat(2048) {
            return Ok(Some(format!("round {round} is computed from another round's input")));
        }
    }
    Ok(None)
}
