//! Repeated steps as captured graphs. The decode phase executes the same plan for each token; only the contents of
//! inputs differ.
//!
//! ```text
//! first time     operators are issued one by one; what their composition derived from inputs is noted (notes.rs)
//! second time    the same, but captured as a graph and run
//! from then on   inputs are compared with the notes, derived tables are updated, the graph runs
//! ```
//!
//! If the inputs do not fit the notes, the steps count as new, in addition to the remembered ones. Steps that cannot
//! be captured (a composition that reads results of the card, a chip without capture) are issued one by one each time.
//! A graph contains the addresses of its buffers and its workspace. It holds the workspace until other work needs that
//! memory, and is then captured again. It is dropped when one of its buffers is freed.

use super::engine::{Captured, Engine};
use super::memory::Memory;
use super::notes::Notes;
use super::operator;
use crate::device::Step;
use crate::device::kept::KeptSteps;

/// Lists of steps that are remembered: a session keeps plans for 16 shapes of batches.
const KEPT_MAX: usize = 32;

/// Fewer operators gain nothing from a graph.
const OPERATORS_MIN: u64 = 8;

/// Fewer steps are no token: a node that is looked at by itself, a case of the operator suite.
const STEPS_MIN: usize = 2;

/// How often a card was asked for work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Launched {
    /// The vendor's operators, one by one.
    pub operators: u64,
    /// Graphs of them, each as one.
    pub graphs: u64,
}

/// Asks for the work of steps, and remembers those that may come again.
#[derive(Debug)]
pub struct Replay {
    /// The most recently used last. Goes before the engine, in whose room it computes.
    kept: Vec<Kept>,
    engine: Engine,
    captures: bool,
    graphs: u64,
    refusal: Option<String>,
}

/// Steps that were executed.
#[derive(Debug)]
struct Kept {
    steps: KeptSteps,
    notes: Notes,
    work: Work,
}

#[derive(Debug)]
enum Work {
    /// Asked for once.
    Once,
    Graph(Captured),
    /// What could not be captured, though it should.
    OneByOne,
}

impl Replay {
    /// On an engine.
    pub fn new(engine: Engine) -> Replay {
        let captures = engine.chip.capture && engine.queue.has(c"aclmdlRICaptureBegin");
        Replay { kept: Vec::new(), engine, captures, graphs: 0, refusal: None }
    }

    /// What room is lent from.
    pub fn pool_name(&self) -> &'static str {
        self.engine.pool_name()
    }

    /// How often work was asked for.
    pub fn launched(&self) -> Launched {
        Launched { operators: self.engine.queue.launched(), graphs: self.graphs }
    }

    /// Why steps could not be captured, though this chip captures.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Forgets what names a buffer that is gone.
    pub fn forget_freed(&mut self) {
        self.kept.retain(|kept| kept.steps.is_there());
    }

    /// Forgets everything, and gives the card the memory of it, and of the room that compositions computed in.
    pub fn forget(&mut self) {
        self.kept.clear();
        self.engine.drop_free();
    }

    /// Asks for the work of steps behind all that was asked for before.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let fits = |kept: &Kept| kept.steps.is_of(steps) && kept.notes.hold(steps);
        if let Some(place) = self.kept.iter().rposition(fits) {
            self.kept[place..].rotate_left(1);
            return self.run_again(steps);
        }
        self.forget_freed();
        let before = self.engine.queue.launched();
        let done = one_by_one(&self.engine, steps);
        let mut notes = self.engine.take_notes();
        done?;
        let is_long = steps.len() >= STEPS_MIN && self.engine.queue.launched() - before >= OPERATORS_MIN;
        if self.captures && notes.are_whole() && is_long {
            notes.reduce(steps);
            if self.kept.len() == KEPT_MAX {
                self.kept.remove(0);
            }
            self.kept.push(Kept { steps: KeptSteps::of(steps), notes, work: Work::Once });
        }
        Ok(())
    }

    /// Runs what was used last.
    fn run_again(&mut self, steps: &[Step]) -> Result<(), String> {
        let Some(kept) = self.kept.last_mut() else { return Ok(()) };
        if matches!(&kept.work, Work::Graph(captured) if captured.is_gone()) {
            kept.work = Work::Once;
        }
        match &kept.work {
            Work::Once => match captured(&self.engine, steps) {
                Ok(captured) => {
                    kept.notes = self.engine.take_notes();
                    kept.notes.reduce(steps);
                    kept.work = Work::Graph(captured);
                }
                Err(problem) => {
                    self.refusal.get_or_insert(problem);
                    kept.work = Work::OneByOne;
                }
            },
            Work::Graph(_) => {
                kept.notes.fill_tables(steps, &self.engine.transfers)?;
                for step in steps.iter().filter(|step| !step.op.is_view()) {
                    Memory::of(&step.output)?.is_written_by_operator();
                }
            }
            Work::OneByOne => {}
        }
        if let Work::Graph(captured) = &kept.work {
            captured.ask()?;
            self.graphs += 1;
            return Ok(());
        }
        let done = one_by_one(&self.engine, steps);
        self.engine.take_notes();
        done
    }
}

/// Keeps steps, in memory that others can do without where there is no other: while work is kept, no room goes back to
/// the card.
fn captured(engine: &Engine, steps: &[Step]) -> Result<Captured, String> {
    let capture = || engine.capture(|| one_by_one(engine, steps));
    capture().or_else(|_| {
        engine.take_notes();
        engine.drop_free();
        capture()
    })
}

fn one_by_one(engine: &Engine, steps: &[Step]) -> Result<(), String> {
    steps.iter().enumerate().try_for_each(|(number, step)| {
        engine.turn_to(number);
        operator::compute(engine, step)
    })
}
