//! Steps that come again: the decode phase computes the same plan for token after token, which differ in what inputs hold only.
//!
//! ```text
//!  first time     recorded, and launched one by one        (kernels are loaded)
//!  second time    a graph is made of the launches, and run
//!  from then on   the graph is run: steps are compared with those it was made of, and nothing else is looked at
//! ```
//!
//! A tensor is known by its buffer, its place in it and its type. Buffers are not kept alive by what is remembered of them; what names one that
//! is gone is forgotten.

use super::driver::{BlasLibrary, Card, Graph, Launch};
use super::launches::{self, Scratch, Target};
use crate::device::{Rooms, Step, Tensor};
use std::any::Any;
use std::sync::{Arc, Weak};
use trueup_graph::{Op, TensorType};

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

/// Runs steps, and remembers those that may come again.
#[derive(Default, Debug)]
pub struct Replay {
    scratch: Scratch,
    /// The most recently used last.
    kept: Vec<Kept>,
    launched: Launched,
}

/// Steps that were executed.
#[derive(Debug)]
struct Kept {
    steps: Vec<KeptStep>,
    work: Work,
}

/// What steps launch.
#[derive(Debug)]
enum Work {
    Launches(Vec<Launch>),
    Graph(Graph),
}

#[derive(Debug)]
struct KeptStep {
    op: Op,
    inputs: Vec<KeptTensor>,
    output: KeptTensor,
}

#[derive(Debug)]
struct KeptTensor {
    /// Its address is no other buffer's as long as this is here.
    buffer: Weak<dyn Any + Send + Sync>,
    offset_bytes: usize,
    ty: TensorType,
}

impl Replay {
    /// Bytes of each room of the device that are taken.
    pub fn held(&self, blas: &BlasLibrary) -> Rooms {
        self.scratch.held(blas)
    }

    /// Runs the kernels of steps behind all that was asked for before.
    pub fn run(&mut self, target: &Target, steps: &[Step]) -> Result<(), String> {
        if let Some(place) = self.kept.iter().rposition(|kept| kept.is_of(steps)) {
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
        let run = launches.iter().try_for_each(|launch| target.card.run(launch));
        self.count_anew_behind(run)?;
        self.launched.kernels += launches.len() as u64;
        self.launched.early += launches.iter().filter(|launch| launch.begins_early()).count() as u64;
        if launches.len() >= LAUNCHES_MIN {
            if self.kept.len() == KEPT_MAX {
                self.kept.remove(0);
            }
            self.kept.push(Kept { steps: steps.iter().map(KeptStep::of).collect(), work: Work::Launches(launches) });
        }
        Ok(())
    }

    /// Runs what was used last.
    fn run_again(&mut self, card: &Arc<Card>) -> Result<(), String> {
        let Some(Kept { work, .. }) = self.kept.last_mut() else { return Ok(()) };
        if let Work::Launches(launches) = work {
            *work = Work::Graph(Graph::new(card, launches)?);
        }
        if let Work::Graph(graph) = work {
            let run = graph.run();
            self.launched.graphs += 1;
            return self.count_anew_behind(run);
        }
        Ok(())
    }

    /// A list that ran in part may have left counters that are not zero.
    fn count_anew_behind(&self, run: Result<(), String>) -> Result<(), String> {
        // What fails here failed before, and is told.
        run.inspect_err(|_| drop(self.scratch.clear_counters()))
    }

    /// Forgets what names a buffer that is gone.
    pub fn forget_freed(&mut self) {
        self.kept.retain(Kept::is_there);
    }

    /// How often work was asked for.
    pub fn launched(&self) -> Launched {
        self.launched
    }
}

impl Kept {
    fn is_of(&self, steps: &[Step]) -> bool {
        self.steps.len() == steps.len() && self.steps.iter().zip(steps).all(|(kept, step)| kept.is_of(step))
    }

    fn is_there(&self) -> bool {
        let mut tensors = self.steps.iter().flat_map(|step| step.inputs.iter().chain([&step.output]));
        tensors.all(|tensor| tensor.buffer.strong_count() > 0)
    }
}

impl KeptStep {
    fn of(step: &Step) -> KeptStep {
        KeptStep {
            op: step.op.clone(),
            inputs: step.inputs.iter().map(KeptTensor::of).collect(),
            output: KeptTensor::of(&step.output),
        }
    }

    fn is_of(&self, step: &Step) -> bool {
        let inputs = || self.inputs.iter().zip(&step.inputs).all(|(kept, tensor)| kept.is_of(tensor));
        self.output.is_of(&step.output) && self.op == step.op && self.inputs.len() == step.inputs.len() && inputs()
    }
}

impl KeptTensor {
    fn of(tensor: &Tensor) -> KeptTensor {
        KeptTensor { buffer: Arc::downgrade(&tensor.buffer.0), offset_bytes: tensor.offset_bytes, ty: tensor.ty }
    }

    fn is_of(&self, tensor: &Tensor) -> bool {
        let same_buffer = std::ptr::addr_eq(self.buffer.as_ptr(), Arc::as_ptr(&tensor.buffer.0));
        same_buffer && self.offset_bytes == tensor.offset_bytes && self.ty == tensor.ty
    }
}
