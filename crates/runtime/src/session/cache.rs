//! The KV cache. It grows with the sequences instead of taking the memory of a full context from the start.
//!
//! ```text
//! capacity 256     a a a . │ b b . .
//! capacity 384     a a a . . . │ b b . . . .      each sequence keeps its rows together
//! ```
//!
//! The cache starts with [`ROOM_FIRST`] positions per sequence and grows by the larger of that number and half of its
//! capacity, up to the context, and up to the ring's length in layers with a sliding window. So it copies at most three
//! times its final size in total. Tensors grow one by one, so at most one tensor exists twice. The copy goes through
//! the host, byte for byte as in a file, because each device has its own cache layout.

use super::batch::CAPACITY_UNIT;
use super::bound::Buffers;
use crate::device::{Device, Tensor, Usage};
use crate::error::{Error, Result};
use std::sync::Arc;
use trueup_formats::counted;
use trueup_graph::{StateKind, TensorType};

/// Positions that a new cache has room for, and the least that it grows by.
pub const ROOM_FIRST: usize = 256;

/// Positions per sequence in a new cache for sequences of `length` tokens: a multiple of [`CAPACITY_UNIT`], at most
/// `most`, which is also a multiple.
pub fn room_of(length: usize, most: usize) -> usize {
    length.max(ROOM_FIRST).next_multiple_of(CAPACITY_UNIT).min(most)
}

/// What host memory is needed for while a cache grows, and the remedy if there is none.
const GROWING: &str = "a growing KV cache; reduce the context (-c)";

/// A state of all sequences.
#[derive(Clone)]
pub struct State {
    pub kind: StateKind,
    pub tensor: Tensor,
}

/// Rows of each sequence in a cache.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Rows now.
    pub now: usize,
    /// Maximum rows.
    pub most: usize,
    /// Maximum rows of a [ring](StateKind::Ring).
    pub ring: usize,
}

/// Why a cache did not grow.
pub struct NotGrown {
    pub error: Error,
    /// Whether the cached rows are lost, because the tensors that had already grown could not be restored.
    pub is_lost: bool,
}

impl Buffers {
    /// Makes room for sequences of `length` tokens, and for more if memory allows. Returns the new number of positions.
    /// Steps that were bound before still point to the old cache and must be dropped first.
    pub fn grow_cache(
        &mut self,
        length: usize,
        limits: Limits,
        devices: &[Arc<dyn Device>],
    ) -> std::result::Result<usize, NotGrown> {
        let Limits { now, most, ring } = limits;
        let least = room_of(length, most);
        let comfortable = room_of(least.max(now + ROOM_FIRST.max(now / 2)), most);
        let new = if self.expect_cache(comfortable, ring, devices).is_ok() { comfortable } else { least };
        self.expect_cache(new, ring, devices).map_err(|error| NotGrown { error, is_lost: false })?;
        let keys: Vec<(usize, String)> = self.states.keys().cloned().collect();
        for (count, key) in keys.iter().enumerate() {
            let Err(error) = self.resize(key, (new, ring), devices) else { continue };
            let is_lost = keys.iter().take(count).any(|key| self.resize(key, (now, ring), devices).is_err());
            if is_lost {
                self.states.clear();
            }
            return Err(NotGrown { error, is_lost });
        }
        Ok(new)
    }

    /// Returns an error if a device reports too little free memory for a cache with `room` positions per sequence and a
    /// second copy of one tensor.
    fn expect_cache(&self, room: usize, ring: usize, devices: &[Arc<dyn Device>]) -> Result<()> {
        for (index, device) in devices.iter().enumerate() {
            let about = device.about();
            let Some((_, free)) = about.memory else { continue };
            let taken = |ty: &TensorType| device.taken_bytes(ty.bytes() as u64);
            let own = || self.states.iter().filter(|((on, _), _)| *on == index).map(|(_, state)| state);
            let more = own().map(|state| {
                let ty = &state.tensor.ty;
                taken(&state.kind.with_room(ty, room, ring)).saturating_sub(taken(ty))
            });
            let largest = own().map(|state| taken(&state.tensor.ty)).max();
            let needed = more.fold(0, u64::saturating_add).saturating_add(largest.unwrap_or(0));
            if needed > free {
                let positions = counted(room, "position");
                let what = format!("a KV cache of {positions} needs another");
                let remedy = "end some texts earlier, reduce the context (-c), or use fewer sequences";
                return Err(about.too_little_memory(&what, needed, remedy));
            }
        }
        Ok(())
    }

    /// Moves one tensor of the cache to a buffer with `room` rows per sequence, at most `ring` in a ring. A ring that
    /// still grows has never wrapped, so its rows keep their places.
    fn resize(
        &mut self,
        key: &(usize, String),
        (room, ring): (usize, usize),
        devices: &[Arc<dyn Device>],
    ) -> Result<()> {
        let (Some(State { kind, tensor: old }), Some(device)) = (self.states.get(key), devices.get(key.0)) else {
            return Ok(());
        };
        let (kind, ty) = (*kind, kind.with_room(&old.ty, room, ring));
        if ty == old.ty {
            return Ok(());
        }
        let new = Tensor { buffer: device.alloc(&ty, Usage::State)?, offset_bytes: 0, ty };
        let mut bytes = zeros(old.ty.bytes(), &**device, GROWING)?;
        device.download(old, &mut bytes)?;
        device.upload(&moved(&bytes, &old.ty, &ty, &**device)?, &new)?;
        device.sync()?;
        self.states.insert(key.clone(), State { kind, tensor: new });
        Ok(())
    }
}

/// Copies the rows of each sequence to a cache with a different number of rows per sequence, as far as they fit.
fn moved(bytes: &[u8], old: &TensorType, new: &TensorType, device: &dyn Device) -> Result<Vec<u8>> {
    let sequences = old.shape.sizes()[2].max(1);
    let mut target = zeros(new.bytes(), device, GROWING)?;
    let (from, to) = (old.bytes() / sequences, new.bytes() / sequences);
    for (source, target) in bytes.chunks(from.max(1)).zip(target.chunks_mut(to.max(1))) {
        let len = source.len().min(target.len());
        target[..len].copy_from_slice(&source[..len]);
    }
    Ok(target)
}

/// Allocates host memory for `what`; returns an error if there is too little.
pub(super) fn zeros(len: usize, device: &dyn Device, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(len);
    reserved.map_err(|_| Error::Device {
        device: device.name(),
        problem: format!("not enough memory for {len} bytes of {what}"),
    })?;
    bytes.resize(len, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_units_of_plans_up_to_the_context() {
        assert_eq!([1, 256, 257, 1000].map(|length| room_of(length, 4096)), [256, 256, 320, 1024]);
        assert_eq!([1, 100].map(|length| room_of(length, 128)), [128, 128]);
    }
}
