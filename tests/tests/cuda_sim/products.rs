//! The fast kernels of products against the plain ones: weights in planes and as in the file, few tokens and many,
//! views of weights, more batches than a grid takes; and weights that are decoded in pieces.

use crate::edges::differing_block;
use trueup::blocks::DType::{self, F16, F32, I32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1};
use trueup::graph::op::{Cast, Gated, GetRows, MulMat, MulMatGated, MulMatId};
use trueup::graph::{Op, Shape, Strides, TensorType};
use trueup::runtime::device::{Device, Step, Tensor, Usage};
use trueup::runtime::{DeviceOptions, Linear, open_device};

/// Types whose weights lie in planes.
const TYPES: [DType; 6] = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1];

/// Columns, rows and tokens: fewer blocks than a warp has lanes, more than two steps of them; rows that no group
/// divides.
const SHAPES: [[usize; 3]; 7] =
    [[32, 1, 1], [96, 7, 1], [2112, 33, 1], [256, 9, 2], [1056, 13, 3], [64, 130, 5], [1088, 6, 8]];

/// An input: its type, what it is, and its bytes.
struct Given {
    ty: TensorType,
    usage: Usage,
    bytes: Vec<u8>,
}

/// Computes everything with weights in planes and without; what differs.
pub fn products(device: &dyn Device) -> Vec<String> {
    let plain = DeviceOptions { repack: false, ..DeviceOptions::default() };
    let plain = open_device(&device.name(), &plain).unwrap_or_else(|error| panic!("{error}"));
    let cases: Vec<(Op, Vec<Given>)> = TYPES.into_iter().flat_map(cases_of).chain([many_batches()]).collect();
    let count = cases.len();
    let mut wrong: Vec<String> = cases.iter().filter_map(|(op, inputs)| differs(device, &*plain, op, inputs)).collect();
    wrong.extend(TYPES.into_iter().flat_map(|dtype| is_not_kept(device, dtype)));
    let decoding = DeviceOptions { linear: Linear::Dequantize, ..DeviceOptions::default() };
    let decoding = open_device(&device.name(), &decoding).unwrap_or_else(|error| panic!("{error}"));
    wrong.extend([&[][..], &[2]].into_iter().filter_map(|stack| differs_in_pieces(&*decoding, stack)));
    wrong.extend(is_not_infinite(&*decoding));
    println!("cuda-sim, simulated: {count} products of weights in planes, {} wrong", wrong.len());
    wrong
}

/// Products on one device and divided between two, whose gathers are counted; what differs. Halves of one size without
/// a gap are gathered, if `gathers`.
pub fn divided(one: &dyn Device, pair: &dyn Device, gathered: &dyn Fn() -> usize, gathers: bool) -> Vec<String> {
    let case = |dtype, rows: usize, tokens: usize| {
        let x = || activations(F32, &[64, tokens]);
        let gated = MulMatGated { gated: Gated::Geglu }.into();
        let of_gates = vec![weight(dtype, &[64, rows], 9), weight(dtype, &[64, rows], 10), x()];
        let cases = [(MulMat.into(), vec![weight(dtype, &[64, rows], 8), x()]), (gated, of_gates)];
        let expected = usize::from(gathers && rows.is_multiple_of(64) && (rows * tokens).is_multiple_of(128));
        cases.into_iter().filter_map(move |(op, inputs): (Op, Vec<Given>)| {
            let before = gathered();
            let wrong = differs(pair, one, &op, &inputs);
            let found = gathered() - before;
            let miscounted = || format!("{op:?} of {}, {tokens} tokens: {found} gathers", inputs[0].ty);
            wrong.or_else(|| (found != expected).then(miscounted))
        })
    };
    let shapes = [32, 64, 96, 128, 130, 384].into_iter().flat_map(|rows| [1, 2, 5, 16].map(|tokens| (rows, tokens)));
    let cases = shapes.flat_map(|(rows, tokens)| [Q4_0, F16].map(|dtype| (dtype, rows, tokens)));
    cases.flat_map(|(dtype, rows, tokens)| case(dtype, rows, tokens)).collect()
}

/// What reads weights of a type: products of few tokens have one order of summation in both forms.
fn cases_of(dtype: DType) -> Vec<(Op, Vec<Given>)> {
    let mut cases: Vec<(Op, Vec<Given>)> = Vec::new();
    for [k, m, n] in SHAPES {
        cases.push((MulMat.into(), vec![weight(dtype, &[k, m], 1), activations(F32, &[k, n])]));
        let gated = MulMatGated { gated: Gated::Geglu }.into();
        cases.push((gated, vec![weight(dtype, &[k, m], 2), weight(dtype, &[k, m], 3), activations(F32, &[k, n])]));
    }
    // Matrices of a stack, each for several batches; every second row; the rows behind the first two.
    cases.push((MulMat.into(), vec![weight(dtype, &[64, 13, 2], 4), activations(F16, &[64, 3, 6])]));
    let seen = [(0, [1, 128, 0, 0], [64, 5]), (128, [1, 64, 0, 0], [64, 9])];
    for (offset, steps, sizes) in seen {
        let view = TensorType { dtype, shape: Shape::new(&sizes).seen_by(Strides { offset, steps }) };
        let table = || Given { ty: view, ..weight(dtype, &[64, 11], 5) };
        cases.push((MulMat.into(), vec![table(), activations(F32, &[64, 4])]));
        cases.push((GetRows { output: F32 }.into(), vec![table(), indices(&[4, 0, 3, 4], &[4])]));
        cases.push((Cast { to: dtype }.into(), vec![table()]));
    }
    // Two experts of three for each of two tokens.
    let experts = vec![weight(dtype, &[96, 9, 3], 6), activations(F32, &[96, 2, 2]), indices(&[2, 0, 1, 2], &[2, 2])];
    cases.push((MulMatId.into(), experts));
    // An operator that reads no planes.
    if dtype == Q4_0 || dtype == Q8_0 {
        cases.push((Cast { to: F32 }.into(), vec![weight(dtype, &[64, 9], 7)]));
    }
    cases
}

/// Two matrices, each for so many batches that a grid does not take both of them at once.
fn many_batches() -> (Op, Vec<Given>) {
    let batches = 65_536;
    (MulMat.into(), vec![weight(Q5_1, &[32, 1, 1, 2], 8), activations(F32, &[32, 1, 1, batches])])
}

/// Where the last rows of matrices so large that they are decoded in pieces, one or a stack of them, have other results
/// than by themselves. Each matrix of a stack is multiplied with two batches.
fn differs_in_pieces(device: &dyn Device, stack: &[usize]) -> Option<String> {
    const LEN: usize = 512;
    const ROWS: usize = 2500;
    const LAST: usize = 100;
    const TOKENS: usize = 9;
    let matrices: usize = stack.iter().product();
    let whole = weight(Q8_0, &[&[LEN, ROWS], stack].concat(), 9);
    let of_rows = |bytes: &[u8], row: usize| -> Vec<u8> {
        bytes.chunks(row * ROWS).flat_map(|matrix| &matrix[row * (ROWS - LAST)..]).copied().collect()
    };
    let last = Given {
        ty: TensorType::new(Q8_0, &[&[LEN, LAST], stack].concat()),
        usage: Usage::Weight,
        bytes: of_rows(&whole.bytes, whole.bytes.len() / matrices / ROWS),
    };
    let x = || activations(F32, &[&[LEN, TOKENS][..], &stack.iter().map(|n| 2 * n).collect::<Vec<usize>>()].concat());
    let name = format!("rows {} and on of {}", ROWS - LAST, whole.ty);
    match (computed(device, &MulMat.into(), &[whole, x()]), computed(device, &MulMat.into(), &[last, x()])) {
        (Ok((_, found)), Ok((ty, expected))) => {
            let found = of_rows(&found, size_of::<f32>());
            differing_block(&ty, &found, &expected).map(|sentence| format!("{name}: {sentence}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Some(format!("{name}: {problem}")),
    }
}

/// Where weights beyond the range of f16 are decoded to others than infinite ones, or those within it to others than
/// themselves.
fn is_not_infinite(device: &dyn Device) -> Option<String> {
    // A row has one weight that is not zero: 1000 times its code.
    let row = |code: i8| [&half::f16::from_f32(1000.0).to_le_bytes()[..], &[code.to_le_bytes()[0]], &[0; 31]].concat();
    let bytes = [64, 66, -66].map(row).concat();
    let weight = Given { ty: TensorType::new(Q8_0, &[32, 3]), usage: Usage::Weight, bytes };
    let ones =
        Given { ty: TensorType::new(F32, &[32, 9]), usage: Usage::Input, bytes: 1.0f32.to_le_bytes().repeat(32 * 9) };
    let expected = [64_000.0, f32::INFINITY, f32::NEG_INFINITY].map(f32::to_le_bytes).concat().repeat(9);
    let found = computed(device, &MulMat.into(), &[weight, ones]);
    (!found.as_ref().is_ok_and(|(_, bytes)| *bytes == expected)).then(|| format!("weights beyond 65504 give {found:?}"))
}

/// Bytes of a weight come back as they were, and a part of it is not written.
fn is_not_kept(device: &dyn Device, dtype: DType) -> Option<String> {
    let given = weight(dtype, &[32, 1027], 10);
    let tensor = placed(device, &given).unwrap_or_else(|error| panic!("{error}"));
    let read = |ty: TensorType| {
        let mut bytes = vec![0; ty.bytes()];
        let part = Tensor { ty, ..tensor.clone() };
        device.download(&part, &mut bytes).map(|()| bytes).unwrap_or_else(|error| error.to_string().into_bytes())
    };
    let rows = TensorType::new(dtype, &[32, 2]);
    let refused = device.upload(&given.bytes[..rows.bytes()], &Tensor { ty: rows, ..tensor.clone() });
    let refused = refused.is_err_and(|error| error.to_string().contains("part of a weight cannot be written"));
    let kept = read(given.ty) == given.bytes && read(rows) == given.bytes[..rows.bytes()];
    (!kept || !refused).then(|| format!("{dtype}: all bytes are kept: {kept}; a part is refused: {refused}"))
}

/// Blocks of any codes, with scales as weights have them.
fn weight(dtype: DType, sizes: &[usize], seed: u32) -> Given {
    let ty = TensorType::new(dtype, sizes);
    let codec = dtype.codec().unwrap_or_else(|| panic!("{dtype} has no codec"));
    let mut bytes = vec![0; ty.bytes()];
    (codec.encode)(&numbers(ty.shape.elements(), seed), &mut bytes);
    Given { ty, usage: Usage::Weight, bytes }
}

fn activations(dtype: DType, sizes: &[usize]) -> Given {
    let ty = TensorType::new(dtype, sizes);
    let codec = dtype.codec().unwrap_or_else(|| panic!("{dtype} has no codec"));
    let mut bytes = vec![0; ty.bytes()];
    (codec.encode)(&numbers(ty.shape.elements(), 77), &mut bytes);
    Given { ty, usage: Usage::Input, bytes }
}

fn indices(indices: &[i32], sizes: &[usize]) -> Given {
    let bytes = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    Given { ty: TensorType::new(I32, sizes), usage: Usage::Input, bytes }
}

/// Numbers around zero, the same for one seed.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..len).map(|_| next() + next()).collect()
}

/// A tensor of the device with an input's bytes; a view is one of all that they hold.
fn placed(device: &dyn Device, given: &Given) -> Result<Tensor, trueup::runtime::Error> {
    let dtype = given.ty.dtype;
    let all = TensorType::new(dtype, &[given.bytes.len() / dtype.block_bytes() * dtype.block_len()]);
    let whole = if given.ty.shape.is_dense() { given.ty } else { all };
    let tensor = Tensor { buffer: device.alloc(&whole, given.usage)?, offset_bytes: 0, ty: whole };
    device.upload(&given.bytes, &tensor)?;
    Ok(Tensor { ty: given.ty, ..tensor })
}

/// Where both forms give other bits.
fn differs(device: &dyn Device, plain: &dyn Device, op: &Op, inputs: &[Given]) -> Option<String> {
    let name = format!("{op:?} of {}", inputs[0].ty);
    match (computed(device, op, inputs), computed(plain, op, inputs)) {
        (Ok((ty, found)), Ok((_, expected))) => {
            differing_block(&ty, &found, &expected).map(|sentence| format!("{name}: {sentence}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Some(format!("{name}: {problem}")),
    }
}

/// The result's type and bytes.
fn computed(device: &dyn Device, op: &Op, inputs: &[Given]) -> Result<(TensorType, Vec<u8>), String> {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let ty = op.infer(&types)?;
    let run = || {
        let inputs = inputs.iter().map(|input| placed(device, input)).collect::<Result<Vec<Tensor>, _>>()?;
        let arena = TensorType::new(DType::I8, &[ty.bytes().next_multiple_of(256)]);
        let output = Tensor { buffer: device.alloc(&arena, Usage::Arena)?, offset_bytes: 0, ty };
        device.execute(&[Step { node: 0, op: op.clone(), inputs, output: output.clone() }])?;
        let mut bytes = vec![0; ty.bytes()];
        device.download(&output, &mut bytes)?;
        Ok((ty, bytes))
    };
    run().map_err(|error: trueup::runtime::Error| error.to_string())
}
