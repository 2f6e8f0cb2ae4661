//! Where the vendor's operators are asked for, and the room that compositions compute in.

use super::acl::{Allocation, Array, Card, Graph, Queue, Spare, Transfers, Type};
use super::chip::Chip;
use super::notes::{Must, Notes};
use super::pool::{Pool, Room};
use super::table::{Numbers, Table};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
    graphs: Graphs,
    tables: RefCell<Vec<Arc<Table>>>,
    notes: RefCell<Notes>,
}

/// Tables that are kept, those asked for last; graphs keep their own.
const TABLES_MAX: usize = 16;

/// Work that was kept, unless its memory was needed for other work.
#[derive(Debug)]
pub struct Captured(Arc<Slot>);

type Slot = Mutex<Option<Run>>;

/// Work, and the memory that it was made with, which goes behind it.
#[derive(Debug)]
struct Run {
    graph: Graph,
    _rooms: Vec<Arc<Allocation>>,
}

impl Captured {
    /// Whether its memory was taken.
    pub fn is_gone(&self) -> bool {
        self.run().is_none()
    }

    /// Asks the card for the work. Fails where its memory was taken.
    pub fn ask(&self) -> Result<(), String> {
        self.run().as_ref().ok_or("a graph was requested without memory")?.graph.run()
    }

    fn run(&self) -> std::sync::MutexGuard<'_, Option<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that is kept by somebody.
#[derive(Clone, Default, Debug)]
struct Graphs(Arc<Mutex<Vec<Weak<Slot>>>>);

impl Graphs {
    fn add(&self, run: Run) -> Captured {
        let run = Arc::new(Mutex::new(Some(run)));
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        graphs.retain(|graph| graph.strong_count() > 0);
        graphs.push(Arc::downgrade(&run));
        Captured(run)
    }

    /// Gives the card their memory, when it has passed them.
    fn drop_all(&self) {
        let graphs = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for graph in graphs.iter().filter_map(Weak::upgrade) {
            *graph.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// What compositions can do without: graphs, which are kept anew, and room that is not lent.
#[derive(Debug)]
struct Spares {
    pool: Pool,
    graphs: Graphs,
}

impl Spare for Spares {
    fn drop_free(&self, is_capturing: bool) {
        self.graphs.drop_all();
        // What is captured now computes in room that is back already.
        if is_capturing { self.pool.drop_unkept() } else { self.pool.drop_free() }
    }
}

impl Engine {
    /// For a card.
    pub fn new(card: &Arc<Card>, transfers: &Arc<Transfers>, chip: &'static Chip) -> Engine {
        let (pool, graphs) = (Pool::new(card), Graphs::default());
        let spare = Spares { pool: pool.clone(), graphs: graphs.clone() };
        Engine {
            queue: Queue::new(card, Box::new(spare)),
            chip,
            transfers: Arc::clone(transfers),
            card: Arc::clone(card),
            pool,
            graphs,
            tables: RefCell::default(),
            notes: RefCell::default(),
        }
    }

    /// The card.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// What room is lent from.
    pub fn pool_name(&self) -> &'static str {
        self.pool.name()
    }

    /// Room for elements behind each other, which hold anything.
    pub fn room(&self, ty: Type, sizes: &[i64]) -> Result<Room, String> {
        self.pool.room(ty, sizes).or_else(|_| {
            self.queue.drop_free();
            self.pool.room(ty, sizes)
        })
    }

    /// Gives the card all memory that nothing is computed in any more.
    pub fn drop_free(&self) {
        self.queue.drop_free();
        self.tables.borrow_mut().clear();
    }

    /// Keeps the operators that `work` asks for, instead of asking the card for them.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), String>) -> Result<Captured, String> {
        self.pool.keep();
        let captured = self.queue.capture(work);
        let mut rooms = self.pool.kept();
        let (graph, workspaces) = captured?;
        rooms.extend(workspaces);
        Ok(self.graphs.add(Run { graph, _rooms: rooms }))
    }

    /// Compositions are of the step with this number from now on.
    pub fn turn_to(&self, step: usize) {
        self.notes.borrow_mut().turn_to(step);
    }

    /// A composition relies on what an input holds.
    pub fn needs(&self, input: usize, must: Must) {
        self.notes.borrow_mut().needs(input, must);
    }

    /// A composition looks at what the card computed.
    pub fn looks_at_results(&self) -> Result<(), String> {
        self.notes.borrow_mut().looks_at_results();
        if self.queue.is_kept() { Err("what is kept has not been computed".to_owned()) } else { Ok(()) }
    }

    /// What was noted since it was asked for last.
    pub fn take_notes(&self) -> Notes {
        self.notes.take()
    }

    /// Numbers of the host on the card, which follow from what inputs hold: computed and uploaded unless those lie
    /// there. The name says what they are and of which tensors. They stay until sixteen others were asked for, and
    /// their memory goes when the card has passed.
    pub fn table(
        &self,
        name: String,
        sizes: &[i64],
        inputs: (&[usize], &[Vec<u8>]),
        numbers: Numbers,
    ) -> Result<Array, String> {
        let mut tables = self.tables.borrow_mut();
        let table = match tables.iter().position(|table| table.name == name) {
            Some(place) => tables.remove(place),
            None => {
                let len = sizes.iter().product::<i64>().unsigned_abs() as usize;
                let table = Table::new(&self.card, name.clone(), len).or_else(|_| {
                    self.queue.drop_free();
                    Table::new(&self.card, name, len)
                });
                Arc::new(table?)
            }
        };
        table.fill(&self.transfers, inputs.1, &numbers)?;
        let array = Array::dense(Type::F32, table.address(), sizes);
        self.notes.borrow_mut().follows(inputs.0, &table, numbers);
        tables.push(table);
        if tables.len() > TABLES_MAX {
            tables.remove(0);
        }
        Ok(array)
    }
}
