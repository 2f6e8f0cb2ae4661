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
    /// All tokens count as the first sequence's.
    FirstSequence,
    /// Rows of the cache count positions alone: all sequences write where the first one does.
    FirstSequenceRows,
    /// Outputs are the first rows, not those that are asked for.
    FirstRows,
    /// The positions of the first sequence of the batch are used for all tokens.
    FirstPositions,
    /// Where two sequences or more are in the batch, the last bit of each element of the result is the other one; whether the device
    /// promises that nothing depends on the batch.
    DependsOnBatch(bool),
    /// Each element of a product of matrices is off by up to so many units of 2^-24, otherwise each time, at every such node.
    Dither(f32),
    /// One element of the result is larger by this every second time that it is computed.
    Wavering(f32),
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
    /// Sequences of the last KV cache that was asked for.
    pub sequences: AtomicUsize,
}

impl Faulty {
    pub fn new(device: Arc<dyn Device>, model: &Arc<ModelFile>, fault: Fault, node: usize) -> Arc<Faulty> {
        Arc::new(Faulty {
            device,
            model: model.clone(),
            fault,
            node,
            computed: AtomicUsize::new(0),
            sequences: AtomicUsize::new(1),
        })
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A number between -1 and 1 that follows from a seed and an index.
fn chance(seed: u32, index: u32) -> f32 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9) ^ index.wrapping_mul(0x85eb_ca6b);
    for _ in 0..3 {
        mixed ^= mixed >> 15;
        mixed = mixed.wrapping_mul(0xc2b2_ae35);
    }
    (mixed >> 8) as f32 / (1 << 23) as f32 - 1.0
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
            Fault::OneOff => self.alter_indices(&mut step, |_, indices| {
                indices.iter_mut().for_each(|index| *index += 1);
            })?,
            Fault::FirstSequence => self.alter_indices(&mut step, |_, indices| indices.fill(0))?,
            Fault::FirstSequenceRows => self.alter_indices(&mut step, |cache, indices| {
                let room = cache.shape[1] as i32;
                indices.iter_mut().for_each(|row| *row %= room);
            })?,
            Fault::FirstRows => self.alter_indices(&mut step, |_, indices| {
                indices.iter_mut().zip(0..).for_each(|(index, row)| *index = row);
            })?,
            Fault::FirstPositions => self.alter_indices(&mut step, |_, indices| {
                let first = indices[0];
                indices.iter_mut().zip(first..).for_each(|(index, position)| *index = position);
            })?,
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
            Fault::Dither(_) | Fault::Wavering(_) | Fault::DependsOnBatch(_) => {}
        }
        Ok(step)
    }

    fn alter_rows(&self, step: &mut Step, change: impl Fn(&mut [f32])) -> Result<()> {
        let mut x = numbers(&self.read(&step.inputs[1])?);
        x.chunks_mut(step.inputs[1].ty.shape[0]).for_each(change);
        step.inputs[1] = self.changed(&step.inputs[1], &bytes(&x), Usage::Arena)?;
        Ok(())
    }

    /// Changes the last input, which holds indices; the first input's type is given beside them.
    fn alter_indices(&self, step: &mut Step, change: impl Fn(&TensorType, &mut [i32])) -> Result<()> {
        let last = step.inputs.len() - 1;
        let bytes = self.read(&step.inputs[last])?;
        let mut indices: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|index| i32::from_le_bytes(*index)).collect();
        change(&step.inputs[0].ty, &mut indices);
        let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        step.inputs[last] = self.changed(&step.inputs[last], &bytes, Usage::Input)?;
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
            Fault::Wavering(more) => {
                if self.computed.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                    y[middle] += more;
                }
            }
            Fault::Dither(units) => {
                let seed = self.computed.fetch_add(1, Ordering::Relaxed) as u32;
                for (index, y) in (0u32..).zip(&mut y) {
                    *y *= 1.0 + units * chance(seed, index) / (1 << 24) as f32;
                }
            }
            Fault::DependsOnBatch(_) if self.sequences.load(Ordering::Relaxed) < 2 => return Ok(()),
            Fault::DependsOnBatch(_) => y.iter_mut().for_each(|y| *y = f32::from_bits(y.to_bits() ^ 1)),
            Fault::FirstSequence | Fault::FirstSequenceRows | Fault::FirstRows => return Ok(()),
            Fault::FirstPositions => return Ok(()),
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
        let about = self.device.about();
        if let Fault::DependsOnBatch(promised) = self.fault {
            return About { batch_invariant: promised, ..about };
        }
        about
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if self.fault == Fault::Lacks(op.name()) {
            return Err(format!("there is no {} here", op.name()));
        }
        self.device.supports(op, inputs, output)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        if usage == Usage::State {
            self.sequences.store(ty.shape.sizes()[2], Ordering::Relaxed);
        }
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
            let everywhere = matches!(self.fault, Fault::Dither(_)) && matches!(step.op, Op::MulMat(_));
            if step.node != self.node && !everywhere {
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
