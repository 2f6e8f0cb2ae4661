//! The thread pool: it processes one list of work items at a time. Each thread gets a run of neighbouring items, and
//! then takes items from the end of another thread's run.
//!
//! ```text
//!  caller    ── post ── items ...  ── close, wait for active threads ── next list
//!  thread 1     └─ enter ── items ... ── leave ──┘
//!  thread 2        asleep: it comes too late and is not waited for
//! ```
//!
//! A token has about 200 operators, each too short for the fork and join of a general pool. Threads poll for the next
//! list for a while before they sleep. The assignment of items to threads does not affect results. A thread that was
//! preempted delays a list by the items that it has already taken, at most.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Looks for the next list before a thread sleeps: some hundred microseconds.
const LOOKS: u32 = 1 << 14;

/// Looks before a thread lets others have its core between two of them.
const LOOKS_ALONE: u32 = 1 << 11;

/// Of what is left of its run, a thread takes this share at a time: large pieces first, small ones last.
const SHARES: usize = 4;

/// The threads. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A list of pieces, a run of neighbours for each thread: memory that lies behind each other is read by one of them.
struct Runs<T>(Vec<Mutex<VecDeque<T>>>);

impl<T> Runs<T> {
    fn new(mut items: impl ExactSizeIterator<Item = T>, count: usize) -> Runs<T> {
        let len = items.len();
        let run = |i| items.by_ref().take(len * (i + 1) / count - len * i / count).collect();
        Runs((0..count).map(run).map(Mutex::new).collect())
    }

    /// Takes some pieces from the front of a thread's own run, at least `grain` as long as there are as many; where
    /// none is left, from what another has left behind. Whether there were any.
    fn take(&self, own: usize, grain: usize, taken: &mut Vec<T>) -> bool {
        loop {
            let mut run = locked(&self.0[own]);
            let count = (run.len() / SHARES).max(grain).min(run.len());
            taken.extend(run.drain(..count));
            drop(run);
            if !taken.is_empty() {
                return true;
            }
            if !self.refill(own) {
                return false;
            }
        }
    }

    /// Gives a thread the second half of the longest run; whether there was one.
    fn refill(&self, own: usize) -> bool {
        loop {
            let lens = self.0.iter().map(|run| locked(run).len());
            let Some((longest, 1..)) = lens.enumerate().max_by_key(|(_, len)| *len) else { return false };
            let mut run = locked(&self.0[longest]);
            let half = run.len() / 2;
            let second = run.split_off(half);
            drop(run);
            if !second.is_empty() {
                *locked(&self.0[own]) = second;
                return true;
            }
        }
    }
}

/// What a list of pieces is to the threads: work that ends when all pieces are taken.
struct Job<'a> {
    work: &'a (dyn Fn() + Sync),
    /// What a thread said that panicked in it.
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// [`State`], as one number.
    state: Padded<AtomicU64>,
    /// The open job. It lies in the frame of [`Team::together`], which waits until all that entered have left.
    job: AtomicPtr<()>,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    alarm: Condvar,
}

/// Alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// Number of the job in the upper half; below it whether the team ends, whether the job is open, and how many threads
/// are inside.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const JOB: u64 = 1 << 32;
    const ENDED: u64 = 1 << 31;
    const OPEN: u64 = 1 << 30;
    const INSIDE: u64 = State::OPEN - 1;

    fn job(self) -> u64 {
        self.0 / State::JOB
    }

    fn is_ended(self) -> bool {
        self.0 & State::ENDED != 0
    }

    fn is_open(self) -> bool {
        self.0 & State::OPEN != 0
    }

    fn inside(self) -> u64 {
        self.0 & State::INSIDE
    }
}

impl Team {
    /// A team of so many threads, the caller of [`Team::each`] being one of them. Fails where they cannot be started.
    pub fn new(threads: usize) -> std::io::Result<Team> {
        let mut team = Team { shared: Arc::default(), threads: Vec::new() };
        for index in 1..threads {
            let shared = team.shared.clone();
            team.threads.push(Builder::new().name(format!("cpu-{index}")).spawn(move || shared.attend())?);
        }
        Ok(team)
    }

    /// How many threads there are, with the caller.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Works on all items, at least `grain` of them at a time on one thread. One call at a time makes use of the
    /// threads.
    pub fn each<I>(&self, items: I, grain: usize, work: impl Fn(I::Item) + Sync)
    where
        I: ExactSizeIterator,
        I::Item: Send,
    {
        if self.threads.is_empty() || items.len() <= grain {
            return items.for_each(work);
        }
        let (runs, entered) = (Runs::new(items, self.threads()), AtomicUsize::new(0));
        self.together(&|| {
            let own = entered.fetch_add(1, Ordering::Relaxed);
            let mut taken = Vec::new();
            while runs.take(own, grain, &mut taken) {
                taken.drain(..).for_each(&work);
            }
        });
    }

    /// The same for work that may fail; gives the failure of the first item that was found to have one.
    pub fn try_each<I>(
        &self,
        items: I,
        grain: usize,
        work: impl Fn(I::Item) -> Result<(), String> + Sync,
    ) -> Result<(), String>
    where
        I: ExactSizeIterator,
        I::Item: Send,
    {
        let failed: Mutex<Option<(usize, String)>> = Mutex::new(None);
        self.each(items.enumerate(), grain, |(index, item)| {
            if let Err(problem) = work(item) {
                let mut failed = locked(&failed);
                if failed.as_ref().is_none_or(|(first, _)| index < *first) {
                    *failed = Some((index, problem));
                }
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), |(_, problem)| Err(problem))
    }

    /// Calls `work` on this thread, and on each that is free before this one has done with it.
    fn together(&self, work: &(dyn Fn() + Sync)) {
        let job = Job { work, panic: Mutex::new(None) };
        self.shared.post(&job);
        let mine = catch_unwind(AssertUnwindSafe(work));
        self.shared.close();
        let theirs = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = mine.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.state.0.fetch_or(State::ENDED, Ordering::SeqCst);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // A thread that panicked outside of a job has nothing left to lose.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn state(&self) -> State {
        State(self.state.0.load(Ordering::SeqCst))
    }

    /// Opens a job to all threads.
    fn post(&self, job: &Job) {
        let place: *const Job = job;
        self.job.store(place.cast_mut().cast(), Ordering::Relaxed);
        let next = self.state().job().wrapping_add(1) * State::JOB;
        self.state.0.store(next | State::OPEN, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Closes the job and waits until nobody is inside.
    fn close(&self) {
        self.state.0.fetch_and(!State::OPEN, Ordering::SeqCst);
        let mut looks = 0;
        while self.state().inside() > 0 {
            look_again(&mut looks);
        }
    }

    fn wake(&self) {
        drop(locked(&self.bed));
        self.alarm.notify_all();
    }

    /// What a thread does until the team ends.
    fn attend(&self) {
        let mut known = 0;
        loop {
            let state = self.next_after(known);
            if state.is_ended() {
                return;
            }
            known = state.job();
            if self.enter(known) {
                let place: *const Job = self.job.load(Ordering::Relaxed).cast_const().cast();
                // SAFETY: this thread is counted inside an open job, whose number it saw; `Team::together` keeps that
                // job alive until nobody is inside, and posts no other before.
                let job = unsafe { &*place };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job.work)) {
                    *locked(&job.panic) = Some(panic);
                }
                self.state.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Counts this thread inside the job of that number; not if it is no longer open.
    fn enter(&self, job: u64) -> bool {
        let enters = |state: u64| (State(state).job() == job && State(state).is_open()).then_some(state + 1);
        self.state.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enters).is_ok()
    }

    /// Waits for an open job of another number, or for the end.
    fn next_after(&self, known: u64) -> State {
        let is_next = |state: State| state.is_ended() || state.is_open() && state.job() != known;
        let mut looks = 0;
        while looks < LOOKS {
            let state = self.state();
            if is_next(state) {
                return state;
            }
            look_again(&mut looks);
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let mut bed = locked(&self.bed);
        loop {
            let state = self.state();
            if is_next(state) {
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                return state;
            }
            bed = self.alarm.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn look_again(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(LOOKS_ALONE) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once_whatever_the_threads_and_the_grain() {
        for (threads, grain) in [(1, 1), (2, 1), (3, 7), (5, 1000)] {
            let team = Team::new(threads).unwrap();
            for round in 0..if cfg!(miri) { 3 } else { 300 } {
                let mut cells = vec![0; 257];
                team.each(cells.iter_mut().enumerate(), grain, |(i, cell)| *cell += i + round);
                assert!(cells.iter().enumerate().all(|(i, cell)| *cell == i + round), "{threads} threads");
            }
        }
    }

    #[test]
    fn threads_come_back_from_sleep() {
        let team = Team::new(3).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let sum = AtomicUsize::new(0);
            team.each(0..1000, 1, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 499_500);
        }
    }

    #[test]
    fn the_failure_of_the_first_item_is_given() {
        let team = Team::new(4).unwrap();
        let problem = |i: usize| if i >= 40 { Err(format!("item {i}")) } else { Ok(()) };
        assert_eq!(team.try_each(0..100, 1, problem), Err("item 40".to_owned()));
        assert_eq!(team.try_each(0..40, 1, problem), Ok(()));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::new(3).unwrap();
        let attempt = || team.each(0..64, 1, |i| assert_ne!(i, 33, "item 33"));
        let panic = catch_unwind(AssertUnwindSafe(attempt)).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("item 33"));
        let sum = AtomicUsize::new(0);
        team.each(0..64, 1, |i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 2016);
    }

    #[test]
    fn several_threads_take_part() {
        let team = Team::new(2).unwrap();
        let met = std::sync::Barrier::new(2);
        team.each(0..2, 1, |_| {
            met.wait();
        });
    }
}
