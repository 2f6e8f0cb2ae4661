//! The way of a tensor's bytes to a card and back: as they are, or divided into planes by the card itself.
//!
//! ```text
//!  upload     host ─▶ room, a piece of the file's form ─ split ─▶ planes         the next piece goes behind, in the same room
//!  download   planes ─ join ─▶ room ─▶ host
//! ```

use super::driver::{Allocation, Card, Transfers};
use super::split::Split;
use std::sync::{Arc, Mutex, PoisonError};
use trueup_graph::TensorType;

/// Bytes of the file's form that are on the card beside the planes at once, at most.
const PIECE_BYTES: usize = 16 << 20;

/// Brings bytes to a card and back.
#[derive(Debug)]
pub struct Carrier {
    card: Arc<Card>,
    transfers: Transfers,
    /// Where pieces lie in the file's form; taken when the first one comes.
    room: Mutex<Option<Allocation>>,
}

impl Carrier {
    /// For a card.
    pub fn new(card: &Arc<Card>) -> Carrier {
        Carrier { card: Arc::clone(card), transfers: Transfers::new(card), room: Mutex::default() }
    }

    /// Copies to memory of the card, from a byte on, behind all that it was asked for before.
    pub fn upload(&self, target: &Allocation, first: usize, source: &[u8]) -> Result<(), String> {
        self.transfers.upload(target, first, source)
    }

    /// Copies from memory of the card, from a byte on, behind all that it was asked for before.
    pub fn download(&self, source: &Allocation, first: usize, target: &mut [u8]) -> Result<(), String> {
        self.transfers.download(source, first, target)
    }

    /// Brings all of a weight, in the file's form, into its planes.
    pub fn upload_split(&self, split: &Split, planes: &Allocation, source: &[u8]) -> Result<(), String> {
        let piece = piece_bytes(split);
        self.with_room(piece.min(source.len()), |room| {
            source.chunks(piece).enumerate().try_for_each(|(number, bytes)| {
                self.transfers.upload(room, 0, bytes)?;
                let range = [number * piece, bytes.len()];
                self.card.run(&split.dividing(&self.card, planes.address(), room.address(), range)?)
            })
        })
    }

    /// Gives all of a weight in the file's form.
    pub fn download_split(&self, split: &Split, planes: &Allocation, target: &mut [u8]) -> Result<(), String> {
        let piece = piece_bytes(split);
        self.with_room(piece.min(target.len()), |room| {
            target.chunks_mut(piece).enumerate().try_for_each(|(number, bytes)| {
                let range = [number * piece, bytes.len()];
                self.card.run(&split.joining(&self.card, planes.address(), room.address(), range)?)?;
                self.transfers.download(room, 0, bytes)
            })
        })
    }

    /// Works with so many bytes of room, which nobody else has meanwhile; what the card was asked for in it before
    /// comes first.
    fn with_room(&self, bytes: usize, work: impl FnOnce(&Allocation) -> Result<(), String>) -> Result<(), String> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if room.as_ref().is_none_or(|room| room.bytes() < bytes) {
            // What is too small goes first: both may not find room.
            *room = None;
            *room = Allocation::new(&self.card, bytes)?;
        }
        work(room.as_ref().ok_or_else(|| format!("not enough memory for {bytes} bytes to repack weights"))?)
    }
}

/// Bytes of the room that repacking a weight of this type takes; none where it stays as it is.
pub fn room_bytes(ty: &TensorType) -> usize {
    Split::of(ty).map_or(0, |split| piece_bytes(&split).min(split.file_bytes()))
}

/// Whole blocks.
fn piece_bytes(split: &Split) -> usize {
    PIECE_BYTES / split.block_bytes() * split.block_bytes()
}
