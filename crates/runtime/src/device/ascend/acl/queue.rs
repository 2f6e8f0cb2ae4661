//! An operator's two calls: the first looks at the arguments and says how much room it needs, the second asks the card's stream for the work.

use super::array::Held;
use super::card::Card;
use super::library::Library;
use super::memory::Allocation;
use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// What takes operators for a card, one thread at a time. The room that they ask for is one, for they run one behind the other.
#[derive(Debug)]
pub struct Queue {
    card: Arc<Card>,
    /// What was too small may still be computed in: freeing it waits.
    workspace: RefCell<Option<Allocation>>,
    launched: std::cell::Cell<u64>,
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
        Queue { card: Arc::clone(card), workspace: RefCell::default(), launched: std::cell::Cell::new(0) }
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
        // SAFETY: at least as many bytes as the first call asked for, its executor, used once, and the card's stream.
        let code = unsafe { second(room, prepared.workspace_bytes, prepared.executor, self.card.stream) };
        self.launched.set(self.launched.get() + 1);
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
            *workspace = Some(Allocation::new(&self.card, bytes as usize)?);
        }
        Ok(workspace.as_ref().map_or(null_mut(), |room| room.address() as *mut c_void))
    }
}
