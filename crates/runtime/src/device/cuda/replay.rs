//! Repeated steps as CUDA graphs. The decode phase executes the same plan for each token; only the contents of inputs
//! differ.
//!
//! ```text
//! first time     recorded, and launched one by one        (kernels are loaded)
//! second time    captured as a graph and run; without graph support, always launched one by one
//! from then on   the graph runs, after a comparison of the steps with those it was made from
//! ```
//!
//! Entries that refer to a freed buffer are dropped. Remembered steps keep no buffer alive.

use super::driver::{BlasLibrary, Card, Graph, Launch};
use super::launches::{self, Scratch, Target};
use crate::device::kept::KeptSteps;
use crate::device::{Rooms, Step};
use std::sync::Arc;

/// Lists of steps that are remembered: a session keeps plans for 16 shapes of batches.
const KEPT_MAX: usize = 32;

/// Fewer launches gain nothing from a graph: a node that is looked at by itself, a case of the operator suite.
const LAUNCHES_MIN: usize = 8;

/// How often a device was asked for work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Launched {
    /// Kernels that were launched one by one.
    pub kernels: u64,
    /// Of these, those that may begin before the last has ended.
    pub early: u64,
    /// Graphs that were launched, each as one.
    pub graphs: u64,
}

impl Launched {
    /// Launches all, and counts them.
    fn one_by_one(&mut self, card: &Arc<Card>, launches: &[Launch]) -> Result<(), String> {
        launches.iter().try_for_each(|launch| card.run(launch))?;
        self.kernels += launches.len() as u64;
        self.early += launches.iter().filter(|launch| launch.begins_early()).count() as u64;
        Ok(())
    }
}

/// Runs steps, and remembers those that may come again.
#[derive(Default, Debug)]
pub struct Replay {
    scratch: Scratch,
    /// The most recently used last.
    kept: Vec<Kept>,
    launched: Launched,
    /// Why no graph could be made, the first time.
    refused: Option<String>,
}

/// Steps that were executed.
#[derive(Debug)]
struct Kept {
    steps: KeptSteps,
    work: Work,
}

/// What steps launch.
#[derive(Debug)]
enum Work {
    /// Of which a graph is to be made.
    Launches(Vec<Launch>),
    /// Of which no graph could be made.
    OneByOne(Vec<Launch>),
    Graph(Graph),
}

impl Replay {
    /// Bytes of each room of the device that are taken.
    pub fn held(&self, blas: &BlasLibrary) -> Rooms {
        self.scratch.held(blas)
    }

    /// Runs the kernels of steps behind all that was asked for before.
    pub fn run(&mut self, target: &Target, steps: &[Step]) -> Result<(), String> {
        if let Some(place) = self.kept.iter().rposition(|kept| kept.steps.is_of(steps)) {
            self.kept[place..].rotate_left(1);
            return self.run_again(target.card);
        }
        self.forget_freed();
        // Where it fails, rooms may be gone that kept launches point to.
        let recorded = launches::record(target, &mut self.scratch, steps).inspect_err(|_| self.kept.clear());
        let (launches, moved) = recorded?;
        if moved {
            self.kept.clear();
        }
        let run = self.launched.one_by_one(target.card, &launches);
        self.count_anew_behind(run)?;
        if launches.len() >= LAUNCHES_MIN {
            if self.kept.len() == KEPT_MAX {
                self.kept.remove(0);
            }
            self.kept.push(Kept { steps: KeptSteps::of(steps), work: Work::Launches(launches) });
        }
        Ok(())
    }

    /// Runs what was used last.
    fn run_again(&mut self, card: &Arc<Card>) -> Result<(), String> {
        let Some(Kept { work, .. }) = self.kept.last_mut() else { return Ok(()) };
        if let Work::Launches(launches) = work {
            // It takes memory of the card, which may be full; the launches need none.
            *work = Graph::new(card, launches).map(Work::Graph).unwrap_or_else(|why| {
                self.refused.get_or_insert(why);
                Work::OneByOne(std::mem::take(launches))
            });
        }
        let run = match work {
            Work::Graph(graph) => {
                self.launched.graphs += 1;
                graph.run()
            }
            Work::Launches(launches) | Work::OneByOne(launches) => self.launched.one_by_one(card, launches),
        };
        self.count_anew_behind(run)
    }

    /// Why no graph could be made of steps, where that happened: they are launched one by one then.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// A list that ran in part may have left counters that are not zero.
    fn count_anew_behind(&self, run: Result<(), String>) -> Result<(), String> {
        // What fails here failed before, and is told.
        run.inspect_err(|_| drop(self.scratch.clear_counters()))
    }

    /// Forgets what names a buffer that is gone.
    pub fn forget_freed(&mut self) {
        self.kept.retain(|kept| kept.steps.is_there());
    }

    /// How often work was asked for.
    pub fn launched(&self) -> Launched {
        self.launched
    }
}
