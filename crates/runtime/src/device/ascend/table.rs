//! Numbers that the host computes for operators, on the card at a place that stays: what they follow from may change,
//! and then they do.

use super::acl::{Allocation, Card, Transfers};
use std::sync::{Arc, Mutex, PoisonError};

/// What computes them, from what inputs hold.
pub type Numbers = Box<dyn Fn(&[Vec<u8>]) -> Vec<f32> + Send>;

/// The numbers.
#[derive(Debug)]
pub struct Table {
    /// What they are, whatever the inputs hold.
    pub name: String,
    memory: Allocation,
    /// What the inputs held that the numbers there follow from.
    sources: Mutex<Option<Vec<Vec<u8>>>>,
}

impl Table {
    /// Room for so many numbers.
    pub fn new(card: &Arc<Card>, name: String, len: usize) -> Result<Table, String> {
        Ok(Table { name, memory: Allocation::new(card, len * size_of::<f32>())?, sources: Mutex::default() })
    }

    /// Where they lie.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Makes them follow from these bytes, behind all that the card was asked for before; they are computed and
    /// uploaded unless they do already.
    pub fn fill(&self, transfers: &Transfers, from: &[Vec<u8>], numbers: &Numbers) -> Result<(), String> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.as_deref() == Some(from) {
            return Ok(());
        }
        *sources = None;
        let bytes: Vec<u8> = numbers(from).into_iter().flat_map(f32::to_le_bytes).collect();
        transfers.upload(&self.memory, 0, &bytes)?;
        *sources = Some(from.to_vec());
        Ok(())
    }
}
