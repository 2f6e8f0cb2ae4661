//! An operator's two calls: the first looks at the arguments and says how much room it needs, the second asks the
//! card's stream for the work.

use super::array::{Destroy, Held};
use super::card::Card;
use super::graph::{Capture, Graph};
use super::library::Library;
use super::memory::Allocation;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Debug;
use std::ptr::null_mut;
use std::sync::Arc;

/// What has memory of a card that it can do without.
pub trait Spare: Debug + Send {
    /// Gives the card that memory. `is_capturing` says whether work is kept now, which may compute in some of it.
    fn drop_free(&self, is_capturing: bool);
}

/// What takes operators for a card, one thread at a time. The room that they ask for is one, for they run one behind
/// the other.
#[derive(Debug)]
pub struct Queue {
    card: Arc<Card>,
    /// What was too small may still be computed in: freeing it waits.
    workspace: RefCell<Option<Arc<Allocation>>>,
    /// What is asked for memory where the card has none left.
    spare: Box<dyn Spare>,
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

    /// Where there is no second call, which would end the executor.
    fn discard(&self, library: &Library) {
        if self.executor.is_null() {
            return;
        }
        // SAFETY: a function of that name has this form.
        let destroy = unsafe { library.function::<Destroy>(c"aclDestroyAclOpExecutor") };
        // SAFETY: an executor that the first call made, and that nothing was asked with; destroyed once.
        let _told = destroy.map(|destroy| unsafe { destroy(self.executor) });
    }
}

impl Queue {
    /// For a card.
    pub fn new(card: &Arc<Card>, spare: Box<dyn Spare>) -> Queue {
        Queue {
            card: Arc::clone(card),
            workspace: RefCell::default(),
            spare,
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

    /// Gives the card the memory of all that can be done without, and of the room that operators asked for.
    pub fn drop_free(&self) {
        self.spare.drop_free(self.is_kept());
        *self.workspace.borrow_mut() = None;
    }

    pub(super) fn enter(&self) -> Result<(&Library, Held<'_>), String> {
        let library = self.card.enter()?;
        Ok((library, Held::new(library)))
    }

    /// The second call. The handles of the arguments may go behind it.
    pub(super) fn ask(&self, name: &'static CStr, prepared: Prepared) -> Result<(), String> {
        let library = self.card.enter()?;
        // SAFETY: every operator's second call has this form.
        let second = unsafe { library.function::<Second>(name) };
        let ready = second.and_then(|second| Ok((second, self.room(prepared.workspace_bytes)?)));
        let (second, room) = ready.inspect_err(|_| prepared.discard(library))?;
        let kept = self.kept.borrow();
        let stream = kept.as_ref().map_or(self.card.stream, |kept| kept.capture.stream);
        // SAFETY: at least as many bytes as the first call asked for, its executor, used once, and a stream of the
        // card.
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
            let room = Allocation::new(&self.card, bytes as usize).or_else(|_| {
                self.spare.drop_free(self.is_kept());
                Allocation::new(&self.card, bytes as usize)
            });
            *workspace = Some(Arc::new(room?));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ascend::acl::card;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Nothing;

    impl Spare for Nothing {
        fn drop_free(&self, _: bool) {}
    }

    static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn destroy(_: *mut c_void) -> c_int {
        DESTROYED.fetch_add(1, Ordering::Relaxed);
        0
    }

    extern "C" fn second(_: *mut c_void, _: u64, _: *mut c_void, _: *mut c_void) -> c_int {
        0
    }

    /// An executor ends by the second call; where there is none, for there is no memory or no such function, it is
    /// destroyed.
    #[test]
    fn an_executor_that_is_not_used_is_destroyed() {
        let library = card::tests::library(&[
            (c"aclDestroyAclOpExecutor", destroy as Destroy as usize),
            (c"aclnnRelu", second as extern "C" fn(*mut c_void, u64, *mut c_void, *mut c_void) -> c_int as usize),
        ]);
        let queue = Queue::new(&Card::open(&library, 0).unwrap(), Box::new(Nothing));
        let asked = |name, workspace_bytes| {
            let asked = queue.ask(name, Prepared { workspace_bytes, executor: 16 as *mut c_void });
            (asked.is_ok(), DESTROYED.swap(0, Ordering::Relaxed))
        };
        assert_eq!(asked(c"aclnnRelu", 0), (true, 0));
        assert_eq!(asked(c"aclnnSilu", 0), (false, 1));
        assert_eq!(asked(c"aclnnRelu", 100), (false, 1));
    }
}
