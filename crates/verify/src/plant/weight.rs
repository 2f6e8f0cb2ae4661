//! Faults in a weight, as a wrong upload or a wrong reading of blocks makes them.

use crate::fingerprint::{high_bits, nibbles};
use crate::minimum;
use trueup_blocks::DType;
use trueup_graph::{Graph, Node, Op, Origin, TensorType, ValueId};

/// What is wrong with the weight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WeightFault {
    Scale,
    SwappedBlocks,
    NeighbourScale,
    NibbleOrder,
    SwappedWeights,
    HighBits,
    Minimum,
    ShiftedRows,
    Transposed,
    Ones,
}

/// The place of the up weight of a fused feed-forward, the one that is wrong there.
pub const UP: usize = 1;

/// The weight that a node reads, by its place among the inputs.
pub fn place(graph: &Graph, node: &Node) -> Option<usize> {
    if matches!(node.op, Op::MulMatGated(_)) {
        return Some(UP);
    }
    node.inputs.iter().position(|input: &ValueId| graph.value(*input).origin == Origin::Weight)
}

impl WeightFault {
    /// Whether the node reads a weight that can be wrong in this way.
    pub fn fits(self, graph: &Graph, node: &Node) -> bool {
        place(graph, node).is_some_and(|place| self.fits_type(&graph.value(node.inputs[place]).ty))
    }

    /// Whether a weight of this type can be wrong in this way.
    pub fn fits_type(self, ty: &TensorType) -> bool {
        let dtype = ty.dtype;
        let blocks = ty.shape[0] / dtype.block_len().max(1);
        let legacy = matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q8_1);
        match self {
            WeightFault::Scale => legacy || dtype == DType::F32,
            WeightFault::SwappedBlocks => blocks > 1,
            WeightFault::NeighbourScale => legacy && blocks > 1,
            WeightFault::NibbleOrder => nibbles(dtype).is_some(),
            WeightFault::SwappedWeights => matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::Q8_0),
            WeightFault::HighBits => high_bits(dtype).is_some(),
            WeightFault::Minimum => minimum::is_affine(dtype),
            WeightFault::ShiftedRows => ty.shape[1] > 1,
            WeightFault::Transposed => ty.shape[0] == ty.shape[1] && dtype.block_len() == 1,
            WeightFault::Ones => dtype == DType::F32,
        }
    }

    /// What the weight must be, for a message.
    pub fn needs(self) -> &'static str {
        match self {
            WeightFault::Scale => " with a weight in f32, q4_0, q4_1, q5_0, q5_1, q8_0 or q8_1",
            WeightFault::SwappedBlocks | WeightFault::ShiftedRows => " with a weight of several blocks and rows",
            WeightFault::NeighbourScale => {
                " with a weight of several blocks per row in q4_0, q4_1, q5_0, q5_1, q8_0 or q8_1"
            }
            WeightFault::NibbleOrder => " with a weight whose bytes each hold the low 4 bits of two codes",
            WeightFault::SwappedWeights => " with an f32, f16, bf16 or q8_0 weight",
            WeightFault::HighBits => " with a q5_0, q5_1, q5_k or q6_k weight",
            WeightFault::Minimum => " with a q4_1, q5_1, q2_k, q4_k or q5_k weight",
            WeightFault::Transposed => " with a square weight in f32, f16 or bf16",
            WeightFault::Ones => " with an f32 weight",
        }
    }

    /// What to do if no node of the model has such a weight.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            WeightFault::NibbleOrder => Some("quantize the model to q4_0 or q4_k_m"),
            WeightFault::HighBits => Some("quantize the model to q5_0 or q5_1"),
            WeightFault::Minimum => Some("quantize the model to q4_1 or q4_k_m"),
            WeightFault::NeighbourScale => Some("quantize the model to q4_0 or q8_0"),
            WeightFault::SwappedWeights => Some("use a model in f32, f16, bf16 or q8_0"),
            WeightFault::Transposed => Some("use a model in f32, f16 or bf16"),
            WeightFault::Scale | WeightFault::SwappedBlocks | WeightFault::ShiftedRows | WeightFault::Ones => None,
        }
    }

    /// Changes the weight's bytes, laid out as in GGUF.
    pub fn spoil(self, ty: &TensorType, bytes: &mut [u8]) {
        let size = ty.dtype.block_bytes();
        let row = ty.shape[0] / ty.dtype.block_len() * size;
        // A block in the middle of the first rows, where it has a neighbour.
        let block = if row > 2 * size { size } else { 0 };
        match self {
            WeightFault::Scale if ty.dtype == DType::F32 => {
                let weight = f32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[block + byte]));
                bytes[block..block + 4].copy_from_slice(&(weight * 1.05).to_le_bytes());
            }
            WeightFault::Scale => {
                let scale = half::f16::from_le_bytes([bytes[block], bytes[block + 1]]).to_f32();
                bytes[block..block + 2].copy_from_slice(&half::f16::from_f32(scale * 1.05).to_le_bytes());
            }
            WeightFault::SwappedBlocks => bytes[block..block + 2 * size].rotate_left(size),
            WeightFault::NeighbourScale => bytes.copy_within(block + size..block + size + 2, block),
            WeightFault::NibbleOrder => {
                let place = nibbles(ty.dtype).unwrap_or_default();
                let codes = bytes.chunks_exact_mut(size).flat_map(|block| &mut block[place.clone()]);
                codes.for_each(|byte| *byte = byte.rotate_left(4));
            }
            WeightFault::SwappedWeights if ty.dtype == DType::Q8_0 => swap_codes(&mut bytes[block + 2..block + size]),
            WeightFault::SwappedWeights => {
                let elements = row / size;
                let largest = extreme(ty.dtype, &bytes[..row]);
                let other = (largest + elements / 2) % elements;
                (0..size).for_each(|byte| bytes.swap(largest * size + byte, other * size + byte));
            }
            WeightFault::HighBits => {
                let place = high_bits(ty.dtype).unwrap_or_default();
                bytes.chunks_exact_mut(size).for_each(|block| block[place.clone()].fill(0));
            }
            WeightFault::Minimum => {
                let place = minimum::place(ty.dtype).unwrap_or_default();
                bytes.chunks_exact_mut(size).for_each(|block| block[place.clone()].fill(0));
            }
            WeightFault::ShiftedRows => bytes.rotate_left(row),
            WeightFault::Transposed => transpose(bytes, ty.shape[0], size),
            WeightFault::Ones => {
                let one = 1.0f32.to_le_bytes();
                bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|weight| *weight = one);
            }
        }
    }
}

/// Exchanges the largest code and the smallest.
fn swap_codes(codes: &mut [u8]) {
    let by_value = |place: &usize| codes[*place] as i8;
    let largest = (0..codes.len()).max_by_key(by_value).unwrap_or(0);
    let smallest = (0..codes.len()).min_by_key(by_value).unwrap_or(0);
    codes.swap(largest, smallest);
}

/// The element of a row that is largest in magnitude.
fn extreme(dtype: DType, row: &[u8]) -> usize {
    let mut values = vec![0.0; row.len() / dtype.block_bytes()];
    if let Some(codec) = dtype.codec() {
        (codec.decode_exact)(row, &mut values);
    }
    (0..values.len()).max_by(|a, b| f64::abs(values[*a]).total_cmp(&f64::abs(values[*b]))).unwrap_or(0)
}

fn transpose(bytes: &mut [u8], side: usize, size: usize) {
    for row in 0..side {
        for column in 0..row {
            let (here, there) = ((row * side + column) * size, (column * side + row) * size);
            (0..size).for_each(|byte| bytes.swap(here + byte, there + byte));
        }
    }
}
