//! An operator's two calls: the first looks at the arguments and says how much room it needs, the second asks the card's stream for the work.

use super::array::Held;
use super::card::Card;
use super::graph::{Capture, Graph};
use super::library::Library;
use super::memory::Allocation;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// What takes operators for a card, one thread at a time. The room that they ask for is one, for they run one behind the other.
#[derive(Debug)]
pub struct Queue {
    card: Arc<Card>,
    /// What was too small may still be computed in: freeing it waits.
    workspace: RefCell<Option<Arc<Allocation>>>,
    launched: Cell<u64>,
    /// Where work goes while it is kept.
    kept: RefCell<Option<Kept>>,
}

/// A capture, and the room that its operators were given.
#[derive(Debug)]
struct Kept {
    capture: Capture,
    rooms: Vec<Arc<Allocation>>,
}

/// An operator's second call.
type Second = unsafe extern "C" fn(*mut c_void, u64, *mut c_void, *mut c_void) -> c_int;

/// What the first call gives.
pub(super) struct Prepared {
    pub workspace_bytes: u64,
    pub executor: *mut c_void,
}

impl Prepared {
    pub fn none() -> Prepared {
        Prepared { workspace_bytes: 0, executor: null_mut() }
    }
}

impl Queue {
    /// For a card.
    pub fn new(card: &Arc<Card>) -> Queue {
        Queue {
            card: Arc::clone(card),
            workspace: RefCell::default(),
            launched: Cell::new(0),
            kept: RefCell::default(),
        }
    }

    /// Keeps what `work` asks for instead of asking the card: as a graph, and the room that it runs in.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), String>) -> Result<(Graph, Vec<Arc<Allocation>>), String> {
        let capture = Capture::begin(&self.card)?;
        *self.kept.borrow_mut() = Some(Kept { capture, rooms: Vec::new() });
        let worked = work();
        let Kept { capture, rooms } = self.kept.take().ok_or("a capture within a capture")?;
        let graph = capture.end();
        worked?;
        Ok((graph?, rooms))
    }

    /// Whether work is kept.
    pub fn is_kept(&self) -> bool {
        self.kept.borrow().is_some()
    }

    /// How many operators the card was asked for.
    pub fn launched(&self) -> u64 {
        self.launched.get()
    }

    /// Whether an operator of that name is installed.
    pub fn has(&self, first: &'static CStr) -> bool {
        self.card.library().has(first)
    }

    pub(super) fn enter(&self) -> Result<(&Library, Held<'_>), String> {
        let library = self.card.enter()?;
        Ok((library, Held::new(library)))
    }

    /// The second call. The handles of the arguments may go behind it.
    pub(super) fn ask(&self, name: &'static CStr, prepared: Prepared) -> Result<(), String> {
        let library = self.card.enter()?;
        let room = self.room(prepared.workspace_bytes)?;
        // SAFETY: every operator's second call has this form.
        let second = unsafe { library.function::<Second>(name) }?;
        let kept = self.kept.borrow();
        let stream = kept.as_ref().map_or(self.card.stream, |kept| kept.capture.stream);
        // SAFETY: at least as many bytes as the first call asked for, its executor, used once, and a stream of the card.
        let code = unsafe { second(room, prepared.workspace_bytes, prepared.executor, stream) };
        self.launched.set(self.launched.get() + u64::from(kept.is_none()));
        library.expect(name, code)
    }

    /// Room of so many bytes.
    fn room(&self, bytes: u64) -> Result<*mut c_void, String> {
        if bytes == 0 {
            return Ok(null_mut());
        }
        let mut workspace = self.workspace.borrow_mut();
        if workspace.as_ref().is_none_or(|room| (room.bytes() as u64) < bytes) {
            *workspace = None;
            *workspace = Some(Arc::new(Allocation::new(&self.card, bytes as usize)?));
        }
        let Some(room) = workspace.as_ref() else { return Ok(null_mut()) };
        if let Some(kept) = &mut *self.kept.borrow_mut()
            && kept.rooms.last().is_none_or(|last| !Arc::ptr_eq(last, room))
        {
            kept.rooms.push(Arc::clone(room));
        }
        Ok(room.address() as *mut c_void)
    }
}
