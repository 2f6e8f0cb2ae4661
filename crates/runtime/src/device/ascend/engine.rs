//! Where the vendor's operators are asked for, and the room that compositions compute in.

use super::acl::{Allocation, Array, Card, Queue, Transfers, Type};
use super::chip::Chip;
use super::pool::{Pool, Room};
use std::cell::RefCell;
use std::sync::Arc;

/// One stream's worth of a card.
#[derive(Debug)]
pub struct Engine {
    /// What takes operators.
    pub queue: Queue,
    /// What the card has.
    pub chip: &'static Chip,
    /// The way of bytes to the card and back.
    pub transfers: Arc<Transfers>,
    card: Arc<Card>,
    pool: Pool,
    tables: RefCell<Vec<Table>>,
}

/// Numbers that the host computed, on the card, and what they were computed from.
#[derive(Debug)]
struct Table {
    key: Vec<u8>,
    memory: Allocation,
}

/// Tables that are kept, those asked for last.
const TABLES_MAX: usize = 16;

impl Engine {
    /// For a card.
    pub fn new(card: &Arc<Card>, transfers: &Arc<Transfers>, chip: &'static Chip) -> Engine {
        Engine {
            queue: Queue::new(card),
            chip,
            transfers: Arc::clone(transfers),
            card: Arc::clone(card),
            pool: Pool::new(card),
            tables: RefCell::default(),
        }
    }

    /// How many operators the card was asked for.
    pub fn launched(&self) -> u64 {
        self.queue.launched()
    }

    /// What room is lent from.
    pub fn pool_name(&self) -> &'static str {
        self.pool.name()
    }

    /// Room for elements behind each other, which hold anything.
    pub fn room(&self, ty: Type, sizes: &[i64]) -> Result<Room, String> {
        self.pool.room(ty, sizes)
    }

    /// Numbers of the host on the card: computed and uploaded unless those of the same key lie there. They stay until sixteen others were asked for, and
    /// their memory goes when the card has passed.
    pub fn table(&self, key: &[u8], sizes: &[i64], numbers: impl FnOnce() -> Vec<f32>) -> Result<Array, String> {
        let mut tables = self.tables.borrow_mut();
        let table = match tables.iter().position(|table| table.key == key) {
            Some(place) => tables.remove(place),
            None => {
                let bytes: Vec<u8> = numbers().into_iter().flat_map(f32::to_le_bytes).collect();
                let memory = Allocation::new(&self.card, bytes.len())?;
                self.transfers.upload(&memory, 0, &bytes)?;
                Table { key: key.to_vec(), memory }
            }
        };
        let array = Array::dense(Type::F32, table.memory.address(), sizes);
        tables.push(table);
        if tables.len() > TABLES_MAX {
            tables.remove(0);
        }
        Ok(array)
    }
}
