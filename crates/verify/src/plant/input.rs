//! Faults in what an operator is given.

use super::bits::{bytes_of_indices, bytes_of_numbers, indices, numbers};
use std::ops::Range;
use trueup_graph::{Graph, Input, Node, Op, Origin, TensorType};

/// What is wrong with an input.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum InputFault {
    Truncated,
    SevenBits,
    Per128,
    Saturated,
    Bf16,
    Stale,
    Tail(usize),
    NextIndex,
    FirstIndex,
    FirstIndices,
    FirstSequence,
    FirstCache,
    NoMask,
    MaskOneOff,
    NoWindow,
    WindowOneOff,
    EmptySlot,
    FirstSlot,
    InterleavedHeads,
    Dropped,
    Ones,
    Negated,
    Exchanged,
}

impl InputFault {
    /// Which input is changed, by its place.
    pub fn place(self, op: &Op) -> usize {
        match self {
            InputFault::NextIndex | InputFault::FirstIndex | InputFault::FirstIndices => {
                if matches!(op, Op::KvStore(_) | Op::MulMatId(_)) { 2 } else { 1 }
            }
            InputFault::FirstSequence if matches!(op, Op::KvAttention(_)) => 3,
            InputFault::FirstSequence | InputFault::FirstCache => 2,
            // Keys of attention; weights or activations of a feed-forward.
            InputFault::Exchanged => usize::from(matches!(op, Op::KvAttention(_))),
            InputFault::InterleavedHeads => 0,
            InputFault::Negated if matches!(op, Op::Rank(_)) => 0,
            InputFault::NoMask | InputFault::MaskOneOff | InputFault::NoWindow | InputFault::WindowOneOff
                if matches!(op, Op::KvAttention(_)) =>
            {
                4
            }
            InputFault::EmptySlot | InputFault::FirstSlot if matches!(op, Op::SsmScan(_)) => 6,
            InputFault::Truncated
            | InputFault::SevenBits
            | InputFault::Per128
            | InputFault::Saturated
            | InputFault::Bf16
            | InputFault::Stale
            | InputFault::Tail(_)
            | InputFault::NoMask
            | InputFault::MaskOneOff
            | InputFault::NoWindow
            | InputFault::WindowOneOff
            | InputFault::EmptySlot
            | InputFault::FirstSlot
            | InputFault::Dropped
            | InputFault::Ones
            | InputFault::Negated => 1,
        }
    }

    /// Whether the node has such an input.
    pub fn fits(self, graph: &Graph, node: &Node) -> bool {
        let Some(input) = node.inputs.get(self.place(&node.op)) else { return false };
        let origin = graph.value(*input).origin;
        let types: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
        let comes_from_there = match self {
            InputFault::NoWindow | InputFault::WindowOneOff => origin == Origin::Input(Input::MaskWindow),
            InputFault::EmptySlot | InputFault::FirstSlot => origin == Origin::Input(Input::StateSources),
            InputFault::FirstIndices => origin == Origin::Input(Input::OutputRows),
            InputFault::NextIndex => origin != Origin::Input(Input::OutputRows),
            InputFault::Truncated
            | InputFault::SevenBits
            | InputFault::Per128
            | InputFault::Saturated
            | InputFault::Bf16
            | InputFault::Stale
            | InputFault::Tail(_)
            | InputFault::FirstIndex
            | InputFault::FirstSequence
            | InputFault::FirstCache
            | InputFault::NoMask
            | InputFault::MaskOneOff
            | InputFault::InterleavedHeads
            | InputFault::Dropped
            | InputFault::Ones
            | InputFault::Negated => true,
            // Latent attention reads keys and values from one cache.
            InputFault::Exchanged => node.inputs.get(self.place(&node.op) + 1) != Some(input),
        };
        comes_from_there && self.fits_types(&node.op, &types)
    }

    /// Whether inputs of these types can have it, wherever they come from.
    pub fn fits_types(self, op: &Op, types: &[TensorType]) -> bool {
        let Some(ty) = types.get(self.place(op)) else { return false };
        match self {
            InputFault::Per128 => ty.shape[0] > 32,
            InputFault::Tail(len) => ty.shape[0] > len,
            InputFault::Dropped | InputFault::Ones | InputFault::Negated => ty.dtype == trueup_blocks::DType::F32,
            InputFault::Exchanged => types.get(self.place(op) + 1) == Some(ty),
            InputFault::InterleavedHeads => {
                let (heads, kv_heads) = heads(types);
                kv_heads > 1 && heads > kv_heads
            }
            InputFault::Truncated
            | InputFault::SevenBits
            | InputFault::Saturated
            | InputFault::Bf16
            | InputFault::Stale
            | InputFault::NextIndex
            | InputFault::FirstIndex
            | InputFault::FirstIndices
            | InputFault::FirstSequence
            | InputFault::FirstCache
            | InputFault::NoMask
            | InputFault::MaskOneOff
            | InputFault::NoWindow
            | InputFault::WindowOneOff
            | InputFault::EmptySlot
            | InputFault::FirstSlot => true,
        }
    }

    /// Whether the input that is changed holds indices.
    pub fn is_of_indices(self) -> bool {
        match self {
            InputFault::NextIndex
            | InputFault::FirstIndex
            | InputFault::FirstIndices
            | InputFault::FirstSequence
            | InputFault::FirstCache
            | InputFault::EmptySlot
            | InputFault::FirstSlot => true,
            InputFault::Truncated
            | InputFault::SevenBits
            | InputFault::Per128
            | InputFault::Saturated
            | InputFault::Bf16
            | InputFault::Stale
            | InputFault::Tail(_)
            | InputFault::NoMask
            | InputFault::MaskOneOff
            | InputFault::NoWindow
            | InputFault::WindowOneOff
            | InputFault::InterleavedHeads
            | InputFault::Dropped
            | InputFault::Ones
            | InputFault::Negated
            | InputFault::Exchanged => false,
        }
    }

    /// What the input must be, for a message.
    pub fn needs(self) -> &'static str {
        match self {
            InputFault::NoWindow | InputFault::WindowOneOff => " of a layer with a sliding window",
            InputFault::EmptySlot | InputFault::FirstSlot => " that reads a recurrent state",
            InputFault::InterleavedHeads => " with grouped query heads and more than one KV head",
            InputFault::Per128 => " with more than 32 inputs",
            InputFault::FirstIndices => " of the output tokens",
            InputFault::Tail(_) => " with longer rows",
            InputFault::Dropped | InputFault::Ones | InputFault::Negated => " with an f32 input",
            InputFault::Exchanged => " with two different inputs of the same type to swap",
            InputFault::Truncated
            | InputFault::SevenBits
            | InputFault::Saturated
            | InputFault::Bf16
            | InputFault::Stale
            | InputFault::NextIndex
            | InputFault::FirstIndex
            | InputFault::FirstSequence
            | InputFault::FirstCache
            | InputFault::NoMask
            | InputFault::MaskOneOff => "",
        }
    }

    /// The input's bytes with the fault. Indices stay below `limit`; a sequence has `context` rows of the cache.
    pub fn spoil(self, ty: &TensorType, bytes: &[u8], limit: Option<i32>, context: i32) -> Vec<u8> {
        let row = ty.shape[0].max(1);
        let on_rows = |change: &dyn Fn(&mut [f32])| {
            let mut x = numbers(bytes);
            x.chunks_mut(row).for_each(change);
            bytes_of_numbers(&x)
        };
        let on_indices = |change: &dyn Fn(usize, i32) -> i32| {
            let changed = indices(bytes).into_iter().enumerate().map(|(place, index)| change(place, index));
            bytes_of_indices(&changed.collect::<Vec<_>>())
        };
        let first = indices(bytes).first().copied().unwrap_or(0);
        match self {
            InputFault::Truncated => on_rows(&|row| coded(row, 32, 127.0, f32::trunc)),
            InputFault::SevenBits => on_rows(&|row| coded(row, 32, 63.0, f32::round)),
            InputFault::Per128 => on_rows(&|row| coded(row, 128, 127.0, f32::round)),
            InputFault::Saturated => on_rows(&|row| coded(row, 32, 127.0, |code| code.round().clamp(-126.0, 126.0))),
            InputFault::Bf16 => on_rows(&|row| row.iter_mut().for_each(|x| *x = half::bf16::from_f32(*x).to_f32())),
            InputFault::Tail(len) => on_rows(&|row| {
                let kept = row.len().saturating_sub(len);
                row[kept..].fill(0.0);
            }),
            InputFault::NextIndex => {
                on_indices(&|_, index| limit.map_or(index + 1, |limit| (index + 1) % limit.max(1)))
            }
            InputFault::FirstIndex | InputFault::FirstSequence | InputFault::FirstSlot => on_indices(&|_, _| first),
            // The state of slot 0 is never written.
            InputFault::EmptySlot => on_indices(&|_, _| 0),
            InputFault::FirstIndices => on_indices(&|place, _| place as i32),
            InputFault::FirstCache => on_indices(&|_, index| index % context.max(1)),
            InputFault::NoMask => on_rows(&|row| row.fill(0.0)),
            InputFault::MaskOneOff => on_rows(&|row| {
                let last = row.iter().rposition(|value| *value == 0.0);
                let behind = last.map(|last| last + 1).filter(|behind| *behind < row.len());
                behind.into_iter().for_each(|behind| row[behind] = 0.0);
            }),
            InputFault::NoWindow => on_rows(&|row| {
                let before = before_window(row);
                row[before].fill(0.0);
            }),
            InputFault::WindowOneOff => on_rows(&|row| {
                let before = before_window(row);
                before.last().into_iter().for_each(|before| row[before] = 0.0);
            }),
            InputFault::Dropped => vec![0; bytes.len()],
            InputFault::Ones => on_rows(&|row| row.fill(1.0)),
            InputFault::Negated => on_rows(&|row| row.iter_mut().for_each(|x| *x = -*x)),
            // What these two do needs more than one input: see the device.
            InputFault::Stale | InputFault::InterleavedHeads | InputFault::Exchanged => bytes.to_vec(),
        }
    }
}

/// The rows that a mask hides because their positions are before the window. If the window wraps around the end of a
/// ring, these are the rows between its two parts.
pub(super) fn before_window(mask: &[f32]) -> Range<usize> {
    let is_shown = |value: &f32| *value == 0.0;
    let first = mask.iter().position(is_shown).unwrap_or(0);
    if first > 0 {
        return 0..first;
    }
    let end = mask.iter().position(|value| !is_shown(value)).unwrap_or(mask.len());
    end..mask.iter().skip(end).position(is_shown).map_or(end, |more| end + more)
}

/// Heads of the queries and of the cache.
fn heads(types: &[TensorType]) -> (usize, usize) {
    let [q, keys, ..] = types else { return (0, 0) };
    (q.shape[1], keys.shape[0].checked_div(q.shape[0]).unwrap_or(0))
}

/// Values as `scale * code`, with one scale for `len` of them.
fn coded(row: &mut [f32], len: usize, code_max: f32, round: impl Fn(f32) -> f32) {
    for block in row.chunks_mut(len) {
        let scale = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / code_max;
        block.iter_mut().filter(|_| scale > 0.0).for_each(|x| *x = round(*x / scale) * scale);
    }
}
