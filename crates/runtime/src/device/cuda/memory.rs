//! Buffers of this device: bytes as in a GGUF file, or weights in planes, and what kernels see of them.

use super::carrier::Carrier;
use super::driver::{Allocation, Card, Launch, Nccl, Rank, View};
use super::split::{Planes, Split};
use crate::device::shown::gather;
use crate::device::{Tensor, Usage};
use std::sync::Arc;
use trueup_graph::TensorType;

/// One tensor's memory, or an arena.
#[derive(Debug)]
pub struct Memory {
    ty: TensorType,
    allocation: Allocation,
    /// How its blocks are divided, where they are.
    split: Option<Split>,
}

/// A weight whose blocks are divided, and the first block of a view of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divided {
    split: Split,
    address: u64,
    first: usize,
}

impl Divided {
    /// The planes from the view's first block on.
    pub fn planes(&self) -> Planes {
        self.split.planes_from(self.address, self.first)
    }

    /// The same, so many blocks behind.
    pub fn behind(&self, blocks: usize) -> Divided {
        Divided { first: self.first + blocks, ..*self }
    }

    /// Bytes of all blocks in the file's form.
    pub fn file_bytes(&self) -> usize {
        self.split.file_bytes()
    }

    /// What brings all blocks into the file's form at an address, and where the view begins there.
    pub fn join(&self, card: &Card, file: u64) -> Result<(Launch, u64), String> {
        let launch = self.split.joining(card, self.address, file, [0, self.file_bytes()])?;
        Ok((launch, file + (self.first * self.split.block_bytes()) as u64))
    }
}

impl Memory {
    /// Memory for a tensor; a state's is zero. Weights are divided into planes where they can be and `repack` says so.
    pub fn new(card: &Arc<Card>, ty: &TensorType, usage: Usage, repack: bool) -> Result<Memory, String> {
        let split = Split::of(ty).filter(|_| repack && usage == Usage::Weight);
        let bytes = split.map_or(ty.bytes(), |split| split.bytes());
        let allocation = Allocation::new(card, bytes)?.ok_or_else(|| {
            let free = card.facts().map_or(0, |facts| facts.memory.1);
            format!("not enough memory for {bytes} bytes of {ty}, {free} are free; {}", usage.remedy())
        })?;
        if usage == Usage::State {
            allocation.clear()?;
        }
        Ok(Memory { ty: *ty, allocation, split })
    }

    /// The memory of a tensor of this device, in which it was found to lie.
    pub fn of(tensor: &Tensor) -> Result<&Memory, String> {
        let memory = tensor.buffer.0.downcast_ref::<Memory>();
        let memory = memory
            .ok_or_else(|| format!("{} is in the memory of another device; copy it to this device first", tensor.ty))?;
        can_be_seen(&tensor.ty)?;
        let end = tensor.offset_bytes.checked_add(tensor.ty.held().bytes());
        let is_split = memory.split.is_some();
        let bytes = if is_split { memory.ty.bytes() } else { memory.allocation.bytes() };
        let begins = !is_split || tensor.offset_bytes == 0 && tensor.ty.dtype == memory.ty.dtype;
        if end.is_some_and(|end| end <= bytes) && begins {
            Ok(memory)
        } else {
            Err(format!("{} at byte {} is outside a buffer of {} bytes", tensor.ty, tensor.offset_bytes, memory.ty))
        }
    }

    /// Takes a whole tensor's bytes.
    pub fn write(&self, carrier: &Carrier, tensor: &Tensor, bytes: &[u8]) -> Result<(), String> {
        match self.split {
            Some(_) if bytes.len() != self.ty.bytes() => {
                Err(format!("part of a weight cannot be written: {} of {}", tensor.ty, self.ty))
            }
            Some(split) => carrier.upload_split(&split, &self.allocation, bytes),
            None => carrier.upload(&self.allocation, tensor.offset_bytes, bytes),
        }
    }

    /// Gives the bytes of the elements that a tensor shows, in order.
    pub fn read(&self, carrier: &Carrier, tensor: &Tensor, target: &mut [u8]) -> Result<(), String> {
        if tensor.ty.shape.is_dense() && self.holds(target.len()) {
            return self.read_held(carrier, tensor, target);
        }
        let bytes = if self.split.is_some() { self.ty.bytes() } else { tensor.ty.held().bytes() };
        let mut held = vec![0; bytes];
        self.read_held(carrier, tensor, &mut held)?;
        gather(&tensor.ty, &held, target);
        Ok(())
    }

    /// Takes a whole tensor of another card, which has no gaps.
    pub fn copy(&self, tensor: &Tensor, source: &Memory, from: &Tensor) -> Result<(), String> {
        self.allocation.copy_from(tensor.offset_bytes, &source.allocation, from.offset_bytes, tensor.ty.bytes())
    }

    /// Completes a tensor whose first half lies here and whose second half in another card's memory, in both.
    pub fn gather(&self, tensor: &Tensor, other: &Memory, theirs: &Tensor, nccl: &Nccl) -> Result<(), String> {
        nccl.gather([self.rank(tensor), other.rank(theirs)], tensor.ty.bytes() / 2)
    }

    fn rank(&self, tensor: &Tensor) -> Rank<'_> {
        Rank { allocation: &self.allocation, first: tensor.offset_bytes }
    }

    /// Whether it is a weight that was repacked.
    pub fn is_in_planes(&self) -> bool {
        self.split.is_some()
    }

    /// Whether so many bytes can be read at once: of planes all or none.
    fn holds(&self, bytes: usize) -> bool {
        self.split.is_none() || bytes == self.ty.bytes()
    }

    /// Gives the bytes that lie behind each other from a tensor's first on.
    fn read_held(&self, carrier: &Carrier, tensor: &Tensor, target: &mut [u8]) -> Result<(), String> {
        match self.split {
            Some(split) => carrier.download_split(&split, &self.allocation, target),
            None => carrier.download(&self.allocation, tensor.offset_bytes, target),
        }
    }

    /// What there is to know of a tensor's planes, where it lies in some.
    pub fn divided(&self, tensor: &Tensor) -> Option<Divided> {
        let first = tensor.ty.shape.strides().offset / tensor.ty.dtype.block_len();
        self.split.map(|split| Divided { split, address: self.allocation.address(), first })
    }

    /// What a kernel sees; of planes, that of the codes.
    pub fn view(&self, tensor: &Tensor) -> View {
        let (shape, dtype) = (&tensor.ty.shape, tensor.ty.dtype);
        let strides = shape.strides();
        let first = strides.offset / dtype.block_len() * dtype.block_bytes();
        let in_file = self.allocation.address() + (tensor.offset_bytes + first) as u64;
        View {
            data: self.divided(tensor).map_or(in_file, |divided| divided.planes().codes),
            sizes: shape.sizes().map(|size| size as i64),
            steps: strides.steps.map(|step| step as i64),
        }
    }
}

/// Whether kernels can find a view's elements: those of a block lie behind each other and belong to one row.
pub fn can_be_seen(ty: &TensorType) -> Result<(), String> {
    let (strides, len) = (ty.shape.strides(), ty.dtype.block_len());
    if len == 1 || ty.shape.is_dense() {
        return Ok(());
    }
    let rows = ty.shape.sizes().into_iter().zip(strides.steps).skip(1);
    let whole = strides.offset.is_multiple_of(len)
        && rows.into_iter().all(|(size, step)| size == 1 || step.is_multiple_of(len));
    if whole && strides.steps[0] == 1 && ty.shape[0].is_multiple_of(len) {
        Ok(())
    } else {
        Err(format!("{ty} splits blocks of {}; copy it with `cpy` first", ty.dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;
    use trueup_graph::{Shape, Strides};

    fn view(dtype: DType, sizes: &[usize], offset: usize, steps: [usize; 4]) -> TensorType {
        TensorType { dtype, shape: Shape::new(sizes).seen_by(Strides { offset, steps }) }
    }

    #[test]
    fn views_cut_no_block() {
        assert!(can_be_seen(&view(DType::F32, &[2, 3], 1, [2, 4, 12, 12])).is_ok());
        assert!(can_be_seen(&view(DType::Q4_0, &[64, 3], 64, [1, 128, 512, 512])).is_ok());
        for (offset, steps) in [(16, [1, 128, 512, 512]), (0, [2, 128, 512, 512]), (0, [1, 48, 512, 512])] {
            let problem = can_be_seen(&view(DType::Q4_0, &[64, 3], offset, steps)).unwrap_err();
            assert!(problem.contains("splits blocks of q4_0"), "{problem}");
        }
    }
}
