//! Buffers of this device: bytes as in a GGUF file, blocks with separate scales, or decoded weights, and the views that
//! operators use.
//!
//! Weights in blocks that the chip has no operators for are decoded to f16 when they are uploaded.
//!
//! The host remembers the inputs that it uploaded: indices, sequences and positions. Therefore compositions per
//! sequence, angle tables and checks for out-of-range indices need nothing from the card.

use super::acl::{Allocation, Array, Card, Transfers, Type};
use super::chip::Chip;
use super::split::{Matrix, Split};
use crate::device::shown::gather;
use crate::device::{Tensor, Usage};
use half::f16;
use std::sync::{Arc, Mutex, PoisonError};
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// One tensor's memory, or an arena.
#[derive(Debug)]
pub struct Memory {
    ty: TensorType,
    allocation: Allocation,
    /// How its blocks lie, where it has some.
    split: Option<Split>,
    /// Whether its blocks were decoded to f16.
    is_decoded: bool,
    /// What the host wrote last, where it is little or indices: compositions are made of it.
    written: Option<Mutex<Vec<u8>>>,
}

/// Of so many bytes the host keeps what it wrote.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Elements that are decoded at once.
const DECODED_AT_ONCE: usize = 1 << 20;

/// Bytes of an element in f16.
const F16_BYTES: usize = 2;

impl Memory {
    /// Memory for a tensor; a state's is zero.
    pub fn new(card: &Arc<Card>, chip: &Chip, ty: &TensorType, usage: Usage) -> Result<Memory, String> {
        let is_read = matches!(usage, Usage::Weight | Usage::Input);
        let is_decoded = is_read && chip.decoded_type(ty.dtype).is_some();
        let split = match usage {
            Usage::Arena => None,
            Usage::State => Split::cache(ty),
            Usage::Weight | Usage::Input => Split::of(ty).filter(|_| !is_decoded),
        };
        let bytes = if is_decoded { decoded_bytes(ty) } else { split.map_or(ty.bytes(), |split| split.bytes()) };
        let allocation = Allocation::new(card, bytes).map_err(|problem| {
            let free = card.facts().map_or(0, |facts| facts.memory.1);
            format!("not enough memory for {bytes} bytes of {ty}, {free} are free; {}: {problem}", usage.remedy())
        })?;
        if usage == Usage::State {
            allocation.clear()?;
        }
        let is_kept = usage != Usage::Arena && (ty.dtype == DType::I32 || bytes <= KEPT_BYTES_MAX);
        Ok(Memory { ty: *ty, allocation, split, is_decoded, written: is_kept.then(Mutex::default) })
    }

    /// The memory of a tensor of this card, in which it was found to lie.
    pub fn here<'a>(tensor: &'a Tensor, card: &Arc<Card>) -> Result<&'a Memory, String> {
        let memory = Memory::of(tensor)?;
        if Arc::ptr_eq(memory.card(), card) { Ok(memory) } else { Err(elsewhere(tensor)) }
    }

    /// The memory of a tensor of a card, in which it was found to lie.
    pub fn of(tensor: &Tensor) -> Result<&Memory, String> {
        let memory = tensor.buffer.0.downcast_ref::<Memory>();
        let memory = memory.ok_or_else(|| elsewhere(tensor))?;
        let end = tensor.offset_bytes.checked_add(tensor.ty.held().bytes());
        let is_changed = !memory.is_as_in_file();
        let bytes = if is_changed { memory.ty.bytes() } else { memory.allocation.bytes() };
        let block_bytes = memory.ty.dtype.block_bytes();
        let begins =
            !is_changed || tensor.offset_bytes.is_multiple_of(block_bytes) && tensor.ty.dtype == memory.ty.dtype;
        if end.is_some_and(|end| end <= bytes) && begins {
            Ok(memory)
        } else {
            Err(format!("{} at byte {} is outside a buffer of {} bytes", tensor.ty, tensor.offset_bytes, memory.ty))
        }
    }

    /// How a tensor's blocks lie, where it has some: as the whole buffer's, or in an arena without gaps.
    fn split_of(&self, tensor: &Tensor) -> Option<Split> {
        self.split.or_else(|| Split::tight(&tensor.ty.held()))
    }

    /// Takes a whole tensor's bytes; it may be a part of the buffer's.
    pub fn write(&self, transfers: &Transfers, tensor: &Tensor, bytes: &[u8]) -> Result<(), String> {
        match self.split_of(tensor) {
            _ if self.is_decoded => self.write_decoded(transfers, tensor, bytes)?,
            Some(split) if self.split.is_some() && bytes.len() != self.ty.bytes() => {
                let pieces = split.pieces(tensor.offset_bytes / self.ty.dtype.block_bytes(), bytes);
                pieces.iter().try_for_each(|(place, piece)| transfers.upload(&self.allocation, *place, piece))?;
            }
            Some(split) => transfers.upload(&self.allocation, tensor.offset_bytes, &split.split(bytes))?,
            None => transfers.upload(&self.allocation, tensor.offset_bytes, bytes)?,
        }
        if let Some(written) = &self.written {
            let is_whole = tensor.offset_bytes == 0 && bytes.len() == self.ty.bytes();
            *written.lock().unwrap_or_else(PoisonError::into_inner) =
                if is_whole { bytes.to_vec() } else { Vec::new() };
        }
        Ok(())
    }

    /// Takes blocks, decoded to f16. Fails if an element is beyond the range of f16.
    fn write_decoded(&self, transfers: &Transfers, tensor: &Tensor, bytes: &[u8]) -> Result<(), String> {
        let dtype = tensor.ty.dtype;
        let decoder = dtype.decoder().ok_or_else(|| format!("{dtype} cannot be decoded"))?;
        let blocks = (DECODED_AT_ONCE / dtype.block_len()).max(1);
        let (mut numbers, mut place) = (Vec::new(), self.decoded_place(tensor));
        for piece in bytes.chunks(blocks * dtype.block_bytes()) {
            numbers.resize(piece.len() / dtype.block_bytes() * dtype.block_len(), 0.0f32);
            (decoder.decode)(piece, &mut numbers);
            let halves: Vec<f16> = numbers.iter().map(|number| f16::from_f32(*number)).collect();
            let beyond = numbers.iter().zip(&halves).find(|(number, half)| number.is_finite() && half.is_infinite());
            if let Some((number, _)) = beyond {
                return Err(format!(
                    "{} has the value {number}, which is beyond the range of f16, the type that {dtype} is stored as \
                     here; compute this model on cpu",
                    tensor.ty
                ));
            }
            let halves: Vec<u8> = halves.into_iter().flat_map(f16::to_le_bytes).collect();
            transfers.upload(&self.allocation, place, &halves)?;
            place += halves.len();
        }
        Ok(())
    }

    /// Where a tensor's elements begin that were decoded, in bytes.
    fn decoded_place(&self, tensor: &Tensor) -> usize {
        let dtype = self.ty.dtype;
        tensor.offset_bytes / dtype.block_bytes() * dtype.block_len() * F16_BYTES
    }

    /// Gives the bytes of the elements that a tensor shows, in order. Decoded blocks cannot be read.
    pub fn read(&self, transfers: &Transfers, tensor: &Tensor, target: &mut [u8]) -> Result<(), String> {
        if self.is_decoded {
            return Err(format!("{} is stored as f16 here, and its blocks cannot be read back", tensor.ty));
        }
        let whole = if self.split.is_some() { self.ty } else { tensor.ty.held() };
        if tensor.ty.shape.is_dense() && target.len() == whole.bytes() {
            return self.read_held(transfers, tensor, target);
        }
        let mut held = vec![0; whole.bytes()];
        self.read_held(transfers, tensor, &mut held)?;
        let first = if self.split.is_some() { tensor.offset_bytes } else { 0 };
        gather(&tensor.ty, &held[first..], target);
        Ok(())
    }

    /// Gives the bytes that lie behind each other from a tensor's first on.
    fn read_held(&self, transfers: &Transfers, tensor: &Tensor, target: &mut [u8]) -> Result<(), String> {
        let Some(split) = self.split_of(tensor) else {
            return transfers.download(&self.allocation, tensor.offset_bytes, target);
        };
        let mut card = vec![0; split.bytes()];
        transfers.download(&self.allocation, self.origin(tensor).0, &mut card)?;
        split.join(&card, target);
        Ok(())
    }

    /// What the host wrote last of a tensor without gaps, where that is what it holds.
    pub fn written(&self, tensor: &Tensor) -> Option<Vec<u8>> {
        let written = self.written.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let end = tensor.offset_bytes.checked_add(tensor.ty.bytes())?;
        written.get(tensor.offset_bytes..end).filter(|_| tensor.ty.shape.is_dense()).map(<[u8]>::to_vec)
    }

    /// An operator writes here: what the host wrote is not what it holds any more.
    pub fn is_written_by_operator(&self) {
        if let Some(written) = &self.written {
            written.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Takes a whole tensor without gaps, whose memory this card reaches.
    pub fn copy(&self, tensor: &Tensor, source: &Memory, from: &Tensor) -> Result<(), String> {
        self.is_written_by_operator();
        self.allocation.copy_from(tensor.offset_bytes, &source.allocation, from.offset_bytes, tensor.ty.bytes())
    }

    /// The card that it is memory of.
    pub fn card(&self) -> &Arc<Card> {
        self.allocation.card()
    }

    /// Whether its bytes are those of a GGUF file.
    pub fn is_as_in_file(&self) -> bool {
        self.split.is_none() && !self.is_decoded
    }

    /// Whether operators see a tensor here as blocks.
    pub fn is_in_blocks(&self, tensor: &Tensor) -> bool {
        !self.is_decoded && Split::of(&tensor.ty).is_some()
    }

    /// What operators see of a tensor without blocks.
    pub fn array(&self, tensor: &Tensor) -> Result<Array, String> {
        let dtype = if self.is_decoded { DType::F16 } else { tensor.ty.dtype };
        let ty = element_type(dtype).ok_or_else(|| format!("operators do not know {dtype}"))?;
        let place = if self.is_decoded { self.decoded_place(tensor) } else { tensor.offset_bytes };
        let strides = tensor.ty.shape.strides();
        let outermost_first = |numbers: [usize; 4]| numbers.iter().rev().map(|number| *number as i64).collect();
        Ok(Array {
            ty,
            address: self.allocation.address() + place as u64,
            offset: strides.offset as i64,
            sizes: outermost_first(tensor.ty.shape.sizes()),
            steps: outermost_first(strides.steps),
        })
    }

    /// Where the blocks begin that a tensor's are some of, in bytes, and which element of those is its first.
    fn origin(&self, tensor: &Tensor) -> (usize, usize) {
        let elements = |block: usize| block * tensor.ty.dtype.block_len();
        match self.split {
            Some(_) => (0, elements(tensor.offset_bytes / tensor.ty.dtype.block_bytes())),
            None => (tensor.offset_bytes, 0),
        }
    }

    /// What operators see of the matrices of a tensor in blocks, in order.
    pub fn matrices(&self, tensor: &Tensor) -> Result<Vec<Matrix>, String> {
        let split = self.split_of(tensor).ok_or_else(|| format!("{} has no blocks", tensor.ty))?;
        let (start, first) = self.origin(tensor);
        let address = self.allocation.address() + start as u64;
        let ([columns, rows, n2, n3], strides) = (tensor.ty.shape.sizes(), tensor.ty.shape.strides());
        let in_order = strides.steps[0] == 1 && (rows <= 1 || strides.steps[1] == columns);
        if !in_order {
            return Err(format!(
                "{} views rows of blocks that are not contiguous; copy it with `cpy` first",
                tensor.ty
            ));
        }
        let place =
            |number: usize| first + strides.offset + number % n2 * strides.steps[2] + number / n2 * strides.steps[3];
        (0..n2 * n3).map(|number| split.matrix(address, place(number), [rows, columns])).collect()
    }

    /// What operators see of a KV cache in blocks: the rows of all its sequences.
    pub fn cache(&self, tensor: &Tensor) -> Result<Matrix, String> {
        let split = self.split_of(tensor).ok_or_else(|| format!("{} has no blocks", tensor.ty))?;
        let (start, first) = self.origin(tensor);
        split.matrix(self.allocation.address() + start as u64, first, [tensor.ty.shape.rows(), tensor.ty.shape[0]])
    }
}

fn elsewhere(tensor: &Tensor) -> String {
    format!("{} is in the memory of another device; copy it to this device first", tensor.ty)
}

/// Bytes of a tensor whose blocks are decoded to f16.
pub fn decoded_bytes(ty: &TensorType) -> usize {
    ty.shape.elements() * F16_BYTES
}

/// How operators call a type.
pub fn element_type(dtype: DType) -> Option<Type> {
    match dtype {
        DType::F32 => Some(Type::F32),
        DType::F16 => Some(Type::F16),
        DType::Bf16 => Some(Type::Bf16),
        DType::I8 => Some(Type::I8),
        DType::I32 => Some(Type::I32),
        DType::I64 => Some(Type::I64),
        _ => None,
    }
}
