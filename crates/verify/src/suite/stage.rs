//! The tensors of one case on a device, as a model would have them, with guards around those that share memory.
//!
//! ```text
//!  weights, states, host's inputs     a buffer each, as sessions allocate them
//!  arena   │ guard │ input │ rest, guard │ input │ rest, guard │ output │ rest, guard │      tensors at multiples of 256
//! ```
//!
//! The whole arena is written before a run and read behind it: every byte that is not the output's must be what it was. Guards are
//! quiet NaN, so that an element read beside its tensor shows in the result. Of tensors with buffers of their own, which a device may keep
//! in its own layout, what `download` gives must be what it was, bit for bit.

use std::ops::Range;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};
use trueup_runtime::Result;
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Buffer, Device, Step, Tensor, Usage};

/// Bytes of guard before and behind each tensor in the arena, at least.
const GUARD_BYTES: usize = ARENA_ALIGN_BYTES;

/// f32 inputs that models take from their file, by operator and place. Inputs of types that activations never have come from the file
/// whatever the operator.
const WEIGHTS: &[(&str, usize)] = &[("get_rows", 0), ("mul_mat", 0), ("rms_norm", 1), ("rope", 2)];

/// Inputs that lie in the KV cache, by operator and place.
const STATES: &[(&str, usize)] = &[("kv_mix", 1), ("kv_scores", 1), ("kv_store", 0)];

/// What an input of an operator is in a model.
pub(super) fn usage(op: &Op, place: usize, ty: &TensorType) -> Usage {
    let listed = |list: &[(&str, usize)]| list.contains(&(op.name(), place));
    if listed(STATES) {
        Usage::State
    } else if ty.dtype == DType::I32 {
        Usage::Input
    } else if listed(WEIGHTS) || !matches!(ty.dtype, DType::F32 | DType::F64) {
        Usage::Weight
    } else {
        Usage::Arena
    }
}

/// One input: its type, what it is in a model, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub ty: TensorType,
    pub usage: Usage,
    pub bytes: Vec<u8>,
}

/// Where the tensors of a case lie in the arena.
#[derive(Debug)]
struct Layout {
    /// Of each input that lies there.
    inputs: Vec<Option<Range<usize>>>,
    /// Of the result; `None` where it is written over an input with a buffer of its own.
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
        let place = |input: &Content| (input.usage == Usage::Arena).then(|| take(input.ty.bytes()));
        let inputs: Vec<Option<Range<usize>>> = inputs.iter().map(place).collect();
        let output = if op.is_alias() { inputs.first().cloned().flatten() } else { Some(take(output.bytes())) };
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
            let own = || device.alloc(&input.ty, input.usage);
            let (buffer, offset_bytes): (Buffer, usize) = match range {
                Some(range) => (buffer.clone(), range.start),
                None => (own()?, 0),
            };
            let tensor = Tensor { buffer, offset_bytes, ty: input.ty };
            if input.usage == Usage::Weight {
                device.upload(&input.bytes, &tensor)?;
            }
            Ok(tensor)
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
        let image = self.image(poison);
        self.device.upload(&image, &self.arena)?;
        for (input, tensor) in self.inputs.iter().zip(&self.step.inputs) {
            match input.usage {
                Usage::State | Usage::Input => self.device.upload(&input.bytes, tensor)?,
                Usage::Weight | Usage::Arena => {}
            }
        }
        self.device.execute(std::slice::from_ref(&self.step))?;
        self.device.sync()?;
        let output = self.read(&self.step.output)?;
        let mut damage = self.arena_damage(&image, &self.read(&self.arena)?);
        for (place, (input, tensor)) in self.inputs.iter().zip(&self.step.inputs).enumerate() {
            let is_output = self.step.op.is_alias() && place == 0;
            if input.usage != Usage::Arena && !is_output && self.read(tensor)? != input.bytes {
                damage.push(format!("input {place} is no longer what it was"));
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
                "{count} bytes before the result are changed, the nearest {distance} before it{}",
                self.hit(*last)
            ));
        }
        let behind_output = changed(output.end..before.len());
        if let Some(first) = behind_output.first() {
            let (count, distance) = (behind_output.len(), first - output.end + 1);
            damage.push(format!(
                "{count} bytes behind the result are changed, the nearest {distance} behind it{}",
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

/// A quiet NaN as f32, and in its upper half as f16 and bf16, that differs from its neighbours.
fn guard_word(word: usize) -> u32 {
    0x7fe5_0000 | (word as u32 & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_operators_that_exist() {
        for (name, _) in WEIGHTS.iter().chain(STATES) {
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
        assert_eq!(alias.output, Some(256..284));
    }

    #[test]
    fn guards_are_no_numbers() {
        for word in [0, 1, 70_000] {
            let word = guard_word(word);
            assert!(f32::from_bits(word).is_nan() && half::f16::from_bits((word >> 16) as u16).is_nan());
        }
    }
}
