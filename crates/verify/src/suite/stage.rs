//! Places the tensors of a case on a device as a model would, with guards around those that share memory.
//!
//! ```text
//! weights, states, host inputs     one buffer each, as in a session
//! arena   │ guard │ input │ rest, guard │ input │ rest, guard │ output │ rest, guard │    tensors at multiples of 256
//! ```
//!
//! The whole arena is written before a run and read afterwards. Every byte outside the output must be unchanged.
//! Guards are quiet NaN, so an out-of-bounds read shows in the result. Tensors in separate buffers may have a
//! device-specific layout; for these, `download` must return the uploaded bits. Weights that the device stores as
//! another type are not read back.

use std::borrow::Cow;
use std::ops::Range;
use trueup_blocks::DType;
use trueup_formats::counted;
use trueup_graph::{Op, Strides, TensorType};
use trueup_runtime::Result;
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Buffer, Device, Step, Tensor, Usage};

/// Minimum number of guard bytes before and after each tensor in the arena.
const GUARD_BYTES: usize = ARENA_ALIGN_BYTES;

/// Inputs that models take from their file, by operator and place.
const WEIGHTS: &[(&str, usize)] = &[
    ("get_rows", 0),
    ("mul_mat", 0),
    ("mul_mat_id", 0),
    ("rms_norm", 1),
    ("rope", 2),
    ("ssm_conv", 1),
    ("ssm_scan", 3),
];

/// Inputs that live from one computation to the next: the KV cache, and what a state space model remembers.
const STATES: &[(&str, usize)] = &[
    ("flash_attn", 1),
    ("flash_attn", 2),
    ("kv_attention", 1),
    ("kv_attention", 2),
    ("kv_mix", 1),
    ("kv_scores", 1),
    ("kv_store", 0),
    ("set_rows", 0),
    ("ssm_scan", 0),
];

/// Inputs that the host fills in before each computation: tokens, positions, rows, masks.
const HOST: &[(&str, usize)] = &[
    ("flash_attn", 3),
    ("get_rows", 1),
    ("index_fill", 1),
    ("kv_attention", 3),
    ("kv_attention", 4),
    ("kv_mix", 2),
    ("kv_scores", 2),
    ("kv_store", 2),
    ("rope", 1),
    ("set_rows", 2),
    ("soft_max", 1),
    ("ssm_scan", 6),
    ("timestep_embedding", 0),
];

/// What an input of an operator is in a model. Biases are activations as often as weights: those of types that
/// activations do not have are weights.
pub(super) fn usage(op: &Op, place: usize, ty: &TensorType) -> Usage {
    let listed = |list: &[(&str, usize)]| list.contains(&(op.name(), place));
    let bias = matches!(op, Op::Arithmetic(_)) && place == 1 && !matches!(ty.dtype, DType::F32 | DType::F64);
    if listed(STATES) {
        Usage::State
    } else if listed(HOST) {
        Usage::Input
    } else if listed(WEIGHTS) || bias || (matches!(op, Op::MulMatGated(_)) && place < 2) {
        Usage::Weight
    } else {
        Usage::Arena
    }
}

/// One input: its type, what it is in a model, and its bytes, of a view those of its source.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub ty: TensorType,
    pub usage: Usage,
    pub bytes: Vec<u8>,
}

impl Content {
    /// The bytes of the visible elements, one after another.
    pub fn shown(&self) -> Cow<'_, [u8]> {
        if self.ty.shape.is_dense() {
            return Cow::Borrowed(&self.bytes);
        }
        let Strides { offset, steps } = self.ty.shape.strides();
        let [n0, n1, n2, n3] = self.ty.shape.sizes();
        let size = self.ty.dtype.block_bytes();
        let mut shown = Vec::with_capacity(self.ty.bytes());
        for (l, k) in (0..n3).flat_map(|l| (0..n2).map(move |k| (l, k))) {
            for (j, i) in (0..n1).flat_map(|j| (0..n0).map(move |i| (j, i))) {
                let element = offset + i * steps[0] + j * steps[1] + k * steps[2] + l * steps[3];
                shown.extend_from_slice(&self.bytes[element * size..][..size]);
            }
        }
        Cow::Owned(shown)
    }
}

/// Where the tensors of a case lie in the arena.
#[derive(Debug)]
struct Layout {
    /// Of each input that lies there, of a view its source.
    inputs: Vec<Option<Range<usize>>>,
    /// Of the result; `None` where it is written over an input with a buffer of its own, or is only another look at
    /// one.
    output: Option<Range<usize>>,
    bytes: usize,
}

impl Layout {
    fn new(op: &Op, inputs: &[Content], output: &TensorType) -> Layout {
        let mut end = GUARD_BYTES;
        let mut take = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(ARENA_ALIGN_BYTES) + GUARD_BYTES;
            start..start + bytes
        };
        let place = |input: &Content| (input.usage == Usage::Arena).then(|| take(input.bytes.len()));
        let inputs: Vec<Option<Range<usize>>> = inputs.iter().map(place).collect();
        let output = match (op.is_view(), op.is_alias()) {
            (true, _) => None,
            (false, true) => inputs.first().cloned().flatten(),
            (false, false) => Some(take(output.bytes())),
        };
        Layout { inputs, output, bytes: end }
    }
}

/// The tensors of a case on a device, and what they hold before a run.
pub(super) struct Stage<'a> {
    device: &'a dyn Device,
    inputs: &'a [Content],
    layout: Layout,
    step: Step,
    /// The whole arena, seen as one tensor.
    arena: Tensor,
}

/// What a run left behind.
pub(super) struct Ran {
    /// The result's bytes, as in GGUF.
    pub output: Vec<u8>,
    /// What was changed that is not the result.
    pub damage: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Allocates everything and uploads the weights.
    pub fn new(device: &'a dyn Device, op: &Op, inputs: &'a [Content], output: &TensorType) -> Result<Stage<'a>> {
        let layout = Layout::new(op, inputs, output);
        let buffer = device.alloc(&TensorType::new(DType::I8, &[layout.bytes]), Usage::Arena)?;
        let arena_type = TensorType::new(DType::I32, &[layout.bytes / size_of::<i32>()]);
        let arena = Tensor { buffer: buffer.clone(), offset_bytes: 0, ty: arena_type };
        let tensor = |(input, range): (&Content, &Option<Range<usize>>)| -> Result<Tensor> {
            let held = input.ty.held();
            let own = || device.alloc(&held, input.usage);
            let (buffer, offset_bytes): (Buffer, usize) = match range {
                Some(range) => (buffer.clone(), range.start),
                None => (own()?, 0),
            };
            let tensor = Tensor { buffer, offset_bytes, ty: held };
            if input.usage == Usage::Weight {
                device.upload(&input.bytes, &tensor)?;
            }
            Ok(Tensor { ty: input.ty, ..tensor })
        };
        let tensors = inputs.iter().zip(&layout.inputs).map(tensor).collect::<Result<Vec<Tensor>>>()?;
        let output = match (&layout.output, tensors.first()) {
            (None, Some(first)) => Tensor { ty: *output, ..first.clone() },
            (range, _) => {
                let offset_bytes = range.as_ref().map_or(0, |range| range.start);
                Tensor { buffer, offset_bytes, ty: *output }
            }
        };
        let step = Step { node: 0, op: op.clone(), inputs: tensors, output };
        Ok(Stage { device, inputs, layout, step, arena })
    }

    /// Fills everything but the weights, the result with `poison`, and computes.
    pub fn run(&self, poison: u8) -> Result<Ran> {
        let mut image = self.image(poison);
        self.device.upload(&image, &self.arena)?;
        for (input, tensor) in self.inputs.iter().zip(&self.step.inputs) {
            match input.usage {
                Usage::State | Usage::Input => self.device.upload(&input.bytes, &source(tensor))?,
                // A device may keep blocks in another layout: from here on the arena holds what it makes of them.
                Usage::Arena if input.ty.dtype.is_quantized() => {
                    self.device.upload(&input.bytes, &source(tensor))?;
                    image = self.read(&self.arena)?;
                }
                Usage::Weight | Usage::Arena => {}
            }
        }
        self.device.execute(std::slice::from_ref(&self.step))?;
        self.device.sync()?;
        let output = self.read(&self.step.output)?;
        let mut damage = self.arena_damage(&image, &self.read(&self.arena)?);
        for (place, (input, tensor)) in self.inputs.iter().zip(&self.step.inputs).enumerate() {
            let is_written = self.step.op.is_alias() && !self.step.op.is_view() && place == 0;
            let is_decoded = self.device.weight_type(input.ty.dtype) != input.ty.dtype;
            let is_readable = input.usage == Usage::State || input.usage != Usage::Arena && !is_decoded;
            if is_readable && !is_written && self.read(&source(tensor))? != input.bytes {
                damage.push(format!("input {place} was overwritten"));
            }
        }
        Ok(Ran { output, damage })
    }

    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// The arena before a run.
    fn image(&self, poison: u8) -> Vec<u8> {
        let guard = (0..self.layout.bytes / size_of::<u32>()).flat_map(|word| guard_word(word).to_le_bytes());
        let mut image: Vec<u8> = guard.collect();
        if let Some(range) = &self.layout.output {
            image[range.clone()].fill(poison);
        }
        for (input, range) in self.inputs.iter().zip(&self.layout.inputs) {
            if let Some(range) = range {
                image[range.clone()].copy_from_slice(&input.bytes);
            }
        }
        image
    }

    /// What differs between two images of the arena outside of the result.
    fn arena_damage(&self, before: &[u8], after: &[u8]) -> Vec<String> {
        let output = self.layout.output.clone().unwrap_or(0..0);
        let changed = |part: Range<usize>| part.filter(|byte| before[*byte] != after[*byte]).collect::<Vec<usize>>();
        let mut damage = Vec::new();
        let before_output = changed(0..output.start);
        if let Some(last) = before_output.last() {
            let (count, distance) = (before_output.len(), output.start - last);
            damage.push(format!(
                "{} before the result changed, the nearest {distance} before it{}",
                counted(count, "byte"),
                self.hit(*last)
            ));
        }
        let behind_output = changed(output.end..before.len());
        if let (None, Some(first)) = (&self.layout.output, behind_output.first()) {
            damage.push(format!(
                "{} of the arena changed, where none are written{}",
                counted(behind_output.len(), "byte"),
                self.hit(*first)
            ));
        } else if let Some(first) = behind_output.first() {
            let (count, distance) = (behind_output.len(), first - output.end + 1);
            damage.push(format!(
                "{} after the result changed, the nearest {distance} after it{}",
                counted(count, "byte"),
                self.hit(*first)
            ));
        }
        damage
    }

    /// Which input a byte of the arena belongs to, as the end of a sentence.
    fn hit(&self, byte: usize) -> String {
        let holds = |range: &Option<Range<usize>>| range.as_ref().is_some_and(|range| range.contains(&byte));
        self.layout.inputs.iter().position(holds).map_or_else(String::new, |place| format!(", in input {place}"))
    }
}

/// A tensor, of a view all of what it is a view of.
fn source(tensor: &Tensor) -> Tensor {
    Tensor { ty: tensor.ty.held(), ..tensor.clone() }
}

/// A quiet NaN as f32, and in its upper half as f16 and bf16, that differs from its neighbours.
fn guard_word(word: usize) -> u32 {
    0x7fe5_0000 | (word as u32 & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_graph::Shape;

    #[test]
    fn lists_name_operators_that_exist() {
        for (name, _) in WEIGHTS.iter().chain(STATES).chain(HOST) {
            assert!(Op::names().contains(name), "{name}");
        }
    }

    #[test]
    fn every_tensor_has_guards_on_both_sides() {
        let content = |sizes: &[usize], dtype| {
            let ty = TensorType::new(dtype, sizes);
            let usage = if dtype == DType::F32 { Usage::Arena } else { Usage::Weight };
            Content { ty, usage, bytes: vec![0; ty.bytes()] }
        };
        let inputs = [content(&[7], DType::F32), content(&[32], DType::Q8_0), content(&[64, 2], DType::F32)];
        let op = super::super::tests::op("add");
        let layout = Layout::new(&op, &inputs, &TensorType::new(DType::F32, &[65]));
        assert_eq!(layout.inputs, [Some(256..284), None, Some(768..1280)]);
        assert_eq!((layout.output, layout.bytes), (Some(1536..1796), 2304));
        let alias = Layout::new(&Op::reshape(&[7]), &inputs[..1], &inputs[0].ty);
        assert_eq!((alias.inputs, alias.output), (vec![Some(256..284)], None));
    }

    #[test]
    fn views_show_elements_of_their_source() {
        let steps = [3, 1, 0, 0];
        let shape = Shape::new(&[2, 3]).seen_by(Strides { offset: 1, steps });
        let ty = TensorType { dtype: DType::I32, shape };
        let words: Vec<u8> = (0..ty.held().shape.elements() as i32).flat_map(i32::to_le_bytes).collect();
        let content = Content { ty, usage: Usage::Arena, bytes: words };
        let shown: Vec<i32> = content.shown().as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        assert_eq!(shown, [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn guards_are_no_numbers() {
        for word in [0, 1, 70_000] {
            let word = guard_word(word);
            assert!(f32::from_bits(word).is_nan() && half::f16::from_bits((word >> 16) as u16).is_nan());
        }
    }
}
