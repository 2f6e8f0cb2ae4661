//! The oracle's buffers: plain bytes as in GGUF.

use super::{NAME, Tensor, Usage};
use crate::error::{Error, Result};
use crate::host_tensor::HostTensor;
use std::collections::TryReserveError;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use trueup_graph::{Strides, TensorType};

/// One buffer.
pub(super) enum Memory {
    /// A tensor by itself: a weight, a state, an input.
    Single(RwLock<HostTensor>),
    /// Many tensors behind each other.
    Arena(RwLock<Vec<u8>>),
}

/// A tensor that is read: in its place, or a copy out of an arena.
pub(super) enum Held<'a> {
    InPlace(RwLockReadGuard<'a, HostTensor>),
    Copy(HostTensor),
}

impl Deref for Held<'_> {
    type Target = HostTensor;

    fn deref(&self) -> &HostTensor {
        match self {
            Held::InPlace(guard) => guard,
            Held::Copy(tensor) => tensor,
        }
    }
}

impl Memory {
    /// Memory for a tensor, zero at first; fails where there is too little.
    pub(super) fn new(ty: &TensorType, usage: Usage) -> Result<Memory> {
        let bytes = zeros(ty, usage).map_err(fault)?;
        Ok(match usage {
            Usage::Weight | Usage::State | Usage::Input => Memory::Single(RwLock::new(HostTensor::stored(*ty, bytes))),
            Usage::Arena => Memory::Arena(RwLock::new(bytes)),
        })
    }

    /// The memory of a tensor, unless another device's.
    pub(super) fn of(tensor: &Tensor) -> Result<&Memory> {
        tensor.buffer.0.downcast_ref().ok_or_else(|| fault("received a tensor of another device".to_owned()))
    }

    /// The tensor; of a view what it shows.
    pub(super) fn read(&self, tensor: &Tensor) -> Result<Held<'_>> {
        if !tensor.ty.shape.is_dense() {
            return self.read_view(tensor).map(Held::Copy);
        }
        match self {
            Memory::Single(memory) => {
                let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(range) = rows(memory.ty(), tensor) {
                    return Ok(Held::Copy(HostTensor::stored(tensor.ty, memory.to_bytes()[range].to_vec())));
                }
                fits(memory.ty(), tensor)?;
                let same = *memory.ty() == tensor.ty;
                Ok(if same { Held::InPlace(memory) } else { Held::Copy(memory.with_type(tensor.ty)) })
            }
            Memory::Arena(memory) => {
                let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
                let range = tensor.offset_bytes..tensor.offset_bytes + tensor.ty.bytes();
                let bytes = memory.get(range.clone()).ok_or_else(|| outside(&range, memory.len()))?;
                Ok(Held::Copy(HostTensor::stored(tensor.ty, bytes.to_vec())))
            }
        }
    }

    fn read_view(&self, tensor: &Tensor) -> Result<HostTensor> {
        let Strides { offset, steps } = tensor.ty.shape.strides();
        let [n0, n1, n2, _] = tensor.ty.shape.sizes();
        let place = |i: usize| {
            let indices = [i % n0, i / n0 % n1, i / n0 / n1 % n2, i / n0 / n1 / n2];
            Some((0, offset + indices.iter().zip(steps).map(|(index, step)| index * step).sum::<usize>()))
        };
        let gathered = |source: &HostTensor| HostTensor::gathered(tensor.ty.dense(), &[source], 0.0, place);
        match self {
            Memory::Single(memory) => {
                let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
                fits(memory.ty(), tensor)?;
                Ok(gathered(&memory))
            }
            Memory::Arena(_) => {
                let held = self.read(&Tensor { ty: tensor.ty.held(), ..tensor.clone() })?;
                Ok(gathered(&held))
            }
        }
    }

    pub(super) fn write(&self, tensor: &Tensor, bytes: &[u8]) -> Result<()> {
        if !tensor.ty.shape.is_dense() {
            return Err(fault(format!("cannot write the view {}", tensor.ty)));
        }
        if bytes.len() != tensor.ty.bytes() {
            return Err(fault(format!(
                "received {} bytes for {}, which has {}",
                bytes.len(),
                tensor.ty,
                tensor.ty.bytes()
            )));
        }
        match self {
            Memory::Single(memory) => {
                let mut memory = memory.write().unwrap_or_else(PoisonError::into_inner);
                let ty = *memory.ty();
                if let Some(range) = rows(&ty, tensor) {
                    let mut all = memory.to_bytes().into_owned();
                    all[range].copy_from_slice(bytes);
                    *memory = HostTensor::stored(ty, all);
                    return Ok(());
                }
                fits(&ty, tensor)?;
                *memory = HostTensor::stored(ty, bytes.to_vec());
            }
            Memory::Arena(memory) => {
                let mut memory = memory.write().unwrap_or_else(PoisonError::into_inner);
                let range = tensor.offset_bytes..tensor.offset_bytes + bytes.len();
                let len = memory.len();
                memory.get_mut(range.clone()).ok_or_else(|| outside(&range, len))?.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Changes a tensor in place; one in an arena is no state and cannot be.
    pub(super) fn change(&self, tensor: &Tensor, change: impl FnOnce(&mut HostTensor) -> Result<()>) -> Result<()> {
        match self {
            Memory::Single(memory) => {
                let mut memory = memory.write().unwrap_or_else(PoisonError::into_inner);
                fits(memory.ty(), tensor)?;
                change(&mut memory)
            }
            Memory::Arena(_) => Err(fault(format!("changes states in place, but {} is in an arena", tensor.ty))),
        }
    }
}

/// The bytes of a tensor, all zero; a problem where there is no memory for them.
fn zeros(ty: &TensorType, usage: Usage) -> std::result::Result<Vec<u8>, String> {
    // The zeros of `vec!` take no memory until they are used, but it ends the program where it gets none: hence this
    // question before. The answer is looked at, or the compiler would leave the question out.
    let mut asked: Vec<u8> = Vec::new();
    let answer: std::result::Result<(), TryReserveError> = std::hint::black_box(asked.try_reserve_exact(ty.bytes()));
    drop(std::hint::black_box(asked));
    answer.map_err(|_| format!("not enough memory for {} bytes of {ty}; {}", ty.bytes(), usage.remedy()))?;
    Ok(vec![0; ty.bytes()])
}

/// A tensor alone in its buffer may be seen under another shape or in part, no more.
fn fits(whole: &TensorType, tensor: &Tensor) -> Result<()> {
    let all = tensor.ty.shape.elements() == whole.shape.elements();
    let part = !tensor.ty.shape.is_dense() && tensor.ty.shape.span().is_some_and(|span| span <= whole.shape.elements());
    let same = whole.dtype == tensor.ty.dtype && (all && tensor.ty.shape.is_dense() || part);
    if same && tensor.offset_bytes == 0 {
        return Ok(());
    }
    Err(fault(format!("{} at byte {} is outside a buffer of {whole} bytes", tensor.ty, tensor.offset_bytes)))
}

/// The bytes of some neighboring rows of a tensor alone in its buffer; `None` if they are not fewer than all.
fn rows(whole: &TensorType, tensor: &Tensor) -> Option<std::ops::Range<usize>> {
    let end = tensor.offset_bytes.checked_add(tensor.ty.bytes()).filter(|end| *end <= whole.bytes())?;
    let row_bytes = TensorType::new(whole.dtype, &[whole.shape[0]]).bytes().max(1);
    let is_part = tensor.ty.shape.is_dense() && tensor.ty.shape.elements() < whole.shape.elements();
    let same = whole.dtype == tensor.ty.dtype && whole.shape[0] == tensor.ty.shape[0];
    (is_part && same && tensor.offset_bytes.is_multiple_of(row_bytes)).then_some(tensor.offset_bytes..end)
}

fn outside(range: &std::ops::Range<usize>, len: usize) -> Error {
    fault(format!("bytes {} to {} are outside an arena of {len} bytes", range.start, range.end))
}

fn fault(problem: String) -> Error {
    Error::Device { device: NAME.to_owned(), problem }
}
