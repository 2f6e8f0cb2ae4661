//! A device with a fault that is in no table: it lacks an operator, or what it computes depends on the run or the
//! batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};
use trueup_runtime::Result;
use trueup_runtime::device::{About, Buffer, Decorator, Device, Step, Tensor, Usage};
use trueup_runtime::profile::Profile;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// The device lacks this operator.
    Lacks(&'static str),
    /// The positions of the first sequence of the batch are used for all tokens.
    FirstPositions,
    /// Where two sequences or more are in the batch, the last bit of each element of the result is the other one;
    /// whether the device promises that nothing depends on the batch.
    DependsOnBatch(bool),
    /// Each element of a product of matrices is off by up to so many units of 2^-24, otherwise each time, at every such
    /// node.
    Dither(f32),
    /// One element of the result is larger by this every second time that it is computed.
    Wavering(f32),
    /// One element of the result is larger by this when it is computed for the second time, and never again.
    Race(f32),
    /// One element of the last column of the result is larger by `more` if the cache has at least this many sequences.
    LastColumn { more: f32, sequences: usize },
}

/// A device with one fault.
pub struct Faulty {
    pub device: Arc<dyn Device>,
    pub fault: Fault,
    /// The node it happens at, by its place in the graph.
    pub node: usize,
    /// How often it was computed.
    pub computed: AtomicUsize,
    /// Sequences of the last KV cache that was asked for.
    pub sequences: AtomicUsize,
}

impl Faulty {
    pub fn new(device: Arc<dyn Device>, fault: Fault, node: usize) -> Arc<Faulty> {
        Arc::new(Faulty { device, fault, node, computed: AtomicUsize::new(0), sequences: AtomicUsize::new(1) })
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
        if self.fault == Fault::FirstPositions {
            self.alter_indices(&mut step, |_, indices| {
                let first = indices[0];
                indices.iter_mut().zip(first..).for_each(|(index, position)| *index = position);
            })?;
        }
        Ok(step)
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

    /// Changes the result.
    fn spoil(&self, output: &Tensor) -> Result<()> {
        let mut y = numbers(&self.read(output)?);
        let middle = y.len() / 2;
        match self.fault {
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
            Fault::LastColumn { sequences, .. } if self.sequences.load(Ordering::Relaxed) < sequences => return Ok(()),
            Fault::LastColumn { more, .. } => y[output.ty.shape.elements() - 1] += more,
            Fault::FirstPositions | Fault::Lacks(_) => return Ok(()),
        }
        self.device.upload(&bytes(&y), output)
    }
}

impl Decorator for Faulty {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

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

    fn execute(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            let everywhere = matches!(self.fault, Fault::Dither(_)) && matches!(step.op, Op::MulMat(_));
            if step.node != self.node && !everywhere {
                self.device.execute(std::slice::from_ref(step))?;
                continue;
            }
            self.device.execute(&[self.altered(step)?])?;
            if step.output.ty.dtype == DType::F32 {
                self.spoil(&step.output)?;
            }
        }
        Ok(())
    }
}
