//! Room that operators need for a while, kept from one to the next: fresh memory costs more to get than to use.

use super::operator::Room;
use half::{bf16, f16};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use trueup_kernels::{ActivationBlock, PackedUnit, Turned};

/// Room that products take for numbers in another form.
#[derive(Default, Debug)]
pub(super) struct Spares {
    /// Activations in 8 bits.
    pub codes: Spare<ActivationBlock>,
    /// Activations in the order of turned rows.
    pub turned: Spare<f32>,
    /// Activations of tokens, ordered by expert.
    pub gathered: Spare<f32>,
    /// Decoded rows.
    pub decoded: Spare<f32>,
    /// Turned rows of f32.
    pub turned_f32: Spare<Turned<f32>>,
    /// Turned rows of f16.
    pub turned_f16: Spare<Turned<f16>>,
    /// Turned rows of bf16.
    pub turned_bf16: Spare<Turned<bf16>>,
    /// Tiles of rows that are kept as in the file.
    pub tiles: Spare<PackedUnit>,
    /// What attention computes pieces in.
    pub rooms: Rooms<Room>,
}

/// Rooms that nobody needs now: as many as were used at once.
#[derive(Debug)]
pub(super) struct Rooms<R>(Mutex<Vec<R>>);

impl<R> Default for Rooms<R> {
    fn default() -> Rooms<R> {
        Rooms(Mutex::default())
    }
}

impl<R: Default> Rooms<R> {
    /// Computes in a room that nobody else has meanwhile.
    pub fn with<T>(&self, compute: impl FnOnce(&mut R) -> T) -> T {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = compute(&mut room);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        result
    }
}

#[cfg(test)]
impl<R> Rooms<R> {
    /// The sum of a figure over all of them.
    pub fn sum(&self, figure: impl Fn(&R) -> usize) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(figure).sum()
    }
}

/// Vectors that nobody needs now.
#[derive(Debug)]
pub(super) struct Spare<T>(Mutex<Vec<Vec<T>>>);

impl<T> Default for Spare<T> {
    fn default() -> Spare<T> {
        Spare(Mutex::default())
    }
}

impl<T: Clone + Default> Spare<T> {
    /// Room for so many cells, which hold anything; as many vectors are kept as were taken at once.
    pub fn lend(&self, len: usize) -> Lent<'_, T> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        if cells.len() < len {
            cells.resize(len, T::default());
        }
        Lent { spare: self, cells, len }
    }
}

/// Room that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Lent<'s, T> {
    spare: &'s Spare<T>,
    cells: Vec<T>,
    len: usize,
}

impl<T> Deref for Lent<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.cells[..self.len]
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.cells[..self.len]
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        self.spare.0.lock().unwrap_or_else(PoisonError::into_inner).push(cells);
    }
}
