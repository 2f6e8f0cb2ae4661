//! What the operator suite does not try: numbers at the ends of their types, rows that are written twice, indices that
//! lie outside. Where results are moved, rounded or chosen the `cpu` device, which its own tests hold to the formulas,
//! has the same bits.

use trueup::blocks::DType::{self, Bf16, F16, F32, I32, I64, Q4_0, Q8_0};
use trueup::graph::op::{
    Arrange, Cast, Concat, IndexFill, MulMat, Overlay, Overlaying, Rank, RankRule, SetRows, SsmScan,
};
use trueup::graph::{Op, Shape, TensorType};
use trueup::runtime::device::{Device, Step, Tensor, Usage};
use trueup::runtime::{DeviceOptions, open_device};

/// An input and its bytes.
#[derive(Clone)]
struct Given {
    ty: TensorType,
    bytes: Vec<u8>,
}

/// Computes everything on the device and on `cpu`; what differs.
pub fn edges(device: &dyn Device) -> Vec<String> {
    let cpu = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let cases = [casts(), ranks(), rows_written_twice(), integers_moved(), many_tokens()].concat();
    let count = cases.len();
    let mut wrong: Vec<String> = cases.iter().filter_map(|(op, inputs)| differs(device, &*cpu, op, inputs)).collect();
    wrong.extend(outside().iter().filter_map(|(op, inputs, words)| is_not_told(device, op, inputs, words)));
    println!("cuda-sim, simulated: {count} edges, {} wrong", wrong.len());
    wrong
}

type Computation = (Op, Vec<Given>);

/// More tokens than a grid has blocks for, of two batches that share a matrix: whole numbers, whose sums are exact.
fn many_tokens() -> Vec<Computation> {
    let numbers = |sizes: &[usize]| {
        let ty = TensorType::new(F32, sizes);
        let bytes = (0..ty.shape.elements()).flat_map(|place| ((place * 7 % 23) as f32 - 11.0).to_le_bytes()).collect();
        Given { ty, bytes }
    };
    vec![(MulMat.into(), vec![numbers(&[4, 2]), numbers(&[4, 262_145, 2])])]
}

/// Every pair of types, on numbers at the ends of both.
fn casts() -> Vec<Computation> {
    let mut cases = Vec::new();
    for from in [F32, F16, Bf16, I32, I64, Q4_0, Q8_0] {
        for to in [F32, F16, Bf16, I32, I64, Q4_0, Q8_0] {
            let given = if from == I32 || from == I64 {
                integers(from)
            } else {
                // Blocks are made of finite numbers.
                let blocks = from.is_quantized() || to.is_quantized();
                floats(from, &FLOATS[if blocks { 0..64 } else { 32..96 }])
            };
            cases.push((Cast { to }.into(), vec![given]));
        }
    }
    cases
}

/// A block with two weights of the largest magnitude, zeros of either sign, a block whose scale has an infinite
/// reciprocal; ends of f16, bf16, i32 and i64, and halves between them.
const FLOATS: [f32; 96] = {
    let mut floats = [0.0; 96];
    (floats[1], floats[2], floats[3], floats[4]) = (-0.0, -7.5, 7.5, 3.28125);
    (floats[9], floats[31]) = (-0.46875, 1e-3);
    (floats[32], floats[33], floats[34]) = (1e-40, -3e-41, 1e-45);
    let ends = [
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        65504.0,
        65519.996,
        65520.0,
        -65520.0,
        1e30,
        -1e30,
        5.9604645e-8,
        2.9802322e-8,
        8.940697e-8,
        3.38e38,
        -3.38e38,
        3.4028235e38,
        257.0 / 256.0,
        259.0 / 256.0,
        1.0048828,
        16777216.0,
        2147483520.0,
        2147483648.0,
        -2147483648.0,
        -2147483904.0,
        9.223371e18,
        9.223372e18,
        -9.223372e18,
        -9.223373e18,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut i = 0;
    while i < ends.len() {
        floats[64 + i] = ends[i];
        i += 1;
    }
    floats
};

/// Ends, and what rounds otherwise when it is rounded twice.
const INTEGERS: [i64; 32] = [
    0,
    1,
    -1,
    2049,
    2051,
    -4099,
    65519,
    65520,
    -65520,
    70000,
    16777217,
    16777219,
    -16777217,
    33554435,
    2147483647,
    -2147483648,
    2147483648,
    -2147483649,
    4311744513,
    -4311744513,
    4345298945,
    1099511627777,
    9007199254740993,
    -9007199254740993,
    36099165763141633,
    4611686018427387905,
    i64::MAX,
    i64::MIN,
    i64::MAX - 511,
    12,
    -13,
    127,
];

fn floats(dtype: DType, numbers: &[f32]) -> Given {
    let codec = dtype.codec().unwrap_or_else(|| panic!("{dtype} has no codec"));
    let ty = TensorType::new(dtype, &[32, numbers.len() / 32]);
    let mut bytes = vec![0; ty.bytes()];
    (codec.encode)(numbers, &mut bytes);
    Given { ty, bytes }
}

fn integers(dtype: DType) -> Given {
    let bytes = if dtype == I32 {
        INTEGERS.iter().flat_map(|integer| (*integer as i32).to_le_bytes()).collect()
    } else {
        INTEGERS.iter().flat_map(|integer| integer.to_le_bytes()).collect()
    };
    Given { ty: TensorType::new(dtype, &[32]), bytes }
}

fn indices(indices: &[i32]) -> Given {
    let bytes = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    Given { ty: TensorType::new(I32, &[indices.len()]), bytes }
}

/// The first numbers of a tensor of this shape.
fn counting(sizes: &[usize]) -> Given {
    let ty = TensorType::new(F32, sizes);
    let bytes = (0..ty.shape.elements()).flat_map(|i| (i as f32 * 0.37 - 3.0).to_le_bytes()).collect();
    Given { ty, bytes }
}

/// NaN, infinities, zeros of both signs, equal numbers.
fn ranks() -> Vec<Computation> {
    let row = [2.0, -1.0, f32::NAN, 2.0, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, 1e-45, -1e-45];
    let bytes = row.iter().flat_map(|x| x.to_le_bytes()).collect();
    let x = Given { ty: TensorType::new(F32, &[row.len()]), bytes };
    [RankRule::ArgMax, RankRule::Ascending, RankRule::Descending, RankRule::TopK { k: 5 }]
        .map(|rule| (Rank { rule }.into(), vec![x.clone()]))
        .to_vec()
}

/// The last of several rows on one place stays.
fn rows_written_twice() -> Vec<Computation> {
    let case = |dtype: DType| {
        let table = TensorType::new(dtype, &[64, 5]);
        let table = Given { ty: table, bytes: vec![0; table.bytes()] };
        (SetRows.into(), vec![table, counting(&[64, 6]), indices(&[1, 3, 1, 0, 1, 3])])
    };
    [F32, F16, Bf16, Q4_0, Q8_0].map(case).to_vec()
}

/// 64 bits are moved as 32 are.
fn integers_moved() -> Vec<Computation> {
    let x = Given { ty: TensorType::new(I64, &[8, 4]), ..integers(I64) };
    let one = |op: Arrange| (op.into(), vec![x.clone()]);
    let start = [0; 4];
    vec![
        one(Arrange::Repeat { shape: Shape::new(&[16, 4, 3]) }),
        one(Arrange::RepeatInterleave { dimension: 1, times: 3 }),
        one(Arrange::Pad { before: [1, 0, 2, 0], after: [0, 3, 0, 1] }),
        one(Arrange::Roll { shifts: [-3, 9, 0, 0] }),
        (Concat { dimension: 1 }.into(), vec![x.clone(), x.clone()]),
        (Overlay { how: Overlaying::Set, start }.into(), vec![x.clone(), x.clone()]),
    ]
}

/// Indices that lie outside of their tensors, and what must be said of them.
fn outside() -> Vec<(Op, Vec<Given>, &'static str)> {
    let (table, x) = (counting(&[4, 3]), counting(&[4, 2]));
    let scan = vec![
        counting(&[3, 2, 4, 2]),
        counting(&[2, 4, 1, 2]),
        counting(&[4, 1, 2]),
        counting(&[3, 4]),
        counting(&[3, 1, 1, 2]),
        counting(&[3, 1, 1, 2]),
        indices(&[1, 2]),
    ];
    let fill = |index: &[i32]| vec![table.clone(), indices(index)];
    // Of nothing too.
    let fill_nothing = |sizes: &[usize], index: &[i32]| vec![counting(sizes), indices(index)];
    let (first, second) = (IndexFill { dimension: 0, value: 1.0 }, IndexFill { dimension: 1, value: 1.0 });
    vec![
        (first.into(), fill_nothing(&[4, 0], &[0, 1, 9]), "index 9 must be at least 0 and below 4"),
        (second.into(), fill_nothing(&[4, 0], &[0]), "index 0 must be at least 0 and below 0"),
        (first.into(), fill(&[0, 4]), "index 4 must be at least 0 and below 4"),
        (second.into(), fill(&[-1]), "index -1 must be at least 0 and below 3"),
        (SetRows.into(), vec![table.clone(), x.clone(), indices(&[2, 3])], "index 3 must be at least 0 and below 3"),
        (
            SetRows.into(),
            vec![table.clone(), x, indices(&[i32::MIN, 0])],
            "index -2147483648 must be at least 0 and below 3",
        ),
        (SsmScan.into(), scan, "index 2 must be at least 0 and below 2"),
    ]
}

/// What differs between both devices' results.
fn differs(device: &dyn Device, cpu: &dyn Device, op: &Op, inputs: &[Given]) -> Option<String> {
    let name = format!("{op:?} of {}", inputs[0].ty);
    let [found, expected] = [device, cpu].map(|device| computed(device, op, inputs));
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let ty = op.infer(&inputs.iter().map(|input| input.ty).collect::<Vec<_>>()).ok()?;
            differing_block(&ty, &found, &expected).map(|sentence| format!("{name}: {sentence}"))
        }
        (Err(problem), _) | (_, Err(problem)) => Some(format!("{name}: {problem}")),
    }
}

/// The first element or block that is another one.
pub fn differing_block(ty: &TensorType, found: &[u8], expected: &[u8]) -> Option<String> {
    let bytes = ty.dtype.block_bytes();
    let mut elements = found.chunks(bytes).zip(expected.chunks(bytes)).enumerate();
    let (place, (found, expected)) =
        elements.find(|(_, (found, expected))| found != expected && !both_nan(ty.dtype, found, expected))?;
    Some(format!("element or block {place} is {found:02x?}, not {expected:02x?}"))
}

/// Devices have NaN of their own.
fn both_nan(dtype: DType, found: &[u8], expected: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| {
        let mut number = [0.0];
        dtype.codec().filter(|_| dtype.is_float()).is_some_and(|codec| {
            (codec.decode)(bytes, &mut number);
            number[0].is_nan()
        })
    };
    is_nan(found) && is_nan(expected)
}

/// What is wrong about an index that lies outside: it must be told, and forgotten again.
fn is_not_told(device: &dyn Device, op: &Op, inputs: &[Given], words: &str) -> Option<String> {
    let told = computed(device, op, inputs).err();
    let behind = computed(device, &Cast { to: F32 }.into(), &[counting(&[3])]).err();
    match (told, behind) {
        (Some(told), None) if told.contains(words) => None,
        (told, behind) => {
            Some(format!("{op:?}: {words:?} must be said, not {told:?}, and nothing behind it, not {behind:?}"))
        }
    }
}

/// The result's bytes.
fn computed(device: &dyn Device, op: &Op, inputs: &[Given]) -> Result<Vec<u8>, String> {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let tensor = |ty: TensorType| {
        let arena = TensorType::new(DType::I8, &[ty.bytes().next_multiple_of(256)]);
        device.alloc(&arena, Usage::Arena).map(|buffer| Tensor { buffer, offset_bytes: 0, ty })
    };
    let run = || {
        let tensors = types.iter().map(|ty| tensor(*ty)).collect::<Result<Vec<Tensor>, _>>()?;
        for (tensor, input) in tensors.iter().zip(inputs) {
            device.upload(&input.bytes, tensor)?;
        }
        let output = tensor(op.infer(&types).unwrap_or_else(|problem| panic!("{op:?}: {problem}")))?;
        device.execute(&[Step { node: 0, op: op.clone(), inputs: tensors, output: output.clone() }])?;
        let mut bytes = vec![0; output.ty.bytes()];
        device.download(&output, &mut bytes)?;
        Ok(bytes)
    };
    run().map_err(|error: trueup::runtime::Error| error.to_string())
}
