//! A device with a fault: it decorates another one and changes what crosses its boundary at one node, or one weight on its way in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trueup_blocks::DType;
use trueup_graph::op::{Rope, RopePairs};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::{About, Buffer, Device, Step, Tensor, Usage};
use trueup_runtime::profile::Profile;
use trueup_runtime::{ModelFile, Result};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The device lacks this operator.
    Lacks(&'static str),
    /// The scale of one block of this weight is 5 % too large.
    BlockScale(&'static str),
    /// Two neighbouring blocks of this weight are swapped.
    SwappedBlocks(&'static str),
    /// The last row of the result is not written.
    UnwrittenRow,
    /// The last elements of the second input, this many of each row, count as 0.
    DroppedTail(usize),
    /// One element of the result has the wrong sign.
    SignFlip,
    /// One element of the result is NaN.
    NotANumber,
    /// The result is larger by a thousandth.
    Gain,
    /// The result is rounded to f16.
    RoundedToF16,
    /// The second input is quantized to 7 bits before it is used.
    SevenBits,
    /// The first two rows of the result are exchanged.
    SwappedRows,
    /// The result is that of an earlier computation: zeros.
    Stale,
    /// Positions, or rows of the cache, are one too large.
    OneOff,
    /// Rotated pairs are the other kind of pairs.
    OtherPairs,
    /// The mask hides nothing.
    NoMask,
    /// The mask shows the position behind the token's own.
    MaskOneOff,
    /// Epsilon is ten times too large.
    Epsilon,
    /// One element of the result is larger by this when it is computed for the second time, and never again.
    Race(f32),
}

/// A device with one fault.
pub struct Faulty {
    pub device: Arc<dyn Device>,
    pub model: Arc<ModelFile>,
    pub fault: Fault,
    /// The node it happens at, by its place in the graph.
    pub node: usize,
    /// How often it was computed.
    pub computed: AtomicUsize,
}

impl Faulty {
    pub fn new(device: Arc<dyn Device>, model: &Arc<ModelFile>, fault: Fault, node: usize) -> Arc<Faulty> {
        Arc::new(Faulty { device, model: model.clone(), fault, node, computed: AtomicUsize::new(0) })
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Faulty {
    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// A copy of an input with other bytes, where the device expects activations or inputs.
    fn changed(&self, tensor: &Tensor, bytes: &[u8], usage: Usage) -> Result<Tensor> {
        let ty = match usage {
            Usage::Arena => TensorType::new(DType::I8, &[bytes.len()]),
            Usage::Weight | Usage::State | Usage::Input => tensor.ty,
        };
        let copy = Tensor { buffer: self.device.alloc(&ty, usage)?, offset_bytes: 0, ty: tensor.ty };
        self.device.upload(bytes, &copy)?;
        Ok(copy)
    }

    /// The step as the faulty device computes it.
    fn altered(&self, step: &Step) -> Result<Step> {
        let mut step = step.clone();
        match self.fault {
            Fault::DroppedTail(len) => self.alter_rows(&mut step, |row| {
                let kept = row.len() - len;
                row[kept..].fill(0.0);
            })?,
            Fault::SevenBits => self.alter_rows(&mut step, |row| {
                for block in row.chunks_mut(32) {
                    let scale = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / 63.0;
                    block.iter_mut().filter(|_| scale > 0.0).for_each(|x| *x = (*x / scale).round() * scale);
                }
            })?,
            Fault::OneOff => {
                let last = step.inputs.len() - 1;
                let indices = self.read(&step.inputs[last])?;
                let more =
                    indices.as_chunks::<4>().0.iter().flat_map(|index| (i32::from_le_bytes(*index) + 1).to_le_bytes());
                step.inputs[last] = self.changed(&step.inputs[last], &more.collect::<Vec<u8>>(), Usage::Input)?;
            }
            Fault::NoMask => self.alter_mask(&mut step, |mask| mask.fill(0.0))?,
            Fault::MaskOneOff => self.alter_mask(&mut step, |mask| {
                let behind = mask.iter().position(|value| *value != 0.0).unwrap();
                mask[behind] = 0.0;
            })?,
            Fault::OtherPairs => {
                let Op::Rope(rope) = step.op else { panic!("{} does not rotate", step.op.name()) };
                let pairs = match rope.pairs {
                    RopePairs::Neighbours => RopePairs::Halves,
                    RopePairs::Halves => RopePairs::Neighbours,
                };
                step.op = Rope { pairs, ..rope }.into();
            }
            Fault::Epsilon => {
                let Op::RmsNorm(mut norm) = step.op else { panic!("{} has no epsilon", step.op.name()) };
                norm.epsilon *= 10.0;
                step.op = norm.into();
            }
            Fault::BlockScale(_)
            | Fault::SwappedBlocks(_)
            | Fault::UnwrittenRow
            | Fault::SignFlip
            | Fault::NotANumber => {}
            Fault::Gain
            | Fault::RoundedToF16
            | Fault::SwappedRows
            | Fault::Stale
            | Fault::Lacks(_)
            | Fault::Race(_) => {}
        }
        Ok(step)
    }

    fn alter_rows(&self, step: &mut Step, change: impl Fn(&mut [f32])) -> Result<()> {
        let mut x = numbers(&self.read(&step.inputs[1])?);
        x.chunks_mut(step.inputs[1].ty.shape[0]).for_each(change);
        step.inputs[1] = self.changed(&step.inputs[1], &bytes(&x), Usage::Arena)?;
        Ok(())
    }

    fn alter_mask(&self, step: &mut Step, change: impl Fn(&mut [f32])) -> Result<()> {
        let mut mask = numbers(&self.read(&step.inputs[1])?);
        mask.chunks_mut(step.inputs[1].ty.shape[0]).for_each(change);
        step.inputs[1] = self.changed(&step.inputs[1], &bytes(&mask), Usage::Input)?;
        Ok(())
    }

    /// Changes the result, which held `before`.
    fn spoil(&self, output: &Tensor, before: &[u8]) -> Result<()> {
        let row = output.ty.shape[0];
        let mut y = numbers(&self.read(output)?);
        let middle = y.len() / 2;
        match self.fault {
            // Row: one output of the matrix, at every token.
            Fault::UnwrittenRow => {
                for (index, before) in numbers(before).into_iter().enumerate() {
                    if index % row == row - 1 {
                        y[index] = before;
                    }
                }
            }
            Fault::SignFlip => y[middle] = -y[middle],
            Fault::NotANumber => y[middle] = f32::NAN,
            Fault::Gain => y.iter_mut().for_each(|y| *y *= 1.001),
            Fault::RoundedToF16 => y.iter_mut().for_each(|y| *y = half::f16::from_f32(*y).to_f32()),
            Fault::SwappedRows => y.chunks_mut(row).for_each(|column| column.swap(0, 1)),
            Fault::Stale => y.fill(0.0),
            Fault::Race(more) => {
                if self.computed.fetch_add(1, Ordering::Relaxed) == 1 {
                    y[middle] += more;
                }
            }
            Fault::BlockScale(_) | Fault::SwappedBlocks(_) | Fault::DroppedTail(_) | Fault::SevenBits => return Ok(()),
            Fault::OneOff | Fault::OtherPairs | Fault::NoMask | Fault::MaskOneOff => return Ok(()),
            Fault::Epsilon | Fault::Lacks(_) => return Ok(()),
        }
        self.device.upload(&bytes(&y), output)
    }

    /// The weight's bytes with the fault, if these are that weight's.
    fn spoiled_weight(&self, source: &[u8], target: &Tensor) -> Option<Vec<u8>> {
        let (Fault::BlockScale(name) | Fault::SwappedBlocks(name)) = self.fault else { return None };
        let size = target.ty.dtype.block_bytes();
        let mut bytes = source.to_vec();
        if *self.model.tensor_bytes(name).unwrap() != *source {
            return None;
        }
        let block = 3 * size;
        if self.fault == Fault::SwappedBlocks(name) {
            bytes[block..block + 2 * size].rotate_left(size);
        } else if target.ty.dtype.is_quantized() {
            let scale = half::f16::from_le_bytes([bytes[block], bytes[block + 1]]);
            bytes[block..block + 2].copy_from_slice(&half::f16::from_f32(scale.to_f32() * 1.05).to_le_bytes());
        } else {
            let weight = f32::from_le_bytes(bytes[block..block + 4].try_into().unwrap());
            bytes[block..block + 4].copy_from_slice(&(weight * 1.05).to_le_bytes());
        }
        Some(bytes)
    }
}

impl Device for Faulty {
    fn about(&self) -> About {
        self.device.about()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if self.fault == Fault::Lacks(op.name()) {
            return Err(format!("there is no {} here", op.name()));
        }
        self.device.supports(op, inputs, output)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        self.device.alloc(ty, usage)
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        match self.spoiled_weight(source, target) {
            Some(spoiled) => self.device.upload(&spoiled, target),
            None => self.device.upload(source, target),
        }
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        self.device.download(source, target)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            if step.node != self.node {
                self.device.execute(std::slice::from_ref(step))?;
                continue;
            }
            let before = self.read(&step.output)?;
            self.device.execute(&[self.altered(step)?])?;
            if step.output.ty.dtype == DType::F32 {
                self.spoil(&step.output, &before)?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.device.sync()
    }
}
